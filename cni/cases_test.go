package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

// rename gives an interface of the host another name, as udev or a person does.
func (w *world) rename(ifindex int, name string) {
	w.t.Helper()
	links := w.sim.Machine().Links
	l, err := links.Link(w.t.Context(), ifindex)
	if err == nil && l.Up {
		err = links.SetUp(w.t.Context(), ifindex, false)
	}
	if err == nil {
		err = links.SetName(w.t.Context(), ifindex, name)
	}
	if err == nil && l.Up {
		err = links.SetUp(w.t.Context(), ifindex, true)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// Case B39: while a VF is in its pod, another gets the name that it had. Whichever DEL
// comes first, by whichever way, each ends with its VF on the host, down, under its name
// or where another has that by now under one that nobody else can have; and the next pod
// gets the VF.
func TestB39NamesChangeHands(t *testing.T) {
	for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
		for _, way := range []string{"DEL", "namespace gone, DEL", "namespace gone, sweep", "DEL killed, DEL"} {
			t.Run(order[0]+" first, "+way, func(t *testing.T) {
				w := newWorld(t)
				pods := map[string]pod{"a": w.pod("a", w.vf(0, 0)), "b": w.pod("b", w.vf(0, 1))}
				had := w.vfAt(pods["a"].vf).Netdev.Name
				w.mustAdd(pods["a"])
				// The lowest free name of the kernel's is the one that went away.
				w.rename(w.vfAt(pods["b"].vf).Netdev.Ifindex, had)
				w.mustAdd(pods["b"])
				names := map[string]string{}
				for _, who := range order {
					p := pods[who]
					switch way {
					case "namespace gone, DEL":
						w.mustDeleteNetns(p)
					case "namespace gone, sweep":
						w.mustDeleteNetns(p)
						w.sweep()
					case "DEL killed, DEL":
						if crashed, err := w.crash(6, func() error { return w.del(p) }); !crashed || err != nil {
							t.Fatalf("killed %v, %v", crashed, err)
						}
					}
					w.mustDel(p)
					vf := w.vfAt(p.vf)
					if vf.Away || !vf.Netdev.Exists() || vf.Netdev.Up {
						t.Fatalf("after its end, the VF of %s: %+v", who, vf)
					}
					names[who] = vf.Netdev.Name
				}
				want := map[string]string{order[0]: had, order[1]: TempName(pods[order[1]].vf)}
				if d := cmp.Diff(want, names); d != "" {
					t.Errorf("names (-want +got): %s", d)
				}
				for who, p := range pods {
					next := w.pod("next-"+who, p.vf)
					w.mustAdd(next)
					if l := w.linkIn(next.netns, "net1"); l.Parent != p.vf {
						t.Errorf("the next pod on the VF of %s has %+v", who, l)
					}
					w.mustDel(next)
					if got := w.vfAt(p.vf).Netdev.Name; got != names[who] {
						t.Errorf("then the VF of %s is called %s, and was %s", who, got, names[who])
					}
				}
			})
		}
	}
}

// Case B41: STATUS says of an Open vSwitch with tc-policy skip_sw that it will not do,
// and what to do; of the other policies it says nothing.
func TestB41StatusTellsOfTCPolicy(t *testing.T) {
	for policy, want := range map[string]string{
		"none": "", "skip_hw": "", "skip_sw": "other_config:tc-policy of Open vSwitch is skip_sw, with which flows with conntrack cannot be offloaded: want none",
	} {
		w := newWorld(t)
		w.sw.settings = offload.Settings{HWOffload: true, TCPolicy: policy}
		err := w.status(w.pod("c1", w.vf(0, 0)))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

// Case B43: representors are known by PF and index, never by name. Somebody renames one
// while it is plugged, or two change names, or one comes back under the kernel's name;
// whatever it is called, DEL takes away what ADD made, the next ADD plugs the right one,
// and none of ours is ever renamed.
func TestB43RenamedRepresentors(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		w := newParts(t, o)
		rep := func(i int) nic.Netdev { return w.state().PFs[0].VFs[i].Rep.Netdev }
		named := func(i int, name string) {
			w.rename(rep(i).Ifindex, name)
			if !o.Real {
				o.AddNetdev(t, name)
			}
		}
		// One that keeps the id of a container that is long gone as its name.
		if o.Real { // the daemon's namespace is another than the machine's
			o.AddNetdev(t, "4d1f9a8b7c6d5")
			o.AddNetdev(t, "mgmt0")
		}
		named(0, "4d1f9a8b7c6d5")
		before := w.snap()
		a := w.pod("a", w.vf(0, 0)).with("ipam", nil)
		if err := w.add(a); err != nil {
			t.Fatal(err)
		}
		if owned := w.owned(); len(owned) != 1 || owned[0].Representor != "4d1f9a8b7c6d5" {
			t.Fatalf("plugged: %+v", owned)
		}
		if steps := w.steps(a.vf); strings.Contains(steps, "rename representor") {
			t.Errorf("ADD renames a representor:\n%s", steps)
		}
		// Renamed while it is plugged; the next process finds it all the same.
		named(0, "mgmt0")
		if err := w.del(a); err != nil {
			t.Fatal(err)
		}
		if r := rep(0); r.Name != "mgmt0" || r.Up {
			t.Errorf("after DEL: %+v", r)
		}
		named(0, "4d1f9a8b7c6d5")
		w.mustBeAsBefore(before, "after DEL")

		// Two change names while one of them is plugged: the port of the one's name is
		// not the other's to take.
		if err := w.add(a); err != nil {
			t.Fatal(err)
		}
		other := rep(1).Name
		named(1, "mgmt0")
		named(0, other)
		named(1, "4d1f9a8b7c6d5")
		b := w.pod("b", w.vf(0, 1)).with("ipam", nil)
		err := w.add(b)
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater ||
			!strings.Contains(e.Msg, "representor 4d1f9a8b7c6d5 was renamed since it was plugged: the port of its name belongs to") {
			t.Errorf("ADD of the other: %v", err)
		}
		if owned := w.owned(); len(owned) != 1 || owned[0].Owner != "a/net1" {
			t.Errorf("then there are %+v", owned)
		}
		w.mustDeleteNetns(a) // its pod ends, and nobody says so
		if err := w.add(b); err != nil {
			t.Fatal(err)
		}
		if owned := w.owned(); len(owned) != 1 || owned[0].Owner != "b/net1" || owned[0].Representor != "4d1f9a8b7c6d5" {
			t.Errorf("then there are %+v", owned)
		}
		for _, p := range []pod{b, a} {
			if err := w.del(p); err != nil {
				t.Fatal(err)
			}
		}
		named(1, "mgmt0")
		named(0, "4d1f9a8b7c6d5")
		named(1, other)
		w.mustBeAsBefore(before, "after all")
	})
}

// Case B43: the VF is made anew while it is attached, so that its representor is another
// one under the kernel's name. DEL takes the port of the old one away.
func TestB43RepresentorComesBack(t *testing.T) {
	w := newWorld(t)
	pf := w.state().PFs[0].Handle
	a := w.pod("a", w.vf(0, 0))
	w.rename(w.state().PFs[0].VFs[0].Rep.Netdev.Ifindex, "mgmt0")
	w.mustAdd(a)
	w.mustDeleteNetns(a)
	m := w.sim.Machine()
	if err := errors.Join(m.PCI.SetVFs(t.Context(), pf.Name, 0), m.PCI.SetVFs(t.Context(), pf.Name, 4)); err != nil {
		t.Fatal(err)
	}
	b := w.pod("b", a.vf)
	w.mustAdd(b)
	rep := w.state().PFs[0].VFs[0].Rep.Netdev.Name
	if rep == "mgmt0" || w.sw.ports[rep].Owner != "b/net1" || len(w.sw.ports) != 1 {
		t.Errorf("the representor is %s, the ports are %+v", rep, w.sw.ports)
	}
	w.mustDel(a)
	if w.sw.ports[rep].Owner != "b/net1" || len(w.ipam.leases) != 1 {
		t.Errorf("after a late DEL: %+v, %v", w.sw.ports, w.ipam.leases)
	}
	w.mustDel(b)
	if len(w.sw.ports) != 0 || len(w.ipam.leases) != 0 {
		t.Errorf("left: %+v, %v", w.sw.ports, w.ipam.leases)
	}
}

// Case B45: a pod's logical port goes from sandbox to sandbox, each on another VF. While
// the one is there the next waits for its DEL; when it has ended the next takes over, at
// whatever step its ADD was killed; and the late DEL of the one takes nothing from the
// other.
func TestB45SandboxAfterSandbox(t *testing.T) {
	on := map[string]func(*world, string) pod{
		"VF":   func(w *world, name string) pod { return w.pod(name, w.vf(0, len(name)/2)) },
		"veth": func(w *world, name string) pod { return w.pod(name, "").veth() },
	}
	for first := range on {
		for second := range on {
			t.Run(first+" after "+second, func(t *testing.T) {
				kills := 0
				for n := 0; ; n++ { // the first ADD is killed after n pieces of work; 0 not at all
					w := newWorld(t)
					before := w.snap()
					one, two := full(on[first](w, "c1")), full(on[second](w, "next-1"))
					one, two = one.with("ifaceID", "shop_web-0"), two.with("ifaceID", "shop_web-0")
					holder := func() string {
						all, _ := w.sw.Holders(t.Context(), "shop_web-0")
						if len(all) != 1 {
							t.Fatalf("kill at %d: the logical port has %+v", n, all)
						}
						return all[0].Owner
					}
					crashed, err := w.crash(n, func() error { return w.add(one) })
					if err != nil {
						t.Fatal(err)
					}
					if n > 0 && !crashed {
						break
					}
					kills++
					if !crashed {
						err := w.add(two)
						var e *types.Error
						if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater || !strings.Contains(e.Msg, `ifaceID = "shop_web-0": port `) ||
							!strings.Contains(e.Msg, "want its DEL first") {
							t.Fatalf("ADD beside one that is there: %v", err)
						}
						if got := holder(); got != one.container+"/net1" {
							t.Fatalf("then %s has it", got)
						}
					}
					w.mustDeleteNetns(one)
					w.mustAdd(two)
					if got := holder(); got != two.container+"/net1" {
						t.Fatalf("kill at %d: %s has it", n, got)
					}
					w.mustDel(one)
					if got := holder(); got != two.container+"/net1" {
						t.Fatalf("kill at %d: after the late DEL %s has it", n, got)
					}
					w.mustDel(two)
					w.mustBe(before, fmt.Sprintf("kill at %d", n))
				}
				if kills < 10 {
					t.Errorf("only %d kills", kills)
				}
			})
		}
	}
}

// Case B45: a port of somebody else's with the logical port is not ours to take.
func TestB45SomebodyElsesPort(t *testing.T) {
	w := newWorld(t)
	theirs := samplePort("eth9")
	theirs.ExternalIDs["iface-id"] = "shop_c1"
	w.sw.ports["eth9"] = theirs
	before := w.snap()
	err := w.add(full(w.pod("c1", w.vf(0, 0))))
	if err == nil || !strings.Contains(err.Error(), "port eth9 of bridge br-lab has it, and is not sluice's: want it free (ovs-vsctl remove Interface eth9 external_ids iface-id)") {
		t.Errorf("ADD: %v", err)
	}
	w.mustBe(before, "after ADD")
}

// Case B49: the switch's database is away for each part of the life of an attachment in
// turn; STATUS says so as long, and once it is back nothing of ours is left in it that
// the node does not have, and nothing lacks.
func TestB49DatabaseComesAndGoes(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		w := newParts(t, o)
		before := w.snap()
		p := full(w.pod("c1", w.vf(0, 1)))
		status := func() string {
			args := w.args(p)
			args.Path = w.path
			err := w.call(func(plugin *Plugin, ctx context.Context) error { return plugin.Status(ctx, args) })
			return fmt.Sprint(err)
		}
		for turn := range 3 {
			o.StopDatabase(t)
			if err := w.add(p); err == nil || !strings.Contains(err.Error(), "is Open vSwitch running?") {
				t.Errorf("turn %d: ADD: %v", turn, err)
			}
			if s := status(); !strings.Contains(s, "is Open vSwitch running?") {
				t.Errorf("turn %d: STATUS: %s", turn, s)
			}
			o.StartDatabase(t)
			if s := status(); strings.Contains(s, "is Open vSwitch running?") {
				t.Errorf("turn %d: STATUS when it is back: %s", turn, s)
			}
			w.mustBeAsBefore(before, "after an ADD without a database")
			if err := w.add(p); err != nil {
				t.Fatal(err)
			}
			o.StopDatabase(t)
			if err := w.del(p); err == nil {
				t.Fatal("DEL is done without the database")
			}
			o.StartDatabase(t)
			if owned := w.owned(); len(owned) != 1 || owned[0].Owner != "c1/net1" {
				t.Errorf("turn %d: %+v", turn, owned)
			}
			args := w.args(p.with("cni.dev/valid-attachments", []any{}))
			args.Path = w.path
			if err := w.call(func(plugin *Plugin, ctx context.Context) error { return plugin.GC(ctx, args) }); err != nil {
				t.Fatal(err)
			}
			w.mustBeAsBefore(before, "after GC")
		}
	})
}

