package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
)

// job is the work on one recorded attachment, its VF locked.
type job struct {
	p     *Plugin
	store record.Store
	rec   *record.Record
	want  Want
	call  Call

	pod host.NetnsLinks // the attachment's namespace; nil when it cannot be reached
	sw  Switch          // nil until it is needed

	vf     functionID // zero: the VF is not there
	other  bool       // another SF has the name of its device
	pf     nic.PF     // its PF, as it was seen last
	port   uint32     // of its representor
	uplink int        // ifindex of its PF's netdev

	state  State
	stale  aspect
	result *current.Result // of the IPAM plugin
}

// of makes j the job of a record.
func (j *job) of(r *record.Record, cniPath string) {
	j.rec = r
	j.state.OfRep, j.state.SF = r.OfRep, r.SF
	j.state.Netkit = r.PairKind == string(host.Netkit)
	j.want = Want{VF: r.VF, IfName: r.IfName, Pair: r.Pair, PairKind: host.PairKind(cmp.Or(r.PairKind, string(host.Veth))), OfRep: r.OfRep, Userspace: r.Userspace, IPAM: r.IPAM, RDMA: r.RDMA, Before: r.Before}
	j.call = Call{
		Plugin: r.IPAM, Config: r.Config, Container: r.Container, Netns: r.Netns,
		IfName: r.IfName, Args: r.Args, Path: cniPath,
	}
}

// aspect is a part of the state. After a step the part that it touches is read
// again, and no more: reading everything is the most expensive thing that an
// attachment could do on a node with hundreds of VFs.
type aspect uint

const (
	aspectRep aspect = 1 << iota
	aspectVF
	aspectPlace
	aspectAdminMAC
	aspectSettings
	aspectPort
	aspectAddresses
	aspectRoutes
	aspectRDMA
	aspectFile
	aspectSysctls
	aspectGUID

	everything aspect = 1<<iota - 1
)

// touches says what a step changes.
func touches(s Step) aspect {
	dev := func(d Dev) aspect {
		if d.Side == Rep || d.Side == HostEnd || d.Side == HostNetkit {
			return aspectRep
		}
		return aspectVF
	}
	switch s := s.(type) {
	case SetMTU:
		return dev(s.Dev)
	case SetUp:
		return dev(s.Dev)
	case SetMAC:
		return dev(s.Dev)
	case Rename:
		return dev(s.Dev)
	case SetAltName:
		return dev(s.Dev)
	case SetPromisc:
		return dev(s.Dev)
	case SetAdminMAC:
		return aspectAdminMAC
	case SetSetting:
		return aspectSettings
	case UnbindVF, BindVF:
		return everything
	case AddPair, DelPair:
		return aspectPlace
	case SetSysctl:
		return aspectSysctls
	case Move, Await:
		return aspectPlace | aspectSettings // those of the netdev are read at home only
	case MoveRDMA:
		return aspectRDMA | aspectGUID // the host sees it of its own devices
	case Plug, Unplug:
		return aspectPort
	case Tell, Untell:
		return aspectFile
	case AddAddress:
		return aspectAddresses
	case AddRoute:
		return aspectRoutes
	case Lease:
		return aspectAddresses | aspectRoutes
	}
	return 0 // Release and Announce cannot be read back
}

// run converges on goal. The record is to be on the disk.
func (j *job) run(ctx context.Context, goal record.Goal) error {
	j.want.Goal, j.state.Rebound = goal, false
	entry := func(e record.Entry) error {
		defer j.p.span("record", "append entry")()
		e.Time, e.Goal = time.Now().UTC(), goal
		err := j.store.Append(j.rec, e)
		if goal == record.Detached {
			// Entries tell people what happened. A disk that is full must not
			// keep a VF from going home.
			return nil
		}
		return err
	}
	err := apply.Converge(ctx, apply.Loop[State, Step]{
		Observe: j.read,
		Next:    func(s State) (Step, bool) { return Next(j.want, s) },
		Intend:  func(s Step) error { return entry(record.Entry{Step: s.String()}) },
		Do:      j.do,
		Done: func(s Step, err error) error {
			if err == nil {
				return nil
			}
			return entry(record.Entry{Step: s.String(), Err: err.Error()})
		},
		Limit: 200,
	})
	if err != nil {
		return err
	}
	return entry(record.Entry{Done: true})
}

