package apply

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// node is a machine for the laws: nothing but the rules by which drivers accept
// or refuse a step, the strictest of what kernels and vendors ask for, written
// down apart from what package plan believes. It is fast enough to be driven to
// each of its states many thousand times.
type node struct {
	st     nic.State
	fixed  map[nic.VFID]bool // an administrative address was set by the PF
	drawn  byte              // ifindexes and addresses drawn so far
	writes int
}

var errRefused = errors.New("refused")

func refusedf(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errRefused}, a...)...)
}

func (n *node) observe() nic.State { return n.st.Clone() }

func (n *node) clone() machine {
	out := *n
	out.st = n.st.Clone()
	out.fixed = map[nic.VFID]bool{}
	for id := range n.fixed {
		out.fixed[id] = true
	}
	return &out
}

func (n *node) written() int { return n.writes }

func (n *node) draw() int { n.drawn++; return 100 + int(n.drawn) }

// rules of a driver that differ.
func follows(driver string) bool        { return driver == "ice" || driver == "igb" }
func modeNeedsNoVFs(driver string) bool { return driver == "ice" }
func dropsMode(driver string) bool      { return driver == "nfp" }

func vfDriver(pf string) string {
	return map[string]string{"mlx5_core": "mlx5_core", "ice": "iavf", "igb": "igbvf", "nfp": "nfp"}[pf]
}

func (n *node) do(_ nic.State, s plan.Step) error {
	pf := n.st.PF(s.Object())
	if pf == nil {
		return refusedf("no PF")
	}
	n.writes++
	switch a := s.Action.(type) {
	case plan.SetVFs:
		return n.setVFs(pf, a.To)
	case plan.SetAutoprobe:
		pf.Autoprobe = a.To
		return nil
	case plan.SetEswitch:
		return n.setEswitch(pf, a.To)
	}
	id, _ := s.VF()
	if id.Index >= len(pf.VFs) {
		return refusedf("no VF")
	}
	v := &pf.VFs[id.Index]
	if _, rep := s.Action.(plan.SetRepMTU); !rep && v.InUse() != "" {
		return refusedf("VF in use")
	}
	switch a := s.Action.(type) {
	case plan.Unbind:
		if v.Driver == "" {
			return refusedf("no driver to unbind")
		}
		v.Driver, v.Netdev = "", nic.Netdev{}
	case plan.Bind:
		if v.Driver != "" {
			return refusedf("has a driver")
		}
		n.bind(pf, v, a.To)
	case plan.SetVFMAC:
		if v.Driver != "" {
			return refusedf("MAC of a VF that its driver has read already")
		}
		v.MAC = a.To
		n.fixed[id] = !a.To.IsZero()
	case plan.SetVFLinkMAC:
		switch {
		case !v.Netdev.Exists() || !a.To.IsUnicast():
			return refusedf("no netdev, or no address for one")
		case follows(pf.Driver) && n.fixed[id] && a.To != v.MAC:
			return refusedf("administratively set")
		}
		v.Netdev.MAC = a.To
		if follows(pf.Driver) {
			v.MAC = a.To
		}
	case plan.SetVFMTU:
		if !v.Netdev.Exists() {
			return refusedf("no netdev")
		}
		v.Netdev.MTU = a.To
	case plan.SetRepMTU:
		if !v.Rep.Exists() {
			return refusedf("no representor")
		}
		v.Rep.Netdev.MTU = a.To
	}
	return nil
}

func (n *node) setVFs(pf *nic.PF, to int) error {
	switch {
	case to < 0 || to > pf.TotalVFs:
		return refusedf("ERANGE")
	case to > 0 && len(pf.VFs) > 0:
		return refusedf("%d VFs already enabled", len(pf.VFs))
	case pf.Driver == "":
		return refusedf("no driver")
	}
	for _, v := range pf.VFs {
		if v.InUse() != "" {
			return refusedf("VF in use")
		}
		delete(n.fixed, nic.VFID{PF: pf.Handle, Index: v.Index})
	}
	pf.VFs = nil
	if to == 0 && dropsMode(pf.Driver) && pf.Eswitch == nic.Switchdev {
		pf.Eswitch = nic.Legacy
	}
	for i := range to {
		pf.VFs = append(pf.VFs, nic.VF{Index: i})
		v := &pf.VFs[i]
		if pf.Eswitch == nic.Switchdev {
			v.Rep.Netdev = nic.Netdev{Ifindex: n.draw(), MTU: 1500}
		}
		if pf.Autoprobe {
			n.bind(pf, v, nic.DriverKernel)
		}
	}
	return nil
}

func (n *node) setEswitch(pf *nic.PF, to nic.Eswitch) error {
	if pf.Eswitch == "" || pf.Driver == "" {
		return refusedf("no eswitch")
	}
	if modeNeedsNoVFs(pf.Driver) && len(pf.VFs) > 0 {
		return refusedf("there are VFs")
	}
	for i := range pf.VFs {
		v := &pf.VFs[i]
		if v.Driver != "" || v.InUse() != "" {
			return refusedf("a VF has a driver")
		}
		v.Rep = nic.Representor{}
		if to == nic.Switchdev {
			v.Rep.Netdev = nic.Netdev{Ifindex: n.draw(), MTU: 1500}
		}
	}
	pf.Eswitch = to
	return nil
}

