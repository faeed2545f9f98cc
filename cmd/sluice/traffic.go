package main

import (
	"cmp"
	"encoding/json"
	"slices"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload/why"
	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// mostTraffic is how many interfaces a NodeNIC has, by its schema.
const mostTraffic = 256

// moved is by how many hundredths the NIC's share is another before that is told by
// itself: an API server is no place for each wave of it, metrics are.
const moved = 20

// traffic is where the heavy flows of pods' interfaces ran when there were some last, as
// a NodeNIC says it.
type traffic struct {
	by   map[string]v1alpha1.PodOffload // by pod and interface
	told []v1alpha1.PodOffload
}

// see takes up a look. It answers what is to be said, and whether that is news.
func (t *traffic) see(reports []why.Report, standings []why.Standing, records []*record.Record) ([]v1alpha1.PodOffload, bool) {
	of := map[string]*record.Record{}
	for _, r := range records {
		of[r.Representor] = r
	}
	next := map[string]v1alpha1.PodOffload{}
	for _, r := range reports {
		key := keyOf(r.Port)
		if was, ok := t.by[key]; ok && was.UID == uidOf(of[r.Port.Netdev]) {
			next[key] = was
		}
	}
	news := len(next) != len(t.told)
	for _, s := range standings {
		if s.Port.Interface == "" || s.Port.Pod == "" {
			continue // nobody's by our records
		}
		key := keyOf(s.Port)
		was, known := next[key]
		is := standingOf(s, of[s.Port.Netdev])
		if known && is.Runs == was.Runs && is.Reason == was.Reason && is.Change == was.Change && max(is.Percent-was.Percent, was.Percent-is.Percent) < moved {
			continue
		}
		next[key], news = is, true
	}
	t.by = next
	if !news {
		return t.told, false
	}
	t.told = nil
	for _, p := range next {
		t.told = append(t.told, p)
	}
	slices.SortFunc(t.told, func(a, b v1alpha1.PodOffload) int {
		return cmp.Or(rankOf(a.Runs)-rankOf(b.Runs), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Interface, b.Interface))
	})
	t.told = t.told[:min(len(t.told), mostTraffic)]
	return t.told, true
}

func keyOf(p why.Port) string { return p.Pod + " " + p.Interface }

func uidOf(r *record.Record) string {
	if r == nil {
		return ""
	}
	return r.Pod.UID
}

// rankOf sorts what is to be looked at first.
func rankOf(runs string) int {
	return slices.Index([]string{v1alpha1.RunsSoftware, v1alpha1.RunsPartly, v1alpha1.RunsHardware}, runs)
}

func standingOf(s why.Standing, r *record.Record) v1alpha1.PodOffload {
	out := v1alpha1.PodOffload{Pod: s.Port.Pod, UID: uidOf(r), Interface: s.Port.Interface, Runs: v1alpha1.RunsHardware, Percent: 100}
	if r != nil {
		var c struct {
			Network string `json:"network"`
		}
		if json.Unmarshal(r.Config, &c) == nil {
			out.Network = c.Network
		}
	}
	if s.Worst == nil {
		return out
	}
	out.Runs, out.Percent = v1alpha1.RunsSoftware, 0
	if s.Hardware > 0 {
		// Down to tens, so that 100 is all of it.
		out.Runs, out.Percent = v1alpha1.RunsPartly, int32(10*s.Hardware/(s.Hardware+s.Host)*10)
	}
	out.Reason, out.Change = "the reason is not known: sluice why tells more", ""
	if len(s.Worst.Reasons) > 0 {
		first := s.Worst.Reasons[0]
		out.Reason, out.Change = string(first.Class)+": "+first.What, first.Change
	}
	return out
}
