// Package ovsdb speaks the OVSDB protocol (RFC 7047) with ovsdb-server, as far
// as sluice needs it: transactions on the Open_vSwitch database.
//
// There is no monitor and no replica of the database. A CNI call is a short
// process: with 130 ports in the database a monitor of three tables took 30 to
// 40 ms until the first answer and reading the schema 6 ms more, a select of the
// rows in question 1 ms. Waiting for ovs-vswitchd is the server's work too:
// OVSDB's wait operation answers when its condition comes true.
package ovsdb
