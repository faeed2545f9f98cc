// Package network is the vocabulary of logical networks: what one is, and the
// arithmetic by which its ports, addresses and names follow from one number.
//
// A network is cut into blocks of equal size, and a node has one block of it. A
// place in a block is a Slot, and name, MAC address and IP addresses of both
// families are functions of the slot. So a port can be in OVN before there is a pod
// for it, whoever holds a slot holds all that goes with it, and a node gives out what
// is its own without asking anybody.
//
// Standard library only.
package network
