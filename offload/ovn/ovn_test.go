package ovn

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

var update = flag.Bool("update", false, "write the golden files")

func subnet(cidr, gateway string) network.Subnet {
	s := network.Subnet{Prefix: netip.MustParsePrefix(cidr)}
	if gateway != "" {
		s.Gateway = netip.MustParseAddr(gateway)
	}
	return s
}

func addrs(text ...string) []netip.Addr {
	out := make([]netip.Addr, len(text))
	for i, s := range text {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

var members = []Member{{Node: "a", Block: 0}, {Node: "b", Block: 1, Chassis: "b.example"}}

// wishes are one network of each kind, all with the same addresses.
func wishes() map[string]Wish {
	return map[string]Wish{
		"vlan": {network.Network{Name: "vlan", Layer: 2, Ports: 8, MTU: 9000, VLAN: &network.VLAN{Physical: "phys", ID: 100},
			Subnets: []network.Subnet{subnet("10.1.0.0/24", "10.1.0.1"), subnet("fd00:1::/64", "")},
			DHCP:    &network.DHCP{Lease: 3600, Options: map[string]string{"ntp_server": "10.9.9.9"}},
			DNS:     network.DNS{Servers: addrs("10.1.0.53", "fd00::53"), Search: []string{"lab.example"}}}, members},
		"overlay": {network.Network{Name: "over-lay", Layer: 2, Ports: 8, Encapsulation: "geneve", VNI: 4711, Isolated: true, Router: "campus",
			Subnets: []network.Subnet{subnet("10.1.0.0/24", "10.1.0.1"), subnet("fd00:1::/64", "fd00:1::ff")}}, members},
		"routed": {network.Network{Name: "routed", Layer: 3, Ports: 8, Encapsulation: "geneve", Loose: true,
			Subnets: []network.Subnet{subnet("fd00:1::/64", "")}, DHCP: &network.DHCP{Lease: 3600},
			DNS: network.DNS{Records: map[string][]netip.Addr{"a.lab.example": addrs("fd00:1::9", "10.1.0.9")}}}, members},
		"stateless": {network.Network{Name: "stateless", Layer: 2, Ports: 8, Encapsulation: "geneve", Subnets: []network.Subnet{subnet("10.1.0.0/24", "")},
			Firewall: &network.Firewall{Default: "drop", Rules: []network.Rule{
				{Direction: "in", Action: "allow", Protocol: "tcp", Ports: []network.PortRange{{First: 80, Last: 80}, {First: 8000, Last: 8080}},
					Peers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.168.0.0/16")}},
				{Direction: "out", Action: "allow", Protocol: "icmp"},
				{Direction: "out", Action: "drop", Log: true}}}}, members[:1]},
		"stateful": {network.Network{Name: "stateful", Layer: 2, Ports: 8, Encapsulation: "vxlan", Subnets: []network.Subnet{subnet("10.1.0.0/24", "")},
			Firewall: &network.Firewall{Stateful: true, Default: "allow", Rules: []network.Rule{{Direction: "in", Action: "allow", Protocol: "udp"}}}}, members[:1]},
	}
}

func allWishes() []Wish {
	w := wishes()
	var out []Wish
	for _, name := range slices.Sorted(maps.Keys(w)) {
		out = append(out, w[name])
	}
	return out
}

func text(rows []Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%s %s (%s)", r.Table, r.Key, r.Group)
		if r.Node != "" {
			fmt.Fprintf(&b, " node %s", r.Node)
		}
		b.WriteString("\n")
		for _, c := range slices.Sorted(maps.Keys(r.Columns)) {
			fmt.Fprintf(&b, "    %s = %v\n", c, r.Columns[c])
		}
		for _, c := range slices.Sorted(maps.Keys(r.Refs)) {
			if len(r.Refs[c]) > 0 {
				fmt.Fprintf(&b, "    %s -> %s\n", c, strings.Join(r.Refs[c], " "))
			}
		}
	}
	return b.String()
}

func TestRows(t *testing.T) {
	for name, w := range wishes() {
		t.Run(name, func(t *testing.T) {
			got := text(Rows([]Wish{w}))
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s (-update writes it anew):\n%s", file, d)
			}
		})
	}
}

// Nothing that is written keeps flows out of a NIC unless it was asked for.
func TestPlainNetworksHaveNoConntrack(t *testing.T) {
	for _, r := range Rows(allWishes()) {
		if r.Table == tableACL && strings.HasPrefix(r.Key, "acl/") && !strings.HasPrefix(r.Key, "acl/stateful/") {
			if a := r.Columns["action"]; a != "allow-stateless" && a != "drop" {
				t.Errorf("%s: %v", r.Key, a)
			}
		}
		if o, _ := r.Columns["options"].(ovsdb.Map); o["gateway_mtu"] != "" {
			t.Errorf("%s has gateway_mtu", r.Key)
		}
	}
}

// Marks are unique, and every reference leads to a row that is wanted.
func TestRowsAreWhole(t *testing.T) {
	there := map[string]bool{}
	rows := Rows(allWishes())
	for _, r := range rows {
		if there[r.Table+" "+r.Key] {
			t.Errorf("%s %s twice", r.Table, r.Key)
		}
		there[r.Table+" "+r.Key] = true
		tab, ok := schema()[r.Table]
		if !ok {
			t.Fatalf("no table %s", r.Table)
		}
		for c := range r.Columns {
			if !slices.Contains(tab.columns(), c) {
				t.Errorf("%s %s: column %s is not read", r.Table, r.Key, c)
			}
		}
	}
	for _, r := range rows {
		for c, keys := range r.Refs {
			for _, k := range keys {
				if !there[schema()[r.Table].refs[c]+" "+k] {
					t.Errorf("%s %s: %s leads to %s, which is not there", r.Table, r.Key, c, k)
				}
			}
		}
	}
}

func apply(t *testing.T, c *ovsdb.Client, w []Wish) []Change {
	t.Helper()
	done, err := Apply(t.Context(), c, Rows(w))
	if err != nil {
		t.Fatal(err)
	}
	have, err := Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	left, err := Plan(Rows(w), have)
	if err != nil || len(left) > 0 {
		t.Fatalf("left after it: %v, %v", left, err)
	}
	return done
}

// Whatever networks there were, those that are wanted come to be, and nothing is
// written when they are; a stranger's rows stay as they are, also those within ours.
func TestApply(t *testing.T) {
	ovsdbtest.EachNorthbound(t, func(t *testing.T, c *ovsdb.Client) {
		transact(t, c, ovsdb.Insert(tableSwitch, ovsdb.Row{"name": "theirs", "ports": ovsdb.Named("p"), "external_ids": ovsdb.Map{"owner": "x"}}, "s"),
			ovsdb.Insert(tablePort, ovsdb.Row{"name": "their-port", "addresses": ovsdb.Set[string]{"dynamic"}}, "p"))
		all := allWishes()
		apply(t, c, all)
		have, err := Read(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]network.Claim{{Node: "a", Block: 0}, {Node: "b", Block: 1}}, Claims(all[0].Network, have)); d != "" {
			t.Errorf("who has what, by the ports: %s", d)
		}
		transact(t, c, ovsdb.Insert(tablePort, ovsdb.Row{"name": "guest"}, "g"),
			ovsdb.Mutate(tableSwitch, ovsdb.Is("name", "sluice.vlan"), ovsdb.Mutation{Column: "ports", Mutator: "insert", Value: ovsdb.Named("g")},
				ovsdb.Mutation{Column: "external_ids", Mutator: "insert", Value: ovsdb.Map{"note": "keep"}}))
		theirs := foreign(t, c)
		if len(theirs) != 3 {
			t.Fatalf("strangers: %v", theirs)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 40 {
			var some []Wish
			for _, w := range all {
				if w.Network.Name != "vlan" && r.IntN(3) == 0 {
					continue
				}
				w.Members = slices.Clone(w.Members)
				if r.IntN(3) == 0 {
					w.Members = append(w.Members, Member{Node: "c", Block: 2 + r.IntN(3)})
				}
				w.Network.Loose = r.IntN(2) == 0
				w.Network.Isolated = r.IntN(2) == 0
				if r.IntN(4) == 0 {
					w.Network.DHCP = nil
				}
				some = append(some, w)
			}
			apply(t, c, some)
			if again := apply(t, c, some); len(again) > 0 {
				t.Fatalf("written to what is as wanted: %v", again)
			}
		}
		if d := cmp.Diff(theirs, foreign(t, c)); d != "" {
			t.Errorf("strangers' rows: %s", d)
		}
		if have, err = Read(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for _, h := range have {
			if h.name() == "sluice.vlan" && h.IDs["note"] != "keep" {
				t.Error("a stranger's external id is gone from our switch")
			}
		}
	})
}

// A network that cannot be read whole for now keeps what it has, its router too.
func TestApplyKeeps(t *testing.T) {
	ovsdbtest.EachNorthbound(t, func(t *testing.T, c *ovsdb.Client) {
		w := wishes()
		apply(t, c, []Wish{w["overlay"], w["routed"], w["vlan"]})
		before, err := Read(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := Apply(t.Context(), c, Rows([]Wish{w["vlan"]}), "over-lay", "routed"); err != nil || len(done) > 0 {
			t.Errorf("changed: %v, %v", done, err)
		}
		neighbour := w["overlay"]
		neighbour.Network.Name, neighbour.Network.VNI = "neighbour", 0
		neighbour.Network.Subnets = []network.Subnet{subnet("10.2.0.0/24", "10.2.0.1")}
		if _, err := Apply(t.Context(), c, Rows([]Wish{neighbour}), "over-lay", "routed", "vlan"); err != nil {
			t.Fatal(err)
		}
		if done, err := Apply(t.Context(), c, nil, "over-lay"); err != nil || len(done) == 0 {
			t.Errorf("nothing went: %v", err)
		}
		have, err := Read(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range before {
			there := slices.ContainsFunc(have, func(o Have) bool { return o.UUID == h.UUID })
			if kept := newState(nil, []string{"over-lay"}).kept(h) || h.key() == "router/campus"; there != kept {
				t.Errorf("%s %s: there %v, want %v", h.Table, h.key(), there, kept)
			}
		}
	})
}

func TestApplyNothing(t *testing.T) {
	ovsdbtest.EachNorthbound(t, func(t *testing.T, c *ovsdb.Client) {
		apply(t, c, allWishes())
		apply(t, c, nil)
		have, err := Read(t.Context(), c)
		if err != nil || len(have) > 0 {
			t.Errorf("left: %v, %v", have, err)
		}
	})
}

// Two controllers at once, and rows that somebody has put back, removed or doubled.
func TestApplyAgainstOthers(t *testing.T) {
	ovsdbtest.EachNorthbound(t, func(t *testing.T, c *ovsdb.Client) {
		w := allWishes()
		apply(t, c, w)
		transact(t, c,
			ovsdb.Update(tablePort, ovsdb.Is("name", "sluice.vlan.9"), ovsdb.Row{"addresses": ovsdb.Set[string]{"unknown"}}),
			ovsdb.Delete(tableGroup, ovsdb.All()),
			ovsdb.Update(tableSwitch, ovsdb.Is("name", "sluice.stateless"), ovsdb.Row{"ports": ovsdb.Set[ovsdb.UUID]{}}),
			ovsdb.Insert(tableDHCP, ovsdb.Row{"cidr": "10.1.0.0/24", "external_ids": ovsdb.Map{OwnerKey: "dhcpv4/vlan", GroupKey: "network/vlan"}}, ""))
		apply(t, c, w)
		apply(t, c, nil)
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := Apply(t.Context(), c, Rows(w))
				errs <- err
			}()
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if again := apply(t, c, w); len(again) > 0 {
			t.Errorf("after two at once: %v", again)
		}
	})
}

// A server may write a string in any of JSON's ways.
func TestSameText(t *testing.T) {
	for raw, want := range map[string]bool{`"a && b"`: true, `"a \u0026\u0026 b"`: true, `"a || b"`: false, `7`: false} {
		if got := same("a && b", []byte(raw)); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

func TestApplyRefusesStrangersNames(t *testing.T) {
	ovsdbtest.EachNorthbound(t, func(t *testing.T, c *ovsdb.Client) {
		transact(t, c, ovsdb.Insert(tableSwitch, ovsdb.Row{"name": "sluice.vlan"}, ""))
		_, err := Apply(t.Context(), c, Rows(allWishes()))
		if !errors.Is(err, ErrForeign) || err.Error() != "Logical_Switch sluice.vlan is there and is not ours: it has no external_ids:sluice-owner" {
			t.Errorf("got %v", err)
		}
		have, err := Read(t.Context(), c)
		if err != nil || len(have) != 1 {
			t.Errorf("written all the same: %d rows, %v", len(have), err)
		}
	})
}

func transact(t *testing.T, c *ovsdb.Client, ops ...ovsdb.Op) {
	t.Helper()
	if _, err := c.TransactIn(t.Context(), Database, ops...); err != nil {
		t.Fatal(err)
	}
}

// What nodes cannot do is told for each reason once, with the nodes, and only to networks
// that have blocks there and count on it; of a node where nothing is in the NIC that alone.
func TestWarningsOfAbilities(t *testing.T) {
	var w Wish
	w.Network = network.Network{Name: "n", Encapsulation: "geneve", Firewall: &network.Firewall{Stateful: true}}
	var nodes []Node
	node := func(name string, cannot map[string]string) {
		w.Members = append(w.Members, Member{Node: name})
		nodes = append(nodes, Node{Name: name, Cannot: cannot})
	}
	for i := range 7 {
		node(fmt.Sprintf("a%d", i), map[string]string{"conntrack": "CONFIG_NET_TC_SKB_EXT is not set (/boot/config)"})
	}
	node("b", map[string]string{"flows": "in legacy mode: pci/0000:03:00.0 (devlink)", "conntrack": "it rests on flows, which is no: see there", "from-wire": "x"})
	node("c", map[string]string{"open-vswitch": "other_config:hw-offload is false", "flows": "in legacy mode", "geneve": "x"})
	node("d", map[string]string{"from-wire": "hw-tc-offload of ens1f0 is off (ethtool)", "vxlan": "CONFIG_VXLAN is not set"})
	node("e", nil)
	nodes = append(nodes, Node{Name: "elsewhere", Cannot: map[string]string{"flows": "x"}})
	want := []string{
		"node c: Open vSwitch hands no flows to the NIC: other_config:hw-offload is false",
		"node b: no flows run in the NIC: in legacy mode: pci/0000:03:00.0 (devlink)",
		"node d: what comes from the wire stays in software: hw-tc-offload of ens1f0 is off (ethtool)",
		"firewall.stateful: node a0, a1, a2, a3, a4, 2 more: connections stay in software: CONFIG_NET_TC_SKB_EXT is not set (/boot/config)",
	}
	if d := cmp.Diff(want, ofAbilities(w.Network, withBlocks(w, nodes))); d != "" {
		t.Error(d)
	}
	w.Network.Encapsulation, w.Network.Firewall = "vxlan", nil
	want = append(want[:3:3], "overlay.encapsulation: node d: vxlan is put on and taken off in software: CONFIG_VXLAN is not set")
	if d := cmp.Diff(want, Warnings([]Wish{w}, nodes, nil)["n"]); d != "" {
		t.Error(d)
	}
}

// foreign are the strangers' rows, as they were read.
func foreign(t *testing.T, c *ovsdb.Client) map[string]string {
	t.Helper()
	have, err := Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, h := range have {
		if h.key() != "" {
			continue
		}
		for _, c := range slices.Sorted(maps.Keys(h.Raw)) {
			out[h.Table+" "+h.name()] += fmt.Sprintf("%s=%s ", c, h.Raw[c])
		}
	}
	return out
}

func TestWarnings(t *testing.T) {
	many := wishes()["stateful"]
	many.Network.Name, many.Network.Ports, many.Network.MTU = "many", 256, 1500
	many.Network.Firewall.Rules = append(many.Network.Firewall.Rules, network.Rule{Direction: "in", Action: "allow", Protocol: "icmp", Log: true})
	all := append(allWishes(), many)
	got := Warnings(all, []Node{
		{Name: "a", Encaps: []string{"geneve"}, Mappings: []string{"other"}, MTU: 1500, Cannot: map[string]string{"conntrack": "CONFIG_NET_TC_SKB_EXT is not set", "geneve": "encap-mode of pci/0000:03:00.0 is none"}},
		{Name: "b", Encaps: []string{"geneve", "vxlan"}, Mappings: []string{"phys"}},
	}, ovsdb.Map{"acl_ct_translation": "true"})
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		for _, w := range got[name] {
			lines = append(lines, name+": "+w)
		}
	}
	file := filepath.Join("testdata", "warnings.golden")
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), strings.Join(lines, "\n")+"\n"); d != "" {
		t.Error(d)
	}
	if quiet := Warnings([]Wish{wishes()["vlan"]}, nil, nil); len(quiet) > 0 {
		t.Errorf("of a plain VLAN: %v", quiet)
	}
}
