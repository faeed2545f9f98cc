package apply

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"sluice.dev/sluice/pkg/nic"
)

// Random nodes as they may be found, whatever their VFs went through, and random
// wishes, most of which can be had.

// pick returns one of its arguments.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// chance is true with probability p.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// randomNode has one card, or up to four.
func randomNode(r *rand.Rand) *node {
	n := &node{
		fixed: map[nic.VFID]bool{}, asleep: map[nic.VFID]nic.Settings{}, ownMTU: map[nic.Handle]int{},
		prompt: chance(r, 0.3),
	}
	if chance(r, 0.6) {
		n.offers = map[nic.Setting]bool{}
		for _, name := range allSettings() {
			n.offers[name] = chance(r, 0.3)
		}
	}
	cards := 1
	if chance(r, 0.3) {
		cards = 2 + r.IntN(3)
	}
	most := 4 / cards // VFs of a port
	for c := range cards {
		n.randomCard(r, c, max(most, 2))
	}
	if chance(r, 0.3) {
		n.st.RDMA = nic.RDMA{Mode: pick(r, nic.RDMAShared, nic.RDMAExclusive), Fixed: chance(r, 0.5)}
		n.st.RDMA.AtBoot = pick(r, "", "", nic.RDMAShared, nic.RDMAExclusive)
	}
	n.reconsiderLAG(false)
	return n
}

func (n *node) randomCard(r *rand.Rand, c, most int) {
	driver := pick(r, "mlx5_core", "mlx5_core", "mlx5_core", "ice", "igb", "nfp")
	first, mode := len(n.st.PFs), pick(r, nic.Legacy, nic.Switchdev)
	for i := range 1 + r.IntN(2) {
		if chance(r, 0.1) {
			driver = pick(r, "mlx5_core", "ice", "igb", "nfp")
		}
		pf := nic.PF{
			Handle: nic.PCI(fmt.Sprintf("0000:%d3:00.%d", c, i)), Serial: fmt.Sprintf("card%d", c),
			Driver: driver, TotalVFs: 2 + r.IntN(4), Autoprobe: chance(r, 0.7), Eswitch: mode,
			Uplink: nic.Netdev{Ifindex: n.draw(), MTU: 1500, Up: chance(r, 0.8)},
		}
		if chance(r, 0.2) {
			pf.Eswitch = pick(r, nic.Legacy, nic.Switchdev)
		}
		if driver == "igb" {
			pf.Eswitch = ""
		}
		if chance(r, 0.1) {
			pf.Carries = []string{"the default route"}
		}
		n.st.PFs = append(n.st.PFs, pf)
		n.randomPort(r, &n.st.PFs[first+i])
		n.randomVFs(r, &n.st.PFs[first+i], most)
		n.randomSFs(r, &n.st.PFs[first+i])
	}
	if chance(r, 0.35) {
		n.randomBond(r, c, n.st.PFs[first:])
	}
}

func (n *node) randomPort(r *rand.Rand, pf *nic.PF) {
	if len(n.offers) == 0 {
		return
	}
	pf.Settings, pf.Limits = n.withNetdev(nil, pf.Driver)
	add := func(name nic.Setting, of ...string) {
		if n.offers[name] {
			pf.Settings[name] = pick(r, of...)
		}
	}
	add(nic.TCOffload, "on", "off")
	add(nic.LinkMTU, strconv.Itoa(pf.Uplink.MTU))
	add(nic.AdminLink, map[bool]string{true: "up", false: "down"}[pf.Uplink.Up])
	if pf.Driver == "mlx5_core" {
		add(nic.EncapMode, "none", "basic")
		add(nic.SteeringMode, "dmfs", "smfs")
		add(nic.RoCE, "on", "on", "off")
	}
	retune(r, pf.Settings, pf.Limits)
}

// retune is what somebody has set since the netdev was made.
func retune(r *rand.Rand, s nic.Settings, limits nic.Limits) {
	for _, name := range s.Names() {
		if _, ok := limits[name]; ok && chance(r, 0.3) {
			s[name] = valueFor(r, name, limits[name])
		}
	}
}

func valueFor(r *rand.Rand, name nic.Setting, most int) string {
	switch name {
	case nic.Channels:
		return pick(r, "2", "4", "8")
	case nic.RxRing, nic.TxRing:
		return pick(r, "512", "1024")
	}
	return strconv.Itoa(pick(r, 32768, 65536, most))
}

