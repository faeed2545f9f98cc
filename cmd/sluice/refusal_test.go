package main

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Who asks for JSON or YAML gets it, also of a refusal: one object on standard output,
// with each of the messages that stand on standard error, and the exit status.
func TestRefusalInTheWantedFormat(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=4")
	wrong := c.file("{apiVersion: sluice.dev/v1alpha1, kind: NodeNIC, spec: {pfs: [{pf: '0000:03:00.0', numVfs: -1, mtu: 3}]}}")
	many := c.file("{apiVersion: sluice.dev/v1alpha1, kind: NodeNIC, spec: {pfs: [{pf: '0000:03:00.0', numVfs: 99}]}}")
	for _, tt := range []struct {
		args   []string
		code   int
		errors int
	}{
		{[]string{"plan", "-f", wrong}, exitRefused, 2},
		{[]string{"apply", "-f", wrong}, exitRefused, 2},
		{[]string{"apply", "-f", many}, exitRefused, 1},
		{[]string{"apply", "-f", "nowhere.yaml"}, exitRefused, 1},
		{[]string{"apply", "--resume"}, exitRefused, 1},
		{[]string{"apply"}, exitUsage, 1},
		{[]string{"journal", "7"}, exitRefused, 1},
		{[]string{"rollback", "7"}, exitRefused, 1},
	} {
		for _, format := range []string{"json", "yaml"} {
			stdout, stderr := c.want(tt.code, append(tt.args, "-o", format)...)
			var got refusal
			read := json.Unmarshal
			if format == "yaml" {
				read = func(raw []byte, v any) error { return yaml.UnmarshalStrict(raw, v) }
			}
			if err := read([]byte(stdout), &got); err != nil {
				t.Errorf("%v as %s: %v: %q", tt.args, format, err, stdout)
				continue
			}
			if len(got.Errors) != tt.errors || got.ExitStatus != tt.code {
				t.Errorf("%v as %s: %+v, want %d errors and status %d", tt.args, format, got, tt.errors, tt.code)
			}
			if want := "sluice: " + strings.Join(got.Errors, "\n") + "\n"; stderr != want {
				t.Errorf("%v as %s: standard error %q, want %q", tt.args, format, stderr, want)
			}
		}
		if stdout, _ := c.want(tt.code, tt.args...); stdout != "" {
			t.Errorf("%v as table: %q on standard output", tt.args, stdout)
		}
	}
	// What failed on the way has its own object, and no second one.
	c = newCLI(t, "mlx5:cards=1,vfs=16+fail:verb=set eswitch mode,errno=EIO")
	stdout, _ := c.want(exitRolledBack, "apply", "-f", example, "-o", "json")
	var result struct{ Outcome string }
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || result.Outcome != "rolled back" {
		t.Errorf("%v: %s", err, stdout)
	}
}

// Who names a run that is not there is told which are.
func TestNoSuchRun(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	for _, cmd := range [][]string{{"journal", "7"}, {"rollback", "7"}, {"rollback", "--all", "7"}} {
		if _, stderr := c.want(exitRefused, cmd...); stderr != "sluice: there is no run 7: the journal has none\n" {
			t.Errorf("%v: %q", cmd, stderr)
		}
	}
	c.want(exitReached, "apply", "-f", example)
	c.want(exitReached, "rollback")
	for _, cmd := range [][]string{{"journal", "7"}, {"rollback", "7"}, {"rollback", "--all", "7"}} {
		if _, stderr := c.want(exitRefused, cmd...); stderr != "sluice: there is no run 7: want one that the journal has: 1 to 2\n" {
			t.Errorf("%v: %q", cmd, stderr)
		}
	}
}
