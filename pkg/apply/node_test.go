package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// node is a machine for the laws: nothing but the rules by which drivers accept
// or refuse a step, the strictest of what kernels and vendors ask for, written
// down apart from what package plan believes. It is fast enough to be driven to
// each of its states many thousand times. Rules of bonds are in node_bond_test.go,
// of SFs in node_sf_test.go, of settings in node_setting_test.go.
type node struct {
	st     nic.State
	fixed  map[nic.VFID]bool         // an administrative address was set by the PF
	asleep map[nic.VFID]nic.Settings // what legacy mode has of a VF, while it is in switchdev mode
	ownMTU map[nic.Handle]int        // of an uplink, from before its bond

	strangers []nic.Bond           // bonds that somebody else makes, when they are waited for
	offers    map[nic.Setting]bool // what drivers let be set; never changed
	prompt    bool                 // hardware takes up a bond with its last member, before it is waited for
	drained   bool                 // whoever used VFs and SFs has gone

	drawn  int // ifindexes and addresses drawn so far
	writes int
}

var errRefused = errors.New("refused")

func refusedf(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errRefused}, a...)...)
}

func (n *node) observe() nic.State { return n.st.Clone() }

// peek is observe for who neither keeps nor changes what it gets.
func (n *node) peek() nic.State { return n.st }

func (n *node) clone() machine {
	out := *n
	out.st = n.st.Clone()
	out.fixed, out.ownMTU = maps.Clone(n.fixed), maps.Clone(n.ownMTU)
	out.asleep = make(map[nic.VFID]nic.Settings, len(n.asleep))
	for id, s := range n.asleep {
		out.asleep[id] = maps.Clone(s)
	}
	return &out
}

func (n *node) written() int { return n.writes }

// foretold: nothing on the node is given anew by a driver, or comes by itself, so
// that a plan is known to the last step beforehand.
func (n *node) foretold() bool { return len(n.offers)+len(n.strangers) == 0 && !n.prompt }

func (n *node) draw() int { n.drawn++; return 100 + n.drawn }

func (n *node) netdev(mac nic.MAC) nic.Netdev {
	return nic.Netdev{Ifindex: n.draw(), MAC: mac, MTU: 1500}
}

// rules of a driver that differ.
func follows(driver string) bool        { return driver == "ice" || driver == "igb" }
func modeNeedsNoVFs(driver string) bool { return driver == "ice" }
func dropsMode(driver string) bool      { return driver == "nfp" }
func hasSFs(driver string) bool         { return driver == "mlx5_core" }
func hasLAG(driver string) bool         { return driver == "mlx5_core" }

// ratesOver: VFs have rates in switchdev mode as well.
func ratesOver(driver string) bool { return driver == "mlx5_core" }

func vfDriver(pf string) string {
	switch pf {
	case "ice":
		return "iavf"
	case "igb":
		return "igbvf"
	}
	return pf
}

func (n *node) do(_ nic.State, s plan.Step) error {
	n.writes++
	joins := s.Op() == plan.OpEnslave || s.Op() == plan.OpAwaitBond
	defer func() { n.reconsiderLAG(joins) }()
	switch a := s.Action.(type) {
	case plan.SetRDMA:
		if n.st.RDMA.Fixed || n.st.RDMA.Mode == "" {
			return refusedf("EBUSY: other network namespaces exist")
		}
		n.st.RDMA.Mode = a.To
		return nil
	case plan.SetRDMAAtBoot:
		n.st.RDMA.AtBoot = a.To
		return nil
	case plan.AddBond, plan.DelBond, plan.Enslave, plan.Release, plan.SetBondMTU, plan.AwaitBond, plan.AwaitLAG:
		return n.bond(s.Action)
	}
	pf := n.st.PF(s.Object())
	if pf == nil {
		return refusedf("no PF")
	}
	if id, ok := s.VF(); ok {
		return n.vf(pf, id, s.Action)
	}
	if id, ok := s.SF(); ok {
		return n.sf(pf, id, s.Action)
	}
	switch a := s.Action.(type) {
	case plan.SetVFs:
		return n.setVFs(pf, a.To)
	case plan.SetAutoprobe:
		pf.Autoprobe = a.To
		return nil
	case plan.SetEswitch:
		return n.setEswitch(pf, a.To)
	case plan.SetPF:
		return n.setPF(pf, a.Setting, a.To)
	}
	return refusedf("no such step")
}

