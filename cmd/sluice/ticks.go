package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
)

// ticks shows a run as it goes: a line when a step begins, ticked off when it is
// done. On a terminal the line is the same one; in a pipe only whole lines are
// written, one when a step begins and one when it ends, so that whoever reads
// along knows what is under way.
type ticks struct {
	w        io.Writer
	terminal bool
	of       map[nic.Handle]int // steps foreseen
	at       map[nic.Handle]int
}

// foreseen is how many steps of the run there were to be; 0 when that is not known.
// A plan supposes the worst of what a driver gives anew: what is already as wanted
// when it is there needs no step.
func (t *ticks) foreseen() int {
	if t == nil {
		return 0
	}
	n := 0
	for _, of := range t.of {
		n += of
	}
	return n
}

func newTicks(w io.Writer) *ticks {
	f, isFile := w.(*os.File)
	return &ticks{
		w:        w,
		terminal: isFile && term.IsTerminal(int(f.Fd())),
		of:       map[nic.Handle]int{},
		at:       map[nic.Handle]int{},
	}
}

const (
	green, red, dim, plain = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
)

// event is apply.Runner's Progress; a nil *ticks shows nothing.
func (t *ticks) event(e apply.Event) {
	if t == nil {
		return
	}
	switch e.Kind {
	case apply.EventPlanned:
		t.of[e.Scope] = len(e.Plan.Steps)
	case apply.EventStarted:
		t.at[e.Scope]++
		t.begin(e)
	case apply.EventDone:
		t.end(green, "ok", e, "")
	case apply.EventFailed:
		t.end(red, "failed", e, ": "+e.Err.Error())
	case apply.EventBack:
		fmt.Fprintf(t.w, "%s goes back: %v\n", e.Scope, e.Err)
		t.at[e.Scope], t.of[e.Scope] = 0, 0
	}
}

// count is "3/12", or without a known end "3".
func (t *ticks) count(e apply.Event) string {
	if of := t.of[e.Scope]; of >= t.at[e.Scope] {
		return fmt.Sprintf("%d/%d", t.at[e.Scope], of)
	}
	return fmt.Sprint(t.at[e.Scope])
}

func (t *ticks) begin(e apply.Event) {
	if t.terminal {
		fmt.Fprintf(t.w, "%s  ..   %6s  %s%s", dim, t.count(e), e.Step, plain)
		return
	}
	fmt.Fprintf(t.w, "  ..      %6s  %s\n", t.count(e), e.Step)
}

func (t *ticks) end(color, word string, e apply.Event, more string) {
	if t.terminal {
		fmt.Fprintf(t.w, "\r%s  %-6s%s %6s  %s%s\n", color, word, plain, t.count(e), e.Step, more)
		return
	}
	fmt.Fprintf(t.w, "  %-6s  %6s  %s%s\n", word, t.count(e), e.Step, more)
}
