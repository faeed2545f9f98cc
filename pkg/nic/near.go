package nic

import "strings"

// Near is how near two PCI functions are: what their traffic has to pass.
type Near string

// From near to far.
const (
	SameSwitch     Near = "same switch"      // a PCIe switch below one root port
	SameRootPort   Near = "same root port"   // no switch below it that both share
	SameHostBridge Near = "same host bridge" // through the processor's root complex
	SameNUMA       Near = "same NUMA node"
	Far            Near = "other NUMA node"
)

// Distance says how near two functions are by where they hang (PF.Path) and by
// their NUMA nodes, -1 for one that is not said.
func Distance(a, b string, numaA, numaB int) Near {
	switch shared(a, b) {
	case 0:
	case 1:
		if numaA == numaB || numaA < 0 || numaB < 0 {
			return SameHostBridge
		}
	case 2:
		return SameRootPort
	default:
		return SameSwitch
	}
	if numaA == numaB && numaA >= 0 {
		return SameNUMA
	}
	return Far
}

// shared counts the bridges that both hang below, the host bridge among them.
func shared(a, b string) int {
	if a == "" || b == "" {
		return 0
	}
	n := 0
	left, right := strings.Split(a, "/"), strings.Split(b, "/")
	for n < len(left) && n < len(right) && left[n] == right[n] {
		n++
	}
	return n
}
