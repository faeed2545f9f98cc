package proof

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

// Rules reads the rules and counters of netdevs in the host's network namespace;
// *tc.Conn does.
type Rules interface {
	Ingress(ctx context.Context, ifindex int) ([]tc.Rule, error)
	Link(ctx context.Context, ifindex int) (tc.Link, error)
}

// Switch lists the flows that only the kernel's openvswitch module has; Datapath
// does.
type Switch interface {
	Flows(ctx context.Context) ([]Flow, error)
}

// Reader finds ports and reads them.
type Reader struct {
	Machine host.Machine
	Rules   Rules
	Switch  Switch // nil: not asked
}

// Port reports on one netdev of the host: the representor of a VF, or any other.
// No such netdev is fs.ErrNotExist, and the error names the representors there
// are; a VF's own netdev is refused with the name of its representor.
func (r Reader) Port(ctx context.Context, netdev string) (Report, error) {
	state, err := host.Observe(ctx, r.Machine)
	if err != nil {
		return Report{}, err
	}
	links, err := r.Machine.Links.Links(ctx)
	if err != nil {
		return Report{}, err
	}
	p, err := Find(state, links, netdev)
	if err != nil {
		return Report{}, err
	}
	flows, err := r.flows(ctx)
	if err != nil {
		return Report{}, err
	}
	return r.read(ctx, p, flows)
}

// Netns reports on each VF and SF whose netdev is in the network namespace at path, a
// pod's: on the representor, which stays with the host. No VF there is
// fs.ErrNotExist.
func (r Reader) Netns(ctx context.Context, path string) ([]Report, error) {
	inside, err := r.inside(ctx, path)
	if err != nil {
		return nil, err
	}
	state, err := host.Observe(ctx, r.Machine)
	if err != nil {
		return nil, err
	}
	ports, err := ofPod(state, inside, path)
	if err != nil {
		return nil, err
	}
	return r.each(ctx, ports)
}

// All reports on the representors of all VFs and SFs, none if there are none.
func (r Reader) All(ctx context.Context) ([]Report, error) {
	state, err := host.Observe(ctx, r.Machine)
	if err != nil {
		return nil, err
	}
	return r.each(ctx, Representors(state))
}

// Representors are the ports of all VFs and SFs.
func Representors(state nic.State) (ports []Port) {
	for _, pf := range state.PFs {
		for _, vf := range pf.VFs {
			if vf.Rep.Exists() {
				ports = append(ports, *representor(nic.VFID{PF: pf.Handle, Index: vf.Index}, vf))
			}
		}
		for _, sf := range pf.SFs {
			if sf.Rep.Exists() {
				ports = append(ports, *ofSF(pf, sf))
			}
		}
	}
	return ports
}

func (r Reader) each(ctx context.Context, ports []Port) ([]Report, error) {
	flows, err := r.flows(ctx)
	if err != nil {
		return nil, err
	}
	var out []Report
	for _, p := range ports {
		report, err := r.read(ctx, p, flows)
		if err != nil {
			return nil, err
		}
		out = append(out, report)
	}
	return out, nil
}

func (r Reader) inside(ctx context.Context, path string) ([]host.Link, error) {
	ns, err := r.Machine.Netns.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return ns.Links(ctx)
}

func (r Reader) read(ctx context.Context, p Port, flows map[string][]Flow) (Report, error) {
	rules, err := r.Rules.Ingress(ctx, p.Ifindex)
	if err != nil {
		return Report{}, fmt.Errorf("rules of %s: %w", p.Netdev, err)
	}
	link, err := r.Rules.Link(ctx, p.Ifindex)
	if err != nil {
		return Report{}, fmt.Errorf("counters of %s: %w", p.Netdev, err)
	}
	return New(p, rules, flows[p.Netdev], link), nil
}

// flows are the switch's by port, read once for all of them. Where no switch
// runs there are none.
func (r Reader) flows(ctx context.Context) (map[string][]Flow, error) {
	if r.Switch == nil {
		return nil, nil
	}
	all, err := r.Switch.Flows(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("flows of the datapath: %w", err)
	}
	byPort := map[string][]Flow{}
	for _, f := range all {
		byPort[f.Port] = append(byPort[f.Port], f)
	}
	return byPort, nil
}

