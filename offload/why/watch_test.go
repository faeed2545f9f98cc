package why

import (
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/tc"
)

func seen(where Where, software uint64) []Report {
	return []Report{{Port: Port{Netdev: "rep0"}, Flows: []Verdict{{UFID: "a", Where: where, Software: tc.Counter{Packets: software}}}}}
}

func TestWatch(t *testing.T) {
	var w Watch
	for i, c := range []struct {
		where    Where
		software uint64
		told     string // packets, and whether it was in hardware; "" nothing
	}{
		{Software, 5000, ""}, // the first look has no before
		{Software, 5500, ""}, // not heavy
		{Software, 7000, "1500 false"},
		{Software, 99000, ""}, // told already
		{Hardware, 99000, ""},
		{Hardware, 99010, ""}, // in hardware: its first packets
		{Datapath, 2000, "2000 true"},
		{Userspace, 9000, ""}, // told already
		{Hardware, 0, ""},
		{Software, 400, ""},
		{Software, 1400, "1000 true"},
	} {
		got := ""
		for _, f := range w.Look(seen(c.where, c.software)) {
			got = fmt.Sprint(f.Packets, " ", f.Was)
		}
		if got != c.told {
			t.Errorf("look %d: told %q, want %q", i, got, c.told)
		}
	}
	w.Look(nil) // gone
	if falls := w.Look(seen(Software, 3000)); len(falls) != 1 || falls[0].Was {
		t.Errorf("a flow that came back is another: %+v", falls)
	}
}

func TestWatchIsBounded(t *testing.T) {
	var w Watch
	w.Look(nil)
	var r Report
	for i := range 100 {
		r.Flows = append(r.Flows, Verdict{UFID: fmt.Sprint(i), Where: Datapath, Software: tc.Counter{Packets: uint64(1000 + i)}})
	}
	falls := w.Look([]Report{r})
	if len(falls) != mostFalls || falls[0].Packets != 1099 || falls[mostFalls-1].Other != 100-mostFalls {
		t.Errorf("%+v", falls)
	}
	if again := w.Look([]Report{r}); again != nil {
		t.Errorf("told again: %+v", again)
	}
}
