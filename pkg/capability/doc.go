// Package capability says what a node can put into its NICs and what it cannot:
// a pure function from what was read of the node (Facts) to a Report, a list of
// capabilities, each yes, no or unknown with what was read where and what to
// change. Package capability/probe reads the facts.
//
// Each capability is a list of findings that must all be yes. None of them is a
// guess: what could not be read is unknown and says so.
package capability
