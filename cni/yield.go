package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
)

// vacate makes sure that a representor whose VF nobody holds is in no bridge. A port
// with our mark is left from an attachment whose record was lost, or whose pod has
// ended, and goes. That of a pod that is there stays: somebody has renamed
// representors, so that one's port has the name of another. So does any other port,
// which is somebody's.
func (j *job) vacate(ctx context.Context, sw Switch) error {
	representor := j.rec.Representor
	p, err := sw.Lookup(ctx, representor)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ovsdb.ErrUnavailable):
		return nil
	case err != nil:
		return err
	case p.Owner == "":
		return coded(ErrNode, "representor %s is a port of bridge %s already, and not sluice's: want it free (ovs-vsctl del-port %s %s)",
			representor, p.Bridge, p.Bridge, representor)
	}
	return j.outlive(ctx, sw, p, "representor "+representor+" was renamed since it was plugged: the port of its name")
}

// succeed makes the attachment the only one with its logical port. A sandbox of the pod
// that has ended may still have it, on another VF: that is taken down. One that is there
// keeps it, as OVN would give the port to the one and the other in turn.
func (j *job) succeed(ctx context.Context, sw Switch, c Config) error {
	if c.IfaceID == "" {
		return nil
	}
	holders, err := sw.Holders(ctx, c.IfaceID)
	if err != nil {
		return err
	}
	for _, h := range holders {
		switch {
		case h.Representor == j.rec.Representor: // its own, or vacate would have said so
		case h.Owner == "":
			return coded(ErrNode, "ifaceID = %q: port %s of bridge %s has it, and is not sluice's: want it free (ovs-vsctl remove Interface %s external_ids iface-id)",
				c.IfaceID, h.Representor, h.Bridge, h.Representor)
		default:
			if err := j.outlive(ctx, sw, h, fmt.Sprintf("ifaceID = %q: port %s", c.IfaceID, h.Representor)); err != nil {
				return err
			}
		}
	}
	return nil
}

// outlive takes down the attachment that a port is of, if its pod has ended; what is
// about to be attached needs it gone. A port of an attachment whose record was lost just
// goes. One whose pod is there is an error, which begins with what.
func (j *job) outlive(ctx context.Context, sw Switch, h offload.Port, what string) error {
	found, err := j.store.All()
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Err == nil && f.Record.Token() == h.Owner && f.VF != j.rec.VF {
			return j.takeDown(ctx, f.VF, h, what)
		}
	}
	if err := sw.Unplug(ctx, h.Representor, h.Owner); err != nil {
		return fmt.Errorf("unplug representor %s, left by %s: %w", h.Representor, h.Owner, err)
	}
	return nil
}

func (j *job) takeDown(ctx context.Context, vf string, h offload.Port, what string) error {
	// The VF that is being attached is locked: two that wait for each other's give up.
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	unlock, err := j.store.Lock(waiting, vf)
	if err != nil {
		return coded(types.ErrTryAgainLater, "%s belongs to %s, and %w", what, h.Owner, err)
	}
	defer unlock()
	r, err := j.store.Load(vf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it came down meanwhile
	}
	if err != nil {
		return coded(types.ErrTryAgainLater, "%s belongs to %s: %w", what, h.Owner, err)
	}
	if r.Token() != h.Owner {
		return coded(types.ErrTryAgainLater, "%s changes hands, to %s", what, r.Holder())
	}
	other := j.p.resume(ctx, j.store, r, &skel.CmdArgs{Path: j.call.Path})
	defer other.close()
	alive, err := other.alive(ctx)
	if err != nil {
		return err
	}
	if alive {
		return coded(types.ErrTryAgainLater, "%s belongs to %s, on %s: want its DEL first", what, r.Holder(), record.Name(vf))
	}
	if err := other.detach(ctx); err != nil {
		return fmt.Errorf("take down what %s left of %s: %w", r.Holder(), record.Name(vf), err)
	}
	return nil
}
