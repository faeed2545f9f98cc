package cni

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
)

// strideFlag 3 is two minutes in an emulated guest.
var strideFlag = flag.Int("stride", 12, "TestSFInLab kills at each place of so many")

// sfs makes SFs of a port, active, and returns their devices.
func (n *labNode) sfs(pf, count int) []string {
	n.t.Helper()
	ctx, h := context.Background(), n.pfs[pf]
	var out []string
	for num := 1; num <= count; num++ {
		if err := n.m.Devlink.AddSF(ctx, h, num); err != nil {
			n.t.Fatal(err)
		}
		st := n.state()
		port := st.PF(h).SF(num).Port
		n.t.Cleanup(func() {
			if err := errors.Join(n.m.Devlink.SetSFActive(ctx, h, port, false), n.m.Devlink.DelSF(ctx, h, port)); err != nil {
				n.t.Error(err)
			}
		})
		if err := n.m.Devlink.SetSFActive(ctx, h, port, true); err != nil {
			n.t.Fatal(err)
		}
		st = n.state()
		out = append(out, st.PF(h).SF(num).Device)
	}
	return out
}

// TestSFInLab has a pod with an SF and one with a VF talk through the switch; the SF
// comes home from a namespace that ended, and from ADDs and DELs that a kill -9 met.
func TestSFInLab(t *testing.T) {
	n := newLabNode(t)
	sfs := n.sfs(0, 2)
	before := n.snap()
	ask := func(name string, at int) pod { return n.pod(name, sfs[at%len(sfs)]).with("max_tx_rate", 1000) }
	a, b := ask("poda", 0), n.pod("podb", n.vf(0, 0).Address)
	if _, err := n.cni("STATUS", a); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	result := n.must("ADD", a)
	var r struct {
		Interfaces []struct{ Name, PciID string }
		IPs        []struct{ Address string }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.Interfaces) != 2 || len(r.IPs) != 2 || r.Interfaces[1].PciID != "" {
		t.Fatalf("result: %s", result)
	}
	st := n.state()
	if f := st.PF(n.pfs[0]).SF(1); !f.Away || f.Settings[nic.MaxRate] != "1000" || f.Rep.Name != r.Interfaces[0].Name {
		t.Errorf("SF: %+v", f)
	}
	n.must("ADD", b)
	for _, ip := range r.IPs {
		address, _, _ := strings.Cut(ip.Address, "/")
		n.run("ip", "netns", "exec", "podb", "ping", "-c", "3", "-i", "0.2", "-W", "5", address)
	}
	if err := n.check(a, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if _, err := n.cni("ADD", ask("podc", 1).with("trust", "on")); err == nil || !strings.Contains(err.Error(), `trust = "on": SF `+sfs[1]) {
		t.Errorf("trust: %v", err)
	}
	n.must("DEL", b)
	n.run("ip", "netns", "del", "poda")
	if err := n.gc(b); err != nil {
		t.Fatal(err)
	}
	n.mustBe(before, "after GC")
	if owners, err := record.Owners(n.dir, ""); err != nil || len(owners) != 0 {
		t.Errorf("owners: %v, %v", owners, err)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self = n.install(self)
	for _, verb := range []string{"ADD", "DEL"} {
		for at := 2; ; at += *strideFlag {
			p := ask(fmt.Sprintf("s%s%d", strings.ToLower(verb), at), at)
			if verb == "DEL" {
				n.must("ADD", p)
			}
			_, err := n.finish(n.command(self, verb, p, fmt.Sprintf("%s=%d", killAt, at)))
			killed := err != nil && strings.Contains(err.Error(), "signal: killed")
			if err != nil && !killed {
				t.Fatalf("%s killed at %d: %v", verb, at, err)
			}
			n.must("DEL", p)
			n.mustBe(before, fmt.Sprintf("after %s killed at %d, and DEL", verb, at))
			if !killed {
				t.Logf("%s has %d places", verb, at)
				break
			}
		}
	}
}
