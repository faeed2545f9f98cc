package cni

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/devfile"
	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// failureCase is an ADD on a node.
type failureCase struct {
	spec string // of the node
	ask  func(w *world) pod
}

const vfNode = "mlx5:cards=1,ports=2,vfs=8,numvfs=4,mode=switchdev"

// failureCases are ADDs with everything asked for and with the least, and of an SF.
func failureCases() map[string]failureCase {
	return map[string]failureCase{
		"full":  {vfNode, func(w *world) pod { return full(w.pod("c1", w.vf(0, 1))) }},
		"least": {vfNode, func(w *world) pod { return w.pod("c1", w.vf(0, 1)).with("ipam", nil) }},
		"guid":  {ibNode, func(w *world) pod { return withGUID(w.pod("c1", w.vf(0, 1))) }},
		"sf":    {sfNode, func(w *world) pod { return fullSF(w.pod("c1", w.sf(0, 1))) }},
	}
}

// TestAddFailsAnywhere lets each act of an ADD fail, before and after its effect.
// The ADD undoes itself: the node is as before, and nothing is left for DEL.
func TestAddFailsAnywhere(t *testing.T) {
	for name, c := range failureCases() {
		failed := 0
		// try injects fault number n; false when the ADD got by without it.
		try := func(what string, n int, inject func(*world, int)) bool {
			w := newWorldOf(t, c.spec)
			before := w.snap()
			p := c.ask(w)
			inject(w, n)
			err := w.add(p)
			if err == nil {
				return false
			}
			failed++
			when := fmt.Sprintf("%s: after an ADD whose %s %d failed (%v)", name, what, n, err)
			if !strings.Contains(err.Error(), "input/output error") {
				t.Fatalf("%s: want the cause", when)
			}
			w.mustBe(before, when)
			if w.out.Len() != 0 {
				t.Fatalf("%s: printed %q", when, w.out.String())
			}
			w.heal()
			w.mustDel(p)
			w.mustBe(before, when+" and DEL")
			// The node is good for the next one.
			w.mustAdd(p)
			w.mustDel(p)
			w.mustBe(before, when+", ADD and DEL")
			return true
		}
		for _, after := range []bool{false, true} {
			n := 1
			for try(fmt.Sprintf("write (after effect: %v)", after), n, func(w *world, n int) {
				w.sim.Inject(sim.Fault{Skip: n - 1, After: after, Match: func(o sim.Op) bool { return o.Verb != sim.Announce }})
			}) {
				n++
			}
		}
		for n := 1; try("call of Open vSwitch", n, func(w *world, n int) { w.sw.fail = failAt(n) }); n++ {
		}
		for n := 1; try("call of IPAM", n, func(w *world, n int) { w.ipam.fail = failAt(n) }); n++ {
		}
		if failed < 14 {
			t.Errorf("%s: only %d failures", name, failed)
		}
	}
}

func (w *world) heal() {
	w.sim.Heal()
	w.sw.fail, w.sw.down, w.ipam.fail = nil, false, nil
}

// TestAnnounceFails does not mind that neighbours were not told.
func TestAnnounceFails(t *testing.T) {
	w := newWorld(t)
	w.sim.Inject(sim.Fault{Verb: sim.Announce, Times: -1})
	w.mustAdd(w.pod("c1", w.vf(0, 1)))
}

// TestUndoFails lets an ADD fail and its undoing too, at each pair of writes. The
// record stays, and DEL finishes.
func TestUndoFails(t *testing.T) {
	for n := 1; ; n++ {
		stuck := 0
		for m := 0; ; m++ {
			w := newWorld(t)
			before := w.snap()
			p := full(w.pod("c1", w.vf(0, 1)))
			w.sim.Inject(sim.Fault{Skip: n - 1})
			w.sim.Inject(sim.Fault{Skip: n - 1 + m})
			err := w.add(p)
			if err == nil {
				if n < 10 {
					t.Fatalf("ADD makes only %d writes", n-1)
				}
				return
			}
			w.heal()
			if !strings.Contains(err.Error(), "could not be undone, which is left to DEL") {
				w.mustBe(before, fmt.Sprintf("after a failure of write %d (%v)", n, err))
				break
			}
			stuck++
			if owners, _ := record.Owners(w.dir, ""); owners[p.vf] == "" {
				t.Fatalf("writes %d and %d: nobody owns the VF", n, n+m)
			}
			w.mustDel(p)
			w.mustBe(before, fmt.Sprintf("after a failure of writes %d and %d more on, and DEL", n, m))
		}
		if n == 8 && stuck < 3 {
			t.Errorf("undoing after write %d makes only %d writes", n, stuck)
		}
	}
}