// do does one step.
func (j *job) do(ctx context.Context, step Step) error {
	defer j.p.span(kindOf(step), step.String())()
	j.stale |= touches(step)
	switch s := step.(type) {
	case SetMTU:
		return j.links(s.Dev).SetMTU(ctx, s.Dev.Ifindex, s.MTU)
	case SetUp:
		return j.links(s.Dev).SetUp(ctx, s.Dev.Ifindex, s.Up)
	case SetMAC:
		return j.links(s.Dev).SetMAC(ctx, s.Dev.Ifindex, s.MAC)
	case Rename:
		return j.rename(ctx, s)
	case SetAltName:
		return j.setAltName(ctx, s)
	case SetPromisc:
		return j.links(s.Dev).SetPromisc(ctx, s.Dev.Ifindex, s.On)
	case SetAdminMAC:
		return j.setAdminMAC(ctx, s.MAC)
	case SetSetting:
		if j.vf.SF {
			return j.p.Host.Settings.SetSF(ctx, j.pf, j.vf.Index, s.Name, s.Value)
		}
		return j.p.Host.Settings.SetVF(ctx, j.pf, j.vf.Index, s.Name, s.Value)
	case Move:
		if s.To == PodVF {
			err := j.p.Host.Links.Move(ctx, s.Dev.Ifindex, j.rec.Netns)
			if j.rec.OfRep && errors.Is(err, host.ErrNotSupported) {
				return pinned(j.rec.VF, j.rec.Before.Name, err) // by a kernel that did not tell before
			}
			return err
		}
		return j.pod.Move(ctx, s.Dev.Ifindex, "")
	case MoveRDMA:
		if s.To == PodVF {
			return j.p.Host.RDMA.Move(ctx, s.Name, j.rec.Netns)
		}
		return j.pod.MoveRDMA(ctx, s.Name, "")
	case AddPair:
		return j.addPair(ctx, s)
	case DelPair:
		return j.p.Host.Pairs.DelPair(ctx, s.Host)
	case UnbindVF:
		return j.p.Host.PCI.Unbind(ctx, s.VF)
	case BindVF:
		return j.bind(ctx, s)
	case Await:
		return j.await(ctx)
	case AwaitFlows:
		err := j.onSwitch(ctx, func(sw Switch) error { return sw.Installed(ctx, s.Representor) })
		j.state.Flows = err == nil
		return err
	case Plug:
		return j.onSwitch(ctx, func(sw Switch) error { return sw.Plug(ctx, s.Port) })
	case Unplug:
		return j.onSwitch(ctx, func(sw Switch) error { return sw.Unplug(ctx, s.Representor, s.Owner) })
	case Lease:
		return j.lease(ctx)
	case Release:
		if err := j.p.IPAM.Del(ctx, j.call); err != nil {
			return err
		}
		j.state.Released = true
		return nil
	case AddAddress:
		return j.pod.AddAddress(ctx, s.Dev.Ifindex, s.Address)
	case AddRoute:
		return j.pod.AddRoute(ctx, s.Dev.Ifindex, s.Route)
	case SetSysctl:
		return j.setSysctl(ctx, s)
	case Tell:
		if err := j.files().Write(j.rec.Key(), j.file()); err != nil {
			return coded(types.ErrIOFailure, "%w", err)
		}
		j.state.Told = true
		return nil
	case Untell:
		return j.files().Remove(j.rec.Key())
	case Announce:
		j.announce(ctx, s)
		return nil
	}
	return fmt.Errorf("no way to %s", step)
}

