package offload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/pkg/ovsdb"
)

const (
	// takeTimeout is how long ovs-vswitchd may take to use a new port. It takes
	// milliseconds, but works off one configuration after another: with fifty pods at
	// once on a machine that is busy with them it has been seen to need over 10 s.
	takeTimeout = 40 * time.Second

	// letGoTimeout is how long Unplug waits for ovs-vswitchd to close the netdev.
	letGoTimeout = 2 * time.Second

	// turns is how often a decision is taken anew because other writers were
	// faster. They write other rows, so once is rare.
	turns = 16
)

// Plug puts a representor into a bridge and returns when ovs-vswitchd has taken
// it. It is idempotent: a port of the same owner is brought to p, and one that is
// p already is not written to. A port of another owner, or of nobody, is
// ErrForeign; no such bridge is ErrNoBridge and names those that are there; an iface-id
// that another interface has is ErrSamePort and names it; all leave all as it is. When ovs-vswitchd cannot use the netdev, or does not answer
// within 40 s or ctx, the port is removed again and the error is ErrNotTaken with
// its words. After ovsdb.ErrUnavailable the port may be there: Unplug it over a
// new connection.
func Plug(ctx context.Context, c *ovsdb.Client, p Port) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := plug(ctx, c, p); err != nil {
		return fmt.Errorf("plug %s into bridge %s: %w", p.Representor, p.Bridge, err)
	}
	return nil
}

func plug(ctx context.Context, c *ovsdb.Client, p Port) error {
	cfg, err := write(ctx, c, "plug "+p.String()+" for "+p.Owner, func() ([]ovsdb.Op, error) {
		r, err := readWith(ctx, c, p.Representor, p.ExternalIDs[idIface])
		if err != nil {
			return nil, err
		}
		ops, err := plugOps(p, r)
		if err == nil && len(ops) == 0 && !r.taken() {
			// Nothing to write, but it did not work the last time: let the
			// switch try again.
			ops = []ovsdb.Op{unchanged(r.port)}
		}
		return ops, err
	})
	if err != nil || cfg == 0 {
		return err
	}
	err = take(ctx, c, p, cfg)
	if err == nil || errors.Is(err, ovsdb.ErrUnavailable) {
		return err
	}
	// ctx may be what has ended.
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), letGoTimeout)
	defer stop()
	if undo := unplug(bounded, c, p.Representor, p.Owner, 0); undo != nil {
		return fmt.Errorf("%w; and its port could not be removed again: %w", err, undo)
	}
	return err
}

// write decides and commits until the rows hold still, together with a new
// next_cfg, which it returns: 0 when there was nothing to do.
func write(ctx context.Context, c *ovsdb.Client, what string, decide func() ([]ovsdb.Op, error)) (cfg int, err error) {
	for range turns {
		ops, err := decide()
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil || len(ops) == 0 {
			return 0, err
		}
		out, err := c.Transact(ctx, append(ops,
			ovsdb.Comment("sluice: "+what),
			ovsdb.Mutate(ovsdb.TableOpenVSwitch, ovsdb.All(), ovsdb.Mutation{Column: "next_cfg", Mutator: "+=", Value: 1}),
			ovsdb.Select(ovsdb.TableOpenVSwitch, ovsdb.All(), ovsdb.OpenVSwitchColumns()...),
		)...)
		if errors.Is(err, ovsdb.ErrTimedOut) || errors.Is(err, ovsdb.ErrConstraint) {
			continue
		}
		if err != nil {
			return 0, err
		}
		root, err := first[ovsdb.OpenVSwitch](out[len(out)-1], ovsdb.TableOpenVSwitch)
		if err != nil {
			return 0, err
		}
		if root == nil {
			return 0, errors.New("the database has no Open_vSwitch row: it was never initialised")
		}
		return root.NextCfg, nil
	}
	return 0, fmt.Errorf("the rows changed each of the %d times that they were read", turns)
}

// take waits until ovs-vswitchd has worked off cfg, then asks what became of the
// port. cur_cfg and ofport are written in one transaction (bridge.c, bridge_run).
func take(ctx context.Context, c *ovsdb.Client, p Port, cfg int) error {
	out, err := c.Transact(ctx, caughtUp(ctx, cfg, takeTimeout),
		ovsdb.Select(ovsdb.TableInterface, ovsdb.Is("name", p.Representor), ovsdb.InterfaceColumns()...))
	switch {
	case errors.Is(err, ovsdb.ErrTimedOut) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w in time: is it running? %w", ErrNotTaken, err)
	case err != nil:
		return err
	}
	i, err := first[ovsdb.Interface](out[1], ovsdb.TableInterface)
	if err != nil {
		return err
	}
	if i == nil {
		return fmt.Errorf("%w: the port was removed meanwhile", ErrNotTaken)
	}
	_, err = ofport(*i)
	return err
}

func ofport(i ovsdb.Interface) (int, error) {
	n, ok := i.Ofport.One()
	why, failed := i.Error.One()
	switch {
	case failed:
		return 0, fmt.Errorf("%w: %s", ErrNotTaken, why)
	case !ok || n <= 0:
		return 0, fmt.Errorf("%w: it gave the port no number: see its log about the bridge", ErrNotTaken)
	}
	return n, nil
}

// caughtUp is a wait for ovs-vswitchd to have worked off cfg: the row of the root
// table does not match any more.
func caughtUp(ctx context.Context, cfg int, limit time.Duration) ovsdb.Op {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	behind := ovsdb.Where{{Column: "cur_cfg", Function: "<", Value: cfg}}
	return ovsdb.Wait(ovsdb.TableOpenVSwitch, behind, []string{"cur_cfg"}, nil, int(max(limit.Milliseconds(), 0)))
}

