// Package ovsdbtest gives tests an Open vSwitch to work on: either one in the
// test's own process, or the real ovsdb-server and ovs-vswitchd. Each runs one
// test over both, so that what the first one does is what the second one does.
//
// The one in the process is a database with the tables that sluice touches, with
// transactions, waits, references and unique names as RFC 7047 has them, and a
// stand-in for what ovs-vswitchd writes into it: ofport, error and cur_cfg.
package ovsdbtest
