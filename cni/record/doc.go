// Package record keeps who holds which VF: one file per attachment, written
// before the first act on the VF and removed after the last.
//
// A record is stateDir/attachments/ADDRESS.json, ADDRESS being the VF's PCI
// address, or the name of the SF's auxiliary device: the file's name is what makes an owner exclusive. Its first line is
// the Record, written to a temporary file, flushed and renamed, so that it is
// whole or not there. What was about to be done is appended below, one Entry a
// line, unflushed: an undo needs only the first line, since the rest is compared
// with the kernel. Next to it, ADDRESS.lock is what processes
// lock while they work on the VF.
//
// The package needs the standard library and the vocabulary only, so that
// whoever wants to know an owner does not link a CNI plugin.
package record