func (n *node) randomVFs(r *rand.Rand, pf *nic.PF, most int) {
	for i := range r.IntN(min(pf.TotalVFs, most) + 1) {
		id := nic.VFID{PF: pf.Handle, Index: i}
		pf.VFs = append(pf.VFs, nic.VF{Index: i, Address: id.String()})
		v := &pf.VFs[i]
		n.represent(pf, v)
		if v.Rep.Exists() {
			v.Rep.Netdev.MTU = pick(r, 1500, 9000)
		}
		n.newVFSettings(pf, v)
		n.someAttributes(r, v)
		if chance(r, 0.3) {
			v.MAC = nic.MAC{2, 0, 0, 0, byte(i), byte(n.draw())}
			n.fixed[id] = true
		}
		n.bind(pf, v, pick(r, nic.DriverKernel, nic.DriverKernel, nic.DriverVFIO, nic.DriverNone))
		if v.Driver == string(nic.DriverNone) {
			v.Driver = ""
		}
		n.someNetdev(r, pf, v, n.fixed[id])
		switch {
		case v.Driver == "":
		case chance(r, 0.02) && v.Netdev.Exists():
			v.Netdev, v.Away, v.Limits = nic.Netdev{}, true, nil
			endNetdev(v.Settings)
		case chance(r, 0.02):
			v.Owner = "default/pod"
		}
	}
}

// someAttributes are set before the driver comes.
func (n *node) someAttributes(r *rand.Rand, v *nic.VF) {
	for _, name := range v.Settings.Names() {
		if chance(r, 0.3) && name != nic.MinRate {
			v.Settings[name] = functionValue(r, name)
		}
	}
	if _, ok := v.Settings[nic.MinRate]; ok && v.Settings[nic.MaxRate] != "100" && chance(r, 0.3) {
		v.Settings[nic.MinRate] = "200"
	}
}

func functionValue(r *rand.Rand, name nic.Setting) string {
	switch name {
	case nic.Trust, nic.SpoofCheck, nic.RoCE:
		return pick(r, "on", "off")
	case nic.LinkState:
		return pick(r, "auto", "enable", "disable")
	case nic.VLAN:
		return pick(r, "0", "7", "7/3", "9/802.1ad")
	case nic.NodeGUID, nic.PortGUID:
		return pick(r, "02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:02")
	case nic.EventQueues:
		return pick(r, "16", "32")
	case nic.MinRate:
		return pick(r, "0", "50", "200")
	case nic.MaxRate:
		return pick(r, "0", "100", "1000")
	}
	panic("no such setting: " + name)
}

func (n *node) someNetdev(r *rand.Rand, pf *nic.PF, v *nic.VF, fixed bool) {
	if !v.Netdev.Exists() {
		return
	}
	v.Netdev.MTU = pick(r, 1500, 1500, 9000)
	v.Netdev.Up = chance(r, 0.5)
	if chance(r, 0.2) && !fixed {
		v.Netdev.MAC = n.anyMAC(10)
		if follows(pf.Driver) {
			v.MAC = v.Netdev.MAC
		}
	}
	retune(r, v.Settings, v.Limits)
	if _, ok := v.Settings[nic.VDPA]; ok {
		v.Settings[nic.VDPA] = pick(r, "none", "none", "vhost", "virtio")
	}
}

func (n *node) randomSFs(r *rand.Rand, pf *nic.PF) {
	if pf.Eswitch != nic.Switchdev || !hasSFs(pf.Driver) || chance(r, 0.7) {
		return
	}
	for num := range 1 + r.IntN(2) {
		pf.SFs = append(pf.SFs, n.newSF(num))
		f := &pf.SFs[num]
		f.Rep.MTU = pick(r, 1500, 9000)
		if chance(r, 0.3) {
			f.MAC = nic.MAC{2, 0, 1, 0, byte(num), byte(n.draw())}
		}
		for _, name := range f.Settings.Names() {
			if chance(r, 0.3) && name != nic.MinRate {
				f.Settings[name] = functionValue(r, name)
			}
		}
		if chance(r, 0.8) {
			n.activate(pf, f, true)
			f.Netdev.MTU = pick(r, 1500, 9000)
			retune(r, f.Settings, f.Limits)
			if chance(r, 0.05) {
				f.Owner = "default/pod"
			}
		}
	}
}

// randomBond puts ports of a card into a bond, by us or somebody else, before or
// after their VFs were bound.
func (n *node) randomBond(r *rand.Rand, c int, ports []nic.PF) {
	b := nic.Bond{
		Netdev: nic.Netdev{Name: fmt.Sprintf("bond%d", c), MTU: pick(r, 1500, 9000)},
		Mode:   pick(r, modes()...), Hash: pick(r, "layer2", "layer3+4"), Miimon: pick(r, 0, 100), LACPRate: "slow",
		Ours: chance(r, 0.6),
	}
	if chance(r, 0.1) {
		b.Others = []string{"eth9"}
	}
	n.addBond(b)
	have := n.st.Bond(b.Name)
	for i := range ports {
		if chance(r, 0.85) {
			n.join(have, &ports[i])
		}
	}
	// Its VFs were bound after it, as it should be, or before.
	if n.eligible(have) && (n.idle(have) || chance(r, 0.7)) {
		n.setLAG(have, nic.LAGActive)
	}
}

