package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host"
)

// Versions lists the versions of the CNI specification that the plugin speaks.
func Versions() []string { return []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// Plugin is the CNI plugin on one node. Its methods are what a runtime's
// commands call; the errors they return are *types.Error.
type Plugin struct {
	Host   host.Machine
	Switch func(ctx context.Context, endpoint string) (Switch, error)
	IPAM   IPAM
	Out    io.Writer // where results go
	Limits Limits

	// Trace is told of every piece of work when it is done; nil for nobody.
	Trace func(Span)
}

// Limits bounds what a command waits for.
type Limits struct {
	Lock   time.Duration // another process that works on the same VF
	Run    time.Duration // the whole of a command
	Undo   time.Duration // taking a failed ADD back, on top of Run
	Return time.Duration // a VF coming back from a namespace that ended
}

// DefaultLimits fit a runtime that gives a pod's network two minutes, as the
// kubelet does for all of a sandbox's work by default.
func DefaultLimits() Limits {
	return Limits{
		Lock: 15 * time.Second, Run: 60 * time.Second, Undo: 30 * time.Second,
		Return: 10 * time.Second,
	}
}

// Add attaches the VF and prints the result. When it fails, everything is as it
// was before; only what could not be undone stays recorded for DEL.
func (p *Plugin) Add(ctx context.Context, args *skel.CmdArgs) error {
	return report(p.add(ctx, args))
}

// named refuses names that no DEL would find again.
func named(args *skel.CmdArgs) error {
	switch {
	case !isIfName(args.IfName):
		return coded(types.ErrInvalidEnvironmentVariables, "CNI_IFNAME = %q: want an interface's name, 1 to 15 printable characters without /, : and spaces", args.IfName)
	case !isPrintable(args.ContainerID):
		return coded(types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID = %q: want printable characters", args.ContainerID)
	}
	return nil
}

func (p *Plugin) add(ctx context.Context, args *skel.CmdArgs) error {
	c, err := ParseConfig(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	if err := named(args); err != nil {
		return err
	}
	more, err := c.further(args)
	if err != nil {
		return err
	}
	result, err := p.attach(ctx, c, args)
	if err != nil {
		return err
	}
	for _, m := range more {
		m.Prev = result
		if result, err = p.attach(ctx, m.Config, m.args); err != nil {
			return p.undoAll(ctx, c, args, fmt.Errorf("interface %s, by annotation %s: %w", m.args.IfName, annotation, err))
		}
	}
	return printResult(p.Out, c.CNIVersion, result)
}

// attach attaches one interface, and answers the result of it and of those before.
func (p *Plugin) attach(ctx context.Context, c Config, args *skel.CmdArgs) (*current.Result, error) {
	store := record.In(c.StateDir)
	if err := device(store, &c, args); err != nil {
		return nil, err
	}
	if c.Attach == AttachRep { // before the VF itself becomes somebody's
		unlock, err := p.lock(ctx, store, c.VF)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	unlock, err := p.lock(ctx, store, c.key())
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, p.Limits.Run)
	defer cancel()

	if err := p.settle(ctx, store, c.key(), c.OVSDB, args); err != nil {
		return nil, err
	}
	if err := c.join(args); err != nil {
		return nil, err
	}
	begin := p.begin
	switch {
	case c.Pair:
		begin = p.beginPair
	case c.Attach == AttachRep:
		begin = p.beginRep
	}
	j, err := begin(ctx, store, c, args)
	if err != nil {
		return nil, errors.Join(err, leave(c.StateDir, args.ContainerID, args.IfName))
	}
	defer j.close()
	if err := j.run(ctx, record.Attached); err != nil {
		return nil, j.undo(ctx, err)
	}
	return j.answer(c), nil
}

// undo takes an attachment back that failed because of cause, also when time or
// patience with it has run out.
func (j *job) undo(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.p.Limits.Undo)
	defer cancel()
	if err := j.detach(ctx); err != nil {
		return coded(codeOf(cause), "%w; and it could not be undone, which is left to DEL: %w", cause, err)
	}
	return cause
}

// detach takes the attachment down and forgets it.
func (j *job) detach(ctx context.Context) error {
	j.stale = everything
	if err := j.run(ctx, record.Detached); err != nil {
		return err
	}
	defer j.p.span("record", "remove")()
	return j.store.Remove(j.rec.Key())
}

// settle deals with a record that is there already: the VF of a live owner is
// left alone; what an owner that is gone, or an ADD that was cut off, has left
// is taken down.
func (p *Plugin) settle(ctx context.Context, store record.Store, vf, endpoint string, args *skel.CmdArgs) error {
	r, err := store.Load(vf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		damaged := err
		if r, err = p.salvage(ctx, store, vf, endpoint, &skel.CmdArgs{Path: args.Path}); err != nil {
			return err
		}
		if _, err := store.Load(vf); r == nil && !errors.Is(err, fs.ErrNotExist) {
			return coded(types.ErrTryAgainLater, "%s is in a pod, and nobody knows in which: %w: want that pod's end", record.Name(vf), damaged)
		}
		if r == nil {
			return nil
		}
	}
	j := p.resume(ctx, store, r, args)
	defer j.close()
	alive, err := j.alive(ctx)
	if err != nil {
		return err
	}
	switch mine := r.IsOf(args.ContainerID, args.IfName); {
	case alive && mine && r.Attached():
		return coded(types.ErrInvalidNetworkConfig, "%s is attached to %s already: want a DEL before another ADD", record.Name(vf), r.Holder())
	case alive && !mine:
		return coded(types.ErrTryAgainLater, "%s is held by %s (%s): want its DEL first", record.Name(vf), r.Holder(), r.Progress())
	}
	if err := j.detach(ctx); err != nil {
		return fmt.Errorf("take down what %s left of %s: %w", r.Holder(), record.Name(vf), err)
	}
	return nil
}

// inPlace says whether the VF of a completed attachment is still where ADD has put
// it. It asks the machine alone: a path that leads nowhere from here may lead to the
// namespace from elsewhere.
func (j *job) inPlace(ctx context.Context) (bool, error) {
	if j.rec.Pair {
		err := j.readPair(ctx)
		return j.state.Rep.Exists(), err
	}
	_, home, err := j.find(ctx, j.p.Host.Links)
	return !home, err
}

// alive says whether the owner may still use the VF: its namespace is there. The
// kernel gives numbers of namespaces away again, so another one at the same path
// may pass for it; but then the VF that was in it is at home.
func (j *job) alive(ctx context.Context) (bool, error) {
	if j.pod == nil || !j.rec.Attached() {
		return j.pod != nil, nil
	}
	return j.inPlace(ctx)
}

// resume is the job of a recorded attachment. Its namespace is looked for where
// the record says and where the runtime says now; a path that leads to another
// namespace than the recorded one leads nowhere.
func (p *Plugin) resume(ctx context.Context, store record.Store, r *record.Record, args *skel.CmdArgs) *job {
	j := &job{p: p, store: store, stale: everything}
	j.of(r, cmp.Or(args.Path, r.Path))
	for _, path := range slices.Compact([]string{r.Netns, args.Netns}) {
		// Another boot's namespaces are gone; their numbers begin anew with each.
		if path == "" || r.Outlived(p.Host.Boot) {
			continue
		}
		pod, err := p.Host.Netns.Open(ctx, path)
		if err != nil {
			continue
		}
		mine := pod.ID() == r.NetnsID
		if r.NetnsID == "" { // salvaged
			_, mine, _ = j.find(ctx, pod)
		}
		if mine {
			j.pod = pod
			return j
		}
		pod.Close()
	}
	// The specification has an empty CNI_NETNS for a namespace that is gone.
	j.call.Netns = ""
	return j
}

// Del takes down whatever the container's interface has, from wherever anything
// stopped: with no namespace, a second time, after a crash. Without a record
// nothing is the container's, and nothing is touched.
func (p *Plugin) Del(ctx context.Context, args *skel.CmdArgs) error {
	return report(p.del(ctx, args))
}

func (p *Plugin) del(ctx context.Context, args *skel.CmdArgs) error {
	c, err := wherefrom(args.StdinData)
	if err != nil {
		return err
	}
	store := record.In(c.StateDir)
	mine, err := store.FindWith(args.ContainerID, args.IfName)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range mine {
		errs = append(errs, p.delOne(ctx, store, r.Key(), c, args))
	}
	if c.PodNetworks != nil {
		errs = append(errs, leaveAll(store, args.ContainerID))
	}
	if len(mine) > 0 {
		return errors.Join(errs...)
	}
	// Of a record that cannot be read nobody can say that it is not the container's.
	all, err := store.All()
	for _, f := range all {
		if f.Err != nil && (c.VF == "" || c.VF == f.VF || record.RepKey(c.VF) == f.VF) {
			errs = append(errs, p.delOne(ctx, store, f.VF, c, args))
		}
	}
	// An ADD that was cut off before its record may have taken an address.
	return errors.Join(append(errs, err, leave(c.StateDir, args.ContainerID, args.IfName))...)
}

func (p *Plugin) delOne(ctx context.Context, store record.Store, vf string, c Config, args *skel.CmdArgs) error {
	unlock, err := p.lock(ctx, store, vf)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, p.Limits.Run)
	defer cancel()
	// Only now that the VF is locked is it sure whose it is.
	r, err := store.Load(vf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		if r, err = p.salvage(ctx, store, vf, c.OVSDB, args); err != nil {
			return err
		}
	}
	if r == nil || !r.GoesWith(args.ContainerID, args.IfName) {
		return nil
	}
	j := p.resume(ctx, store, r, args)
	defer j.close()
	return j.detach(ctx)
}

func (p *Plugin) lock(ctx context.Context, store record.Store, vf string) (func(), error) {
	defer p.span("record", "lock")()
	ctx, cancel := context.WithTimeout(ctx, p.Limits.Lock)
	defer cancel()
	return store.Lock(ctx, vf)
}