// Case B53: a device that is mistyped is an error, and never the first that there is, or
// any; whatever else names one.
func TestB53NoDeviceByMistake(t *testing.T) {
	w := newWorld(t)
	w.allocate("sluice.dev/fast", map[string]map[string][]string{"u1": {"web": {w.vf(0, 1)}}})
	vf := w.vf(0, 1)
	before := w.snap()
	plain, asking := w.pod("c1", vf), w.pod("c2", "").uid("u1")
	for name, x := range map[string]struct {
		p    pod
		want string
	}{
		"none":                  {plain.with("deviceID", nil), "deviceID is missing: want the PCI address of a VF"},
		"null":                  {plain.with("deviceID", json.RawMessage("null")), "deviceID is missing"},
		"empty":                 {plain.with("deviceID", ""), `deviceID = "": want the PCI address of a VF`},
		"a blank":               {plain.with("deviceID", " "+vf), "want the PCI address of a VF"},
		"a number":              {plain.with("deviceID", 3), "deviceID = 3: want the PCI address of a VF"},
		"a list":                {plain.with("deviceID", []string{vf}), "want the PCI address of a VF"},
		"any":                   {plain.with("deviceID", "*"), "want the PCI address of a VF"},
		"0x":                    {plain.with("deviceID", "0x0000:03:00.3"), "want the PCI address of a VF"},
		"no domain":             {plain.with("deviceID", strings.TrimPrefix(vf, "0000:")), "want the PCI address of a VF"},
		"one that is not there": {plain.with("deviceID", "0000:0f:00.3"), "there is no network function of this PCI address"},
		"by a vendor's number":  {plain.with("deviceID", "101e"), "want the PCI address of a VF"},
		"mistyped field":        {plain.with("deviceID", nil).with("deviceId", vf), "unknown field deviceId"},
		"mistyped capability":   {plain.with("runtimeConfig", map[string]any{"deviceId": vf}), "unknown field deviceId"},
		"empty capability":      {plain.with("deviceID", nil).with("runtimeConfig", map[string]any{"deviceID": ""}), `deviceID = "": want the PCI address of a VF`},
		"two devices":           {plain.with("pciBusID", w.vf(0, 2)), "another device is named as well"},
		"resource in capitals":  {asking.with("resourceName", "sluice.dev/Fast"), "the kubelet has given pod shop/c2 no device of it"},
		"part of a resource":    {asking.with("resourceName", "sluice.dev/fas"), "the kubelet has given pod shop/c2 no device of it"},
		"resource, no prefix":   {asking.with("resourceName", "fast"), "resourceName"},
		"resource, empty":       {asking.with("resourceName", ""), "resourceName"},
		"resource, a list":      {asking.with("resourceName", []string{"sluice.dev/fast"}), "resourceName"},
		"attach in capitals":    {asking.with("attach", "Any"), `attach = "Any"`},
	} {
		if err := w.add(x.p); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v\nwant %s", name, err, x.want)
		}
	}
	for name, text := range map[string]string{
		"trailing comma": `{"cniVersion":"1.1.0","name":"n","type":"sluice-cni","bridge":"br-int","deviceID":"` + vf + `",}`,
		"twice":          `{"cniVersion":"1.1.0","name":"n","type":"sluice-cni","bridge":"br-int","deviceID":"` + vf + `"} {}`,
		"a list":         `[]`,
		"nothing":        ``,
	} {
		args := w.args(plain)
		args.StdinData = []byte(text)
		if err := w.plugin().Add(t.Context(), args); err == nil || !strings.Contains(err.Error(), "network configuration") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.mustBe(before, "after ADDs that were refused")
}

