package deviceplugin

import (
	"errors"
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// Text is a pool as people write it.
type Text struct {
	Prefix string
	Name   string
	PFs    []string // each PF or PF#RANGES, see ParseSelector
	Driver string
	RDMA   bool
}

// Resolve turns pools into those of the observed node. A PF that wanted gives an
// eswitch mode must be in it before its VFs are healthy. All problems come at
// once, each with its place.
func Resolve(texts []Text, state nic.State, wanted nic.Spec) ([]Pool, error) {
	var problems []error
	var pools []Pool
	for i, text := range texts {
		p := Pool{Prefix: text.Prefix, Name: text.Name, Driver: nic.Driver(text.Driver), RDMA: text.RDMA}
		for j, selector := range text.PFs {
			s, err := ParseSelector(selector, state)
			if err != nil {
				problems = append(problems, fmt.Errorf("pools[%d].pfs[%d]: %w", i, j, err))
				continue
			}
			if pf := wanted.PF(s.PF); pf != nil {
				s.Eswitch = pf.Eswitch
			}
			p.Select = append(p.Select, s)
		}
		pools = append(pools, p)
	}
	// What is wrong with a pool as a whole is said of whole pools only: one that
	// lacks a selector here was complained of already.
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if err := Validate(pools); err != nil {
		return nil, fmt.Errorf("pools: %w", err)
	}
	return pools, nil
}

// ParseSelector reads PF or PF#RANGES, for example 0000:03:00.0#0-3,7, where PF
// is a PCI address, a devlink handle or the name of an uplink netdev.
//
// An address or handle that no PF has is kept, and matches nothing until the PF
// is there (List reports it). A netdev name must be known now, since it is no
// identity that could be kept.
func ParseSelector(text string, state nic.State) (Selector, error) {
	name, ranges, some := strings.Cut(text, "#")
	if some && ranges == "" {
		return Selector{}, fmt.Errorf("%q names no VF after the #: want PF#RANGES, for example 0000:03:00.0#0-3,7, or the PF alone for all", text)
	}
	vfs, err := nic.ParseRanges(ranges)
	if err != nil {
		return Selector{}, err
	}
	pf, err := policy.FindPF(state, name)
	if err == nil {
		return Selector{PF: pf.Handle, VFs: vfs}, nil
	}
	h, noHandle := nic.ParseHandle(name)
	if noHandle != nil {
		return Selector{}, err
	}
	if _, vf := state.VFAt(h.Name); vf != nil {
		return Selector{}, err
	}
	return Selector{PF: h, VFs: vfs}, nil
}
