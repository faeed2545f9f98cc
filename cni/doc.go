// Package cni attaches one VF to a pod and takes it away again, by the rules of
// the Container Network Interface, version 1.1: the VF's netdev goes into the
// pod's network namespace, its representor into an Open vSwitch bridge.
//
// An attachment is a wish like any other here: Next compares it with what the
// kernel, Open vSwitch and the IPAM plugin answer and says the one step to do,
// apply.Converge does it. ADD converges on "attached"; DEL, and an ADD that
// failed, converge on "detached", which is how everything was before by the
// record (cni/record) that was written before the first act. So DEL finishes
// from wherever anything stopped, and there are no undo functions.
//
// Types of the CNI specification appear in this package only.
package cni
