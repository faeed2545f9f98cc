package deviceplugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// Text is a pool as people write it.
type Text struct {
	Prefix string
	Name   string
	PFs    []string // each PF or PF#RANGES, or BOND or BOND#RANGES, see ParseSelectors
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
			picks, err := ParseSelectors(selector, state, wanted)
			if err != nil {
				problems = append(problems, fmt.Errorf("pools[%d].pfs[%d]: %w", i, j, err))
				continue
			}
			for _, s := range picks {
				if pf := wanted.PF(s.PF); pf != nil {
					s.Eswitch = pf.Eswitch
				}
				p.Select = append(p.Select, s)
			}
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

// ParseSelectors reads PF or PF#RANGES, for example 0000:03:00.0#0-3,7, where PF
// is a PCI address, a devlink handle or the name of an uplink netdev. The name of
// a bond, wanted or there, stands for each of its PFs, and the ranges are of each:
// under a bond the ports are one switch, so their VFs are alike.
//
// An address or handle that no PF has is kept, and matches nothing until the PF
// is there (List reports it). A netdev name must be known now, since it is no
// identity that could be kept.
func ParseSelectors(text string, state nic.State, wanted nic.Spec) ([]Selector, error) {
	name, ranges, some := strings.Cut(text, "#")
	if some && ranges == "" {
		return nil, fmt.Errorf("%q names no VF after the #: want PF#RANGES, for example 0000:03:00.0#0-3,7, or the PF alone for all", text)
	}
	vfs, err := nic.ParseRanges(ranges)
	if err != nil {
		return nil, err
	}
	pf, err := policy.FindPF(state, name)
	var none *policy.NoPFError
	switch {
	case err == nil:
		return []Selector{{PF: pf.Handle, VFs: vfs}}, nil
	case !errors.As(err, &none):
		return nil, err
	case !none.Handle.IsZero():
		return []Selector{{PF: none.Handle, VFs: vfs}}, nil
	}
	members, bonds := bondMembers(name, state, wanted)
	if members == nil && len(bonds) > 0 {
		return nil, fmt.Errorf("%w; or the name of a bond: %s", err, strings.Join(bonds, ", "))
	}
	if members == nil {
		return nil, err
	}
	var out []Selector
	for _, h := range members {
		out = append(out, Selector{PF: h, VFs: slices.Clone(vfs)})
	}
	return out, nil
}

// bondMembers returns the PFs of the bond of that name: as it is wanted, else as
// it is; nil if there is none with PFs. bonds is the names that there are.
func bondMembers(name string, state nic.State, wanted nic.Spec) (members []nic.Handle, bonds []string) {
	for _, b := range wanted.Bonds {
		bonds = append(bonds, b.Name)
		if b.Name == name {
			return b.Members, nil
		}
	}
	for _, b := range state.Bonds {
		if len(b.Members) == 0 {
			continue
		}
		if !slices.Contains(bonds, b.Name) {
			bonds = append(bonds, b.Name)
		}
		if b.Name == name {
			return b.Members, nil
		}
	}
	return nil, bonds
}