// churning counts lists of interfaces that are whole: after them one, or each, is
// interrupted as often as it is read, and what the netlink client says then is that there
// is no list.
type churning struct {
	whole    int
	once     bool
	happened bool
}

func (c *churning) list(ctx context.Context, l host.Links) ([]host.Link, error) {
	if c.whole--; c.whole < 0 && !(c.once && c.happened) {
		c.happened = true
		return nil, fmt.Errorf("list interfaces: the list changed each of the 16 times that it was read: %w", unix.EAGAIN)
	}
	return l.Links(ctx)
}

// on makes a machine's lists such.
func (c *churning) on(m *host.Machine) {
	m.Links, m.Netns = churningHost{allLinks{m.Links}, c}, churningNetns{m.Netns, c}
}

// allLinks hides the method's name, which is that of the interface.
type allLinks struct{ host.Links }

type churningHost struct {
	allLinks
	c *churning
}

func (h churningHost) Links(ctx context.Context) ([]host.Link, error) {
	return h.c.list(ctx, h.allLinks.Links)
}

type churningNetns struct {
	host.Netns
	c *churning
}

func (n churningNetns) Open(ctx context.Context, path string) (host.NetnsLinks, error) {
	ns, err := n.Netns.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return churningPod{ns, n.c}, nil
}

