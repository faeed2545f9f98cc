package apply

import (
	"maps"
	"strconv"

	"sluice.dev/sluice/pkg/nic"
)

// Settings of a node: which are there when, and when a driver takes them. What is
// there is written down in Settings, as host.Settings.Read gives it. Where the
// kernel leaves open whether a value outlives something, it does not here.

// netdevDefaults is what a netdev has that a driver has just made.
func netdevDefaults() nic.Settings {
	return nic.Settings{
		nic.Channels: "4", nic.RxRing: "1024", nic.TxRing: "1024",
		nic.GSOMax: "65536", nic.GROMax: "65536", nic.GSOMaxIPv4: "65536", nic.GROMaxIPv4: "65536",
	}
}

// mostOf is the limit of a netdev setting: tso_max_size is 65536 with drivers
// that set none (net/core/dev.c), 524280 with mlx5.
func mostOf(name nic.Setting, driver string) int {
	switch name {
	case nic.Channels:
		return 8
	case nic.RxRing, nic.TxRing:
		return 8192
	}
	if driver == "mlx5_core" {
		return 524280
	}
	return 65536
}

func legacyDefaults() nic.Settings {
	return nic.Settings{
		nic.Trust: "off", nic.SpoofCheck: "on", nic.LinkState: "auto", nic.VLAN: "0",
		nic.NodeGUID: "00:00:00:00:00:00:00:00", nic.PortGUID: "00:00:00:00:00:00:00:00",
	}
}

func endNetdev(s nic.Settings) {
	for name := range netdevDefaults() {
		delete(s, name)
	}
}

// withNetdev adds what comes with a new netdev.
func (n *node) withNetdev(s nic.Settings, driver string) (nic.Settings, nic.Limits) {
	if len(n.offers) == 0 {
		return s, nil
	}
	if s == nil {
		s = nic.Settings{}
	}
	limits := nic.Limits{}
	for name, value := range netdevDefaults() {
		if n.offers[name] {
			s[name], limits[name] = value, mostOf(name, driver)
		}
	}
	return s, limits
}

// functionSettings adds those of a port function, and rates, as they are at first.
func (n *node) functionSettings(s nic.Settings, switchdev, rates bool) nic.Settings {
	delete(s, nic.MinRate)
	delete(s, nic.MaxRate)
	for name, value := range map[nic.Setting]string{nic.MinRate: "0", nic.MaxRate: "0"} {
		if n.offers[name] && rates {
			s[name] = value
		}
	}
	for name, value := range map[nic.Setting]string{nic.RoCE: "on", nic.EventQueues: "32"} {
		delete(s, name)
		if n.offers[name] && switchdev {
			s[name] = value
		}
	}
	return s
}

func (n *node) newVFSettings(pf *nic.PF, v *nic.VF) {
	if len(n.offers) == 0 {
		return
	}
	v.Settings = nic.Settings{}
	attributes := nic.Settings{}
	for name, value := range legacyDefaults() {
		if n.offers[name] {
			attributes[name] = value
		}
	}
	if n.canFunction(pf) {
		n.functionSettings(v.Settings, true, true)
		n.asleep[nic.VFID{PF: pf.Handle, Index: v.Index}] = attributes
		return
	}
	n.functionSettings(v.Settings, false, pf.Eswitch != nic.Switchdev || ratesOver(pf.Driver))
	if pf.Eswitch == nic.Switchdev {
		n.asleep[nic.VFID{PF: pf.Handle, Index: v.Index}] = attributes
		return
	}
	maps.Copy(v.Settings, attributes)
}

// canFunction: the driver lets port functions be set, which are there in switchdev
// mode.
func (n *node) canFunction(pf *nic.PF) bool {
	return pf.Eswitch == nic.Switchdev && pf.Driver == "mlx5_core"
}

// vfSettingsOver: what legacy mode has of a VF sleeps in switchdev mode
// (mlx5/core/eswitch.c keeps vport->info), and is there again after it. Port
// functions and rates begin anew.
func (n *node) vfSettingsOver(pf *nic.PF, v *nic.VF) {
	if len(n.offers) == 0 {
		return
	}
	id := nic.VFID{PF: pf.Handle, Index: v.Index}
	if pf.Eswitch == nic.Switchdev {
		sleeping := nic.Settings{}
		for name := range legacyDefaults() {
			if value, ok := v.Settings[name]; ok {
				sleeping[name] = value
				delete(v.Settings, name)
			}
		}
		n.asleep[id] = sleeping
	} else {
		maps.Copy(v.Settings, n.asleep[id])
		delete(n.asleep, id)
	}
	n.functionSettings(v.Settings, n.canFunction(pf), pf.Eswitch != nic.Switchdev || ratesOver(pf.Driver))
}

