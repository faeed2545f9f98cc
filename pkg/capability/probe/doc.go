// Package probe reads the facts of the running node for package capability: the
// kernel's files below a root, so that tests run on trees, and Open vSwitch
// through its database and its control socket. It runs no program and changes
// nothing. What cannot be read is left out of the facts, which say so.
package probe
