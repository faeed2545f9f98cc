package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/devfile"
	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
)

// patience is how long a sweep waits for a VF that another process works on: what is
// worked on is no orphan, and the next sweep comes by again.
const patience = 200 * time.Millisecond

// Swept is what a sweep did, in sentences.
type Swept []string

func (s *Swept) say(format string, args ...any) { *s = append(*s, fmt.Sprintf(format, args...)) }

// GC sweeps the network of what is not in the list of valid attachments, and finishes
// what an earlier DEL could not.
func (p *Plugin) GC(ctx context.Context, args *skel.CmdArgs) error {
	return report(p.gc(ctx, args))
}

func (p *Plugin) gc(ctx context.Context, args *skel.CmdArgs) error {
	c, err := ParseConfig(args.StdinData, "")
	if err != nil {
		return err
	}
	valid, err := validAttachments(c.Name, args.StdinData)
	if err != nil {
		return err
	}
	isValid := func(r *record.Record) bool {
		return slices.ContainsFunc(valid, func(a types.GCAttachment) bool { return r.GoesWith(a.ContainerID, a.IfName) })
	}
	s := sweeper{p: p, store: record.In(c.StateDir), endpoint: c.OVSDB, path: args.Path}
	s.goes = func(ctx context.Context, j *job) (string, error) {
		switch {
		case networkOf(j.rec) == "": // salvaged
			return endedPod(ctx, j)
		case networkOf(j.rec) != c.Name:
			return "", nil
		case !isValid(j.rec):
			return "it is not among the valid attachments of network " + c.Name, nil
		case !j.rec.Attached():
			return "it is " + j.rec.Progress(), nil
		}
		return "", nil
	}
	err = errors.Join(s.sweep(ctx), p.gcNetworks(ctx, c, args.Path))
	if c.IPAM != "" {
		call := Call{Plugin: c.IPAM, Config: c.Raw, Path: args.Path}
		err = errors.Join(err, p.IPAM.GC(ctx, call))
	}
	return err
}

// validAttachments reads the list that libcni and the specification put under these
// two names. Without one nothing is known of what is valid, so nothing may go.
func validAttachments(network string, stdin []byte) ([]types.GCAttachment, error) {
	members, err := object(stdin)
	if err != nil {
		return nil, coded(types.ErrDecodingFailure, "network configuration: %w", err)
	}
	for _, name := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
		raw, ok := members[name]
		if !ok || string(raw) == "null" {
			continue
		}
		var out []types.GCAttachment
		if err := json.Unmarshal(raw, &out); err != nil {
			return nil, coded(types.ErrInvalidNetworkConfig, "network configuration %q: %s = %s: want a list of {containerID, ifname}", network, name, raw)
		}
		return out, nil
	}
	return nil, coded(types.ErrInvalidNetworkConfig, "network configuration %q: cni.dev/valid-attachments is missing: want the list of attachments that stay, [] for none", network)
}

// networkOf is the name of the network that an attachment is of.
func networkOf(r *record.Record) string {
	if r.Network != "" {
		return r.Network
	}
	var c struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(r.Config, &c) // of a record without one: of no network
	return c.Name
}

// Sweep takes down what the machine itself shows to be nobody's, whatever network it
// is of: attachments of an earlier boot, of an ADD or DEL that was cut off, and of
// pods that have ended, whose VF the kernel has brought home; and ports with our mark
// without a record, in the Open vSwitch at endpoint ("" in none). Everything else
// stays, so it may run at any time. It answers what it did, also with an error.
//
// IPAM plugins are looked for where the attachment's runtime has them; addresses that
// cannot be given back leave the record for DEL or GC.
func (p *Plugin) Sweep(ctx context.Context, stateDir, endpoint string) (Swept, error) {
	s := sweeper{p: p, store: record.In(stateDir), endpoint: endpoint}
	s.goes = func(ctx context.Context, j *job) (string, error) {
		switch {
		case j.rec.Outlived(p.Host.Boot):
			return "it is of another boot", nil
		case !j.rec.Attached():
			return "it is " + j.rec.Progress(), nil
		}
		return endedPod(ctx, j)
	}
	err := s.sweep(ctx)
	return s.swept, err
}

