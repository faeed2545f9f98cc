// Package proof says what the hardware really does for a port: each rule on its
// ingress, whether the NIC has it, and the packets that matched it, apart by who
// handled them. All of it is read from the kernel, nothing concluded from
// configuration.
package proof
