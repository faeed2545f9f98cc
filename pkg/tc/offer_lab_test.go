package tc_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/tc"
)

// Rules on a representor, and what its driver says when one is offered: part of its
// words, or "taken".
var offered = []struct{ command, want string }{
	{"prio 1 protocol ip flower dst_ip 10.0.0.1 action drop", "taken"},
	{"prio 2 protocol ip flower src_mac 02:00:00:00:00:01 dst_ip 10.0.0.2 action mirred egress redirect dev REP", "taken"},
	{"prio 3 protocol ip flower dst_ip 10.0.0.3 action mirred egress redirect dev a0", "not on same switch HW"},
	{"prio 4 protocol 802.1Q flower vlan_id 7 vlan_ethtype ip action vlan pop pipe action mirred egress redirect dev REP", "taken"},
	{"prio 5 protocol ip flower dst_ip 10.0.0.5 action vlan push id 7 pipe action mirred egress mirror dev REP pipe action drop", "taken"},
	{"prio 6 protocol ip flower ip_proto udp dst_port 53 action pedit ex munge ip dst set 10.9.9.9 munge udp dport set 54 pipe action csum ip4h udp pipe action mirred egress redirect dev REP", "taken"},
	{"prio 7 protocol ip flower dst_ip 10.0.0.7 action csum ip4h pipe action mirred egress redirect dev REP", "only offloaded with pedit"},
	{"prio 8 protocol ip flower ip_proto sctp dst_port 7 action drop", "Only UDP and TCP transports"},
	{"prio 9 protocol ip flower dst_ip 10.0.0.9 action police index 268435457 pipe action mirred egress redirect dev REP", "taken"},
	{"prio 10 protocol ip flower dst_ip 10.0.0.10 action police rate 8mbit burst 10k conform-exceed drop/pipe action drop", "taken"},
	{"prio 11 protocol ipv6 flower src_ip 2001:db8::/32 ip_proto tcp tcp_flags 0x2/0x17 action drop", "taken"},
}

// A driver's words about rules that it has or has not, from a card that is one
// switch with its representors.
func TestLabOffer(t *testing.T) {
	needLab(t)
	reps := representors(t)
	sh(t, "ip link add a0 type veth peer name a1")
	t.Cleanup(func() { sh(t, "ip link del a0") })
	sh(t, "tc actions add action police rate 8mbit burst 10k index 268435457 conform-exceed drop/pipe")
	sh(t, "tc qdisc add dev "+reps[0]+" ingress")
	t.Cleanup(func() { sh(t, "tc qdisc del dev "+reps[0]+" ingress") })
	for _, o := range offered {
		sh(t, "tc filter add dev "+reps[0]+" ingress "+strings.ReplaceAll(o.command, "REP", reps[1]))
	}
	c := open(t)
	before, err := c.Ingress(t.Context(), ifindex(t, reps[0]))
	if err != nil || len(before) != len(offered) {
		t.Fatalf("%d rules, %v", len(before), err)
	}
	hardware := hardwareRules(t)
	for i, r := range before {
		start := time.Now()
		v, err := c.Offer(t.Context(), r)
		took := time.Since(start)
		if err != nil {
			t.Errorf("%s: %v", r, err)
			continue
		}
		t.Logf("%s: %s (%v)", r, v, took.Round(10*time.Microsecond))
		want := offered[i].want
		if v.Taken != (want == "taken") || !strings.Contains(v.String(), want) {
			t.Errorf("%s\ngot  %s\nwant %s", r, v, want)
		}
		if r.InHW != (want == "taken") {
			t.Errorf("%s is in hardware: %v", r, r.InHW)
		}
	}
	after, err := c.Ingress(t.Context(), ifindex(t, reps[0]))
	for i := range after {
		after[i].IdleSeconds = before[i].IdleSeconds
		for j := range after[i].Actions {
			after[i].Actions[j].IdleSeconds = before[i].Actions[j].IdleSeconds
		}
	}
	if d := cmp.Diff(before, after); err != nil || d != "" {
		t.Errorf("offering changed the rules: %v %s", err, d)
	}
	if d := cmp.Diff(hardware, hardwareRules(t)); d != "" {
		t.Errorf("offering changed the hardware's rules: %s", d)
	}
	gone := before[0]
	gone.Handle = 77
	if _, err := c.Offer(t.Context(), gone); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a rule that is not there: %v", err)
	}
	gone.Kind = "matchall"
	if _, err := c.Offer(t.Context(), gone); !errors.Is(err, tc.ErrNotFlower) {
		t.Errorf("a rule of another kind: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := c.Offer(ended, before[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// representors are the first two of the first port, in switchdev mode.
func representors(t *testing.T) []string {
	t.Helper()
	const pf = "1000:00:00.0"
	if err := os.WriteFile("/sys/bus/pci/devices/"+pf+"/sriov_numvfs", []byte("2"), 0o200); err != nil {
		t.Fatal(err)
	}
	sh(t, "devlink dev eswitch set pci/"+pf+" mode switchdev")
	t.Cleanup(func() {
		sh(t, "devlink dev eswitch set pci/"+pf+" mode legacy")
		if err := os.WriteFile("/sys/bus/pci/devices/"+pf+"/sriov_numvfs", []byte("0"), 0o200); err != nil {
			t.Error(err)
		}
	})
	var reps []string
	names, err := filepath.Glob("/sys/bus/pci/devices/" + pf + "/net/*/phys_port_name")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), "vf") {
			reps = append(reps, filepath.Base(filepath.Dir(name)))
		}
	}
	slices.Sort(reps)
	if len(reps) != 2 {
		t.Fatalf("representors: %v", reps)
	}
	return reps
}

// hardwareRules are the rules as the NIC itself lists them, in no order of its own.
func hardwareRules(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/sys/kernel/debug/*/1000:00:00.0/flows")
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