func (n *node) vf(pf *nic.PF, id nic.VFID, a plan.Action) error {
	if id.Index >= len(pf.VFs) {
		return refusedf("no VF")
	}
	v := &pf.VFs[id.Index]
	if _, rep := a.(plan.SetRepMTU); !rep && n.used(v.InUse()) {
		return refusedf("VF in use")
	}
	switch a := a.(type) {
	case plan.Unbind:
		if v.Driver == "" {
			return refusedf("no driver to unbind")
		}
		n.unbind(v)
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
	case plan.SetVF:
		return n.setVF(pf, v, a.Setting, a.To)
	}
	return nil
}

func (n *node) used(why string) bool { return why != "" && !n.drained }

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
		if n.used(v.InUse()) {
			return refusedf("VF in use")
		}
		id := nic.VFID{PF: pf.Handle, Index: v.Index}
		delete(n.fixed, id)
		delete(n.asleep, id)
	}
	pf.VFs = nil
	if to == 0 && dropsMode(pf.Driver) && pf.Eswitch == nic.Switchdev {
		pf.Eswitch = nic.Legacy
	}
	for i := range to {
		pf.VFs = append(pf.VFs, nic.VF{Index: i})
		v := &pf.VFs[i]
		v.Address = nic.VFID{PF: pf.Handle, Index: i}.String()
		n.represent(pf, v)
		n.newVFSettings(pf, v)
		if pf.Autoprobe {
			n.bind(pf, v, nic.DriverKernel)
		}
	}
	return nil
}

func (n *node) represent(pf *nic.PF, v *nic.VF) {
	v.Rep = nic.Representor{}
	if pf.Eswitch == nic.Switchdev {
		v.Rep = nic.Representor{Port: uint32(v.Index + 1), Netdev: n.netdev(nic.MAC{})}
	}
}

func (n *node) setEswitch(pf *nic.PF, to nic.Eswitch) error {
	switch {
	case pf.Eswitch == "" || pf.Driver == "":
		return refusedf("no eswitch")
	case modeNeedsNoVFs(pf.Driver) && len(pf.VFs) > 0:
		return refusedf("there are VFs")
	case len(pf.SFs) > 0:
		return refusedf("there are SFs")
	}
	for _, v := range pf.VFs {
		if v.Driver != "" || n.used(v.InUse()) {
			return refusedf("a VF has a driver")
		}
	}
	if pf.Eswitch == to {
		return nil
	}
	pf.Eswitch = to
	for i := range pf.VFs {
		n.represent(pf, &pf.VFs[i])
		n.vfSettingsOver(pf, &pf.VFs[i])
	}
	n.portSettingsOver(pf)
	return nil
}

func (n *node) unbind(v *nic.VF) {
	v.Driver, v.Netdev, v.Away, v.Limits = "", nic.Netdev{}, false, nil
	endNetdev(v.Settings)
	delete(v.Settings, nic.VDPA)
}

func (n *node) bind(pf *nic.PF, v *nic.VF, d nic.Driver) {
	v.Driver = string(d)
	if d != nic.DriverKernel {
		return
	}
	v.Driver = vfDriver(pf.Driver)
	mac := v.MAC
	if mac.IsZero() {
		mac = n.anyMAC(6)
	}
	v.Netdev = n.netdev(mac)
	if follows(pf.Driver) {
		v.MAC = mac
	}
	v.Settings, v.Limits = n.withNetdev(v.Settings, pf.Driver)
	if n.offers[nic.VDPA] && pf.Eswitch == nic.Switchdev {
		v.Settings[nic.VDPA] = "none"
	}
}

// anyMAC is an address that a driver makes up.
func (n *node) anyMAC(first byte) nic.MAC {
	d := n.draw()
	return nic.MAC{first, 0, 0, 0, byte(d >> 8), byte(d)}
}

// bondOf is what nic.State has too, but this one can be written to.
func (n *node) bondOf(h nic.Handle) *nic.Bond {
	for i := range n.st.Bonds {
		if slices.Contains(n.st.Bonds[i].Members, h) {
			return &n.st.Bonds[i]
		}
	}
	return nil
}
