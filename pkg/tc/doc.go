// Package tc reads what the kernel's traffic control holds on the ingress of a
// netdev: each classifier rule, whether a driver has taken it into hardware, and
// its packets apart by hardware and software. It writes nothing but what Offer does, which
// asks drivers why they have not taken a rule.
//
// Attributes are those of include/uapi/linux/pkt_cls.h and tc_act/; keys and
// actions that this package does not know are shown by their number, so a rule is
// never left out because the kernel is newer.
package tc