type churningPod struct {
	host.NetnsLinks
	c *churning
}

func (p churningPod) Links(ctx context.Context) ([]host.Link, error) {
	return p.c.list(ctx, p.NetnsLinks)
}

// Case B55: any list of interfaces, or all from any moment on, is not whole. What is under way then
// fails with that as the reason, and nothing is taken for gone because it was not
// listed: once lists are whole again, everything is there to be taken down, or kept.
func TestB55NothingIsDoneByHalfAList(t *testing.T) {
	const lists = 2 // one that is not whole, or all from there
	for _, what := range []string{"ADD", "DEL", "CHECK", "GC", "GC of one that ended", "sweep", "sweep of one that ended"} {
		failed := 0
		for n := 0; ; n++ {
			c := &churning{whole: n / lists, once: n%lists == 0}
			w := newWorld(t)
			before := w.snap()
			p, stays, stray := full(w.pod("c1", w.vf(0, 1))), full(w.pod("stays", w.vf(0, 2))), w.pod("v1", "").veth()
			w.mustAdd(stays)
			w.mustAdd(stray)
			if what != "ADD" {
				w.mustAdd(p)
			}
			result := w.out.String()
			if strings.HasSuffix(what, "ended") {
				w.mustDeleteNetns(p)
			}
			ports := maps.Clone(w.sw.ports)
			plugin, args := w.plugin(), w.args(p)
			c.on(&plugin.Host)
			var err error
			switch {
			case what == "ADD":
				err = plugin.Add(t.Context(), args)
			case what == "DEL":
				err = plugin.Del(t.Context(), args)
			case what == "CHECK":
				args = w.args(p.with("prevResult", json.RawMessage(result)))
				err = plugin.Check(t.Context(), args)
			case strings.HasPrefix(what, "GC"):
				valid := []map[string]string{{"containerID": "stays", "ifname": "net1"}, {"containerID": "v1", "ifname": "net1"}}
				if what == "GC" {
					valid = append(valid, map[string]string{"containerID": "c1", "ifname": "net1"})
				}
				err = plugin.GC(t.Context(), w.args(p.with("cni.dev/valid-attachments", valid)))
			default:
				_, err = plugin.Sweep(t.Context(), w.dir, DefaultOVSDB)
			}
			if !c.happened {
				break // more lists than it reads
			}
			failed++
			if err == nil || !strings.Contains(err.Error(), "the list changed each of the 16 times that it was read") {
				t.Fatalf("%s, list %d: %v", what, n, err)
			}
			for _, q := range []pod{stays, stray} {
				rep := record.PairName(q.container, q.ifname)
				if q.vf != "" {
					rep = w.vfAt(q.vf).Rep.Netdev.Name
				}
				if w.sw.ports[rep].Owner != q.container+"/net1" {
					t.Fatalf("%s, list %d: the port of %s is gone: %+v of %+v", what, n, q.container, w.sw.ports, ports)
				}
				if l := w.linkIn(q.netns, "net1"); !l.Up {
					t.Fatalf("%s, list %d: %s has %+v", what, n, q.container, l)
				}
			}
			for _, q := range []pod{p, stays, stray} {
				w.mustDel(q)
			}
			w.mustBe(before, fmt.Sprintf("%s, list %d", what, n))
		}
		if failed == 0 {
			t.Errorf("%s reads no list", what)
		}
	}
}

