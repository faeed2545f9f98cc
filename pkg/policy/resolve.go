package policy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// Resolve turns the document into a Spec for the observed node. It answers all
// problems of the document at once, each with its path, the wrong value and the
// right form.
func Resolve(doc *v1alpha1.NodeNIC, state nic.State) (nic.Spec, error) {
	var spec nic.Spec
	var problems []error
	seen := map[nic.Handle]int{}
	for i, want := range doc.Spec.PFs {
		path := fmt.Sprintf("spec.pfs[%d]", i)
		pf, err := FindPF(state, want.PF)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s.pf: %w", path, err))
			continue
		}
		if first, twice := seen[pf.Handle]; twice {
			problems = append(problems, fmt.Errorf("%s.pf: %q is %s, which spec.pfs[%d] names already: want one entry for each PF", path, want.PF, pf.Handle, first))
			continue
		}
		seen[pf.Handle] = i
		resolved, errs := resolvePF(path, want, *pf)
		problems = append(problems, errs...)
		spec.PFs = append(spec.PFs, resolved)
	}
	if len(problems) > 0 {
		return nic.Spec{}, errors.Join(problems...)
	}
	return spec, nil
}

// FindPF returns the PF that name means: PCI address, devlink handle or exact
// name of the uplink netdev. A name that nothing has matches nothing.
func FindPF(state nic.State, name string) (*nic.PF, error) {
	if h, err := nic.ParseHandle(name); err == nil {
		if pf := state.PF(h); pf != nil {
			return pf, nil
		}
		if id, _ := state.VFAt(h.Name); !id.PF.IsZero() {
			return nil, fmt.Errorf("%q is a VF (%s): want its PF, %s", name, id, id.PF)
		}
	} else if name != "" {
		for i := range state.PFs {
			if state.PFs[i].Uplink.Name == name {
				return &state.PFs[i], nil
			}
		}
	}
	return nil, fmt.Errorf("there is no PF %q: want a PCI address, a devlink handle or the name of an uplink netdev; this node has %s", name, listPFs(state))
}

func listPFs(state nic.State) string {
	if len(state.PFs) == 0 {
		return "no PF at all"
	}
	var names []string
	for _, pf := range state.PFs {
		n := pf.Handle.String()
		if pf.Uplink.Name != "" {
			n += " (" + pf.Uplink.Name + ")"
		}
		names = append(names, n)
	}
	return strings.Join(names, ", ")
}

func resolvePF(path string, want v1alpha1.PF, pf nic.PF) (nic.PFSpec, []error) {
	var problems []error
	fail := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s.%s: %s", path, field, fmt.Sprintf(format, args...)))
	}
	spec := nic.PFSpec{Handle: pf.Handle, Eswitch: nic.Eswitch(want.Eswitch), VFCount: want.NumVFs}
	switch spec.Eswitch {
	case "", nic.Legacy, nic.Switchdev:
	default:
		fail("eswitch", "%q is no eswitch mode: want legacy or switchdev", want.Eswitch)
	}
	count := len(pf.VFs)
	if want.NumVFs != nil {
		count = *want.NumVFs
	}
	if count < 0 || count > pf.TotalVFs {
		fail("numVfs", "%d is more or less than %s can have: want 0 to %d", count, pf.Handle, pf.TotalVFs)
		return spec, problems
	}
	mode := spec.Eswitch
	if mode == "" {
		mode = pf.Eswitch
	}
	taken := map[int]int{}
	for g, group := range want.VFGroups {
		at := fmt.Sprintf("vfGroups[%d]", g)
		vfs, err := indexes(group.Range, count)
		if err != nil {
			fail(at+".range", "%v", err)
			continue
		}
		vf, errs := resolveGroup(group, mode)
		for _, e := range errs {
			fail(at, "%v", e)
		}
		for _, i := range vfs {
			if other, twice := taken[i]; twice {
				fail(at+".range", "VF %d is in vfGroups[%d] already: want ranges that do not overlap", i, other)
				break
			}
			taken[i] = g
			for len(spec.VFs) <= i {
				spec.VFs = append(spec.VFs, nic.VFSpec{})
			}
			spec.VFs[i] = vf
			if group.MAC == macStable {
				mac := StableMAC(pf, i)
				spec.VFs[i].MAC = &mac
			}
		}
	}
	return spec, problems
}

const (
	macStable = "stable"
	macDriver = "driver"
)

func resolveGroup(g v1alpha1.VFGroup, mode nic.Eswitch) (nic.VFSpec, []error) {
	var problems []error
	spec := nic.VFSpec{Driver: nic.Driver(g.Driver), MTU: g.MTU}
	switch spec.Driver {
	case "", nic.DriverKernel, nic.DriverVFIO:
	default:
		problems = append(problems, fmt.Errorf("driver %q: want kernel or vfio-pci", g.Driver))
	}
	switch g.MAC {
	case "", macStable, macDriver:
	default:
		problems = append(problems, fmt.Errorf("mac %q: want stable or driver", g.MAC))
	}
	if g.MTU < 0 {
		problems = append(problems, fmt.Errorf("mtu %d: want bytes, 68 or more", g.MTU))
	}
	if spec.Driver == nic.DriverVFIO && g.MTU != 0 {
		// The netdev is gone with the kernel's driver; only the switch's side has one.
		spec.MTU = 0
	}
	if mode == nic.Switchdev {
		spec.RepMTU = g.MTU
	}
	return spec, problems
}

// StableMAC derives VF i's address from what does not change with slot, boot or
// mode: the card's serial number (its uplink's address where it has none), the
// PCI function and the index. It is a locally administered unicast address.
func StableMAC(pf nic.PF, i int) nic.MAC {
	card := pf.Serial
	if card == "" {
		card = pf.Uplink.MAC.String()
	}
	function := pf.Handle.Name[strings.LastIndexByte(pf.Handle.Name, '.')+1:]
	sum := sha256.Sum256(fmt.Appendf(nil, "sluice vf mac/%s/%s/%d", card, function, i))
	mac := nic.MAC(sum[:6])
	mac[0] = mac[0]&^1 | 2
	return mac
}
