package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// begin checks everything that an attachment needs and records it. Until the
// record is written nothing is changed, so a refusal leaves no trace.
func (p *Plugin) begin(ctx context.Context, store record.Store, c Config, args *skel.CmdArgs) (*job, error) {
	pod, err := p.open(ctx, args.Netns)
	if err != nil {
		return nil, err
	}
	j := &job{p: p, store: store, pod: pod}
	begun := false
	defer func() {
		if !begun {
			j.close()
		}
	}()
	st, err := p.observeOne(ctx, c.VF)
	if err != nil {
		return nil, err
	}
	away, err := repAway(store, c.VF)
	if err != nil {
		return nil, err
	}
	id, vf, err := attachable(st, c, away)
	if err != nil {
		return nil, err
	}
	if err := p.unused(ctx, c.VF, vf.Netdev); err != nil {
		return nil, err
	}
	if err := podReady(ctx, pod, []string{c.VF, id.PF.Name}, args); err != nil {
		return nil, err
	}
	r := newRecord(c, args, pod.ID(), id, vf)
	r.Boot = p.Host.Boot
	r.Before.Settings = had(vf.Settings, c.settings(st.PF(id.PF).Eswitch))
	if vf.Netdev.Exists() && !r.Userspace {
		l, err := p.Host.Links.Link(ctx, vf.Netdev.Ifindex)
		if err != nil {
			return nil, err
		}
		r.Before.AltNames, r.Before.Promisc = l.AltNames, l.Promisc
	}
	if c.GUID != "" && !r.Userspace {
		if err := p.bindable(ctx, r, vf); err != nil {
			return nil, err
		}
	}
	if r.RDMA, err = p.movable(ctx, st.RDMA.Mode, vf); err != nil {
		return nil, err
	}
	j.of(r, args.Path)
	if c.IPAM != "" {
		if err := p.IPAM.Find(j.call); err != nil {
			return nil, err
		}
	}
	if c.Bridge != "" {
		if err := j.bridgeReady(ctx, c); err != nil {
			return nil, err
		}
	}
	j.seek(c, st.PF(id.PF).Eswitch, vf.Netdev.MAC)
	j.want.Flows = c.Logical != ""
	if !r.Userspace {
		err = j.tune(ctx, c)
	} else if len(c.Sysctls) > 0 {
		err = coded(types.ErrInvalidNetworkConfig, "sysctls: a program drives %s, and there is no interface for them: want them away", record.Name(c.VF))
	}
	if err != nil {
		return nil, err
	}
	j.look(st)
	if c.Bridge != "" {
		j.stale &^= aspectPort // bridgeReady has seen that there is none
	}
	saved := p.span("record", "begin")
	if err := store.Save(j.rec); err != nil {
		return nil, coded(types.ErrIOFailure, "record the attachment of %s: %w", record.Name(c.VF), err)
	}
	saved()
	begun = true
	return j, nil
}

// seek makes j's goal what the configuration wants of a VF whose PF is in that mode.
func (j *job) seek(c Config, mode nic.Eswitch, mac nic.MAC) {
	j.want.MAC, j.want.MTU, j.want.Settings = c.MAC, c.MTU, c.settings(mode)
	j.want.GUID, j.want.Port = c.GUID, offload.Port{}
	if c.Bridge != "" {
		j.want.Port = port(c, j.rec, mac)
	}
}

func newRecord(c Config, args *skel.CmdArgs, netnsID string, id functionID, vf *nic.VF) *record.Record {
	return &record.Record{
		Started: time.Now().UTC(), Container: args.ContainerID, IfName: args.IfName,
		Netns: args.Netns, NetnsID: netnsID, Pod: c.Pod, With: c.With,
		VF: c.VF, PF: id.PF, Index: id.Index, SF: id.SF, Userspace: userspace(vf), Representor: vf.Rep.Netdev.Name,
		Bridge: c.Bridge, OVSDB: c.OVSDB,
		Network: c.Name, Config: c.Raw, Args: c.Args, Path: args.Path, IPAM: c.IPAM,
		Before: record.Before{
			Name: vf.Netdev.Name, AdminMAC: vf.MAC, MAC: vf.Netdev.MAC, MTU: vf.Netdev.MTU, Up: vf.Netdev.Up,
			RepMTU: vf.Rep.Netdev.MTU, RepUp: vf.Rep.Netdev.Up,
		},
	}
}