// Case B57: sizes over 65536 are of IPv6, set before IPv4's and within what the device
// takes; a representor that takes less is in nobody's way, as none is set there.
func TestB57SizesOfTheVF(t *testing.T) {
	w := newWorld(t)
	vf := w.vfAt(w.vf(0, 1))
	most, known := vf.Limits[nic.GSOMax]
	if !known || most <= 65536 {
		t.Fatalf("limits %v", vf.Limits)
	}
	before, settings := w.snap(), w.settings()
	p := w.pod("c1", vf.Address)
	if err := w.add(p.with("gsoMaxSize", most+1)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("gsoMaxSize = %d: VF %s takes at most %d", most+1, vf.Address, most)) {
		t.Errorf("more than the device takes: %v", err)
	}
	w.mustBe(before, "after an ADD that was refused")
	w.mustAdd(p.with("gsoMaxSize", most).with("groMaxSize", 65536))
	var sizes []string
	for step := range strings.Lines(w.steps(p.vf)) {
		if strings.Contains(step, "-max-size") {
			sizes = append(sizes, step)
		}
	}
	for _, step := range sizes {
		if strings.Contains(step, "representor") {
			t.Errorf("a size is set of the representor: %s", step)
		}
	}
	if len(sizes) == 0 {
		t.Error("no size is set")
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
	if d := cmp.Diff(settings, w.settings()); d != "" {
		t.Errorf("settings (-before +after): %s", d)
	}

	// The kernel refuses a size: all is as it was, and the error says which size of what.
	w.sim.Inject(sim.Fault{Match: func(o sim.Op) bool { return strings.Contains(string(o.Verb), "gso") }, Errno: unix.EINVAL, Ext: "too big gso_max_size"})
	err := w.add(p.with("gsoMaxSize", most))
	if err == nil || !strings.Contains(err.Error(), "too big gso_max_size") || !strings.Contains(err.Error(), "gso-max-size") {
		t.Errorf("refused by the kernel: %v", err)
	}
	w.mustBe(before, "after an ADD that the kernel refused")
}
