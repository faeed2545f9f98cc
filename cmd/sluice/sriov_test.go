package main

import (
	"os"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host"
)

// dealt has VFs 0 to 2 of a PF for one resource, whose second entry of the PF counts
// as well, and the rest of the node's for another.
const dealt = `{"resourceList": [
  {"resourceName": "some", "selectors": {"pfNames": ["enp3s0f0np0#0", "enp3s0f0np0#1-2"]}},
  {"resourceName": "rest", "resourcePrefix": "example.com", "selectors": [{"vendors": ["15b3"], "drivers": ["mlx5_core"]}]}
]}`

// With a configuration of the SR-IOV network device plugin alone an agent changes
// nothing on the node, offers its resources with their names and variables, follows
// it, and keeps the last good one.
func TestAgentTakesTheDevicePluginsConfiguration(t *testing.T) {
	k := newKept(t)
	ctx := t.Context()
	if err := k.sim.Stranger(func(m host.Machine) error { return m.PCI.SetVFs(ctx, "0000:03:00.0", 8) }); err != nil {
		t.Fatal(err)
	}
	config := k.dir + "/config.json"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(dealt)
	k.file, k.config = "", config
	end := k.agent()
	defer func() { end() }()

	k.until("the resources", func() bool { return k.healthy("acme.com/some") == 3 && k.healthy("example.com/rest") == 5 })
	ids, answer, err := k.k.Allocate(ctx, "acme.com/some", 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.Envs["PCIDEVICE_ACME_COM_SOME"]; got != "0000:03:00.2,0000:03:00.3,0000:03:00.4" {
		t.Errorf("the container gets %q of %v", got, ids)
	}
	if k.vfs() != 8 {
		t.Errorf("%d VFs: want those of before, 8", k.vfs())
	}

	// VFs that come are dealt as well, and other resources than before.
	if err := k.sim.Stranger(func(m host.Machine) error { return m.PCI.SetVFs(ctx, "0000:03:00.1", 4) }); err != nil {
		t.Fatal(err)
	}
	k.until("the other port's VFs", func() bool { return k.healthy("example.com/rest") == 9 })
	write(strings.Replace(dealt, "#1-2", "#1-5", 1))
	k.until("other ranges", func() bool { return k.healthy("acme.com/some") == 6 && k.healthy("example.com/rest") == 6 })
	write(strings.Replace(dealt, "15b3", "0x15b3", 1))
	k.until("the refusal", func() bool { return strings.Contains(k.said(), "0x15b3") })
	if k.healthy("acme.com/some") != 6 || k.healthy("example.com/rest") != 6 {
		t.Error("what was offered is not any more")
	}
}

// A configuration that cannot be honoured is refused at the start, before anything
// is done, and one that wants what the document's pools have as well.
func TestAgentRefusesAConfiguration(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := dir + "/" + name
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	typo := file("typo.json", strings.Replace(dealt, "vendors", "vendor", 1))
	_, stderr := c.want(exitRefused, "agent", "--sriov-config", typo, "--kubelet-dir", dir)
	if !strings.Contains(stderr, "resource example.com/rest: resourceList[1].selectors[0].vendor") {
		t.Errorf("the place is not told: %s", stderr)
	}
	if stdout, _ := c.want(exitReached, "journal"); strings.Contains(stdout, "committed") {
		t.Errorf("something was done: %s", stdout)
	}
	node := file("node.yaml", `{apiVersion: sluice.dev/v1alpha1, kind: NodeNIC, spec: {
		pfs: [{pf: "0000:03:00.0", numVfs: 4}], pools: [{name: ours, pfs: ["0000:03:00.0#0-1"]}]}}`)
	_, stderr = c.want(exitRefused, "agent", "-f", node, "--sriov-config", file("good.json", dealt), "--kubelet-dir", dir)
	if !strings.Contains(stderr, "sluice.dev/ours and intel.com/some both want VF 0-1") {
		t.Errorf("the overlap is not told: %s", stderr)
	}
	c.want(exitUsage, "agent", "--kubelet-dir", dir)
}
