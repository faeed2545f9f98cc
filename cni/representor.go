package cni

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// A pod that is a switch of its own, or taps one, has the representor of a VF as its
// interface. The VF stays where it is: on the host, with a program, or in a pod of its
// own. To the work on such an attachment the representor is what else the VF's netdev is.

// checkRep refuses beside attach: representor what is of a VF or of a bridge of the host's.
func (c *Config) checkRep(bad func(format string, a ...any) error) error {
	f := c.VFFields
	switch {
	case c.Logical != "":
		return bad("network = %q: the pod itself is the switch: want it away", c.Logical)
	case c.Bridge != "":
		return bad("bridge = %q: the representor is in the pod, and in no bridge of the host's: want it away", c.Bridge)
	case c.VLAN != 0:
		return bad("vlan = %d: VLANs are for the switch in the pod: want it away", c.VLAN)
	case c.Trunk != nil:
		return bad("trunk = %s: VLANs are for the switch in the pod: want it away", offload.Ranges(c.Trunk))
	case c.GUID != "":
		return bad("guid = %s: the VF stays as it is: want it away", c.GUID)
	case f.MinRate != nil:
		return bad("min_tx_rate = %d: the VF stays as it is: want it away", *f.MinRate)
	case f.MaxRate != nil:
		return bad("max_tx_rate = %d: the VF stays as it is: want it away", *f.MaxRate)
	case len(f.ofNetdev()) > 0:
		name := slices.Sorted(maps.Keys(f.ofNetdev()))[0]
		return bad("%s = %s: the VF stays as it is: want it away", fieldOf(name), strconv.Itoa(f.ofNetdev()[name]))
	case len(f.legacyOnly()) > 0:
		only := f.legacyOnly()[0]
		return bad("%s = %s: the VF stays as it is: want it away", only[0], only[1])
	}
	return nil
}

// key is what the record of an attachment of this configuration is called.
func (c *Config) key() string { return c.keyOf(c.VF) }

func (c *Config) keyOf(vf string) string {
	if c.Attach == AttachRep {
		return record.RepKey(vf)
	}
	return vf
}

// representor finds the representor that a configuration is about, and says what is
// wrong with it.
func (p *Plugin) representor(ctx context.Context, store record.Store, st nic.State, c Config) (functionID, *nic.VF, host.Link, error) {
	id, vf := function(st, c.VF)
	no := func(err error) (functionID, *nic.VF, host.Link, error) { return id, nil, host.Link{}, err }
	bad := func(format string, args ...any) (functionID, *nic.VF, host.Link, error) {
		return no(coded(ErrNode, "%s (%s) "+format, append([]any{record.Name(c.VF), id}, args...)...))
	}
	if vf == nil {
		return no(noFunction(st, c.VF))
	}
	if mode := st.PF(id.PF).Eswitch; mode != nic.Switchdev {
		return bad("has no representor: its PF has its eswitch in %s mode: want switchdev (eswitch: switchdev in the node's NodeNIC, sluice apply)", orNo(mode))
	}
	if !vf.Rep.Exists() {
		return bad("has its representor in another network namespace, or none, and sluice has no record of it: want it back in the host's (devlink port show %s/%d)", id.PF, vf.Rep.Port)
	}
	switch r, err := store.Load(c.VF); {
	case err == nil && r.Bridge != "":
		return no(coded(types.ErrTryAgainLater, "%s is %s of %s, with its representor in bridge %s: want its DEL first", record.Name(c.VF), r.Progress(), r.Holder(), r.Bridge))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return no(coded(types.ErrTryAgainLater, "%s is held by nobody knows whom: %w: want that pod's end", record.Name(c.VF), err))
	}
	l, err := p.Host.Links.Link(ctx, vf.Rep.Netdev.Ifindex)
	if err != nil {
		return no(err)
	}
	if l.PortName == "" {
		return bad("has a representor, %s, without phys_port_name, so that it could not be found again: want a driver that gives it one", l.Name)
	}
	if err := p.unused(ctx, c.VF, vf.Rep.Netdev); err != nil {
		return no(err)
	}
	if err := p.Host.Links.Pinned(ctx, l.Ifindex); errors.Is(err, host.ErrNotSupported) {
		return no(pinned(c.VF, l.Name, err))
	} else if err != nil {
		return no(err)
	}
	return id, vf, l, nil
}