// portSettingsOver: another profile is attached to the uplink
// (mlx5e_netdev_change_profile), with channels and rings of its own.
func (n *node) portSettingsOver(pf *nic.PF) {
	for _, name := range []nic.Setting{nic.Channels, nic.RxRing, nic.TxRing} {
		if _, ok := pf.Settings[name]; ok {
			pf.Settings[name] = netdevDefaults()[name]
		}
	}
	if _, ok := pf.Settings[nic.TCOffload]; ok {
		pf.Settings[nic.TCOffload] = "off"
	}
}

func (n *node) setPF(pf *nic.PF, name nic.Setting, to string) error {
	if err := settable(pf.Settings, pf.Limits, name, to); err != nil {
		return err
	}
	switch name {
	case nic.SteeringMode:
		if pf.Eswitch == nic.Switchdev {
			return refusedf("Changing fs mode is not supported when eswitch offloads enabled.")
		}
	case nic.RoCE:
		if pf.Eswitch == nic.Switchdev || len(pf.VFs) > 0 || n.bondOf(pf.Handle) != nil {
			return refusedf("a reload with VFs, in switchdev mode, or in a LAG")
		}
		n.reload(pf)
	case nic.LinkMTU, nic.AdminLink:
		if n.bondOf(pf.Handle) != nil {
			return refusedf("a matter of its bond")
		}
		if name == nic.LinkMTU {
			pf.Uplink.MTU, _ = strconv.Atoi(to)
		} else {
			pf.Uplink.Up = to == "up"
		}
	}
	pf.Settings[name] = to
	return nil
}

// reload makes the uplink's netdev anew.
func (n *node) reload(pf *nic.PF) {
	pf.Uplink.Ifindex, pf.Uplink.MTU = n.draw(), 1500
	n.portSettingsOver(pf)
	for name, value := range netdevDefaults() {
		if _, ok := pf.Settings[name]; ok {
			pf.Settings[name] = value
		}
	}
	if _, ok := pf.Settings[nic.LinkMTU]; ok {
		pf.Settings[nic.LinkMTU] = "1500"
	}
	takeUp(pf, false)
}

func (n *node) setVF(pf *nic.PF, v *nic.VF, name nic.Setting, to string) error {
	if err := settable(v.Settings, v.Limits, name, to); err != nil {
		return err
	}
	switch name {
	case nic.RoCE, nic.EventQueues, nic.NodeGUID, nic.PortGUID:
		if v.Driver != "" {
			return refusedf("%s of a VF that its driver has read already", name)
		}
	case nic.VDPA:
		if v.Driver != vfDriver(pf.Driver) {
			return refusedf("made by the kernel's driver")
		}
	}
	v.Settings[name] = to
	return nil
}

func (n *node) setSF(f *nic.SF, name nic.Setting, to string) error {
	if err := settable(f.Settings, f.Limits, name, to); err != nil {
		return err
	}
	if f.Active && (name == nic.RoCE || name == nic.EventQueues) {
		return refusedf("%s of an SF that its driver has read already", name)
	}
	f.Settings[name] = to
	return nil
}

// settable: it is there, within the limit, and no minimum goes over its maximum.
func settable(s nic.Settings, limits nic.Limits, name nic.Setting, to string) error {
	if _, ok := s[name]; !ok {
		return refusedf("EOPNOTSUPP: %s", name)
	}
	value, _ := strconv.Atoi(to)
	if most, ok := limits[name]; ok && value > most {
		return refusedf("EINVAL: %s over %d", name, most)
	}
	low, _ := strconv.Atoi(s[nic.MinRate])
	high, _ := strconv.Atoi(s[nic.MaxRate])
	switch name {
	case nic.MinRate:
		low = value
	case nic.MaxRate:
		high = value
	default:
		return nil
	}
	if high != 0 && low > high {
		return refusedf("EINVAL: min-rate %d over max-rate %d", low, high)
	}
	return nil
}
