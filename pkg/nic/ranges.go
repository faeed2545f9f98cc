package nic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxVFIndex bounds VF indexes: TotalVFs of the SR-IOV capability has 16 bits.
const MaxVFIndex = 1<<16 - 1

// Range is VF indexes from First to Last, both included.
type Range struct{ First, Last int }

func (r Range) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Ranges is a set of VF indexes: ascending, and with a gap between each two.
// Empty means all.
type Ranges []Range

// ParseRanges reads indexes such as "0-3,7". "" is all VFs. Parts may come in
// any order but must not overlap.
func ParseRanges(s string) (Ranges, error) {
	if s == "" {
		return nil, nil
	}
	var out Ranges
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, okA := parseIndex(first)
		b, okB := parseIndex(last)
		if !okA || !okB || a > b {
			return nil, fmt.Errorf("%q in %q is no VF index or range: want indexes from 0 to %d, for example 0-3,7", part, s, MaxVFIndex)
		}
		out = append(out, Range{a, b})
	}
	slices.SortFunc(out, func(a, b Range) int { return a.First - b.First })
	joined := out[:1]
	for _, r := range out[1:] {
		last := &joined[len(joined)-1]
		switch {
		case r.First <= last.Last:
			return nil, fmt.Errorf("%q names VF %d twice: want each index once", s, r.First)
		case r.First == last.Last+1:
			last.Last = r.Last
		default:
			joined = append(joined, r)
		}
	}
	return joined, nil
}

func parseIndex(s string) (int, bool) {
	if s == "" || len(s) > 5 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && n <= MaxVFIndex
}

// String is what ParseRanges reads; "" for all.
func (r Ranges) String() string {
	parts := make([]string, len(r))
	for i, p := range r {
		parts[i] = p.String()
	}
	return strings.Join(parts, ",")
}

// Last is the highest index; -1 when the set is empty.
func (r Ranges) Last() int {
	if len(r) == 0 {
		return -1
	}
	return r[len(r)-1].Last
}

// All writes out what an empty set stands for.
func (r Ranges) All() Ranges {
	if len(r) == 0 {
		return Ranges{{0, MaxVFIndex}}
	}
	return r
}

// Has says whether the set has index i.
func (r Ranges) Has(i int) bool {
	if len(r) == 0 {
		return true
	}
	for _, p := range r {
		if p.First <= i && i <= p.Last {
			return true
		}
	}
	return false
}

// Shared returns the first stretch of indexes that is in both.
func (r Ranges) Shared(o Ranges) (Range, bool) {
	for _, a := range r.All() {
		for _, b := range o.All() {
			if first, last := max(a.First, b.First), min(a.Last, b.Last); first <= last {
				return Range{first, last}, true
			}
		}
	}
	return Range{}, false
}

// Within is what of r is below count, written out: of all VFs, those that there
// are.
func (r Ranges) Within(count int) Ranges {
	var out Ranges
	for _, part := range r.All() {
		if part.First < count {
			out = append(out, Range{part.First, min(part.Last, count-1)})
		}
	}
	return out
}

// Without is what of r is not in o, nil if nothing is left. Neither may be empty.
func (r Ranges) Without(o Ranges) Ranges {
	var out Ranges
	for _, part := range r {
		for _, hole := range o {
			if hole.Last < part.First || hole.First > part.Last {
				continue
			}
			if hole.First > part.First {
				out = append(out, Range{part.First, hole.First - 1})
			}
			part.First = hole.Last + 1
			if part.First > part.Last {
				break
			}
		}
		if part.First <= part.Last {
			out = append(out, part)
		}
	}
	return out
}
