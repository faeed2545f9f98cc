package main

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
)

// A fault with crash=on ends the process, as kill -9 does, in the midst of the run: the
// machine is as it then was, and the next run takes over.
func TestSimulatedCrash(t *testing.T) {
	const sim = "mlx5:cards=1,vfs=16+fail:verb=set eswitch mode,crash=on,after=on,times=1"
	if dir := os.Getenv("SLUICE_TEST_CRASH"); dir != "" {
		os.Args = []string{"sluice", "--sim", sim, "--state-dir", dir, "apply", "-f", example}
		main()
	}
	c := newCLI(t, sim)
	cmd := exec.Command(os.Args[0], "-test.run=^TestSimulatedCrash$")
	cmd.Env = append(os.Environ(), "SLUICE_TEST_CRASH="+c.dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 137 {
		t.Fatalf("%v, want exit status 137\n%s", err, out)
	}
	if runs := c.runs(); len(runs) != 1 || runs[0].Outcome != apply.Interrupted {
		t.Fatalf("journal: %+v", runs)
	}
	switchdev := 0
	for _, pf := range c.observe()[0].PFs {
		if pf.Eswitch == nic.Switchdev {
			switchdev++
		}
	}
	if switchdev == 0 {
		t.Error("the machine has not kept what was done before the crash")
	}
	c.want(exitReached, "apply", "-f", example)
	if runs := c.runs(); len(runs) != 2 || runs[1].Outcome != apply.Reached {
		t.Errorf("journal: %+v", runs)
	}
}

// Commands that have opened one simulated machine at the same time see and keep each
// other's changes.
func TestSimulatedMachineIsShared(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	var nodes [2]*node
	for i := range nodes {
		var err error
		if nodes[i], err = (&options{sim: c.sim, stateDir: c.dir}).open(); err != nil {
			t.Fatal(err)
		}
	}
	want := 3
	for i, n := range nodes {
		h := nic.PCI([]string{"0000:03:00.0", "0000:03:00.1"}[i])
		spec := nic.Spec{PFs: []nic.PFSpec{{Handle: h, Named: true, VFCount: &want}}}
		if _, err := n.runner(nil).Run(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range nodes {
		state, err := n.observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, pf := range state.PFs {
			if len(pf.VFs) != want {
				t.Errorf("node %d sees %d VFs of %s, want %d", i, len(pf.VFs), pf.Handle, want)
			}
		}
	}
}
