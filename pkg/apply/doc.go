// Package apply carries plans out. Converge is the loop: observe, ask for the
// next step, write down the intent, do it, observe again. Run is one whole
// change of a node around that loop, with a journal, a probe and the way back.
//
// Nothing is remembered between two steps: each is asked of what was observed a
// moment ago, so that a run that was killed is resumed by running it again.
package apply