// TestAddKilledAnywhere ends the process of an ADD after each piece of work, so
// between a record and its act as well as between an act and the next record.
// Then: DEL; or no DEL, but the namespace ends and DEL has none; or ADD once more.
func TestAddKilledAnywhere(t *testing.T) {
	endings := map[string]func(w *world, p pod){
		"DEL": func(w *world, p pod) { w.mustDel(p) },
		"netns gone, DEL": func(w *world, p pod) {
			if err := w.sim.DeleteNetns(p.netns); err != nil {
				t.Fatal(err)
			}
			w.mustDel(p)
		},
		"netns gone, DEL without netns": func(w *world, p pod) {
			if err := w.sim.DeleteNetns(p.netns); err != nil {
				t.Fatal(err)
			}
			p.netns = ""
			w.mustDel(p)
		},
		"DEL without netns": func(w *world, p pod) { p.netns = ""; w.mustDel(p) },
		"ADD, DEL": func(w *world, p pod) {
			if r, err := record.In(w.dir).Load(p.vf); err == nil && r.Attached() {
				w.mustDel(p) // killed when all was done: only the answer was lost
			}
			w.mustAdd(p)
			w.mustDel(p)
		},
		"ADD of another pod once the netns is gone": func(w *world, p pod) {
			if err := w.sim.DeleteNetns(p.netns); err != nil {
				t.Fatal(err)
			}
			next := w.pod("next", p.vf)
			if w.state().PFs[0].InfiniBand {
				next = withGUID(next)
			}
			w.mustAdd(next)
			w.mustDel(next)
		},
	}
	for name, c := range failureCases() {
		for ending, end := range endings {
			if (name == "sf" || name == "guid") && strings.Contains(ending, "DEL without") {
				continue // as for VFs: what they have of their own is in the other endings
			}
			kills := 0
			for n := 1; ; n++ {
				w := newWorldOf(t, c.spec)
				before := w.snap()
				p := c.ask(w)
				crashed, err := w.crash(n, func() error { return w.add(p) })
				if err != nil {
					t.Fatal(err)
				}
				w.invariants(fmt.Sprintf("%s ADD killed after %d pieces", name, n))
				if !crashed {
					break
				}
				kills++
				last := w.spans[len(w.spans)-1]
				end(w, p)
				w.mustBe(before, fmt.Sprintf("after an ADD killed at %q and %s", last.Name, ending))
			}
			if kills < 20 {
				t.Errorf("%s: only %d kills", name, kills)
			}
		}
	}
}

// TestDelKilledAnywhere ends the process of a DEL after each piece of work. The
// next DEL finishes, and one more finds nothing to do.
func TestDelKilledAnywhere(t *testing.T) {
	for name, c := range failureCases() {
		kills := 0
		for n := 1; ; n++ {
			w := newWorldOf(t, c.spec)
			before := w.snap()
			p := c.ask(w)
			w.mustAdd(p)
			crashed, err := w.crash(n, func() error { return w.del(p) })
			if err != nil {
				t.Fatal(err)
			}
			w.invariants(fmt.Sprintf("%s DEL killed after %d pieces", name, n))
			w.mustDel(p)
			w.mustBe(before, fmt.Sprintf("%s: after a DEL killed after %d pieces of work and another", name, n))
			writes := w.sim.Writes()
			w.mustDel(p)
			if w.sim.Writes() != writes {
				t.Fatal("DEL of nothing writes")
			}
			if !crashed {
				break
			}
			kills++
		}
		if kills < 15 {
			t.Errorf("%s: only %d kills", name, kills)
		}
	}
}