func (j *job) links(d Dev) host.Links {
	if d.Side.inPod() {
		return j.pod
	}
	return j.p.Host.Links
}

// rename gives the VF's netdev a name. Going home it may find that another
// interface has its name by now; names identify nothing, so it keeps the
// temporary one rather than being stuck.
func (j *job) rename(ctx context.Context, s Rename) error {
	err := j.links(s.Dev).SetName(ctx, s.Dev.Ifindex, s.To)
	if errors.Is(err, fs.ErrExist) && (s.Dev.Side == HostVF || s.Dev.Side == HostSF || s.Dev.Side == HomeRep) && j.want.Goal == record.Detached && s.To != j.want.temp() {
		j.state.NameTaken = true
		return nil
	}
	return err
}

// setAltName does without a name that another interface has by now.
func (j *job) setAltName(ctx context.Context, s SetAltName) error {
	err := j.links(s.Dev).SetAltName(ctx, s.Dev.Ifindex, s.Name, s.On)
	if errors.Is(err, fs.ErrExist) && s.On {
		j.state.AltTaken = append(j.state.AltTaken, s.Name)
		return nil
	}
	return err
}

// setAdminMAC goes by the port function, or where a driver has none by the PF's
// netdev, which mlx5 takes in switchdev mode too (esw/legacy.c,
// mlx5_eswitch_set_vport_mac).
func (j *job) setAdminMAC(ctx context.Context, mac nic.MAC) error {
	err := host.ErrNotSupported // a VF in legacy mode has no port
	if j.state.Rep.Exists() {
		err = j.p.Host.Devlink.SetPortMAC(ctx, j.vf.PF, j.port, mac)
	}
	if errors.Is(err, host.ErrNotSupported) && j.uplink != 0 && !j.vf.SF {
		return j.p.Host.Links.SetVFMAC(ctx, j.uplink, j.vf.Index, mac)
	}
	return err
}

func (j *job) lease(ctx context.Context) error {
	r, err := j.p.IPAM.Add(ctx, j.call)
	if err != nil {
		return err
	}
	if j.rec.With != "" { // the default route is the first interface's
		r.Routes = slices.DeleteFunc(r.Routes, func(r *types.Route) bool {
			ones, _ := r.Dst.Mask.Size()
			return ones == 0
		})
	}
	a, err := addressing(j.call.Plugin, r)
	if err != nil {
		return err
	}
	j.result, j.state.Lease = r, a
	return nil
}

// announce is best effort: neighbours that miss it ask again.
func (j *job) announce(ctx context.Context, s Announce) {
	for _, a := range s.Addresses {
		_ = j.pod.Announce(ctx, s.Dev.Ifindex, a.Addr())
	}
	j.state.Announced = true
}

// await waits for the VF's netdev to appear in the host's namespace.
func (j *job) await(ctx context.Context) error {
	home, err := j.p.poll(ctx, j.p.Limits.Return, func(ctx context.Context) (bool, error) {
		_, ok, err := j.find(ctx, j.p.Host.Links)
		return ok, err
	})
	if err != nil {
		return err
	}
	if !home {
		return coded(types.ErrTryAgainLater, "%s is in a network namespace that %s does not lead to any more: want its last process to end",
			j.what(), j.rec.Netns)
	}
	return nil
}

// what is the netdev that the pod is given, in words.
func (j *job) what() string {
	if j.rec.OfRep {
		return "the representor of " + record.Name(j.rec.VF)
	}
	return "the netdev of " + record.Name(j.rec.VF)
}

