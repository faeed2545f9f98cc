// Package nic is the vocabulary of sluice: what a node's NICs are (State), what
// they should be (Spec), and how one becomes the other's wish (Freeze).
//
// Names follow the kernel's: PF and VF (PCI SR-IOV), representor, uplink,
// eswitch, switchdev (Documentation/networking/switchdev.rst,
// Documentation/networking/devlink/devlink-port.rst). The package imports the
// standard library only, does no I/O, and all values are plain data that may be
// copied, compared and encoded.
package nic