// endedPod says so of a complete attachment whose VF is home.
func endedPod(ctx context.Context, j *job) (string, error) {
	alive, err := j.inPlace(ctx)
	if err != nil || alive {
		return "", err
	}
	return "its pod has ended", nil
}

// sweeper is one sweep.
type sweeper struct {
	p        *Plugin
	store    record.Store
	endpoint string
	path     string // CNI_PATH; "" as recorded

	// goes says why an attachment is nobody's, "" when it stays.
	goes func(context.Context, *job) (string, error)

	swept Swept
}

// sweep goes on after an error: what can be swept is.
func (s *sweeper) sweep(ctx context.Context) error {
	// The ports come first. An ADD records before it plugs, so one of these without
	// a record later on is not one that is only just being made.
	ports, errPorts := s.ports(ctx)
	found, err := s.store.All()
	if err != nil {
		return err
	}
	if errors.Is(errPorts, ovsdb.ErrUnavailable) && len(found) == 0 {
		errPorts = nil // a node whose pods are in no Open vSwitch
	}
	errs := []error{errPorts}
	owned := map[string]bool{}
	for _, f := range found {
		if f.Err == nil {
			owned[f.Record.Token()] = true
		}
		errs = append(errs, s.one(ctx, f.VF))
	}
	for _, port := range ports {
		if !owned[port.Owner] {
			errs = append(errs, s.unplug(ctx, port))
		}
	}
	return errors.Join(append(errs, s.pairs(ctx), s.files(ctx))...)
}

// pairs removes pairs of ours of which there is no record.
func (s *sweeper) pairs(ctx context.Context) error {
	links, err := s.p.Host.Links.Links(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if !isPair(l) || !record.IsPairName(l.Name) {
			continue
		}
		errs = append(errs, s.locked(ctx, l.Name, func(ctx context.Context) error {
			if _, err := s.store.Load(l.Name); !errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err := s.p.Host.Pairs.DelPair(ctx, l.Name); err != nil {
				return err
			}
			s.swept.say("pair %s, of which there is no record, is removed", l.Name)
			return nil
		}))
	}
	return errors.Join(errs...)
}

// files removes device files of attachments of which there is no record.
func (s *sweeper) files(ctx context.Context) error {
	files := devfile.In(s.store.StateDir())
	keys, err := files.Keys()
	errs := []error{err}
	for _, key := range keys {
		errs = append(errs, s.locked(ctx, key, func(context.Context) error {
			if _, err := s.store.Load(key); !errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err := files.Remove(key); err != nil {
				return err
			}
			s.swept.say("the device file of %s, of which there is no record, is removed", key)
			return nil
		}))
	}
	return errors.Join(errs...)
}

func (s *sweeper) ports(ctx context.Context) ([]offload.Port, error) {
	if s.endpoint == "" {
		return nil, nil
	}
	sw, err := s.p.Switch(ctx, s.endpoint)
	if err != nil {
		return nil, err
	}
	defer sw.Close()
	return sw.Owned(ctx)
}

// locked does f while nobody else works on a VF; a VF that somebody works on is left
// to him.
func (s *sweeper) locked(ctx context.Context, vf string, f func(context.Context) error) error {
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	unlock, err := s.store.Lock(waiting, vf)
	if errors.Is(err, record.ErrLocked) && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, s.p.Limits.Run)
	defer cancel()
	return f(ctx)
}