// read answers the state, reading what is stale of it.
func (j *job) read(ctx context.Context) (State, error) {
	const pair = aspectRep | aspectVF | aspectPlace
	if j.want.Pair && j.stale&pair != 0 {
		if err := j.readPair(ctx); err != nil {
			return State{}, err
		}
		j.stale &= aspectAddresses | aspectRoutes | aspectPort | aspectSysctls
	}
	if j.stale == everything {
		st, err := j.p.observeOne(ctx, j.rec.VF)
		if err != nil {
			return State{}, err
		}
		j.look(st)
	}
	for _, r := range []struct {
		aspect aspect
		read   func(context.Context) error
	}{
		{aspectAdminMAC, j.readAdminMAC},
		{aspectRep, j.readRep},
		{aspectPlace, j.readPlace},
		{aspectVF, j.readVF},
		{aspectSettings, j.readSettings},
		{aspectRDMA, j.readRDMA},
		{aspectGUID, j.readGUID},
		{aspectAddresses, j.readAddresses},
		{aspectRoutes, j.readRoutes},
		{aspectPort, j.readPort},
		{aspectFile, j.readFile},
		{aspectSysctls, j.readSysctls},
	} {
		if j.stale&r.aspect == 0 {
			continue
		}
		if err := r.read(ctx); err != nil {
			return State{}, err
		}
		j.stale &^= r.aspect
	}
	if j.want.Goal == record.Attached && !j.want.Pair {
		switch {
		case unbound(j.want, j.state):
		case j.state.Rebound && j.state.Place == AtHome && j.state.GUID != j.want.GUID:
			return State{}, coded(ErrKernel, "guid = %s: the PF has it for %s, which was bound anew, and whose RDMA device has %s: want a driver that takes it", j.want.GUID, record.Name(j.rec.VF), j.state.GUID)
		case !j.want.Userspace && j.state.Place != AtHome && j.state.Place != InPod:
			return State{}, coded(ErrKernel, "%s is gone", j.what())
		case j.want.plugged() && !j.state.Rep.Exists():
			return State{}, coded(ErrKernel, "the representor of %s is gone", record.Name(j.rec.VF))
		}
	}
	return j.state, nil
}

// look takes from an observation of the whole node what it says about the VF.
func (j *job) look(st nic.State) {
	id, vf := j.function(st)
	j.stale = aspectPlace | aspectPort | aspectRDMA | aspectFile | aspectGUID
	j.state.Bound = true
	j.vf, j.port, j.uplink = id, 0, 0
	j.state.HasAdminMAC, j.state.AdminMAC, j.state.Rep = false, nic.MAC{}, nic.Netdev{}
	j.pf, j.state.Settings = nic.PF{}, nil
	if vf == nil {
		return
	}
	pf := st.PF(id.PF)
	j.port, j.uplink = vf.Rep.Port, pf.Uplink.Ifindex
	j.pf = pf.Clone()
	j.state.Rep, j.state.Settings = vf.Rep.Netdev, vf.Settings
	j.state.Bound = vf.Driver != ""
	j.state.HasAdminMAC = vf.Rep.Exists() || pf.Eswitch != nic.Switchdev && pf.Uplink.Exists() && !pf.InfiniBand
	j.state.AdminMAC = vf.MAC
	if j.rec.OfRep {
		j.state.HasAdminMAC, j.state.AdminMAC, j.state.Rep, j.state.Settings = false, nic.MAC{}, nic.Netdev{}, nil
		if vf.Rep.Exists() {
			j.state.Place, j.state.VF = AtHome, vf.Rep.Netdev
			j.stale = j.stale&^aspectPlace | aspectVF
		}
		return
	}
	if vf.Netdev.Exists() {
		j.state.Place, j.state.VF = AtHome, vf.Netdev
		j.stale = j.stale&^aspectPlace | aspectVF
	}
}

func (j *job) readRep(ctx context.Context) error {
	defer j.p.span("kernel", "read representor")()
	l, err := j.p.Host.Links.Link(ctx, j.state.Rep.Ifindex)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	j.state.Rep = l.Netdev
	return nil
}

