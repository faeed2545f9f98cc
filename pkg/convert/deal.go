package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// Plugin is a configuration of the SR-IOV network device plugin, taken as it is.
type Plugin struct {
	config *config
}

// ReadPlugin reads that configuration: JSON, alone or in a ConfigMap. prefix is of
// resources that name none; "" is intel.com. The error has everything that cannot
// be honoured. Notes are what changed in meaning.
func ReadPlugin(name string, text []byte, prefix string) (*Plugin, []Note, error) {
	s := &set{options: Options{Prefix: prefix}, names: map[string]bool{}}
	s.file(Input{Name: name, Text: text})
	if s.policies != nil || s.networks != nil || s.nodes != nil || len(s.configs) > 1 || len(s.configs) == 0 && !s.refused() {
		s.add(Note{Refused, name, "", "", "want one configuration of the SR-IOV network device plugin, and nothing else"})
	}
	if s.refused() {
		var lines []string
		for _, n := range s.notes {
			if n.Verdict == Refused {
				lines = append(lines, strings.TrimPrefix(n.String(), string(Refused)+": "))
			}
		}
		return nil, s.notes, fmt.Errorf("%s", strings.Join(lines, "\n"))
	}
	for _, r := range s.configs[0].resources {
		for _, sel := range r.selectors[1:] {
			if first := r.selectors[0]; sel.rdma != first.rdma || sel.vhostNet != first.vhostNet || sel.vdpa != first.vdpa {
				return nil, s.notes, fmt.Errorf("%s: %s: isRdma, needVhostNet and vdpaType are not those of the first selector: want the same in all, or a resource for each", r.o.who, sel.o.path)
			}
		}
	}
	return &Plugin{s.configs[0]}, s.notes, nil
}

// Pools deals the devices of the node out: each to the first selector that it fits,
// in the order of the configuration. It is done anew when the node has changed. A
// pool that gets nothing is there, with nothing.
func (p *Plugin) Pools(state nic.State) []nic.Pool {
	taken := map[string]bool{} // by PCI address or auxiliary device
	var out []nic.Pool
	for _, r := range p.config.resources {
		first := r.selectors[0]
		pool := nic.Pool{
			Prefix: r.prefix, Name: r.name, Select: []nic.Pick{}, Driver: nic.DriverAny,
			RDMA: first.rdma, VDPA: nic.VDPAUse(first.vdpa), VhostNet: first.vhostNet, NoTopology: r.excludeTopology,
		}
		if r.sf {
			pool.Kind, pool.Driver = nic.PoolOfSFs, ""
		}
		for i := range state.PFs {
			pf := &state.PFs[i]
			if indexes := r.take(pf, taken); len(indexes) > 0 {
				pool.Select = append(pool.Select, nic.Pick{PF: pf.Handle, Indexes: indexes})
			}
		}
		out = append(out, pool)
	}
	return out
}

// take returns the devices of pf that fit and that nobody has yet.
func (r *resource) take(pf *nic.PF, taken map[string]bool) nic.Ranges {
	var out nic.Ranges
	add := func(i int, name string, fits func(selector) bool) {
		if name == "" || taken[name] || !slices.ContainsFunc(r.selectors, fits) {
			return
		}
		taken[name] = true
		if last := len(out) - 1; last >= 0 && out[last].Last+1 == i {
			out[last].Last = i
			return
		}
		out = append(out, nic.Range{First: i, Last: i})
	}
	if r.sf {
		for i := range pf.SFs {
			sf := &pf.SFs[i]
			add(sf.Num, sf.Device, func(s selector) bool { return s.fitsPF(pf, sf.Num) && s.fitsSF(pf, sf) })
		}
		return out
	}
	for i := range pf.VFs {
		vf := &pf.VFs[i]
		add(i, vf.Address, func(s selector) bool { return s.fitsPF(pf, i) && s.fitsVF(pf, vf) })
	}
	return out
}

// fitsPF says whether device i of pf fits by what is the PF's.
func (s selector) fitsPF(pf *nic.PF, i int) bool {
	address := ""
	if pf.Handle.Bus == "pci" {
		address = pf.Handle.Name
	}
	return s.filter().FitsPF(pf) && fitsPort(s.ports, pf.Uplink.Name, i) && fitsPort(s.roots, address, i)
}

func fitsPort(list []portRange, name string, i int) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(p portRange) bool {
		return name != "" && p.port == name && p.vfs.All().Has(i)
	})
}

// fitsVF says whether a VF fits by what is its own. RDMA devices of a VF in use may
// be where it is, in another namespace: it is taken to have them if its PF has.
func (s selector) fitsVF(pf *nic.PF, vf *nic.VF) bool {
	rdma := len(vf.RDMA) > 0 || vf.InUse() != "" && len(pf.RDMA) > 0 && vf.Settings[nic.RoCE] != "off"
	return s.filter().FitsVF(pf, vf) && (!s.rdma || rdma) &&
		cmp.Or(s.vdpa, vf.Settings[nic.VDPA]) == vf.Settings[nic.VDPA]
}

func (s selector) fitsSF(pf *nic.PF, sf *nic.SF) bool {
	rdma := len(sf.RDMA) > 0 || sf.InUse() != "" && len(pf.RDMA) > 0
	return s.filter().FitsSF(pf, sf) && (!s.rdma || rdma)
}
