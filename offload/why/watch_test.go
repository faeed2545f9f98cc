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

// Of each port it is said where what was heavy ran, and what kept the heaviest of the rest
// out of hardware. Light flows, and those whose packets another one counts, are no part.
func TestStandings(t *testing.T) {
	look := func(flows ...Verdict) []Report { return []Report{{Port: Port{Netdev: "rep0"}, Flows: flows}} }
	in := func(id string, packets uint64) Verdict {
		return Verdict{UFID: id, Where: Hardware, Hardware: tc.Counter{Packets: packets}}
	}
	out := func(id string, packets uint64) Verdict {
		return Verdict{UFID: id, Where: Datapath, Software: tc.Counter{Packets: packets}, Reasons: []Reason{{Class: Hash}}}
	}
	goes := func(v Verdict) Verdict { v.Goes = true; return v }
	var w Watch
	for i, c := range []struct {
		flows []Verdict
		want  string // hardware, host and the worst flow
	}{
		{[]Verdict{in("a", 9000), out("b", 9000)}, ""}, // the first look has no before
		{[]Verdict{in("a", 9500), out("b", 9500)}, ""}, // light
		{[]Verdict{in("a", 12000), out("b", 9600)}, "2500 0 -"},
		{[]Verdict{in("a", 14000), out("b", 12600), out("c", 1200)}, "2000 4200 b"},
		{[]Verdict{in("a", 14000), goes(in("d", 5000)), out("b", 12600), out("c", 2300)}, "0 1100 c"},
		{[]Verdict{in("a", 15000), goes(out("d", 7000))}, "1000 0 d"},
		{[]Verdict{in("a", 1500)}, "1500 0 -"}, // made anew
		{nil, ""},
	} {
		w.Look(look(c.flows...))
		got := ""
		for _, s := range w.Standings() {
			got = fmt.Sprint(s.Hardware, " ", s.Host, " -")
			if s.Worst != nil {
				got = fmt.Sprint(s.Hardware, " ", s.Host, " ", s.Worst.UFID)
			}
		}
		if got != c.want {
			t.Errorf("look %d: %q, want %q", i, got, c.want)
		}
	}
}