// readAdminMAC asks devlink, or where ports have no function attributes reads the
// whole node again, for the VF rows of the PF's netdev.
func (j *job) readAdminMAC(ctx context.Context) error {
	defer j.p.span("kernel", "read administrative MAC")()
	if j.port != 0 {
		port, err := j.p.Host.Devlink.Port(ctx, j.vf.PF, j.port)
		switch {
		case err == nil && port.HasMAC:
			j.state.AdminMAC = port.MAC
			return nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	st, err := host.ObserveOne(ctx, j.p.Host, j.rec.VF)
	if err != nil {
		return err
	}
	if _, vf := j.function(st); vf != nil {
		j.state.AdminMAC = vf.MAC
	}
	return nil
}

func (j *job) readSettings(ctx context.Context) error {
	if j.vf.PF == (nic.Handle{}) || j.p.Host.Settings == nil || len(j.want.Settings)+len(j.want.Before.Settings) == 0 {
		return nil
	}
	if j.want.Goal == record.Attached && j.state.Place == InPod {
		return nil // all are set before it moves
	}
	defer j.p.span("kernel", "read settings")()
	var netdev nic.Netdev
	if j.state.Place == AtHome {
		netdev = j.state.VF
	}
	if j.vf.SF {
		f := j.pf.SF(j.vf.Index)
		f.Netdev = netdev
		err := j.p.Host.Settings.ReadSF(ctx, &j.pf, f.Num)
		j.state.Settings = f.Settings
		return err
	}
	vf := &j.pf.VFs[j.vf.Index]
	vf.Netdev = netdev
	err := j.p.Host.Settings.ReadVF(ctx, &j.pf, j.vf.Index)
	j.state.Settings = vf.Settings
	return err
}

func (j *job) readVF(ctx context.Context) error {
	if j.state.Place != AtHome && j.state.Place != InPod {
		return nil
	}
	defer j.p.span("kernel", "read VF netdev")()
	l, err := j.links(j.state.vf()).Link(ctx, j.state.VF.Ifindex)
	if errors.Is(err, fs.ErrNotExist) {
		return j.readPlace(ctx)
	}
	if err != nil {
		return err
	}
	j.saw(l)
	return nil
}

// saw takes what a link says of the VF's netdev.
func (j *job) saw(l host.Link) {
	j.state.VF, j.state.AltNames, j.state.Promisc = l.Netdev, l.AltNames, l.Promisc
}

// readPlace looks for the VF's netdev by its PCI address: its ifindex may have
// changed with the namespace, and its name with anything.
func (j *job) readPlace(ctx context.Context) error {
	defer j.p.span("kernel", "find VF netdev")()
	j.state.Place = Nowhere
	j.saw(host.Link{})
	j.stale |= aspectAddresses | aspectRoutes | aspectSysctls
	if j.pod != nil {
		l, ok, err := j.find(ctx, j.pod)
		if err != nil {
			return err
		}
		if ok {
			j.state.Place = InPod
			j.saw(l)
			return nil
		}
	}
	l, ok, err := j.find(ctx, j.p.Host.Links)
	if err != nil {
		return err
	}
	if ok {
		j.state.Place = AtHome
		j.saw(l)
		return nil
	}
	if j.rec.OfRep {
		return j.readRepPort(ctx)
	}
	if j.rec.SF {
		return j.readSFPlace(ctx)
	}
	functions, err := j.p.Host.PCI.Functions(ctx)
	if err != nil {
		return err
	}
	for _, f := range functions {
		if f.Address == j.rec.VF && f.Away {
			j.state.Place = Elsewhere
		}
	}
	return nil
}

// readSFPlace sees whether the SF has its netdev in a namespace that cannot be reached.
func (j *job) readSFPlace(ctx context.Context) error {
	all, err := j.p.Host.PCI.SFs(ctx)
	if err != nil {
		return err
	}
	for _, f := range all {
		if f.Name == j.rec.VF && nic.PCI(f.PF) == j.rec.PF && f.Num == j.rec.Index && f.Away {
			j.state.Place = Elsewhere
		}
	}
	return nil
}

// readRepPort sees by the representor's devlink port whether there is one anywhere.
func (j *job) readRepPort(ctx context.Context) error {
	if j.vf.PF == (nic.Handle{}) {
		return nil
	}
	_, err := j.p.Host.Devlink.Port(ctx, j.vf.PF, j.port)
	if err == nil {
		j.state.Place = Elsewhere
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// isIts says whether a link is the netdev that the pod is given.
func (j *job) isIts(l host.Link) bool {
	if j.rec.OfRep {
		return l.Parent == j.rec.PF.Name && l.PortName == j.rec.RepPort
	}
	return l.Parent == j.rec.VF && !j.other
}

// find looks for the netdev among links.
func (j *job) find(ctx context.Context, links host.Links) (host.Link, bool, error) {
	all, err := links.Links(ctx)
	if err != nil {
		return host.Link{}, false, err
	}
	for _, l := range all {
		if j.isIts(l) {
			return l, true, nil
		}
	}
	return host.Link{}, false, nil
}

// readRDMA asks the pod's namespace alone, and nothing for a VF without devices to
// move. In a namespace that cannot be reached none is known: it gives its devices
// back before its netdevs when it ends (rdma_dev_exit_net comes before
// default_device_exit_net).
func (j *job) readRDMA(ctx context.Context) error {
	j.state.RDMA = nil
	if j.pod == nil || len(j.rec.RDMA) == 0 {
		return nil
	}
	defer j.p.span("kernel", "list RDMA devices of the pod")()
	names, err := j.pod.RDMADevices(ctx)
	if err != nil {
		return err
	}
	for _, name := range j.rec.RDMA {
		if slices.Contains(names, name) {
			j.state.RDMA = append(j.state.RDMA, name)
		}
	}
	return nil
}

func (j *job) readAddresses(ctx context.Context) (err error) {
	j.state.Addresses = nil
	if j.state.Place == InPod && j.state.Lease != nil {
		defer j.p.span("kernel", "read addresses")()
		j.state.Addresses, err = j.pod.Addresses(ctx, j.state.VF.Ifindex)
	}
	return err
}

func (j *job) readRoutes(ctx context.Context) (err error) {
	j.state.Routes = nil
	if j.state.Place == InPod && j.state.Lease != nil {
		defer j.p.span("kernel", "read routes")()
		j.state.Routes, err = j.pod.Routes(ctx, j.state.VF.Ifindex)
	}
	return err
}

// readPort finds the port by the name that the representor had when it was
// plugged. Without Open vSwitch a detachment takes it for granted that the port
// is there, so that it gets done whatever else it can.
func (j *job) readPort(ctx context.Context) error {
	j.state.Port = nil
	if j.rec.Bridge == "" {
		return nil
	}
	defer j.p.span("ovsdb", "look up port")()
	err := j.onSwitch(ctx, func(sw Switch) error {
		p, err := sw.Lookup(ctx, j.rec.Representor)
		if err == nil && p.Owner == j.rec.Token() {
			j.state.Port = &p
		}
		return err
	})
	// Unavailable goes first: a socket that is not there is fs.ErrNotExist, too.
	switch {
	case errors.Is(err, ovsdb.ErrUnavailable) && j.want.Goal == record.Detached:
		j.state.Port = &offload.Port{Representor: j.rec.Representor, Owner: j.rec.Token()}
		return nil
	case errors.Is(err, ovsdb.ErrUnavailable):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// onSwitch calls f with the switch, connected. A connection that broke is not
// used again: Open vSwitch may be back by the next call.
func (j *job) onSwitch(ctx context.Context, f func(Switch) error) error {
	if j.sw == nil {
		sw, err := j.p.Switch(ctx, j.rec.OVSDB)
		if err != nil {
			return err
		}
		j.sw = sw
	}
	err := f(j.sw)
	if errors.Is(err, ovsdb.ErrUnavailable) {
		j.sw.Close()
		j.sw = nil
	}
	return err
}

func (j *job) close() {
	if j.pod != nil {
		j.pod.Close()
	}
	if j.sw != nil {
		j.sw.Close()
	}
}
