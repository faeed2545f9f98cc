package cni

import (
	"encoding/json"
	"slices"
)

const trunkForm = `a list of VLANs, 1 to 4094, for example [{"id": 10}, {"minID": 20, "maxID": 29}]`

// readTrunk reads the VLANs of a trunk, which may overlap, into their order.
func readTrunk(c *Config, raw json.RawMessage) error {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	var out []uint16
	for _, member := range list {
		first, last := 0, 0
		for name, raw := range member {
			n, err := number(raw, 1, 4094)
			switch {
			case err != nil:
				return err
			case name == "id" && len(member) == 1:
				first, last = n, n
			case name == "minID" && len(member) == 2:
				first = n
			case name == "maxID" && len(member) == 2:
				last = n
			default:
				return errForm
			}
		}
		if first == 0 || last < first {
			return errForm
		}
		for v := first; v <= last; v++ {
			out = append(out, uint16(v))
		}
	}
	if len(out) == 0 {
		return errForm
	}
	slices.Sort(out)
	c.Trunk = slices.Compact(out)
	return nil
}