func (n *node) bind(pf *nic.PF, v *nic.VF, d nic.Driver) {
	v.Driver = string(d)
	if d != nic.DriverKernel {
		return
	}
	v.Driver = vfDriver(pf.Driver)
	mac := v.MAC
	if mac.IsZero() {
		mac = nic.MAC{6, 0, 0, 0, byte(v.Index), byte(n.draw())}
	}
	v.Netdev = nic.Netdev{Ifindex: n.draw(), MAC: mac, MTU: 1500}
	if follows(pf.Driver) {
		v.MAC = mac
	}
}

// pick returns one of its arguments.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// chance is true with probability p.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// randomNode makes a node as it may be found: whatever its VFs went through.
func randomNode(r *rand.Rand) *node {
	n := &node{fixed: map[nic.VFID]bool{}}
	card := pick(r, "mlx5_core", "mlx5_core", "ice", "igb", "nfp")
	for i := range 1 + r.IntN(2) {
		driver := card
		if chance(r, 0.2) {
			driver = pick(r, "mlx5_core", "ice", "igb", "nfp")
		}
		pf := nic.PF{
			Handle: nic.PCI(fmt.Sprintf("0000:03:00.%d", i)), Driver: driver, TotalVFs: 2 + r.IntN(4),
			Autoprobe: chance(r, 0.7), Eswitch: pick(r, nic.Legacy, nic.Switchdev),
			Uplink: nic.Netdev{Ifindex: 2 + i, MTU: 1500, Up: true},
		}
		if driver == "igb" {
			pf.Eswitch = ""
		}
		n.st.PFs = append(n.st.PFs, pf)
		n.randomVFs(r, &n.st.PFs[i])
	}
	return n
}

func (n *node) randomVFs(r *rand.Rand, pf *nic.PF) {
	for i := range r.IntN(min(pf.TotalVFs, 4) + 1) {
		id := nic.VFID{PF: pf.Handle, Index: i}
		pf.VFs = append(pf.VFs, nic.VF{Index: i, Address: id.String()})
		v := &pf.VFs[i]
		if pf.Eswitch == nic.Switchdev {
			v.Rep.Netdev = nic.Netdev{Ifindex: n.draw(), MTU: pick(r, 1500, 9000)}
		}
		if chance(r, 0.3) {
			v.MAC = nic.MAC{2, 0, 0, 0, byte(i), byte(n.draw())}
			n.fixed[id] = true
		}
		n.bind(pf, v, pick(r, nic.DriverKernel, nic.DriverKernel, nic.DriverVFIO, nic.DriverNone))
		if v.Driver == string(nic.DriverNone) {
			v.Driver = ""
		}
		if v.Netdev.Exists() {
			v.Netdev.MTU = pick(r, 1500, 1500, 9000)
			v.Netdev.Up = chance(r, 0.5)
			if chance(r, 0.2) && !n.fixed[id] {
				v.Netdev.MAC = nic.MAC{6, 1, 0, 0, byte(i), byte(n.draw())}
				if follows(pf.Driver) {
					v.MAC = v.Netdev.MAC
				}
			}
		}
		switch {
		case v.Driver == "":
		case chance(r, 0.02) && v.Netdev.Exists():
			v.Netdev, v.Away = nic.Netdev{}, true
		case chance(r, 0.02):
			v.Owner = "default/pod"
		}
	}
}

// randomSpec makes a wish for the node, often one that can be had.
func randomSpec(r *rand.Rand, st nic.State) nic.Spec {
	var out nic.Spec
	for _, pf := range st.PFs {
		if chance(r, 0.15) {
			continue
		}
		p := nic.PFSpec{Handle: pf.Handle}
		count, mode := len(pf.VFs), pf.Eswitch
		if chance(r, 0.6) && mode != "" {
			p.Eswitch = pick(r, nic.Legacy, nic.Switchdev, nic.Switchdev)
			mode = p.Eswitch
		}
		if chance(r, 0.5) {
			count = r.IntN(pf.TotalVFs + 1)
			p.VFCount = &count
		}
		if chance(r, 0.2) {
			on := chance(r, 0.5)
			p.Autoprobe = &on
		}
		if count > 0 && chance(r, 0.8) {
			for i := range 1 + r.IntN(count) {
				p.VFs = append(p.VFs, randomVFSpec(r, pf.Handle, i, mode))
			}
		}
		out.PFs = append(out.PFs, p)
	}
	return out
}

func randomVFSpec(r *rand.Rand, h nic.Handle, i int, mode nic.Eswitch) nic.VFSpec {
	var v nic.VFSpec
	if chance(r, 0.5) {
		v.Driver = pick(r, nic.DriverKernel, nic.DriverKernel, nic.DriverVFIO, nic.DriverNone)
	}
	if chance(r, 0.5) {
		v.MAC = &nic.MAC{2, 1, 0, h.Name[len(h.Name)-1], byte(i), byte(r.IntN(3))}
		if chance(r, 0.2) {
			v.MAC = &nic.MAC{}
		}
	}
	if (v.Driver == "" || v.Driver == nic.DriverKernel) && chance(r, 0.5) {
		v.MTU = pick(r, 1500, 9000)
	}
	if (v.Driver == "" || v.Driver == nic.DriverKernel) && chance(r, 0.1) {
		v.LinkMAC = &nic.MAC{2, 2, 0, 0, byte(i), byte(r.IntN(3))}
	}
	if mode == nic.Switchdev && chance(r, 0.5) {
		v.RepMTU = pick(r, 1500, 9000)
	}
	return v
}
