package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/rtnl"
)

// bonds is the bonds of the host's network namespace.
type bonds struct{ links *links }

// bondMark is the alias of a bond that is ours.
const bondMark = "made by sluice"

func (b bonds) Bonds(ctx context.Context) ([]host.Bond, error) {
	const op, what = "list", "bonds"
	if err := b.links.begin(ctx, op, what); err != nil {
		return nil, err
	}
	list, err := b.links.list(ctx)
	if err != nil {
		return nil, fail(op, what, err)
	}
	var out []host.Bond
	members := map[int][]int{}
	for _, k := range list {
		if k.Member != nil {
			members[k.Master] = append(members[k.Master], k.Ifindex)
		}
		if k.Bond != nil {
			out = append(out, b.bond(k))
		}
	}
	for i := range out {
		out[i].Members = members[out[i].Ifindex]
		slices.Sort(out[i].Members)
	}
	slices.SortFunc(out, func(a, b host.Bond) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (b bonds) bond(k rtnl.Link) host.Bond {
	out := host.Bond{
		Link: b.links.link(k, true), Mode: nic.BondMode(k.Bond.Mode), Hash: k.Bond.HashBy, Miimon: k.Bond.MIIMon,
		Ours: k.Alias == bondMark, Active: k.Bond.Active,
	}
	if out.Mode == nic.IEEE8023AD { // the kernel tells a rate in every mode
		out.LACPRate = k.Bond.LACPRate
	}
	return out
}

// AddBond makes the bond, marks it, and sets it up last. Whoever is stopped in
// between finds a bond that is not ours: the kernel takes no alias with a new
// interface.
func (b bonds) AddBond(ctx context.Context, want nic.BondSpec) error {
	op, object := "add bond", want.Name
	if object == "" {
		object = `""`
	}
	if err := b.links.begin(ctx, op, object); err != nil {
		return err
	}
	switch {
	case !validName(want.Name):
		return refuse(op, object, unix.EINVAL,
			fmt.Errorf("want a name of 1 to %d characters, no space, slash, colon or percent sign: %w", maxName, unix.EINVAL))
	case want.Miimon < 0 || want.Mode == "":
		return refuse(op, object, unix.EINVAL, fmt.Errorf("want a mode and an interval of 0 ms or more: %w", unix.EINVAL))
	}
	change := rtnl.BondChange{Mode: string(want.Mode), HashBy: want.Hash, LACPRate: want.LACPRate}
	if want.Miimon > 0 {
		change.MIIMon = &want.Miimon
	}
	if err := b.loadDriver(); err != nil {
		return fail(op, object, err)
	}
	ifindex, err := b.links.rtnl.AddBond(want.Name, change)
	if err != nil {
		return fail(op, object, err)
	}
	err = b.links.rtnl.Set(ifindex, netlink.Attr(unix.IFLA_IFALIAS, []byte(bondMark)))
	if err == nil {
		err = b.links.rtnl.SetUp(ifindex, true)
	}
	if err != nil {
		return fail(op, object, errors.Join(err, b.links.rtnl.Delete(ifindex)))
	}
	return nil
}

// loadDriver has the kernel load bonding, which makes a bond of its own accord when
// it is loaded, bond0 (parameter max_bonds): that would be in the way, or lie about
// for ever. What is loaded already is left alone.
func (b bonds) loadDriver() error {
	const stray = "bond0"
	if _, err := os.Stat(b.links.sys + "/module/bonding"); err == nil {
		return nil
	}
	if _, err := b.links.rtnl.ByName(stray); err == nil {
		return nil
	}
	const probe = "sluice-load"
	ifindex, err := b.links.rtnl.AddBond(probe, rtnl.BondChange{})
	if err != nil {
		return err
	}
	if err := b.links.rtnl.Delete(ifindex); err != nil {
		return err
	}
	k, err := b.links.rtnl.ByName(stray)
	if err != nil || k.Bond == nil || k.Up {
		return nil
	}
	return b.links.rtnl.Delete(k.Ifindex)
}

// byName reads a bond for op.
func (b bonds) byName(ctx context.Context, op, name string) (host.Bond, error) {
	all, err := b.Bonds(ctx)
	if err != nil {
		return host.Bond{}, err
	}
	i := slices.IndexFunc(all, func(o host.Bond) bool { return o.Name == name })
	if i < 0 {
		return host.Bond{}, refuse(op, name, unix.ENODEV, fmt.Errorf("there is no such bond: %w", fs.ErrNotExist))
	}
	return all[i], nil
}

func (b bonds) DelBond(ctx context.Context, name string) error {
	const op = "remove bond"
	have, err := b.byName(ctx, op, name)
	switch {
	case err != nil:
		return err
	case !have.Ours:
		return refuse(op, name, 0, fmt.Errorf("it was not made by sluice: %w", host.ErrNotSupported))
	case len(have.Members) > 0:
		return refuse(op, name, unix.EBUSY, fmt.Errorf("it has %d members: %w", len(have.Members), unix.EBUSY))
	}
	return fail(op, name, b.links.rtnl.Delete(have.Ifindex))
}

// pair reads a bond and a member, or what is to be one, for op.
func (b bonds) pair(ctx context.Context, op string, bond, member int) (of, m rtnl.Link, err error) {
	if err := b.links.begin(ctx, op, b.links.name("", member)); err != nil {
		return of, m, err
	}
	if of, err = b.links.rtnl.Get(bond); err != nil {
		return of, m, fail(op, b.links.name("", bond), err)
	}
	if m, err = b.links.rtnl.Get(member); err != nil {
		return of, m, fail(op, b.links.name("", member), err)
	}
	if of.Bond == nil {
		return of, m, refuse(op, b.links.name(of.Name, bond), 0, fmt.Errorf("it is no bond: %w", host.ErrNotSupported))
	}
	return of, m, nil
}

func (b bonds) Enslave(ctx context.Context, bond, member int) error {
	const op = "put into its bond"
	of, m, err := b.pair(ctx, op, bond, member)
	if err != nil {
		return err
	}
	object := b.links.name(m.Name, member)
	if m.Master != 0 && m.Master != bond {
		return refuse(op, object, unix.EBUSY, fmt.Errorf("it is in %s already, not in %s: %w", b.nameOf(m.Master), of.Name, unix.EBUSY))
	}
	return fail(op, object, b.links.rtnl.Enslave(member, bond))
}

func (b bonds) nameOf(ifindex int) string {
	k, err := b.links.rtnl.Get(ifindex)
	if err != nil {
		return b.links.name("", ifindex)
	}
	return k.Name
}

func (b bonds) Release(ctx context.Context, bond, member int) error {
	const op = "take out of its bond"
	_, m, err := b.pair(ctx, op, bond, member)
	if err != nil || m.Master != bond {
		return err
	}
	err = b.links.rtnl.Release(member)
	if err == nil && m.Up {
		err = b.links.rtnl.SetUp(member, true)
	}
	return fail(op, b.links.name(m.Name, member), err)
}

// bondBound is how long a bond is waited for that others make: network managers
// wait for carrier and for each other.
const bondBound = 2 * time.Minute

func (b bonds) AwaitBond(ctx context.Context, name string, members []int) error {
	op := "wait for bond"
	missing := ""
	err := until(ctx, bondBound, func() (string, error) {
		have, err := b.byName(ctx, op, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = "there is no such bond"
			return missing, nil
		case err != nil:
			return "", err
		}
		for _, m := range members {
			if !slices.Contains(have.Members, m) {
				missing = b.nameOf(m) + " is not in it"
				return missing, nil
			}
		}
		return "", nil
	})
	if errors.Is(err, unix.ETIMEDOUT) {
		return refuse(op, name, 0, fmt.Errorf("%s, after %s: %w", missing, bondBound, fs.ErrNotExist))
	}
	return fail(op, name, err)
}

// LAG is read where mlx5 tells it (mlx5/core/lag/debugfs.c, state_show), which needs
// debugfs. A VF has no such folder.
func (b bonds) LAG(ctx context.Context) (map[string]nic.LAG, error) {
	if err := b.links.begin(ctx, "read", "LAG"); err != nil {
		return nil, err
	}
	root := b.links.sys + "/kernel/debug/mlx5"
	names, err := readDir(root)
	if err != nil {
		return nil, nil // debugfs is for root, and not under lockdown
	}
	out := map[string]nic.LAG{}
	for _, name := range names {
		switch attribute(root + "/" + name + "/lag/state") {
		case "active":
			out[name] = nic.LAGActive
		case "disabled":
			out[name] = nic.LAGInactive
		}
	}
	return out, nil
}

// lagBound is how long the driver may take to make a LAG of a bond: it looks at it
// each second, and again while its own work is in the way (mlx5_queue_bond_work).
const lagBound = 30 * time.Second

func (b bonds) AwaitLAG(ctx context.Context, pfs []string) error {
	const op = "wait for LAG"
	object := strings.Join(pfs, " and ")
	seen := ""
	err := until(ctx, lagBound, func() (string, error) {
		state, err := b.LAG(ctx)
		if err != nil {
			return "", err
		}
		for _, pf := range pfs {
			if state[pf] != nic.LAGActive {
				seen = fmt.Sprintf("%s is %s", pf, state[pf])
				if state[pf] == "" {
					seen = "the driver of " + pf + " does not say (debugfs)"
				}
				return seen, nil
			}
		}
		return "", nil
	})
	if errors.Is(err, unix.ETIMEDOUT) {
		return refuse(op, object, 0, fmt.Errorf("%s after %s: %w", seen, lagBound, host.ErrNotActive))
	}
	return fail(op, object, err)
}
