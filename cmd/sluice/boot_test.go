package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

const switchdevDoc = `apiVersion: sluice.dev/v1alpha1
kind: NodeNIC
spec:
  pfs:
    - pf: pci/0000:03:00.0
      eswitch: switchdev
      numVfs: 2
      vfGroups:
        - {mac: stable, mtu: 9000}
`

// reboot is the machine as its firmware starts it: nothing of what was set at run
// time is left. The state folder stays.
func (c *cli) reboot() {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.dir, "machine.json")); err != nil {
		c.t.Fatal(err)
	}
}

func TestBootFromCommitted(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	c.want(exitReached, "apply", "-f", c.file(switchdevDoc))
	before := c.observe()[0].PFs[0]
	c.reboot()
	if pf := c.observe()[0].PFs[0]; pf.Eswitch != nic.Legacy || len(pf.VFs) != 0 {
		t.Fatalf("the machine has not started anew: %s with %d VFs", pf.Eswitch, len(pf.VFs))
	}
	c.want(exitReached, "boot")
	after := c.observe()[0].PFs[0]
	if after.Eswitch != nic.Switchdev || len(after.VFs) != 2 {
		t.Fatalf("after the boot %s with %d VFs, want switchdev with 2", after.Eswitch, len(after.VFs))
	}
	for i, v := range after.VFs {
		if v.MAC != before.VFs[i].MAC || v.Netdev.MTU != 9000 {
			t.Errorf("vf %d: MAC %s and MTU %d, want %s and 9000", i, v.MAC, v.Netdev.MTU, before.VFs[i].MAC)
		}
	}
	if out, _ := c.want(exitReached, "boot"); !strings.Contains(out, "nothing to do") {
		t.Errorf("a second boot run says %q", out)
	}
}

// What was rolled back is not what the next boot brings.
func TestBootAfterRollback(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	c.want(exitReached, "apply", "-f", c.file(switchdevDoc))
	c.want(exitReached, "rollback")
	c.reboot()
	c.want(exitReached, "boot")
	if pf := c.observe()[0].PFs[0]; pf.Eswitch != nic.Legacy || len(pf.VFs) != 0 {
		t.Errorf("after rollback and boot %s with %d VFs, want legacy without", pf.Eswitch, len(pf.VFs))
	}
}

// A run that failed commits nothing.
func TestBootAfterFailure(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16+fail:verb=set eswitch mode,errno=EIO,times=1")
	c.want(exitRolledBack, "apply", "-f", c.file(switchdevDoc))
	c.reboot()
	if out, _ := c.want(exitReached, "boot"); !strings.Contains(out, "nothing to do") {
		t.Errorf("boot after a failed run says %q", out)
	}
}

func TestBootWithoutCommitted(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	if out, _ := c.want(exitReached, "boot"); !strings.Contains(out, "nothing to do") {
		t.Errorf("boot of a node that was never changed says %q", out)
	}
}

// A card that was taken out does not keep the others from coming up.
func TestBootWithoutACard(t *testing.T) {
	c := newCLI(t, "mlx5:cards=2,vfs=16")
	second := c.observe()[1].PFs[0].Handle.String()
	doc := switchdevDoc + "    - {pf: " + second + ", eswitch: switchdev, numVfs: 1}\n"
	c.want(exitReached, "apply", "-f", c.file(doc))
	c.reboot()
	c.sim = "mlx5:cards=1,vfs=16"
	_, stderr := c.want(exitReached, "boot")
	if !strings.Contains(stderr, second+" is not there") {
		t.Errorf("boot does not say which PF is missing: %q", stderr)
	}
	if pf := c.observe()[0].PFs[0]; pf.Eswitch != nic.Switchdev {
		t.Errorf("the card that is there is in %s mode, want switchdev", pf.Eswitch)
	}
}

// Before the network is up a bond of somebody else's is not there: the ports are
// made ready for it, and VFs wait for the agent.
func TestAtBootWithAdoptedBond(t *testing.T) {
	p0, p1 := nic.PCI("0000:03:00.0"), nic.PCI("0000:03:00.1")
	two, bond := 2, "bond0"
	port := func(h nic.Handle) nic.PFSpec {
		return nic.PFSpec{Handle: h, Eswitch: nic.Switchdev, VFCount: &two, Bond: &bond, VFs: []nic.VFSpec{{Driver: nic.DriverKernel}}}
	}
	committed := nic.Spec{
		PFs:   []nic.PFSpec{port(p0), port(p1)},
		Bonds: []nic.BondSpec{{Name: bond, Members: []nic.Handle{p0, p1}, Adopt: true}},
		RDMA:  nic.RDMAExclusive,
	}
	got := atBoot(committed, nic.State{PFs: []nic.PF{{Handle: p0}, {Handle: p1}}})
	if len(got.Bonds) != 0 || got.RDMA != "" {
		t.Errorf("at boot a bond or an RDMA mode that cannot be had yet is wanted: %+v", got)
	}
	for _, w := range got.PFs {
		if w.Bond != nil || len(w.VFs) != 2 || w.VFs[0].Driver != nic.DriverNone || w.VFs[1].Driver != nic.DriverNone {
			t.Errorf("at boot %+v is wanted, want two VFs without driver", w)
		}
	}
	if got.PFs[0].Eswitch != nic.Switchdev {
		t.Errorf("at boot mode %q, want switchdev", got.PFs[0].Eswitch)
	}
	if committed.PFs[0].VFs[0].Driver != nic.DriverKernel {
		t.Error("atBoot has changed what it was given")
	}
}

