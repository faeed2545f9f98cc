package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// A pod that gets a VF between the look and the step keeps it: the attachment's
// lock is taken for the step, and who has the VF is asked again.
func TestVFTakenBetweenLookAndStep(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=4,numvfs=2,mode=switchdev")
	vf := c.observe()[0].PFs[0].VFs[1]
	o := &options{sim: c.sim, stateDir: c.dir, output: "table"}
	n, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	taken := false
	r := n.runner(func(e apply.Event) {
		if e.Kind != apply.EventStarted || taken {
			return
		}
		taken = true
		store := record.In(c.dir)
		unlock, err := store.Lock(context.Background(), vf.Address)
		if err != nil {
			t.Error(err)
			return
		}
		if err := store.Save(&record.Record{Container: "c1", IfName: "eth0", VF: vf.Address}); err != nil {
			t.Error(err)
		}
		// The ADD is still at work while the step waits for its lock.
		go func() {
			time.Sleep(100 * time.Millisecond)
			unlock()
		}()
	})
	spec := nic.Spec{PFs: []nic.PFSpec{{Handle: nic.PCI("0000:03:00.0"), VFs: []nic.VFSpec{{}, {Driver: nic.DriverVFIO}}}}}
	_, err = r.Run(t.Context(), spec)
	var step *apply.StepError
	if !errors.As(err, &step) || !strings.Contains(err.Error(), "held by container c1") {
		t.Fatalf("%v; want the step refused because of who holds the VF", err)
	}
	if s, ok := step.Step.(plan.Step); !ok || !strings.HasPrefix(s.String(), "unbind") {
		t.Errorf("refused at %v, want the first step", step.Step)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
	if got := c.observe()[0].PFs[0].VFs[1]; got.Driver != "mlx5_core" {
		t.Errorf("the VF has driver %q, want the one it had", got.Driver)
	}
}

// The same of an SF that is to go.
func TestSFTakenBetweenLookAndStep(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=4,numsfs=1,mode=switchdev")
	sf := c.observe()[0].PFs[0].SFs[0]
	o := &options{sim: c.sim, stateDir: c.dir, output: "table"}
	n, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	taken := false
	r := n.runner(func(e apply.Event) {
		if e.Kind != apply.EventStarted || taken {
			return
		}
		taken = true
		if err := record.In(c.dir).Save(&record.Record{Container: "c1", IfName: "eth0", VF: sf.Device, SF: true}); err != nil {
			t.Error(err)
		}
	})
	_, err = r.Run(t.Context(), nic.Spec{PFs: []nic.PFSpec{{Handle: nic.PCI("0000:03:00.0"), SFs: &[]nic.SFSpec{}}}})
	if err == nil || !strings.Contains(err.Error(), "sf 1: in use: held by container c1") {
		t.Fatalf("%v; want the step refused because of who holds the SF", err)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
	if got := c.observe()[0].PFs[0].SFs; len(got) != 1 || !got[0].Active {
		t.Errorf("SFs %+v, want the one that is held", got)
	}
}

// A record that cannot be read keeps its VF, until somebody says that whoever used
// it is gone: then plan and apply both take it.
func TestUnreadableRecord(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=4,numvfs=2,mode=switchdev")
	vf := c.observe()[0].PFs[0].VFs[1]
	dir := filepath.Join(c.dir, "attachments")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, vf.Address+".json"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	doc := c.file(strings.Replace(switchdevDoc, "numVfs: 2", "numVfs: 0", 1))
	if _, stderr := c.want(exitRefused, "apply", "-f", doc); !strings.Contains(stderr, "unreadable record") {
		t.Errorf("refused with %q, want the record named", stderr)
	}
	if out, _ := c.want(exitReached, "plan", "-f", doc, "--drain-done"); !strings.Contains(out, "remove all VFs of pci/0000:03:00.0  (drain)") || !strings.Contains(out, "impact: drain") {
		t.Errorf("the plan takes a VF from whoever is gone, and says\n%s", out)
	}
	c.want(exitReached, "apply", "-f", doc, "--drain-done")
	if n := len(c.observe()[0].PFs[0].VFs); n != 0 {
		t.Errorf("%d VFs, want none", n)
	}
}
