package why

import (
	"cmp"
	"slices"
)

// Heavy is how many packets a flow has the host carry from one look to the next before
// it is told of.
const Heavy = 1000

// mostFalls is how many are told of at once, the heaviest: a restart of Open vSwitch
// takes all flows out of hardware, and each of a few ports says enough.
const mostFalls = 8

// Fall is a flow that the host carries and that is worth a word.
type Fall struct {
	Port    Port    `json:"port"`
	Flow    Verdict `json:"flow"`
	Packets uint64  `json:"packets"`         // by the host, since the look before
	Was     bool    `json:"was,omitempty"`   // it was in hardware before
	Other   int     `json:"other,omitempty"` // of the last one told of: how many more there are
}

// Watch compares one look with the next. The zero value has seen nothing. It is for one
// goroutine, and holds a few words for each flow of the last look.
type Watch struct {
	last      map[string]mark // by port and flow
	standings []Standing
}

// Standing is where the flows of a port run that were heavy between the last two looks.
type Standing struct {
	Port     Port
	Hardware uint64   // packets that the NIC carried of them
	Host     uint64   // and the host, of those that are not in hardware
	Worst    *Verdict // the heaviest of those; nil: all are in hardware
}

// Standings are those of the last look, of ports that had heavy flows.
func (w *Watch) Standings() []Standing { return w.standings }

type mark struct {
	software uint64
	nic      uint64
	hardware bool // it was in hardware at some look, since it is known
	told     bool
}

// Look notes a look, and answers the flows that have fallen out of hardware, or run in
// software all the time, and are heavy: each once, until it is in hardware again or gone.
// Of the first look nothing is told.
func (w *Watch) Look(reports []Report) (falls []Fall) {
	next := map[string]mark{}
	w.standings = nil
	for _, r := range reports {
		standing, worst := Standing{Port: r.Port}, uint64(0)
		for _, v := range r.Flows {
			if v.UFID == "" {
				continue
			}
			key := r.Port.Netdev + " " + v.UFID
			before, known := w.last[key]
			now := mark{software: v.Software.Packets, nic: v.Hardware.Packets, hardware: before.hardware || v.Offloaded(), told: before.told && !v.Offloaded()}
			packets, carried := since(before.software, now.software), since(before.nic, now.nic)
			switch {
			case w.last == nil: // of all time
			case v.Offloaded() && carried >= Heavy && !v.Goes: // another flow counts what goes on
				standing.Hardware += carried
			case !v.Offloaded() && packets >= Heavy:
				if !v.Goes {
					standing.Host += packets
				}
				if packets > worst {
					standing.Worst, worst = &v, packets
				}
			}
			if w.last != nil && !v.Offloaded() && !now.told && packets >= Heavy {
				now.told = true
				falls = append(falls, Fall{Port: r.Port, Flow: v, Packets: packets, Was: known && before.hardware})
			}
			next[key] = now
		}
		if standing.Hardware > 0 || standing.Worst != nil {
			w.standings = append(w.standings, standing)
		}
	}
	w.last = next
	slices.SortStableFunc(falls, func(a, b Fall) int { return cmp.Compare(b.Packets, a.Packets) })
	if more := len(falls) - mostFalls; more > 0 {
		falls = falls[:mostFalls]
		falls[mostFalls-1].Other = more
	}
	return falls
}

// since is how much a counter has gone up; one that has gone down was made anew.
func since(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
