// Package look reads the facts that package why judges: flows over ovs-vswitchd's
// control socket, rules and netdevs over netlink, settings and bridges from the
// database. It runs no program. What it changes is what tc.Conn.Offer does, and that
// only where it is told to ask drivers.
package look
