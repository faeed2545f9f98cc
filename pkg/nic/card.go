package nic

import "strings"

// Card is the PFs of one piece of hardware.
type Card struct {
	Serial  string `json:"serial,omitempty"`
	Product string `json:"product,omitempty"`
	PFs     []PF   `json:"pfs"`
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
	return out
}
