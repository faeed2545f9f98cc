package cni

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// A pod without a VF has a pair of software interfaces: one end is the pod's
// interface, the other the host's, which stands where a representor would.

// attachPair is attach for a pair.
func attachPair(w Want, s State) Step {
	home, pod := s.rep(), s.vf()
	switch {
	case s.Place != InPod || !s.Rep.Exists():
		return AddPair{w.PairKind, w.VF, w.IfName}
	case w.MTU != 0 && s.Rep.MTU != w.MTU:
		return SetMTU{home, w.MTU}
	case !s.Rep.Up:
		return SetUp{home, true}
	case !w.MAC.IsZero() && s.VF.MAC != w.MAC:
		return SetMAC{pod, w.MAC}
	case w.MTU != 0 && s.VF.MTU != w.MTU:
		return SetMTU{pod, w.MTU}
	case s.Port == nil || !samePort(*s.Port, w.pairPort(s)):
		return Plug{w.pairPort(s)}
	case untuned(w.Sysctls, s.Sysctls) != "":
		name := untuned(w.Sysctls, s.Sysctls)
		return SetSysctl{pod, name, w.Sysctls[name]}
	case !s.VF.Up:
		return SetUp{pod, true}
	case w.IPAM != "" && s.Lease == nil:
		return Lease{w.IPAM}
	}
	return address(pod, s)
}

// pairPort is the wanted port with the address that the pod's end came with.
func (w Want) pairPort(s State) offload.Port {
	p := w.port(s.Lease)
	p.ExternalIDs = maps.Clone(p.ExternalIDs)
	p.ExternalIDs[idMAC] = s.VF.MAC.String()
	return p
}

// detachPair is detach for a pair, which is nobody's before and after.
func detachPair(w Want, s State) Step {
	switch {
	case s.Rep.Exists():
		return DelPair{w.PairKind, w.VF}
	case s.Port != nil:
		return Unplug{s.Port.Representor, s.Port.Owner}
	case w.IPAM != "" && !s.Released:
		return Release{w.IPAM}
	}
	return nil
}

// beginPair is begin for a pair.
func (p *Plugin) beginPair(ctx context.Context, store record.Store, c Config, args *skel.CmdArgs) (*job, error) {
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
	if err := j.beginPair(ctx, c, args); err != nil {
		return nil, err
	}
	begun = true
	return j, nil
}

func (j *job) beginPair(ctx context.Context, c Config, args *skel.CmdArgs) error {
	home, err := j.p.Host.Links.Links(ctx)
	if err != nil {
		return err
	}
	var own []string // devices whose netdevs are the host's
	for _, l := range home {
		if l.Parent != "" {
			own = append(own, l.Parent)
		}
	}
	if err := podReady(ctx, j.pod, own, args); err != nil {
		return err
	}
	r := newRecord(c, args, j.pod.ID(), functionID{}, &nic.VF{})
	r.Boot, r.Pair, r.PairKind, r.Representor = j.p.Host.Boot, true, string(c.pairKind()), c.VF
	j.of(r, args.Path)
	if c.IPAM != "" {
		if err := j.p.IPAM.Find(j.call); err != nil {
			return err
		}
	}
	if err := j.bridgeReady(ctx, c); err != nil {
		return err
	}
	j.want.MAC, j.want.MTU, j.want.Port = c.MAC, c.MTU, port(c, r, c.MAC)
	if err := j.tune(ctx, c); err != nil {
		return err
	}
	j.stale = everything
	defer j.p.span("record", "begin")()
	if err := j.store.Save(r); err != nil {
		return coded(types.ErrIOFailure, "record the attachment of %s: %w", c.VF, err)
	}
	return nil
}

// readPair finds both ends by their names: they are what ADD has made of them.
func (j *job) readPair(ctx context.Context) error {
	defer j.p.span("kernel", "read pair")()
	j.state.Pair, j.state.Place, j.state.VF, j.state.Rep = true, Nowhere, nic.Netdev{}, nic.Netdev{}
	home, err := j.p.Host.Links.Links(ctx)
	if err != nil {
		return err
	}
	for _, l := range home {
		if l.Name == j.rec.VF && isPair(l) {
			j.state.Rep = l.Netdev
		}
	}
	if j.pod == nil {
		return nil
	}
	all, err := j.pod.Links(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.Name == j.rec.IfName && isPair(l) {
			j.state.Place, j.state.VF = InPod, l.Netdev
		}
	}
	return nil
}

// isPair says whether an interface is of a kind that pairs have.
func isPair(l host.Link) bool {
	return l.Kind == string(host.Veth) || l.Kind == string(host.Netkit)
}

// pairKind is the kind of pair of a configuration; what may be a VF too is veth.
func (c *Config) pairKind() host.PairKind {
	if c.Attach == AttachNetkit {
		return host.Netkit
	}
	return host.Veth
}

// addPair says of a kernel without netkit what to want instead.
func (j *job) addPair(ctx context.Context, s AddPair) error {
	err := j.p.Host.Pairs.AddPair(ctx, s.Kind, s.Host, s.Pod, j.rec.Netns)
	if s.Kind == host.Netkit && errors.Is(err, host.ErrNotSupported) {
		return coded(ErrNode, "attach = %q: this kernel has no netkit: %w: want one with CONFIG_NETKIT (Linux 6.7), or attach veth", AttachNetkit, err)
	}
	return err
}

// pair makes the interface the end of a pair.
func (c *Config) pair(args *skel.CmdArgs) error {
	bad := func(field, value string) error {
		return coded(types.ErrInvalidNetworkConfig, "network configuration %q: %s = %s: the pod has no VF, and a pair of software interfaces nothing of that: want it away", c.Name, field, value)
	}
	switch f := c.VFFields; {
	case c.GUID != "":
		return bad("guid", c.GUID)
	case f.MinRate != nil:
		return bad("min_tx_rate", strconv.Itoa(*f.MinRate))
	case f.MaxRate != nil:
		return bad("max_tx_rate", strconv.Itoa(*f.MaxRate))
	case len(f.ofNetdev()) > 0:
		name := slices.Sorted(maps.Keys(f.ofNetdev()))[0]
		return bad(fieldOf(name), strconv.Itoa(f.ofNetdev()[name]))
	case len(f.legacyOnly()) > 0:
		only := f.legacyOnly()[0]
		return bad(only[0], only[1])
	}
	c.Pair, c.VF = true, record.PairName(args.ContainerID, args.IfName)
	return nil
}
