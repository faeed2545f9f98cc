// Package ovn keeps the rows of OVN's northbound database that belong to sluice: what
// logical networks, and the blocks that nodes have of them, come to.
//
// Rows says what is wanted, purely; Plan compares it with what was read, purely; Apply
// writes the difference, a transaction for each network or router, which asks first
// whether the rows are still those that were read. A row is ours by the mark in
// external_ids; others are never touched, also where they hang on ours.
//
// What is written keeps flows such as a NIC can take: no conntrack unless it is asked
// for, no select groups, no logging, no gateway_mtu. Warnings says where a wish does
// not.
package ovn
