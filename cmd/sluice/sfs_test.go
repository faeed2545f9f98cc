package main

import (
	"fmt"
	"strings"
	"testing"
)

// More SFs than a document may want, and than the device has room for, are refused
// before anything is touched; as many as it has room for are made.
func TestNumberOfSFs(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=4,sfs=6")
	doc := func(ranges string) string {
		return c.file(fmt.Sprintf("{apiVersion: sluice.dev/v1alpha1, kind: NodeNIC, spec: {pfs: [{pf: '0000:03:00.0', eswitch: switchdev, sfs: [%s]}]}}", ranges))
	}
	for ranges, says := range map[string]string{
		"{range: 0-65535}":                      "spec.pfs[0].sfs: 65536 SFs: want 1024 at most",
		"{range: 1-1000}, {range: '2001-2025'}": "spec.pfs[0].sfs: 1025 SFs: want 1024 at most",
		"{range: 1-1024}":                       "1024 SFs, and the device has room for 6",
		"{range: 1-7}":                          "7 SFs, and the device has room for 6",
	} {
		for _, cmd := range []string{"plan", "apply"} {
			if _, stderr := c.want(exitRefused, cmd, "-f", doc(ranges)); !strings.Contains(stderr, says) {
				t.Errorf("%s of %s: %q, want %q", cmd, ranges, stderr, says)
			}
		}
	}
	if runs := c.runs(); len(runs) != 0 {
		t.Errorf("%d runs, want none", len(runs))
	}
	c.want(exitReached, "apply", "-f", doc("{range: '1-3,60000-60002'}"))
	if n := len(c.observe()[0].PFs[0].SFs); n != 6 {
		t.Errorf("%d SFs, want 6", n)
	}
}
