package policy

import (
	"fmt"

	"sluice.dev/sluice/pkg/nic"
)

// indexes lists the VFs that text names of a PF that has or will have count VFs,
// in ascending order; "" is all of them.
func indexes(text string, count int) ([]int, error) {
	ranges, err := nic.ParseRanges(text)
	if err != nil {
		return nil, err
	}
	switch last := ranges.Last(); {
	case last < count:
	case count == 0:
		return nil, fmt.Errorf("%q names VFs of a PF without any: want numVfs over %d first", text, last)
	default:
		return nil, fmt.Errorf("%q goes beyond the VFs: there are %d, so indexes end at %d", text, count, count-1)
	}
	if text == "" && count > 0 {
		ranges = nic.Ranges{{First: 0, Last: count - 1}}
	}
	var out []int
	for _, r := range ranges {
		for i := r.First; i <= r.Last; i++ {
			out = append(out, i)
		}
	}
	return out, nil
}
