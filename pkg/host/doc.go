// Package host is the seam between sluice and a machine. It says in a few small
// interfaces what sluice needs of the kernel, in the verbs of the domain, and
// composes them into one observation (Observe).
//
// Two implementations exist: host/linux, the real kernel, and host/sim, one
// coherent simulated machine. Both keep the same contract, which host/hosttest
// runs against each of them:
//
//   - A nil error from a setter means that the next read shows it. All waiting
//     (VF netdevs that appear late, representors, udev) is inside, bounded, and
//     its bound grows with the number of VFs.
//   - Setting what already is touches nothing.
//   - What is not there is fs.ErrNotExist, what cannot be done ErrNotSupported,
//     what is in use ErrBusy, what is used up ErrExhausted; the *Error around it
//     carries operation, object, errno and the kernel's extended ack text.
//   - A cancelled context leaves the object in one of its two states; with one that
//     has ended already nothing is done, and its error is the answer.
//   - Lists are consistent, or are read again until they are. One attribute that
//     cannot be read is one attribute absent, never a failed list.
//   - Things are named by PCI address, devlink handle and port index, or ifindex
//     within one namespace; never by a netdev name.
package host
