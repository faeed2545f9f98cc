package hosttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// follower follows a machine by what it tells of changes.
type follower struct {
	Fixture
	view    *host.View
	changes <-chan host.Change
	told    []string // since the last step
}

func follow(t *testing.T, f Fixture) *follower {
	t.Helper()
	c, err := f.Machine.Watch.Changes(t.Context())
	must(t, err)
	quiet(c)
	view, err := host.Look(t.Context(), f.Machine)
	must(t, err)
	return &follower{f, view, c, nil}
}

// facts are what a list of devices is made of.
func facts(s nic.State) (out []string) {
	for _, p := range s.PFs {
		out = append(out, fmt.Sprintf("%s: driver %s, uplink %s up %v carrier %v, failing %v, RDMA %v", p.Handle, p.Driver, p.Uplink.Name, p.Uplink.Up, p.Uplink.Carrier, p.Failing, p.RDMA))
		for _, v := range p.VFs {
			out = append(out, fmt.Sprintf("%s vf %d %s: driver %s, netdev %s, away %v, gone %v, group %d, %s, representor %s, failing %v, RDMA %v",
				p.Handle, v.Index, v.Address, v.Driver, v.Netdev.Name, v.Away, v.Gone, v.IOMMUGroup, v.VFIO, v.Rep.Netdev.Name, v.Failing, v.RDMA))
		}
		for _, f := range p.SFs {
			out = append(out, fmt.Sprintf("%s sf %d %s: active %v, attached %v, netdev %s, away %v, representor %s",
				p.Handle, f.Num, f.Device, f.Active, f.Attached, f.Netdev.Name, f.Away, f.Rep.Name))
		}
	}
	return out
}

// step does something and follows it to what a whole look sees then, which must be
// another thing than before.
func (f *follower) step(t *testing.T, what string, do func() error) {
	t.Helper()
	f.told = nil
	before := facts(f.view.State)
	must(t, do())
	whole, err := host.Look(t.Context(), f.Machine)
	must(t, err)
	for end := time.After(30 * time.Second); ; {
		select {
		case c := <-f.changes:
			f.told = append(f.told, c.What)
			next, sure, err := f.view.After(t.Context(), f.Machine, []host.Change{c})
			must(t, err)
			if f.view = next; !sure {
				t.Errorf("%s: %q, of %+v, is not followed", what, c.What, c.Of)
			}
		case <-time.After(200 * time.Millisecond): // nothing more, for now
			whole, err = host.Look(t.Context(), f.Machine)
			must(t, err)
			if cmp.Equal(facts(whole.State), facts(f.view.State)) {
				if cmp.Equal(before, facts(f.view.State)) {
					t.Errorf("%s: nothing has changed", what)
				}
				return
			}
		case <-end:
			t.Fatalf("%s: seen, and followed by %q:\n%s", what, f.told, cmp.Diff(facts(whole.State), facts(f.view.State)))
		}
	}
}

// followed: what is done to one function is told in such a way that nothing else
// needs to be read.
func followed(t *testing.T, f Fixture) {
	h, ctx, m := f.PFs[0], t.Context(), f.Machine
	if _, lacks := f.Lacks[Eswitch]; !lacks {
		setMode(t, f, h, nic.Switchdev)
	}
	vfs := makeVFs(t, f, h, 2, true)
	v, uplink := vfs[1], observePF(t, f, h).Uplink.Ifindex
	pod := ""
	if _, lacks := f.Lacks[Namespaces]; !lacks {
		pod = f.AddNetns(t)
	}
	o := follow(t, f)
	o.step(t, "driver gone", func() error { return m.PCI.Unbind(ctx, v.Address) })
	if _, lacks := f.Lacks[VFIO]; !lacks {
		o.step(t, "vfio-pci", func() error { return m.PCI.Bind(ctx, v.Address, "vfio-pci") })
		o.step(t, "no vfio-pci", func() error { return m.PCI.Unbind(ctx, v.Address) })
	}
	o.step(t, "driver back", func() error { return m.PCI.Bind(ctx, v.Address, "") })
	if pod != "" {
		i := observePF(t, f, h).VFs[1].Netdev.Ifindex
		o.step(t, "netdev in a pod", func() error { return m.Links.Move(ctx, i, pod) })
	}
	name := fmt.Sprintf("slc%d", time.Now().UnixNano()%1000000)
	o.step(t, "another name", func() error { return m.Links.SetName(ctx, observePF(t, f, h).VFs[0].Netdev.Ifindex, name) })
	o.step(t, "uplink down", func() error { return m.Links.SetUp(ctx, uplink, false) })
	o.step(t, "uplink up", func() error { return m.Links.SetUp(ctx, uplink, true) })
}

// followedSFs is followed of SFs.
func followedSFs(t *testing.T, f Fixture) {
	h, ctx, m := f.PFs[0], t.Context(), f.Machine
	setMode(t, f, h, nic.Switchdev)
	must(t, m.Devlink.AddSF(ctx, h, 7))
	must(t, m.Devlink.SetSFActive(ctx, h, observePF(t, f, h).SFs[0].Port, true))
	o := follow(t, f)
	o.step(t, "inactive", func() error { return m.Devlink.SetSFActive(ctx, h, observePF(t, f, h).SFs[0].Port, false) })
	o.step(t, "active", func() error { return m.Devlink.SetSFActive(ctx, h, observePF(t, f, h).SFs[0].Port, true) })
	if _, lacks := f.Lacks[Namespaces]; lacks {
		return
	}
	pod := f.AddNetns(t)
	o = follow(t, f)
	o.step(t, "netdev in a pod", func() error { return m.Links.Move(ctx, observePF(t, f, h).SFs[0].Netdev.Ifindex, pod) })
}
