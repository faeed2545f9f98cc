package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
	st, err := p.observe(ctx)
	if err != nil {
		return nil, err
	}
	id, vf, err := attachable(st, c.VF)
	if err != nil {
		return nil, err
	}
	if err := p.unused(ctx, vf); err != nil {
		return nil, err
	}
	if err := podReady(ctx, pod, c.VF, args); err != nil {
		return nil, err
	}
	r := newRecord(c, args, pod.ID(), id, vf)
	r.Boot = p.Host.Boot
	if r.RDMA, err = p.movable(ctx, st.RDMA.Mode, vf); err != nil {
		return nil, err
	}
	j.of(r, args.Path)
	if c.IPAM != "" {
		if err := p.IPAM.Find(j.call); err != nil {
			return nil, err
		}
	}
	if err := j.bridgeReady(ctx); err != nil {
		return nil, err
	}
	j.want.MAC, j.want.MTU, j.want.Port = c.MAC, c.MTU, port(c, j.rec, vf.Netdev.MAC)
	j.look(st)
	j.stale &^= aspectPort // bridgeReady has seen that there is none
	saved := p.span("record", "begin")
	if err := store.Save(j.rec); err != nil {
		return nil, coded(types.ErrIOFailure, "record the attachment of VF %s: %w", c.VF, err)
	}
	saved()
	begun = true
	return j, nil
}

func newRecord(c Config, args *skel.CmdArgs, netnsID string, id nic.VFID, vf *nic.VF) *record.Record {
	return &record.Record{
		Started: time.Now().UTC(), Container: args.ContainerID, IfName: args.IfName,
		Netns: args.Netns, NetnsID: netnsID, Pod: c.Pod,
		VF: c.VF, PF: id.PF, Index: id.Index, Representor: vf.Rep.Netdev.Name,
		Bridge: c.Bridge, OVSDB: c.OVSDB,
		Network: c.Name, Config: c.Raw, Args: c.Args, Path: args.Path, IPAM: c.IPAM,
		Before: record.Before{
			Name: vf.Netdev.Name, AdminMAC: vf.MAC, MAC: vf.Netdev.MAC, MTU: vf.Netdev.MTU, Up: vf.Netdev.Up,
			RepMTU: vf.Rep.Netdev.MTU, RepUp: vf.Rep.Netdev.Up,
		},
	}
}

// movable lists the RDMA devices that have to go where the VF goes: in exclusive
// mode those of the VF itself. Soft ones on its netdev cannot move, and end when it
// does.
func (p *Plugin) movable(ctx context.Context, mode nic.RDMAMode, vf *nic.VF) ([]string, error) {
	if mode != nic.RDMAExclusive || len(vf.RDMA) == 0 {
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

// attachable finds the VF at a PCI address and says what is wrong with it.
func attachable(st nic.State, address string) (nic.VFID, *nic.VF, error) {
	id, vf := st.VFAt(address)
	if vf == nil {
		return id, nil, noVF(st, address)
	}
	bad := func(format string, args ...any) (nic.VFID, *nic.VF, error) {
		return id, nil, coded(ErrNode, "VF %s (%s) "+format, append([]any{address, id}, args...)...)
	}
	switch pf := st.PF(id.PF); {
	case pf.Eswitch == "":
		return bad("is on a PF without an eswitch: want a NIC that can do switchdev")
	case pf.Eswitch != nic.Switchdev:
		return bad("is on a PF with its eswitch in %s mode, so it has no representor: want switchdev (eswitch: switchdev in the node's NodeNIC, sluice apply)", pf.Eswitch)
	case vf.Away:
		return bad("has its netdev in another network namespace, and sluice has no record of it: want it back in the host's")
	case vf.Driver == "":
		return bad("is bound to no driver: want the kernel's network driver on it")
	case !vf.Netdev.Exists():
		return bad("has no netdev with driver %s: want the kernel's network driver on it", vf.Driver)
	case !vf.Rep.Exists():
		return bad("has no representor netdev: want devlink port %s/%d with one (devlink port show)", id.PF, vf.Rep.Port)
	}
	return id, vf, nil
}

func noVF(st nic.State, address string) error {
	pf := st.PF(nic.PCI(address))
	switch {
	case pf == nil:
		return coded(ErrNode, "deviceID = %q: there is no network function of this PCI address: want a VF's (sluice observe lists them)", address)
	case len(pf.VFs) > 0:
		return coded(types.ErrInvalidNetworkConfig, "deviceID = %q: it is a PF: want one of its %d VFs, for example %s", address, len(pf.VFs), pf.VFs[0].Address)
	default:
		return coded(types.ErrInvalidNetworkConfig, "deviceID = %q: it is a PF, and has no VFs: want a VF", address)
	}
}

// unused refuses a VF that the host itself has put to use.
func (p *Plugin) unused(ctx context.Context, vf *nic.VF) error {
	l, err := p.Host.Links.Link(ctx, vf.Netdev.Ifindex)
	if err != nil {
		return err
	}
	if l.Master != 0 {
		master := fmt.Sprintf("ifindex %d", l.Master)
		if m, err := p.Host.Links.Link(ctx, l.Master); err == nil {
			master = m.Name
		}
		return coded(ErrNode, "VF %s: its netdev %s is a port of %s on the host: want it free", vf.Address, l.Name, master)
	}
	return nil
}

// podReady refuses a namespace where the interface cannot be put.
func podReady(ctx context.Context, pod host.Links, vf string, args *skel.CmdArgs) error {
	all, err := pod.Links(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		switch {
		case l.Parent == vf:
			// The VF is in the host's namespace, as was just seen.
			return coded(types.ErrInvalidNetNS, "CNI_NETNS = %q: it is the host's own network namespace: want the pod's", args.Netns)
		case l.Name == args.IfName, slices.Contains(l.AltNames, args.IfName):
			return coded(types.ErrInvalidEnvironmentVariables, "CNI_IFNAME = %q: there is an interface of this name in %s already", args.IfName, args.Netns)
		}
	}
	return nil
}

// bridgeReady refuses an Open vSwitch that is not there, a bridge that is not,
// and a representor that somebody else has plugged in.
func (j *job) bridgeReady(ctx context.Context) error {
	defer j.p.span("ovsdb", "check bridge")()
	return j.onSwitch(ctx, func(sw Switch) error {
		err := sw.CheckBridge(ctx, j.rec.Bridge)
		if errors.Is(err, offload.ErrNoBridge) {
			return coded(types.ErrInvalidNetworkConfig, "bridge = %q: %w", j.rec.Bridge, err)
		}
		if err != nil {
			return err
		}
		return vacate(ctx, sw, j.rec.Representor)
	})
}
