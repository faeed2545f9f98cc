package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/convert"
)

const theirNetwork = `
apiVersion: sriovnetwork.openshift.io/v1
kind: OVSNetwork
metadata: {name: %NAME%, namespace: sriov}
spec: {resourceName: fast, bridge: br-pods, mtu: 9000, interfaceType: "%TYPE%"}
`

func network(name, kind string) string {
	return strings.NewReplacer("%NAME%", name, "%TYPE%", kind).Replace(theirNetwork)
}

// Documents go to standard output in the wanted format, the report to where it was
// asked for, and of what cannot be honoured there is the report alone.
func TestConvert(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=4")
	good, two := c.file(network("a", "")), c.file(network("b", ""))
	bad := c.file(network("a", "dpdk"))
	const line = "changed: OVSNetwork sriov/a: spec.mtu: 9000: the VF gets it as well as the representor\n"

	stdout, stderr := c.want(exitReached, "convert", good)
	if stderr != line || !strings.HasPrefix(stdout, "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n") {
		t.Errorf("standard output %q, standard error %q", stdout, stderr)
	}
	stdout, _ = c.want(exitReached, "convert", good, two)
	if n := strings.Count(stdout, "\n---\n"); n != 1 {
		t.Errorf("%d separators in %q", n, stdout)
	}

	var one convert.NetworkAttachmentDefinition
	stdout, _ = c.want(exitReached, "convert", "-o", "json", good)
	if err := json.Unmarshal([]byte(stdout), &one); err != nil || one.Metadata.Name != "a" {
		t.Errorf("%v: %s", err, stdout)
	}
	var list struct {
		Kind  string
		Items []convert.NetworkAttachmentDefinition
	}
	stdout, _ = c.want(exitReached, "convert", "-o", "json", good, two)
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || list.Kind != "List" || len(list.Items) != 2 {
		t.Errorf("%v: %s", err, stdout)
	}

	if stdout, stderr = c.want(exitReached, "convert", "--report", "-", good); stdout != line || stderr != "" {
		t.Errorf("standard output %q, standard error %q", stdout, stderr)
	}
	report := t.TempDir() + "/report"
	if stdout, stderr = c.want(exitReached, "convert", "--report", report, good); stdout == "" || stderr != "" {
		t.Errorf("standard output %q, standard error %q", stdout, stderr)
	}
	if raw, err := os.ReadFile(report); err != nil || string(raw) != line {
		t.Errorf("%v: %q", err, raw)
	}

	stdout, stderr = c.want(exitRefused, "convert", good, bad)
	if stdout != "" || !strings.Contains(stderr, "refused: OVSNetwork sriov/a: there are two of this name") {
		t.Errorf("standard output %q, standard error %q", stdout, stderr)
	}
	var notes []convert.Note
	stdout, _ = c.want(exitRefused, "convert", "--report", "-", "-o", "json", bad)
	if err := json.Unmarshal([]byte(stdout), &notes); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	want := convert.Note{
		Verdict: convert.Refused, Object: "OVSNetwork sriov/a", Field: "spec.interfaceType", Value: `"dpdk"`,
		Text: "a representor is a port of the kernel's datapath, which has no type: want it left out",
	}
	if d := cmp.Diff(want, notes[len(notes)-1]); d != "" {
		t.Error(d)
	}
	c.want(exitRefused, "convert", "nowhere.yaml")
}
