package policy

import (
	"fmt"
	"maps"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// sfGroup is an entry of sfs, read.
type sfGroup struct {
	path string
	nums nic.Ranges // never empty, unless it was wrong
	function
}

// maxSFs bounds the SFs of an entry, more than ConnectX ports have: SF numbers go
// further, and each SF is planned by itself.
const maxSFs = 1024

func (f *form) sfGroups(path string, groups []v1alpha1.SFGroup) []sfGroup {
	var out []sfGroup
	count := 0
	for i, g := range groups {
		o := f.object(fmt.Sprintf("%s.sfs[%d]", path, i))
		nums, err := nic.ParseRanges(g.Range)
		if err != nil || len(nums) == 0 {
			o.fail(o.at("range"), "%q: want the numbers of SFs from 0 to %d, each once, for example 1-8", g.Range, nic.MaxVFIndex)
			nums = nil
		}
		for j, other := range out {
			if len(nums) == 0 || len(other.nums) == 0 {
				continue
			}
			if both, yes := nums.Shared(other.nums); yes {
				o.fail(o.at("range"), "SF %s is in sfs[%d] already: want ranges that do not overlap", both, j)
				break
			}
		}
		for _, r := range nums {
			count += r.Last - r.First + 1
		}
		out = append(out, sfGroup{path: o.path, nums: nums, function: o.function(g.FunctionSettings)})
	}
	if count > maxSFs {
		f.fail(path+".sfs", "%d SFs: want %d at most for each PF", count, maxSFs)
	}
	return out
}

// specsOf is what g wants of pf.
func (r *resolver) specsOf(g sfGroup, pf *nic.PF) []nic.SFSpec {
	r.known(g.path+".mac", g.stableMAC, pf)
	var out []nic.SFSpec
	for _, part := range g.nums {
		for num := part.First; num <= part.Last; num++ {
			s := nic.SFSpec{Num: num, MTU: g.mtu, RepMTU: g.mtu, Settings: maps.Clone(g.settings)}
			if g.stableMAC {
				mac := StableSFMAC(*pf, num)
				s.MAC = &mac
			}
			out = append(out, s)
		}
	}
	return out
}