// pinned is the refusal of a representor that may not leave its network namespace.
func pinned(vf, name string, err error) error {
	return coded(types.ErrInvalidNetworkConfig,
		`attach = "representor": %s, that of %s, has to stay in the host's network namespace: %w: want a bridge of the host's for it (attach: device), the switch in the host's network namespace (hostNetwork: true), or a driver that does not pin its representors`, name, record.Name(vf), err)
}

func orNo(mode nic.Eswitch) string {
	if mode == "" {
		return "no"
	}
	return string(mode)
}

// beginRep is begin for a representor.
func (p *Plugin) beginRep(ctx context.Context, store record.Store, c Config, args *skel.CmdArgs) (*job, error) {
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
	if err := j.beginRep(ctx, c, args); err != nil {
		return nil, err
	}
	begun = true
	return j, nil
}

func (j *job) beginRep(ctx context.Context, c Config, args *skel.CmdArgs) error {
	st, err := j.p.observeOne(ctx, c.VF)
	if err != nil {
		return err
	}
	id, _, rep, err := j.p.representor(ctx, j.store, st, c)
	if err != nil {
		return err
	}
	if err := podReady(ctx, j.pod, []string{id.PF.Name}, args); err != nil {
		return err
	}
	r := newRecord(c, args, j.pod.ID(), id, &nic.VF{})
	r.Boot, r.OfRep, r.RepPort = j.p.Host.Boot, true, rep.PortName
	r.Before = record.Before{Name: rep.Name, MAC: rep.MAC, MTU: rep.MTU, Up: rep.Up, AltNames: rep.AltNames, Promisc: rep.Promisc}
	j.of(r, args.Path)
	if c.IPAM != "" {
		if err := j.p.IPAM.Find(j.call); err != nil {
			return err
		}
	}
	j.want.MAC, j.want.MTU = c.MAC, c.MTU
	if err := j.tune(ctx, c); err != nil {
		return err
	}
	j.look(st)
	defer j.p.span("record", "begin")()
	if err := j.store.Save(r); err != nil {
		return coded(types.ErrIOFailure, "record the attachment of the representor of %s: %w", record.Name(c.VF), err)
	}
	return nil
}

// repAway says in whose pod the representor of a VF is; "" in nobody's that sluice knows.
func repAway(store record.Store, vf string) (string, error) {
	r, err := store.Load(record.RepKey(vf))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", coded(types.ErrTryAgainLater, "the representor of %s is in a pod, and nobody knows in which: %w: want that pod's end", record.Name(vf), err)
	}
	return r.Holder(), nil
}

// salvageRep is salvage for a representor. At home it is as good as nobody's; in the
// namespace that the runtime names it is the container's, and otherwise nobody can say
// whose until that namespace ends.
func (p *Plugin) salvageRep(ctx context.Context, store record.Store, address string, args *skel.CmdArgs) (*record.Record, error) {
	st, err := p.observeOne(ctx, address)
	if err != nil {
		return nil, err
	}
	key := record.RepKey(address)
	id, vf := function(st, address)
	if vf == nil || vf.Rep.Exists() || st.PF(id.PF).Eswitch != nic.Switchdev {
		return nil, store.SetAside(key)
	}
	if args.Netns == "" {
		return nil, nil
	}
	pod, err := p.Host.Netns.Open(ctx, args.Netns)
	if err != nil {
		return nil, nil // it is gone, or its last process has it
	}
	defer pod.Close()
	all, err := pod.Links(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(l host.Link) bool {
		kind := "vf"
		if id.SF {
			kind = "sf"
		}
		return l.Parent == id.PF.Name && strings.HasSuffix(l.PortName, kind+strconv.Itoa(id.Index))
	})
	if i < 0 {
		return nil, nil
	}
	r := &record.Record{
		Started: time.Now().UTC(), Container: args.ContainerID, IfName: args.IfName, Netns: args.Netns, NetnsID: pod.ID(), Boot: p.Host.Boot,
		VF: address, PF: id.PF, Index: id.Index, SF: id.SF, OfRep: true, RepPort: all[i].PortName,
		Config: json.RawMessage("{}"), Path: args.Path,
		Before: record.Before{MAC: all[i].MAC, MTU: all[i].MTU},
	}
	r.Before.Name = Want{OfRep: true, VF: address}.temp()
	complete := record.Entry{Time: r.Started, Goal: record.Attached, Done: true}
	return r, errors.Join(store.SetAside(key), store.Save(r), store.Append(r, complete))
}