// one sweeps the attachment of one VF.
func (s *sweeper) one(ctx context.Context, vf string) error {
	return s.locked(ctx, vf, func(ctx context.Context) error {
		args := &skel.CmdArgs{Path: s.path}
		r, err := s.store.Load(vf)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			r, err = s.p.salvage(ctx, s.store, vf, s.endpoint, args)
			if err != nil || r == nil {
				return err
			}
			s.swept.say("the record of %s could not be read and is set aside", record.Name(vf))
		}
		j := s.p.resume(ctx, s.store, r, args)
		defer j.close()
		why, err := s.goes(ctx, j)
		if err != nil || why == "" {
			return err
		}
		if err := j.detach(ctx); err != nil {
			return fmt.Errorf("take down %s of %s, as %s: %w", record.Name(vf), r.Holder(), why, err)
		}
		s.swept.say("%s of %s is taken down: %s", record.Name(vf), r.Holder(), why)
		return nil
	})
}

// unplug removes a port that has our mark and no record. Only while its VF is locked
// is it sure that none is being made.
func (s *sweeper) unplug(ctx context.Context, port offload.Port) error {
	st, err := s.p.observe(ctx)
	if err != nil {
		return err
	}
	remove := func(ctx context.Context) error {
		found, err := s.store.All()
		if err != nil {
			return err
		}
		for _, f := range found {
			if f.Err == nil && f.Record.Token() == port.Owner {
				return nil
			}
		}
		sw, err := s.p.Switch(ctx, s.endpoint)
		if err != nil {
			return err
		}
		defer sw.Close()
		if err := sw.Unplug(ctx, port.Representor, port.Owner); err != nil {
			return err
		}
		s.swept.say("port %s of %s, of which there is no record, is unplugged", port.Representor, port.Owner)
		return nil
	}
	vf := behind(st, port.Representor)
	if record.IsPairName(port.Representor) {
		vf = port.Representor
	}
	if vf == "" { // no representor of that name: nothing can be plugged under it
		return remove(ctx)
	}
	return s.locked(ctx, vf, remove)
}

// behind is the ID of the VF or SF that has a representor of this name, "" none.
func behind(st nic.State, representor string) string {
	for _, pf := range st.PFs {
		for _, vf := range pf.VFs {
			if vf.Rep.Netdev.Name == representor {
				return vf.Address
			}
		}
		for _, sf := range pf.SFs {
			if sf.Rep.Name == representor {
				return sf.Device
			}
		}
	}
	return ""
}

// salvage makes a record that can be read of one that cannot, from the port that the
// attachment has in Open vSwitch; what only the record knew is taken to have been as
// it is. The damaged one is set aside. It answers nil where nothing of the attachment
// is left, or nobody can say whose it is: the VF is in a namespace that nobody named.
func (p *Plugin) salvage(ctx context.Context, store record.Store, address, endpoint string, args *skel.CmdArgs) (*record.Record, error) {
	if record.IsPairName(address) {
		return p.salvagePair(ctx, store, address, endpoint, args)
	}
	if vf, ok := strings.CutSuffix(address, record.RepKey("")); ok {
		return p.salvageRep(ctx, store, vf, args)
	}
	st, err := p.observeOne(ctx, address)
	if err != nil {
		return nil, err
	}
	id, vf := function(st, address)
	if vf == nil { // a VF that is not there is nobody's
		return nil, store.SetAside(address)
	}
	r := &record.Record{
		Started: time.Now().UTC(), Container: args.ContainerID, IfName: args.IfName, Netns: args.Netns, Boot: p.Host.Boot,
		VF: address, PF: id.PF, Index: id.Index, SF: id.SF, Representor: vf.Rep.Netdev.Name, OVSDB: endpoint,
		Config: json.RawMessage("{}"), Path: args.Path,
		Before: record.Before{
			Name: vf.Netdev.Name, AdminMAC: vf.MAC, MAC: vf.Netdev.MAC, MTU: vf.Netdev.MTU, Up: vf.Netdev.Up,
			RepMTU: vf.Rep.Netdev.MTU, RepUp: vf.Rep.Netdev.Up,
		},
	}
	port, err := p.portOf(ctx, endpoint, r.Representor)
	if err != nil {
		return nil, fmt.Errorf("the record of %s cannot be read, and its port cannot be looked up: %w", record.Name(address), err)
	}
	inPod, err := p.salvagePod(ctx, r)
	if err != nil {
		return nil, err
	}
	switch {
	case port != nil:
		if port.Owner != r.Token() { // the namespace that was named is another's
			r.Netns, r.NetnsID = "", ""
		}
		slash := strings.LastIndex(port.Owner, "/")
		r.Container, r.IfName = port.Owner[:max(slash, 0)], port.Owner[slash+1:]
		r.Bridge = port.Bridge
		if name := port.ExternalIDs[idVFNetdev]; name != "" {
			r.Before.Name = name
		}
		r.Before.Up, r.Before.RepUp = false, false
	case inPod: // the container that is asked about has it
	case vf.Away:
		return nil, nil
	default:
		return nil, store.SetAside(address)
	}
	// What it was at is not known, and it is not for a sweep to end a pod's network:
	// it passes for complete.
	complete := record.Entry{Time: r.Started, Goal: record.Attached, Done: true}
	return r, errors.Join(store.SetAside(address), store.Save(r), store.Append(r, complete))
}