// Find finds the port of that name among the host's netdevs. None is fs.ErrNotExist,
// and the error names the representors there are; a VF's own netdev is refused with
// the name of its representor.
func Find(s nic.State, links []host.Link, netdev string) (Port, error) {
	p, err := byName(s, netdev)
	switch {
	case err != nil:
		return Port{}, err
	case p != nil:
		return *p, nil
	}
	return other(s, links, netdev)
}

// byName finds a representor by its netdev's name; nil when it is none.
func byName(s nic.State, netdev string) (*Port, error) {
	for _, pf := range s.PFs {
		for _, vf := range pf.VFs {
			id := nic.VFID{PF: pf.Handle, Index: vf.Index}
			switch {
			case vf.Rep.Exists() && vf.Rep.Netdev.Name == netdev:
				return representor(id, vf), nil
			case vf.Netdev.Exists() && vf.Netdev.Name == netdev:
				if !vf.Rep.Exists() {
					return nil, noRepresentor(id, pf)
				}
				return nil, fmt.Errorf("%s is the netdev of %s itself: its rules are on the representor %s", netdev, id, vf.Rep.Netdev.Name)
			}
		}
		for _, sf := range pf.SFs {
			switch {
			case sf.Rep.Exists() && sf.Rep.Name == netdev:
				return ofSF(pf, sf), nil
			case sf.Netdev.Exists() && sf.Netdev.Name == netdev:
				return nil, fmt.Errorf("%s is the netdev of %s itself: its rules are on the representor %s", netdev, nic.SFID{PF: pf.Handle, Num: sf.Num}, sf.Rep.Name)
			}
		}
	}
	return nil, nil
}

// other finds a netdev that is no representor.
func other(s nic.State, links []host.Link, netdev string) (Port, error) {
	for _, l := range links {
		if l.Name == netdev {
			return Port{Netdev: l.Name, Ifindex: l.Ifindex}, nil
		}
	}
	var reps []string
	for _, p := range Representors(s) {
		reps = append(reps, p.Netdev)
	}
	there := "there is no representor"
	if len(reps) > 0 {
		slices.Sort(reps)
		there = "the representors are " + strings.Join(reps, ", ")
	}
	return Port{}, fmt.Errorf("netdev %q: %w; %s", netdev, fs.ErrNotExist, there)
}

func representor(id nic.VFID, vf nic.VF) *Port {
	return &Port{Netdev: vf.Rep.Netdev.Name, Ifindex: vf.Rep.Netdev.Ifindex, VF: &id, Address: vf.Address}
}

func ofSF(pf nic.PF, sf nic.SF) *Port {
	return &Port{Netdev: sf.Rep.Name, Ifindex: sf.Rep.Ifindex, SF: &nic.SFID{PF: pf.Handle, Num: sf.Num}, Address: sf.Device}
}

func noRepresentor(id nic.VFID, pf nic.PF) error {
	mode := string(pf.Eswitch)
	if mode == "" {
		mode = "without an eswitch"
	}
	return fmt.Errorf("%s has no representor: %s is %s, want switchdev", id, pf.Handle, mode)
}

// sfAt is the port of the SF with that device; nil when there is none.
func sfAt(s nic.State, device string) *Port {
	for _, pf := range s.PFs {
		for _, sf := range pf.SFs {
			if sf.Device == device && sf.Rep.Exists() {
				return ofSF(pf, sf)
			}
		}
	}
	return nil
}

// ofPod finds the ports of the VFs and SFs among the links of a namespace.
func ofPod(s nic.State, inside []host.Link, path string) ([]Port, error) {
	var out []Port
	for _, l := range inside {
		if l.Parent == "" {
			continue
		}
		if p := sfAt(s, l.Parent); p != nil {
			p.PodDev = l.Name
			out = append(out, *p)
			continue
		}
		id, vf := s.VFAt(l.Parent)
		if vf == nil {
			continue
		}
		if !vf.Rep.Exists() {
			return nil, noRepresentor(id, *s.PF(id.PF))
		}
		p := representor(id, *vf)
		p.PodDev = l.Name
		out = append(out, *p)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("a VF in network namespace %s: %w", path, fs.ErrNotExist)
	}
	return out, nil
}