// TestDelFailsAnywhere lets each act of a DEL fail. The record stays, and the next
// DEL finishes.
func TestDelFailsAnywhere(t *testing.T) {
	failed := 0
	try := func(inject func(*world)) bool {
		w := newWorld(t)
		before := w.snap()
		p := full(w.pod("c1", w.vf(0, 1)))
		w.mustAdd(p)
		w.sw.calls, w.ipam.calls = 0, 0
		inject(w)
		err := w.del(p)
		w.heal()
		if err == nil {
			w.mustBe(before, "after DEL")
			return false
		}
		failed++
		if owners, _ := record.Owners(w.dir, ""); owners[p.vf] == "" {
			t.Fatalf("DEL failed (%v) and nobody owns the VF", err)
		}
		w.invariants(fmt.Sprintf("DEL failed: %v", err))
		w.mustDel(p)
		w.mustBe(before, fmt.Sprintf("after a failed DEL (%v) and another", err))
		return true
	}
	for _, after := range []bool{false, true} {
		for n := 1; try(func(w *world) { w.sim.Inject(sim.Fault{Skip: n - 1, After: after}) }); n++ {
		}
	}
	for n := 1; try(func(w *world) { w.sw.fail = failAt(n) }); n++ {
	}
	for n := 1; try(func(w *world) { w.ipam.fail = failAt(n) }); n++ {
	}
	if failed < 20 {
		t.Errorf("only %d failures", failed)
	}
}

func TestDelVariants(t *testing.T) {
	for _, c := range []struct {
		name string
		del  func(w *world, p pod)
	}{
		{"no CNI_NETNS, namespace alive", func(w *world, p pod) { p.netns = ""; w.mustDel(p) }},
		{"netns gone", func(w *world, p pod) { w.mustDeleteNetns(p); w.mustDel(p) }},
		{"netns gone, no CNI_NETNS", func(w *world, p pod) { w.mustDeleteNetns(p); p.netns = ""; w.mustDel(p) }},
		{"path is no namespace", func(w *world, p pod) { w.mustDeleteNetns(p); w.sim.AddFile(p.netns); w.mustDel(p) }},
		{"path leads to another namespace", func(w *world, p pod) {
			w.mustDeleteNetns(p)
			if err := w.sim.AddNetns(p.netns); err != nil {
				w.t.Fatal(err)
			}
			if _, err := w.sim.AddLink(p.netns, p.ifname, "veth"); err != nil {
				w.t.Fatal(err)
			}
			w.mustDel(p)
			ns, err := w.sim.Machine().Netns.Open(context.Background(), p.netns)
			if err != nil {
				w.t.Fatal(err)
			}
			defer ns.Close()
			if links, err := ns.Links(context.Background()); err != nil || len(links) != 2 {
				w.t.Errorf("the other's interfaces: %v, %v", links, err)
			}
		}},
		{"twice", func(w *world, p pod) { w.mustDel(p); w.mustDel(p) }},
		{"renamed by the pod", func(w *world, p pod) {
			l, ns := w.inPod(p.netns)
			if err := ns.SetName(context.Background(), l.Ifindex, "custom0"); err != nil {
				w.t.Fatal(err)
			}
			w.mustDel(p)
		}},
		{"Open vSwitch down, then up", func(w *world, p pod) {
			w.sw.down = true
			err := w.del(p)
			var e *types.Error
			if !errors.As(err, &e) || e.Code != ErrSwitch {
				w.t.Errorf("DEL: %#v", err)
			}
			if owners, _ := record.Owners(w.dir, ""); owners[p.vf] == "" {
				w.t.Error("the record is gone")
			}
			// What does not need Open vSwitch is done already.
			if vf := w.state().PFs[0].VFs[1]; !vf.Netdev.Exists() || vf.Netdev.Name == TempName(p.vf) {
				w.t.Errorf("VF: %+v", vf)
			}
			w.sw.down = false
			w.mustDel(p)
		}},
		{"configuration edited into nonsense", func(w *world, p pod) {
			w.mustDel(p.with("bridge", 7).with("mtu", "big").with("ipam", nil).with("new-field", true))
		}},
		{"other deviceID", func(w *world, p pod) { w.mustDel(p.with("deviceID", w.vf(1, 3))) }},
		{"port unplugged by hand", func(w *world, p pod) {
			clear(w.sw.ports)
			w.mustDel(p)
		}},
		{"interface is not the container's", func(w *world, p pod) {
			held := w.snap()
			q := p
			q.ifname = "net2"
			w.mustDel(q)
			w.mustBe(held, "after DEL of another interface")
			w.mustDel(p)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			before := w.snap()
			p := full(w.pod("c1", w.vf(0, 1)))
			w.mustAdd(p)
			c.del(w, p)
			w.mustBe(before, "after DEL")
		})
	}
}