// salvagePair is salvage for a pair, whose name says whose it may be and whose port says
// whose it is.
func (p *Plugin) salvagePair(ctx context.Context, store record.Store, name, endpoint string, args *skel.CmdArgs) (*record.Record, error) {
	port, err := p.portOf(ctx, endpoint, name)
	if err != nil {
		return nil, fmt.Errorf("the record of %s cannot be read, and its port cannot be looked up: %w", name, err)
	}
	r := &record.Record{
		Started: time.Now().UTC(), Boot: p.Host.Boot, VF: name, Pair: true, Representor: name, OVSDB: endpoint,
		Config: json.RawMessage("{}"), Path: args.Path,
	}
	switch {
	case port != nil:
		slash := strings.LastIndex(port.Owner, "/")
		r.Container, r.IfName, r.Bridge = port.Owner[:max(slash, 0)], port.Owner[slash+1:], port.Bridge
	case record.PairName(args.ContainerID, args.IfName) == name:
		r.Container, r.IfName, r.Netns = args.ContainerID, args.IfName, args.Netns
	default: // without a port it carries nothing
		return nil, errors.Join(p.Host.Pairs.DelPair(ctx, name), store.SetAside(name))
	}
	complete := record.Entry{Time: r.Started, Goal: record.Attached, Done: true}
	return r, errors.Join(store.SetAside(name), store.Save(r), store.Append(r, complete))
}

// portOf is the port with our mark of a representor; nil for none.
func (p *Plugin) portOf(ctx context.Context, endpoint, representor string) (*offload.Port, error) {
	if representor == "" {
		return nil, nil
	}
	sw, err := p.Switch(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	defer sw.Close()
	owned, err := sw.Owned(ctx)
	if err != nil {
		return nil, err
	}
	for _, port := range owned {
		if port.Representor == representor {
			return &port, nil
		}
	}
	return nil, nil
}

// salvagePod looks for the VF in the namespace that the runtime names, and takes what
// it is there for what it was.
func (p *Plugin) salvagePod(ctx context.Context, r *record.Record) (bool, error) {
	if r.Netns == "" {
		return false, nil
	}
	pod, err := p.Host.Netns.Open(ctx, r.Netns)
	if err != nil {
		return false, nil // it is gone, and what was in it at home
	}
	defer pod.Close()
	all, err := pod.Links(ctx)
	if err != nil {
		return false, err
	}
	r.NetnsID = pod.ID()
	for _, l := range all {
		if l.Parent == r.VF {
			r.Before.Name, r.Before.MAC, r.Before.MTU = TempName(r.VF), l.MAC, l.MTU
			return true, nil
		}
	}
	return false, nil
}