// Unplug removes the port of a representor if owner has it. That there is none is
// success; one of somebody else is ErrForeign and stays. It returns when
// ovs-vswitchd has let go of the netdev, or after 2 s when that does not come:
// a switch that does not run has no say in what is in the database. The port's
// rules can be in the NIC a little longer, until the revalidators' next turn
// (ovs-vswitchd.conf.db(5), other_config:max-revalidator, 500 ms).
func Unplug(ctx context.Context, c *ovsdb.Client, representor, owner string) error {
	if err := unplug(ctx, c, representor, owner, letGoTimeout); err != nil {
		return fmt.Errorf("unplug %s: %w", representor, err)
	}
	return nil
}

func unplug(ctx context.Context, c *ovsdb.Client, representor, owner string, wait time.Duration) error {
	cfg, err := write(ctx, c, "unplug "+representor+" of "+owner, func() ([]ovsdb.Op, error) {
		r, err := read(ctx, c, representor)
		if err != nil || r.port == nil {
			return nil, err
		}
		if err := ours(owner, r); err != nil {
			return nil, err
		}
		return unplugOps(r), nil
	})
	if err != nil || cfg == 0 || wait == 0 {
		return err
	}
	_, err = c.Transact(ctx, caughtUp(ctx, cfg, wait))
	if errors.Is(err, ovsdb.ErrTimedOut) {
		return nil
	}
	return err
}

// Lookup reads the port of a representor, whoever has it; Owner is "" for one
// without our mark. None is fs.ErrNotExist.
func Lookup(ctx context.Context, c *ovsdb.Client, representor string) (Port, error) {
	r, err := read(ctx, c, representor)
	if err != nil {
		return Port{}, fmt.Errorf("look up port %s: %w", representor, err)
	}
	if r.port == nil {
		return Port{}, fmt.Errorf("port %s in Open vSwitch: %w", representor, fs.ErrNotExist)
	}
	return r.asPort(), nil
}

// Ofport gives the OpenFlow port number that ovs-vswitchd uses a representor
// under. ErrNotTaken, with its words, when it does not; no such port is
// fs.ErrNotExist.
func Ofport(ctx context.Context, c *ovsdb.Client, representor string) (int, error) {
	r, err := read(ctx, c, representor)
	if err != nil {
		return 0, fmt.Errorf("look up port %s: %w", representor, err)
	}
	if r.iface == nil {
		return 0, fmt.Errorf("port %s in Open vSwitch: %w", representor, fs.ErrNotExist)
	}
	n, err := ofport(*r.iface)
	if err != nil {
		return 0, fmt.Errorf("port %s: %w", representor, err)
	}
	return n, nil
}

// Holders lists the ports whose Interface has an iface-id, whosever they are, by
// representor.
func Holders(ctx context.Context, c *ovsdb.Client, ifaceID string) ([]Port, error) {
	out, err := c.Transact(ctx, ovsdb.Select(ovsdb.TableInterface, withIface(ifaceID), ovsdb.InterfaceColumns()...))
	var ifaces []ovsdb.Interface
	if err == nil {
		err = out[0].Decode(&ifaces)
	}
	if err != nil {
		return nil, fmt.Errorf("look for interfaces with iface-id %q: %w", ifaceID, err)
	}
	var ports []Port
	for _, i := range ifaces {
		p, err := Lookup(ctx, c, i.Name)
		if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ovsdb.ErrUnavailable) {
			continue // it is gone by now, or member of a bond
		}
		if err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b Port) int { return strings.Compare(a.Representor, b.Representor) })
	return ports, nil
}

// Owned lists the ports with our mark, whoever the owner is, by representor.
func Owned(ctx context.Context, c *ovsdb.Client) ([]Port, error) {
	out, err := c.Transact(ctx,
		ovsdb.Select(ovsdb.TablePort, ovsdb.All(), ovsdb.PortColumns()...),
		ovsdb.Select(ovsdb.TableInterface, ovsdb.All(), ovsdb.InterfaceColumns()...),
		ovsdb.Select(ovsdb.TableBridge, ovsdb.All(), append(ovsdb.BridgeColumns(), "ports")...),
	)
	if err != nil {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	var ports []ovsdb.Port
	var ifaces []ovsdb.Interface
	var bridges []struct {
		ovsdb.Bridge
		Ports ovsdb.Set[ovsdb.UUID] `json:"ports"`
	}
	if err := errors.Join(out[0].Decode(&ports), out[1].Decode(&ifaces), out[2].Decode(&bridges)); err != nil {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	byName := map[string]*ovsdb.Interface{}
	for i := range ifaces {
		byName[ifaces[i].Name] = &ifaces[i]
	}
	in := map[ovsdb.UUID]*ovsdb.Bridge{}
	for i := range bridges {
		for _, u := range bridges[i].Ports {
			in[u] = &bridges[i].Bridge
		}
	}
	var owned []Port
	for i := range ports {
		p := &ports[i]
		if _, ok := p.ExternalIDs[OwnerKey]; ok {
			owned = append(owned, rows{port: p, iface: byName[p.Name], bridge: in[p.UUID]}.asPort())
		}
	}
	slices.SortFunc(owned, func(a, b Port) int { return strings.Compare(a.Representor, b.Representor) })
	return owned, nil
}
