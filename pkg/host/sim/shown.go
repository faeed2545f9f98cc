package sim

import (
	"reflect"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// shown is what those who watch have been told of, as it was then: each thing of which
// a kernel speaks when it comes, goes or changes.
type shown map[host.Thing]any

func (s *Sim) show() shown {
	out := shown{}
	for _, l := range s.listLinks(hostNS) {
		out[host.Thing{Kind: host.OfInterface, Ifindex: l.Ifindex}] = l
	}
	for _, f := range s.functions() {
		out[host.Thing{Kind: host.OfFunction, Function: f.Address}] = f
	}
	for _, p := range s.ports() {
		out[host.Thing{Kind: host.OfPort, Handle: p.Handle, Port: p.Index}] = p
	}
	out[host.Thing{Kind: host.OfRDMA}] = s.rdmaDevices()
	out[host.Thing{Kind: host.OfSFs}] = s.sfDevices()
	for i, p := range s.st.PFs {
		if s.profile(i).devlink && s.driven(i) { // its mode is told by its ports alone
			out[host.Thing{Kind: host.OfDevlink, Handle: nic.PCI(p.Address)}] = p.Driver
		}
		for j, v := range p.VFs {
			if s.profile(i).vfDevlink && v.Driver == s.profile(i).vfDriver {
				out[host.Thing{Kind: host.OfDevlink, Handle: nic.PCI(s.vfAddress(i, j))}] = v.Driver
			}
			if use, ok := v.Set[nic.VDPA]; ok {
				out[host.Thing{Kind: host.OfVDPA, Function: s.vfAddress(i, j)}] = use
			}
		}
	}
	return out
}

// differ lists what is not the same in both.
func (a shown) differ(b shown) (out []host.Thing) {
	for t, was := range a {
		if now, ok := b[t]; !ok || !reflect.DeepEqual(was, now) {
			out = append(out, t)
		}
	}
	for t := range b {
		if _, ok := a[t]; !ok {
			out = append(out, t)
		}
	}
	return out
}