func allSettings() []nic.Setting {
	return []nic.Setting{
		nic.EncapMode, nic.SteeringMode, nic.TCOffload, nic.LinkMTU, nic.AdminLink, nic.RoCE, nic.EventQueues,
		nic.NodeGUID, nic.PortGUID, nic.Trust, nic.SpoofCheck, nic.LinkState, nic.VLAN, nic.MinRate, nic.MaxRate,
		nic.Channels, nic.RxRing, nic.TxRing, nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4, nic.VDPA,
	}
}

// wisher draws wishes. Of a simulated machine it asks for no more than VFs.
type wisher struct {
	*rand.Rand
	n *node // nil of a simulated machine
}

// randomSpec makes a wish for the node, often one that can be had.
func randomSpec(r *rand.Rand, st nic.State) nic.Spec { return wisher{r, nil}.spec(st) }

// wish is randomSpec with everything that a node has.
func (n *node) wish(r *rand.Rand) nic.Spec {
	w := wisher{r, n}
	out := w.spec(n.st)
	w.bonds(&out)
	if n.st.RDMA.Mode != "" && chance(r, 0.5) {
		out.RDMA = pick(r, nic.RDMAShared, nic.RDMAExclusive)
	}
	return out
}

func (w wisher) spec(st nic.State) nic.Spec {
	r := w.Rand
	var out nic.Spec
	for _, pf := range st.PFs {
		if chance(r, 0.15) {
			continue
		}
		p := nic.PFSpec{Handle: pf.Handle, Named: chance(r, 0.5)}
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
				p.VFs = append(p.VFs, w.vf(pf, i, mode))
			}
		}
		if w.n != nil {
			w.port(&p, pf, mode)
		}
		out.PFs = append(out.PFs, p)
	}
	return out
}

func (w wisher) vf(pf nic.PF, i int, mode nic.Eswitch) nic.VFSpec {
	r, h := w.Rand, pf.Handle
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
	kernel := v.Driver == "" || v.Driver == nic.DriverKernel
	if kernel && chance(r, 0.5) {
		v.MTU = pick(r, 1500, 9000)
	}
	if kernel && chance(r, 0.1) {
		v.LinkMAC = &nic.MAC{2, 2, 0, 0, byte(i), byte(r.IntN(3))}
	}
	if mode == nic.Switchdev && chance(r, 0.5) {
		v.RepMTU = pick(r, 1500, 9000)
	}
	if w.n != nil && chance(r, 0.5) {
		v.Settings = w.vfSettings(pf, mode, v.Driver == nic.DriverKernel)
	}
	return v
}

// vfSettings are some of those that a VF will have.
func (w wisher) vfSettings(pf nic.PF, mode nic.Eswitch, kernel bool) nic.Settings {
	out := nic.Settings{}
	functions := mode == nic.Switchdev && pf.Driver == "mlx5_core"
	for _, name := range allSettings() {
		if !w.n.offers[name] || !chance(w.Rand, 0.4) {
			continue
		}
		_, netdev := netdevDefaults()[name]
		_, attribute := legacyDefaults()[name]
		switch {
		case netdev && kernel:
			out[name] = w.netdevValue(name)
		case attribute && mode != nic.Switchdev,
			(name == nic.RoCE || name == nic.EventQueues) && functions,
			(name == nic.MinRate || name == nic.MaxRate) && (mode != nic.Switchdev || ratesOver(pf.Driver)):
			out[name] = functionValue(w.Rand, name)
		case name == nic.VDPA && kernel && mode == nic.Switchdev:
			out[name] = pick(w.Rand, "none", "vhost", "virtio")
		}
	}
	return out
}

// netdevValue is within what netdevs take, but for offload sizes: these are cut.
func (w wisher) netdevValue(name nic.Setting) string {
	switch name {
	case nic.Channels, nic.RxRing, nic.TxRing:
		return valueFor(w.Rand, name, 0)
	}
	return pick(w.Rand, "32768", "65536", "200000", "524288")
}

// port adds what is wished of the PF itself, and of SFs.
func (w wisher) port(p *nic.PFSpec, pf nic.PF, mode nic.Eswitch) {
	r := w.Rand
	for _, name := range pf.Settings.Names() {
		if chance(r, 0.3) {
			if p.Settings == nil {
				p.Settings = nic.Settings{}
			}
			p.Settings[name] = w.portValue(name)
		}
	}
	if hasSFs(pf.Driver) && mode == nic.Switchdev && chance(r, 0.3) {
		sfs := []nic.SFSpec{}
		for num := range 3 {
			if chance(r, 0.5) {
				sfs = append(sfs, w.sf(num))
			}
		}
		p.SFs = &sfs
	}
	if chance(r, 0.1) {
		none := ""
		p.Bond = &none
	}
}