// Pods' records outlive the boot that ended the pods. They keep no VF from being made
// and bound, and a pod that gets one now has it.
func TestBootWithRecordsOfBefore(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	c.want(exitReached, "apply", "-f", c.file(switchdevDoc))
	vf := c.observe()[0].PFs[0].VFs[1].Address
	save := func(container string) {
		t.Helper()
		if err := record.In(c.dir).Save(&record.Record{Container: container, IfName: "eth0", VF: vf}); err != nil {
			t.Fatal(err)
		}
	}
	save("old")
	c.reboot()
	c.want(exitReached, "boot")
	if got := c.observe()[0].PFs[0].VFs[1]; got.Driver != "mlx5_core" || got.Netdev.MTU != 9000 {
		t.Errorf("VF 1 has driver %q and MTU %d, want mlx5_core and 9000", got.Driver, got.Netdev.MTU)
	}
	save("new")
	none := c.file(strings.Replace(switchdevDoc, "numVfs: 2", "numVfs: 0", 1))
	if _, stderr := c.want(exitRefused, "apply", "-f", none); !strings.Contains(stderr, "container new") {
		t.Errorf("refused with %q, want the new container named", stderr)
	}
}

// What a later run leaves out stays as earlier ones committed it, as far as it has
// outlived the later one.
func TestBootFromSeveralRuns(t *testing.T) {
	doc := func(pf string) string {
		return "apiVersion: sluice.dev/v1alpha1\nkind: NodeNIC\nspec:\n  pfs:\n    - {pf: '0000:03:00.0', " + pf + "}\n"
	}
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	for _, pf := range []string{
		"eswitch: legacy, numVfs: 2, vfGroups: [{mac: stable, trust: true, maxRate: 1Gbit}]",
		"mtu: 9000",
		"eswitch: switchdev",
		"vfGroups: [{range: '1', mtu: 4000}]",
	} {
		c.want(exitReached, "apply", "-f", c.file(doc(pf)))
	}
	before := text(c.observe())
	c.reboot()
	c.want(exitReached, "boot")
	after := c.observe()
	// Rates ended with the mode (esw_vport_cleanup) and were put back by the run.
	if d := cmp.Diff(before, text(after)); d != "" {
		t.Errorf("before and after the boot:\n%s", d)
	}
	if pf := after[0].PFs[0]; pf.Uplink.MTU != 9000 || len(pf.VFs) != 2 || pf.VFs[1].Netdev.MTU != 4000 {
		t.Errorf("after the boot: %+v", pf)
	}
	c.want(exitReached, "apply", "-f", c.file(doc("numVfs: 1")))
	c.reboot()
	c.want(exitReached, "boot")
	if pf := c.observe()[0].PFs[0]; len(pf.VFs) != 1 || pf.Eswitch != nic.Switchdev {
		t.Errorf("after a run with another count and a boot: %s with %d VFs", pf.Eswitch, len(pf.VFs))
	}
}

// A boot that is killed after it has made VFs and before it has bound them is finished
// by the next, although records name these VFs: of pods that ended with the boot
// before.
func TestBootCutOffWithRecordsOfBefore(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	c.want(exitReached, "apply", "-f", c.file(switchdevDoc))
	vf := c.observe()[0].PFs[0].VFs[1].Address
	store := record.In(c.dir)
	save := func(container string) {
		t.Helper()
		if err := store.Save(&record.Record{Container: container, IfName: "eth0", VF: vf, Boot: c.restart(false)}); err != nil {
			t.Fatal(err)
		}
	}
	save("old")
	c.restart(true)

	func() {
		n, err := (&options{sim: c.sim, stateDir: c.dir}).open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if r := recover(); r == nil {
				t.Fatal("no step made VFs")
			}
			if err := n.close(); err != nil {
				t.Fatal(err)
			}
		}()
		r := n.runner(func(e apply.Event) {
			if e.Kind == apply.EventDone && e.Step.Op() == plan.OpSetVFs {
				panic("killed")
			}
		})
		r.Parallel = false
		_, err = n.toCommitted(t.Context(), r, func(nic.Handle) {})
		t.Fatal(err)
	}()
	if got := c.observe()[0].PFs[0].VFs; len(got) != 2 || got[1].Driver != "" || got[1].Owner != "" {
		t.Fatalf("cut off with %+v, want two VFs without driver and owner", got)
	}

	c.want(exitReached, "boot")
	if got := c.observe()[0].PFs[0].VFs[1]; got.Driver != "mlx5_core" || got.Netdev.MTU != 9000 {
		t.Errorf("VF 1 has driver %q and MTU %d, want mlx5_core and 9000", got.Driver, got.Netdev.MTU)
	}
	save("new")
	if got := c.observe()[0].PFs[0].VFs[1].Owner; !strings.Contains(got, "container new") {
		t.Errorf("VF 1 is held by %q, want the new container", got)
	}
}

// restart boots the simulated machine, or not, and answers the name of its boot.
func (c *cli) restart(boot bool) string {
	c.t.Helper()
	path := filepath.Join(c.dir, "machine.json")
	m, err := sim.Load(path)
	if err == nil && boot {
		m.Reboot()
		err = m.Save(path)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return m.Machine().Boot
}