// had is what a VF has of the settings that are wanted, and of those of its netdev.
func had(have, want nic.Settings) nic.Settings {
	var out nic.Settings
	for name, value := range have {
		if _, wanted := want[name]; wanted || ofNetdev(name) {
			out = out.With(name, value)
		}
	}
	return out
}

// ofNetdev says that a setting is of the VF's netdev, so that whoever has that can
// change it.
func ofNetdev(name nic.Setting) bool {
	switch name {
	case nic.Channels, nic.RxRing, nic.TxRing, nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4:
		return true
	}
	return false
}

// movable lists the RDMA devices that have to go where the VF goes: in exclusive
// mode those of the VF itself. Soft ones on its netdev cannot move, and end when it
// does.
func (p *Plugin) movable(ctx context.Context, mode nic.RDMAMode, vf *nic.VF) ([]string, error) {
	if mode != nic.RDMAExclusive || len(vf.RDMA) == 0 || userspace(vf) {
		return nil, nil
	}
	all, err := p.Host.RDMA.Devices(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range all {
		if d.Parent == vf.Address {
			out = append(out, d.Name)
		}
	}
	return out, nil
}

func (p *Plugin) open(ctx context.Context, path string) (host.NetnsLinks, error) {
	pod, err := p.Host.Netns.Open(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, coded(types.ErrInvalidNetNS, "CNI_NETNS = %q: there is no such network namespace", path)
	}
	if err != nil {
		return nil, coded(types.ErrInvalidNetNS, "CNI_NETNS = %q: %w", path, err)
	}
	return pod, nil
}

// attachable finds the VF or SF of a configuration and says what is wrong with it. away is who
// has its representor in a pod, "" for nobody.
func attachable(st nic.State, c Config, away string) (functionID, *nic.VF, error) {
	id, vf := function(st, c.VF)
	if vf == nil {
		return id, nil, noFunction(st, c.VF)
	}
	bad := func(format string, args ...any) (functionID, *nic.VF, error) {
		return id, nil, coded(ErrNode, "%s (%s) "+format, append([]any{record.Name(c.VF), id}, args...)...)
	}
	pf := st.PF(id.PF)
	if err := fits(c, pf, vf, away); err != nil {
		return id, nil, err
	}
	switch {
	case vf.Away:
		return bad("has its netdev in another network namespace, and sluice has no record of it: want it back in the host's")
	case c.Bridge != "" && !vf.Rep.Exists():
		return bad("has no representor netdev: want devlink port %s/%d with one (devlink port show)", id.PF, vf.Rep.Port)
	case vf.Settings[nic.VDPA] == "virtio":
		return bad("has a vDPA device that virtio drives on the host: want vhost, for a program, or none")
	case userspace(vf):
	case id.SF && !vf.Netdev.Exists():
		return bad("has no netdev: want it active, and its auxiliary device bound to its driver (devlink port function show %s/%d)", id.PF, vf.Rep.Port)
	case vf.Driver == "":
		return bad("is bound to no driver: want the kernel's network driver on it, or vfio-pci for a program")
	case !vf.Netdev.Exists():
		return bad("has no netdev with driver %s: want the kernel's network driver on it, or vfio-pci for a program", vf.Driver)
	}
	return id, vf, nil
}

// fits refuses what the mode that the PF is in, or the driver, cannot do.
func fits(c Config, pf *nic.PF, vf *nic.VF, away string) error {
	switchdev := pf.Eswitch == nic.Switchdev
	switch {
	case away != "" && c.Bridge != "":
		return coded(ErrNode, "bridge = %q: the representor of %s is in a pod, with %s: want no bridge, or that pod's end", c.Bridge, record.Name(c.VF), away)
	case away != "": // what is there for it, is in that pod
	case switchdev && c.Bridge == "":
		return coded(types.ErrInvalidNetworkConfig, "bridge is missing: %s is on a PF in switchdev mode: want the name of an Open vSwitch bridge for its representor", record.Name(c.VF))
	case !switchdev && c.Bridge != "" && pf.Eswitch == "":
		return coded(ErrNode, "bridge = %q: VF %s is on a PF without an eswitch: want a NIC that can do switchdev, or no bridge, for a VF that is in none", c.Bridge, c.VF)
	case !switchdev && c.Bridge != "":
		return coded(ErrNode, "bridge = %q: VF %s is on a PF with its eswitch in %s mode, so it has no representor: want switchdev (eswitch: switchdev in the node's NodeNIC, sluice apply), or no bridge, for a VF that is in none", c.Bridge, c.VF, pf.Eswitch)
	}
	if err := c.fitsLink(pf, vf); err != nil {
		return err
	}
	if only := c.VFFields.legacyOnly(); switchdev && len(only) > 0 {
		f := only[0]
		return coded(types.ErrInvalidNetworkConfig, "%s = %s: %s is on a PF in switchdev mode, which has no such thing: want it away: %s", f[0], f[1], record.Name(c.VF), f[2])
	}
	want := c.settings(pf.Eswitch)
	for _, name := range want.Names() {
		if _, can := vf.Settings[name]; !can {
			return coded(types.ErrInvalidNetworkConfig, "%s = %s: driver %s cannot set it on %s as the PF is now: want it away", fieldOf(name), want[name], pf.Driver, record.Name(c.VF))
		}
		n, _ := strconv.Atoi(want[name])
		if most, bounded := vf.Limits[name]; bounded && n > most {
			return coded(types.ErrInvalidNetworkConfig, "%s = %d: %s takes at most %d", fieldOf(name), n, record.Name(c.VF), most)
		}
	}
	return nil
}

// userspace says that a program is to drive the VF: itself, or its vDPA device through
// vhost. There is no netdev to attach then, or none that carries the traffic.
func userspace(vf *nic.VF) bool {
	switch vf.Driver {
	case "vfio-pci", "uio_pci_generic", "igb_uio":
		return true
	}
	return vf.Settings[nic.VDPA] == "vhost"
}

// unused refuses a netdev of a VF that the host itself has put to use.
func (p *Plugin) unused(ctx context.Context, vf string, n nic.Netdev) error {
	if !n.Exists() {
		return nil
	}
	l, err := p.Host.Links.Link(ctx, n.Ifindex)
	if err != nil {
		return err
	}
	if l.Master != 0 {
		master := fmt.Sprintf("ifindex %d", l.Master)
		if m, err := p.Host.Links.Link(ctx, l.Master); err == nil {
			master = m.Name
		}
		return coded(ErrNode, "%s: its netdev %s is a port of %s on the host: want it free", record.Name(vf), l.Name, master)
	}
	return nil
}

// podReady refuses a namespace where the interface cannot be put: it has a netdev of
// the devices that are the host's own, or one of the interface's name.
func podReady(ctx context.Context, pod host.Links, own []string, args *skel.CmdArgs) error {
	all, err := pod.Links(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		switch {
		case slices.Contains(own, l.Parent):
			// The VF and its PF are in the host's namespace, as was just seen.
			return coded(types.ErrInvalidNetNS, "CNI_NETNS = %q: it is the host's own network namespace: want the pod's", args.Netns)
		case l.Name == args.IfName, slices.Contains(l.AltNames, args.IfName):
			return coded(types.ErrInvalidEnvironmentVariables, "CNI_IFNAME = %q: there is an interface of this name in %s already", args.IfName, args.Netns)
		}
	}
	return nil
}

// bridgeReady refuses an Open vSwitch that is not there, a bridge that is not,
// and a representor or logical port that somebody else has.
func (j *job) bridgeReady(ctx context.Context, c Config) error {
	defer j.p.span("ovsdb", "check bridge")()
	return j.onSwitch(ctx, func(sw Switch) error {
		err := sw.CheckBridge(ctx, j.rec.Bridge)
		if errors.Is(err, offload.ErrNoBridge) {
			return coded(types.ErrInvalidNetworkConfig, "bridge = %q: %w", j.rec.Bridge, err)
		}
		if err != nil {
			return err
		}
		if err := j.vacate(ctx, sw); err != nil {
			return err
		}
		return j.succeed(ctx, sw, c)
	})
}
