// Package why says for each flow of a port where it runs - in the NIC's hardware, in
// tc's software, in Open vSwitch's kernel datapath, or in user space - and, of one that
// is not in hardware, why, in words, with the thing to change.
//
// It is a pure function from facts to a report; offload/why/look reads the facts. A
// reason rests on something that was read: Open vSwitch's own words for the flow, the
// kernel's rule, settings, ports, and the driver's answer to the rule being offered to
// it again (tc.Conn.Offer). Where nothing that was read explains a flow, the report
// says that it does not know.
//
// What Open vSwitch cannot write as a tc rule is after lib/netdev-offload-tc.c
// (from 3.7 on lib/dpif-offload-tc-netdev.c), what tc cannot offer to drivers after
// net/sched/cls_api.c (tc_setup_offload_action), what drivers refuse after mlx5's
// en_tc.c and en/tc/act/.
package why