func (w wisher) portValue(name nic.Setting) string {
	switch name {
	case nic.EncapMode:
		return pick(w.Rand, "none", "basic")
	case nic.SteeringMode:
		return pick(w.Rand, "dmfs", "smfs")
	case nic.TCOffload, nic.RoCE:
		return pick(w.Rand, "on", "off")
	case nic.LinkMTU:
		return pick(w.Rand, "1500", "9000")
	case nic.AdminLink:
		return pick(w.Rand, "up", "down")
	}
	return w.netdevValue(name)
}

func (w wisher) sf(num int) nic.SFSpec {
	r := w.Rand
	out := nic.SFSpec{Num: num}
	if chance(r, 0.5) {
		out.MAC = &nic.MAC{2, 3, 0, 0, byte(num), byte(r.IntN(3))}
	}
	if chance(r, 0.4) {
		out.MTU = pick(r, 1500, 9000)
	}
	if chance(r, 0.4) {
		out.RepMTU = pick(r, 1500, 9000)
	}
	for _, name := range allSettings() {
		_, netdev := netdevDefaults()[name]
		function := name == nic.RoCE || name == nic.EventQueues || name == nic.MinRate || name == nic.MaxRate
		if !w.n.offers[name] || !netdev && !function || !chance(r, 0.3) {
			continue
		}
		if netdev {
			out.Settings = out.Settings.With(name, w.netdevValue(name))
		} else {
			out.Settings = out.Settings.With(name, functionValue(r, name))
		}
	}
	return out
}

// bonds adds bonds of whole cards.
func (w wisher) bonds(out *nic.Spec) {
	r := w.Rand
	for c, card := range w.n.st.Cards() {
		if chance(r, 0.1) {
			apart(out, card.PFs)
			continue
		}
		if len(card.PFs) < 2 || !chance(r, 0.4) {
			continue
		}
		b := nic.BondSpec{
			Name: fmt.Sprintf("bond%d", c), Mode: pick(r, modes()...),
			Hash: pick(r, "", "layer2", "layer3+4"), Miimon: pick(r, 0, 100), MTU: pick(r, 0, 1500, 9000),
		}
		whole := true
		for _, pf := range card.PFs {
			b.Members = append(b.Members, pf.Handle)
			whole = whole && out.PF(pf.Handle) != nil
		}
		if !whole {
			continue
		}
		w.alike(out, b.Members)
		if have := w.n.st.Bond(b.Name); have != nil && (!have.Ours || chance(r, 0.3)) {
			b.Mode, b.Hash, b.Miimon = have.Mode, "", 0
		}
		if have := w.n.st.Bond(b.Name); chance(r, 0.3) && (have == nil || !have.Ours) {
			b.Adopt, b.Hash, b.Miimon = true, "", 0
			w.n.strangers = append(w.n.strangers, nic.Bond{
				Netdev: nic.Netdev{Name: b.Name, MTU: pick(r, 1500, 9000)}, Mode: b.Mode,
				Hash: "layer2", LACPRate: "slow", Members: slices.Clone(b.Members),
			})
		}
		out.Bonds = append(out.Bonds, b)
	}
}

// apart takes all ports out of whatever bond they are in.
func apart(out *nic.Spec, ports []nic.PF) {
	for _, pf := range ports {
		if p := out.PF(pf.Handle); p != nil {
			none := ""
			p.Bond = &none
		}
	}
}

// alike makes the wishes for ports of one bond such as can be had together.
func (w wisher) alike(out *nic.Spec, members []nic.Handle) {
	count := w.IntN(3)
	for _, h := range members {
		p, pf := out.PF(h), w.n.st.PF(h)
		p.Bond = nil
		delete(p.Settings, nic.LinkMTU)
		delete(p.Settings, nic.AdminLink)
		if chance(w.Rand, 0.9) && pf.Eswitch != "" {
			p.Eswitch, p.VFCount = nic.Switchdev, &count
			if len(p.VFs) > count {
				p.VFs = p.VFs[:count]
			}
			for i := range p.VFs {
				p.VFs[i].Settings = nil
			}
		}
		if roce, ok := out.PF(members[0]).Settings[nic.RoCE]; ok && pf.Settings[nic.RoCE] != "" {
			p.Settings = p.Settings.With(nic.RoCE, roce)
		} else if p.Settings[nic.RoCE] != "" {
			delete(p.Settings, nic.RoCE)
		}
	}
}
