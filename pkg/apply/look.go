package apply

import (
	"context"
	"fmt"
	"io/fs"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// look is how a loop sees the node: everything at first, after a step of one VF
// only that VF, and before the end everything again. Reading all of a node with
// 256 VFs after each of a thousand steps would cost more than the steps.
type look struct {
	*job
	want nic.Spec
	next func(nic.State) (plan.Step, bool)

	// steady: what is wanted was completed for the VFs that there were when the run
	// began. If one goes meanwhile, all would have to be made anew, and the others
	// would lose what nobody has written down for them: the way back has it all.
	steady bool

	state nic.State
	whole bool      // state is all as it was read just now
	vf    *nic.VFID // of the last step; nil when it may have changed anything
	part  host.Part // of the VF that it may have changed
}

func (l *look) observe(ctx context.Context) (nic.State, error) {
	if l.vf != nil && l.Refresh != nil {
		err := l.Refresh(ctx, &l.state, *l.vf, l.part)
		if err == nil {
			if l.Drained {
				free(&l.state)
			}
			l.whole = false
			if _, more := l.next(l.state); more {
				return l.state, nil
			}
		}
		// What is not found, or is the end, is looked for in everything.
	}
	was := &l.before
	if len(l.state.PFs) > 0 {
		was = &nic.State{PFs: l.state.PFs}
	}
	var err error
	if l.state, err = l.job.observe(ctx); err != nil {
		return l.state, err
	}
	l.whole = true
	if l.steady {
		if id, ok := l.vanished(was); ok {
			return l.state, fmt.Errorf("%s has gone from the bus: %w", id, fs.ErrNotExist)
		}
	}
	for _, w := range l.want.PFs {
		if l.state.PF(w.Handle) == nil {
			return l.state, fmt.Errorf("%s has gone: %w", w.Handle, fs.ErrNotExist)
		}
	}
	return l.state, nil
}

// vanished finds a VF that is wanted, was there and is gone.
func (l *look) vanished(was *nic.State) (nic.VFID, bool) {
	for _, w := range l.want.PFs {
		now, had := l.state.PF(w.Handle), was.PF(w.Handle)
		if now == nil || had == nil {
			continue
		}
		for i, v := range now.VFs {
			wanted := w.VFCount != nil || !w.VF(i).IsZero()
			if v.Gone && wanted && (i >= len(had.VFs) || !had.VFs[i].Gone) {
				return nic.VFID{PF: w.Handle, Index: i}, true
			}
		}
	}
	return nic.VFID{}, false
}

func (l *look) do(ctx context.Context, s plan.Step) error {
	l.vf = nil
	if id, ok := s.VF(); ok {
		l.vf, l.part = &id, partOf(s)
	}
	release, err := l.hold(ctx, s)
	if err != nil {
		return err
	}
	defer release()
	return Do(ctx, l.Machine, l.state, s)
}

// partOf is what of its VF a step changes. What a driver makes of it besides is seen
// before the end, when everything is looked at.
func partOf(s plan.Step) host.Part {
	switch s.Action.(type) {
	case plan.SetVFMAC:
		return host.VFMAC
	case plan.SetVFLinkMAC, plan.SetVFMTU:
		return host.VFNetdev
	case plan.SetRepMTU:
		return host.VFRep
	case plan.SetVF:
		return host.VFSettings
	}
	return host.VFWhole
}

// hold keeps others from the VFs and SFs that a step touches, and sees that nobody has
// taken one since the node was looked at. An SF without a device is nobody's.
func (l *look) hold(ctx context.Context, s plan.Step) (release func(), err error) {
	var devices []string
	var ids []fmt.Stringer
	for _, id := range s.VFs(l.state) {
		devices, ids = append(devices, l.state.PF(id.PF).VFs[id.Index].Address), append(ids, id)
	}
	for _, id := range s.SFs(l.state) {
		if f := l.state.PF(id.PF).SF(id.Num); f.Device != "" {
			devices, ids = append(devices, f.Device), append(ids, id)
		}
	}
	if l.Hold == nil || len(devices) == 0 {
		return func() {}, nil
	}
	owners, release, err := l.Hold(ctx, devices)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if owner := owners[devices[i]]; owner != "" && !l.Drained {
			release()
			return nil, fmt.Errorf("%s: %w: held by %s", id, host.ErrBusy, owner)
		}
	}
	return release, nil
}
