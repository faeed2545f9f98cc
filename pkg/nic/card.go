package nic

import (
	"fmt"
	"strings"
)

// Card is the PFs of one piece of hardware.
type Card struct {
	Serial  string `json:"serial,omitempty"`
	Product string `json:"product,omitempty"`
	PFs     []PF   `json:"pfs"`

	// Rules is its room for offloaded rules; zero when no port is in switchdev mode.
	Rules RuleRoom `json:"ruleCapacity,omitzero"`
}

// RuleRoom is how many different rules a card's ports can hold together, by what
// they hold each by itself: drivers tell no number of rules.
type RuleRoom struct {
	Percent int    `json:"percent"`       // 100, and less under VF-LAG
	Why     string `json:"why,omitempty"` // of less than 100
}

// ruleRoom: under VF-LAG mlx5 puts each rule of a VF into the tables of all ports
// (en_tc.c, is_peer_flow_needed), as the VF's packets may leave by any. Of two ports
// that leaves half.
func ruleRoom(ports []PF) RuleRoom {
	switchdev, lag := 0, 0
	for _, p := range ports {
		if p.Eswitch != Switchdev {
			continue
		}
		switchdev++
		if p.LAG == LAGActive {
			lag++
		}
	}
	switch {
	case switchdev == 0:
		return RuleRoom{}
	case lag < 2:
		return RuleRoom{Percent: 100}
	}
	return RuleRoom{
		Percent: 100 / lag,
		Why:     fmt.Sprintf("under VF-LAG each rule of a VF stands in the tables of all %d ports", lag),
	}
}

// Cards groups the PFs by serial number, or where a PF tells none by PCI slot,
// in order of their first PF.
func (s State) Cards() []Card {
	var out []Card
	at := map[string]int{}
	for _, p := range s.PFs {
		key := p.Serial
		if key == "" {
			key, _, _ = strings.Cut(p.Handle.String(), ".")
		}
		i, known := at[key]
		if !known {
			i = len(out)
			at[key] = i
			out = append(out, Card{Serial: p.Serial, Product: p.Product})
		}
		out[i].PFs = append(out[i].PFs, p)
	}
	for i := range out {
		out[i].Rules = ruleRoom(out[i].PFs)
	}
	return out
}
