package ovn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/ovsdb"
)

// northd is a real OVN without chassis: both databases, ovn-northd, and ovn-trace.
type northd struct {
	t   *testing.T
	dir string
}

// newNorthd is skipped, with the reason, where the machine has no OVN.
func newNorthd(t *testing.T) *northd {
	t.Helper()
	for _, p := range []string{"ovsdb-tool", "ovsdb-server", "ovn-northd", "ovn-nbctl", "ovn-trace"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("the real northd is left out: there is no %s (package ovn-central)", p)
		}
	}
	dir, err := os.MkdirTemp("", "ovn") // short: it has sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &northd{t, dir}
	for _, db := range []string{"nb", "sb"} {
		n.run("ovsdb-tool", "create", n.path(db+".db"), "/usr/share/ovn/ovn-"+db+".ovsschema")
		n.start("ovsdb-server", "--remote=punix:"+n.path(db+".sock"), "--unixctl="+n.path(db+".ctl"), n.path(db+".db"))
		n.await(n.path(db + ".sock"))
	}
	n.run("ovn-nbctl", n.db("nb"), "init")
	n.start("ovn-northd", "--ovnnb-db=unix:"+n.path("nb.sock"), "--ovnsb-db=unix:"+n.path("sb.sock"), "--unixctl="+n.path("northd.ctl"))
	return n
}

func (n *northd) path(name string) string { return filepath.Join(n.dir, name) }
func (n *northd) db(name string) string   { return "--db=unix:" + n.path(name+".sock") }

func (n *northd) start(name string, args ...string) {
	n.t.Helper()
	cmd := exec.Command(name, append(args, "-vconsole:off")...)
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func (n *northd) run(name string, args ...string) string {
	n.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

func (n *northd) await(path string) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("waited a minute for %s", path)
		}
	}
}

// passes says whether a packet of one slot reaches another by what northd has made of
// the rows; connections are new.
func (n *northd) passes(net network.Network, from, to network.Slot, packet string) bool {
	n.t.Helper()
	flow := fmt.Sprintf("inport == %q && eth.src == %s && eth.dst == %s && ip.ttl == 64 && %s",
		net.PortName(from), net.MAC(from), net.MAC(to), packet)
	out := n.run("ovn-trace", n.db("sb"), "--summary", "--ct", "new", "--ct", "new", "sluice."+net.Name, flow)
	return strings.Contains(out, fmt.Sprintf("/* output to %q", net.PortName(to)))
}

// What northd makes of the rows lets through what was asked for, and nothing else.
func TestNorthd(t *testing.T) {
	n := newNorthd(t)
	c, err := ovsdb.Connect(t.Context(), "unix:"+n.path("nb.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := wishes()
	apply(t, c, allWishes())
	n.run("ovn-nbctl", n.db("nb"), "--wait=sb", "sync")
	apply(t, c, allWishes()) // nothing of what northd writes is in the way

	v4 := func(what string) string { return "ip4 && ip4.src == 10.1.0.2 && ip4.dst == 10.1.0.3 && " + what }
	v6 := func(what string) string { return "ip6 && ip6.src == fd00:1::2 && ip6.dst == fd00:1::3 && " + what }
	for _, c := range []struct {
		network, packet string
		want            bool
	}{
		{"vlan", v4("tcp.dst == 80"), true},
		{"vlan", v6("tcp.dst == 80"), true},
		{"vlan", "ip4 && ip4.src == 10.1.0.4 && ip4.dst == 10.1.0.3 && tcp.dst == 80", false}, // another's address
		{"overlay", v4("icmp4.type == 8"), false},                                             // isolated
		{"overlay", v6("icmp6.type == 128"), false},
		{"stateless", "ip4 && ip4.src == 10.1.0.2 && ip4.dst == 10.1.0.3 && icmp4.type == 8", false}, // out, and not in
		{"stateful", v4("udp.dst == 53"), true},
		{"stateful", v4("tcp.dst == 53"), true}, // the default
	} {
		if got := n.passes(w[c.network].Network, 2, 3, c.packet); got != c.want {
			t.Errorf("%s: %s passes: %v", c.network, c.packet, got)
		}
	}
	key := n.run("ovn-sbctl", n.db("sb"), "--bare", "--columns=tunnel_key", "find", "Datapath_Binding", "external_ids:name=sluice.over-lay")
	if strings.TrimSpace(key) != "4711" {
		t.Errorf("VNI of overlay: %s", key)
	}
}
