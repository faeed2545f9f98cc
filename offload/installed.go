package offload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"sluice.dev/sluice/pkg/ovsdb"
)

// installedTimeout is how long ovn-controller may take to have the flows of a port in
// the switch. On a node with many it computes for seconds.
const installedTimeout = 45 * time.Second

// ErrNotInstalled: the flows of a port did not come.
var ErrNotInstalled = errors.New("OVN has not installed its flows")

// AwaitInstalled returns when ovn-controller says that the flows of a representor's
// port are in the switch (external_ids:ovn-installed of its Interface; ovn:
// controller/if-status.c). ErrNotInstalled, with what to look at, when that does not
// come within 45 s or ctx; no such port is fs.ErrNotExist.
func AwaitInstalled(ctx context.Context, c *ovsdb.Client, representor string) error {
	limit := installedTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	without := append(ovsdb.Is("name", representor),
		ovsdb.Condition{Column: "external_ids", Function: "excludes", Value: ovsdb.Map{"ovn-installed": "true"}})
	out, err := c.Transact(ctx,
		ovsdb.Wait(ovsdb.TableInterface, without, []string{"name"}, nil, int(max(limit.Milliseconds(), 0))),
		ovsdb.Select(ovsdb.TableInterface, ovsdb.Is("name", representor), ovsdb.InterfaceColumns()...))
	if errors.Is(err, ovsdb.ErrTimedOut) || errors.Is(err, context.DeadlineExceeded) {
		r, look := read(context.WithoutCancel(ctx), c, representor)
		if look == nil && r.iface != nil {
			return fmt.Errorf("port %s (iface-id %q): %w in time: is that port in the northbound, does it ask for this chassis, and does ovn-controller run? %w",
				representor, r.iface.ExternalIDs[idIface], ErrNotInstalled, err)
		}
		return fmt.Errorf("port %s: %w in time: %w", representor, ErrNotInstalled, err)
	}
	if err != nil {
		return fmt.Errorf("wait for the flows of port %s: %w", representor, err)
	}
	i, err := first[ovsdb.Interface](out[1], ovsdb.TableInterface)
	if err == nil && i == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("wait for the flows of port %s: %w", representor, err)
	}
	return nil
}