// TestNetnsGoneAndNamesClash finds the VF by its address: the kernel had to give
// it another name when it returned it, since the pod's is taken in the host.
func TestNetnsGoneAndNamesClash(t *testing.T) {
	w := newWorld(t)
	p := full(w.pod("c1", w.vf(0, 1)))
	if _, err := w.sim.AddLink("", p.ifname, "dummy"); err != nil {
		t.Fatal(err)
	}
	before := w.snap()
	w.mustAdd(p)
	w.mustDeleteNetns(p)
	if name := w.state().PFs[0].VFs[1].Netdev.Name; !strings.HasPrefix(name, "dev") {
		t.Fatalf("the kernel calls it %s", name)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

func (w *world) mustDeleteNetns(p pod) {
	w.t.Helper()
	if err := w.sim.DeleteNetns(p.netns); err != nil {
		w.t.Fatal(err)
	}
}

// TestDelNetnsUnreachable has a process hold the namespace that no path leads to
// any more: everything comes down but the VF, which DEL waits for.
func TestDelNetnsUnreachable(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := full(w.pod("c1", w.vf(0, 1)))
	w.mustAdd(p)
	process, err := w.sim.Machine().Netns.Open(context.Background(), p.netns)
	if err != nil {
		t.Fatal(err)
	}
	w.mustDeleteNetns(p)
	err = w.del(p)
	var e *types.Error
	if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater || !strings.Contains(e.Msg, "want its last process to end") {
		t.Fatalf("DEL: %#v", err)
	}
	if len(w.sw.ports) != 0 || len(w.ipam.leases) != 0 {
		t.Errorf("left: ports %v, leases %v", w.sw.ports, w.ipam.leases)
	}
	// Another pod is not given the VF meanwhile.
	if err := w.add(w.pod("c2", p.vf)); err == nil || !strings.Contains(err.Error(), "take down what") {
		t.Errorf("ADD: %v", err)
	}
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

// TestDelOfRemovedVFs comes after an administrator took all VFs away.
func TestDelOfRemovedVFs(t *testing.T) {
	w := newWorld(t)
	p := full(w.pod("c1", w.vf(0, 1)))
	w.mustAdd(p)
	if err := w.sim.Machine().PCI.SetVFs(context.Background(), w.state().PFs[0].Handle.Name, 0); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	if len(w.sw.ports) != 0 || len(w.ipam.leases) != 0 {
		t.Errorf("left: ports %v, leases %v", w.sw.ports, w.ipam.leases)
	}
}

// TestDelInLegacyMode comes after the eswitch went back to legacy mode.
func TestDelInLegacyMode(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	name := w.state().PFs[0].VFs[1].Netdev.Name
	w.mustAdd(p)
	if err := w.sim.Machine().Devlink.SetEswitch(context.Background(), w.state().PFs[0].Handle, "legacy"); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	if vf := w.state().PFs[0].VFs[1]; vf.Netdev.Name != name || vf.Away {
		t.Errorf("VF: %+v", vf)
	}
}

// TestConcurrentAdds gives one VF to one of many.
func TestConcurrentAdds(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	var pods []pod
	for i := range 8 {
		pods = append(pods, w.pod(fmt.Sprintf("c%d", i), w.vf(0, 1)))
	}
	errs := make([]error, len(pods))
	// Each process has a plugin of its own; what they share is the node.
	plugins := make([]*Plugin, len(pods))
	for i := range plugins {
		plugins[i] = w.plugin()
		plugins[i].Trace = nil
		plugins[i].Out = new(strings.Builder)
	}
	var wg sync.WaitGroup
	for i, p := range pods {
		args := w.args(p)
		wg.Go(func() { errs[i] = plugins[i].Add(context.Background(), args) })
	}
	wg.Wait()
	won := -1
	for i, err := range errs {
		var e *types.Error
		switch {
		case err == nil && won < 0:
			won = i
		case err == nil:
			t.Errorf("both %s and %s got the VF", pods[won].container, pods[i].container)
		case !errors.As(err, &e) || e.Code != types.ErrTryAgainLater:
			t.Errorf("%s: %v", pods[i].container, err)
		}
	}
	if won < 0 {
		t.Fatal("nobody got the VF")
	}
	for i, p := range pods {
		if i != won {
			w.mustDel(p)
		}
	}
	if l, _ := w.inPod(pods[won].netns); l.Name != "net1" {
		t.Errorf("the others' DEL took the VF away: %+v", l)
	}
	w.mustDel(pods[won])
	w.mustBe(before, "after all")
}

// TestLocked gives up on a VF that another process is at for too long.
func TestLocked(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	unlock, err := record.In(w.dir).Lock(context.Background(), p.vf)
	if err != nil {
		t.Fatal(err)
	}
	plugin := w.plugin()
	plugin.Limits.Lock = 10 * time.Millisecond
	err = plugin.Add(context.Background(), w.args(p))
	var e *types.Error
	if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater || !strings.Contains(e.Msg, "another process works on it") {
		t.Errorf("ADD: %#v", err)
	}
	unlock()
	w.mustAdd(p)
}

// TestAddCancelled undoes an ADD that was told to stop in its midst.
func TestAddCancelled(t *testing.T) {
	for n := 1; ; n++ {
		w := newWorld(t)
		before := w.snap()
		p := full(w.pod("c1", w.vf(0, 1)))
		ctx, cancel := context.WithCancel(context.Background())
		plugin, spans := w.plugin(), 0
		plugin.Trace = func(Span) {
			if spans++; spans == n {
				cancel()
			}
		}
		err := plugin.Add(ctx, w.args(p))
		cancel()
		if err == nil {
			if n < 20 {
				t.Fatalf("only %d places to stop at", n)
			}
			return
		}
		w.mustBe(before, fmt.Sprintf("after an ADD that was stopped after %d pieces of work (%v)", n, err))
	}
}

// invariants hold whatever happened: what is in a pod, in a bridge or leased has
// an owner by a record.
func (w *world) invariants(when string) {
	w.t.Helper()
	owned := map[string]*record.Record{}
	owners, err := record.Owners(w.dir, "")
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := record.In(w.dir).All()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range all {
		if f.Err != nil {
			w.t.Fatal(f.Err)
		}
		owned[f.Record.Token()] = f.Record
	}
	files, err := devfile.In(w.dir).Keys()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, key := range files {
		if _, err := record.In(w.dir).Load(key); err != nil {
			w.t.Fatalf("%s: device file of %s, and no record of it", when, key)
		}
	}
	logical := map[string]string{}
	for rep, p := range w.sw.ports {
		if owned[p.Owner] == nil {
			w.t.Fatalf("%s: port %s of %s, and no record of it", when, rep, p.Owner)
		}
		if id := p.ExternalIDs[idIface]; id != "" {
			if logical[id] != "" {
				w.t.Fatalf("%s: both %s and %s have iface-id %s", when, rep, logical[id], id)
			}
			logical[id] = rep
		}
	}
	for token := range w.ipam.leases {
		if owned[token] == nil {
			w.t.Fatalf("%s: addresses of %s, and no record of it", when, token)
		}
	}
	for _, pf := range w.state().PFs {
		for _, sf := range pf.SFs {
			if sf.Away && owners[sf.Device] == "" {
				w.t.Fatalf("%s: SF %s is away, and no record of it", when, sf.Device)
			}
			if _, err := record.In(w.dir).Load(record.RepKey(sf.Device)); !sf.Rep.Exists() && err != nil {
				w.t.Fatalf("%s: the representor of SF %s is away, and no record of it: %v", when, sf.Device, err)
			}
		}
		for _, vf := range pf.VFs {
			if _, err := record.In(w.dir).Load(record.RepKey(vf.Address)); !vf.Rep.Exists() && pf.Eswitch == nic.Switchdev && err != nil {
				w.t.Fatalf("%s: the representor of VF %s is away, and no record of it: %v", when, vf.Address, err)
			}
			if vf.Away && owners[vf.Address] == "" {
				w.t.Fatalf("%s: VF %s is away, and no record of it", when, vf.Address)
			}
		}
	}
}
