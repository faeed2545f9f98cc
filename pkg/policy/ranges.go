package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseRange reads VF indexes such as "0-3,7" of a PF that has or will have
// count VFs, and returns them in ascending order. "" is all of them.
func ParseRange(s string, count int) ([]int, error) {
	if s == "" {
		all := make([]int, count)
		for i := range all {
			all[i] = i
		}
		return all, nil
	}
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := index(first)
		b, errB := index(last)
		if errA != nil || errB != nil || a > b {
			return nil, fmt.Errorf("%q in %q is no VF index or range: want indexes from 0, for example 0-3,7", part, s)
		}
		if count == 0 {
			return nil, fmt.Errorf("%q names VFs of a PF without any: want numVfs over %d first", s, b)
		}
		if b >= count {
			return nil, fmt.Errorf("%q goes beyond the VFs: there are %d, so indexes end at %d", part, count, count-1)
		}
		for i := a; i <= b; i++ {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	if len(slices.Compact(slices.Clone(out))) != len(out) {
		return nil, fmt.Errorf("%q names a VF twice: want each index once", s)
	}
	return out, nil
}

func index(s string) (int, error) {
	if len(s) == 0 || len(s) > 5 || strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(s)
}
