package main

import (
	"strings"
	"testing"
)

// A pool that selects more VFs than its document makes is refused; one of a PF whose
// VFs the document leaves as they are is warned of.
func TestPoolOverTheNumberOfVFs(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16,numvfs=2")
	doc := func(pf, pool string) string {
		return c.file("{apiVersion: sluice.dev/v1alpha1, kind: NodeNIC, spec: {pfs: [{pf: '0000:03:00.0'" + pf + "}], pools: [{name: fast, pfs: ['0000:03:00.0" + pool + "']}]}}")
	}
	for _, tt := range []struct {
		pf, pool string
		code     int
		says     string
	}{
		{", numVfs: 8", "#0-99", exitRefused, "spec.pools[0]: it selects VFs up to 99 of pci/0000:03:00.0, whose numVfs is 8: want 0-7 at most, or more VFs"},
		{", numVfs: 0", "#0", exitRefused, "want no pool of it, or VFs"},
		{", numVfs: 8", "#0-7", exitReached, ""},
		{", numVfs: 8", "", exitReached, ""},
		{"", "#0-99", exitReached, "sluice: warning: pool sluice.dev/fast: it selects VFs up to 99 of pci/0000:03:00.0, which has 2"},
		{"", "#0-1", exitReached, ""},
	} {
		_, stderr := c.want(tt.code, "plan", "-f", doc(tt.pf, tt.pool))
		if tt.says == "" && stderr != "" || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s %s: %q, want %q", tt.pf, tt.pool, stderr, tt.says)
		}
	}
}
