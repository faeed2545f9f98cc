// Package plan says how a node's NICs become what is wanted. Everything in it is
// pure: Next answers the one step to do now, Unfold lists all of them over
// predicted states, Check refuses what must not be begun, Complete writes out
// what a change must leave as it was.
//
// There is no stored plan and no undo. Executing is asking Next of an observed
// state again and again, resuming after a crash is asking once more, and going
// back is converging on nic.Freeze of the state before.
package plan
