package policy

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/network"
)

const netHead = "apiVersion: sluice.dev/v1alpha1\nkind: Network\nmetadata: {name: blue}\nspec: "

func resolveNetwork(t *testing.T, spec string) (network.Network, error) {
	t.Helper()
	docs, err := DecodeNetworks([]byte(netHead + spec))
	if err != nil {
		return network.Network{}, err
	}
	if len(docs) != 1 {
		t.Fatalf("%d documents", len(docs))
	}
	return ResolveNetwork(&docs[0])
}

func TestResolveNetwork(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"defaults": {`{layer: 2, subnets: [{cidr: 10.1.0.0/16}]}`,
			`{"name":"blue","layer":2,"encapsulation":"geneve","subnets":[{"prefix":"10.1.0.0/16"}],"ports":32}`},
		"VLAN-backed, dual stack": {`{layer: 2, vlan: {physicalNetwork: phys, id: 100}, mtu: 9000, portSecurity: false, portsPerNode: 64,
  subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.1, exclude: [10.1.0.0/26, 10.1.255.1]}, {cidr: "fd00:1::/64"}]}`,
			`{"name":"blue","layer":2,"vlan":{"physical":"phys","id":100},"subnets":[{"prefix":"10.1.0.0/16","gateway":"10.1.0.1","exclude":["10.1.0.0/26","10.1.255.1/32"]},{"prefix":"fd00:1::/64"}],"ports":64,"mtu":9000,"loose":true}`},
		"all else": {`{layer: 3, isolated: true, router: campus, overlay: {encapsulation: vxlan}, subnets: [{cidr: "fd00:1::/64"}],
  dns: {servers: ["fd00::53"], search: [lab.example], records: [{name: a.lab.example, addresses: ["fd00::1"]}]}, dhcp: {},
  firewall: {stateful: true, rules: [{direction: in, peers: ["fd00::/8"], protocol: tcp, ports: [80, 8000-8080], action: allow, log: true}]}}`,
			`{"name":"blue","layer":3,"encapsulation":"vxlan","subnets":[{"prefix":"fd00:1::/64"}],"ports":32,"isolated":true,"router":"campus","dns":{"servers":["fd00::53"],"search":["lab.example"],"records":{"a.lab.example":["fd00::1"]}},"dhcp":{"lease":3600},"firewall":{"stateful":true,"default":"drop","rules":[{"direction":"in","peers":["fd00::/8"],"protocol":"tcp","ports":[{"first":80,"last":80},{"first":8000,"last":8080}],"action":"allow","log":true}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := resolveNetwork(t, strings.ReplaceAll(c.spec, "[80,", `["80",`))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(n)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, string(raw)); d != "" {
				t.Error(d)
			}
			var back network.Network
			if err := json.Unmarshal(raw, &back); err != nil {
				t.Fatal(err)
			}
			if again, _ := json.Marshal(back); string(again) != string(raw) {
				t.Errorf("read back: %s", again)
			}
		})
	}
}

func TestNetworksRefused(t *testing.T) {
	for spec, want := range map[string]string{
		`{layer: 4, subnets: []}`:                                                                                                       "spec.layer: 4: want 2 or 3\nspec.subnets: 0: want one, or one of IPv4 and one of IPv6",
		`{layer: 2, subnets: [{cidr: 10.1.0.1/16}]}`:                                                                                    `spec.subnets[0].cidr: "10.1.0.1/16": want a prefix without host bits, such as 10.1.0.0/16 or fd00:1::/64`,
		`{layer: 2, subnets: [{cidr: 10.1.0.0/28}]}`:                                                                                    `spec.subnets[0].cidr: 10.1.0.0/28 has not the 32 addresses of one node's block`,
		`{layer: 2, subnets: [{cidr: 10.1.0.0/16}, {cidr: 10.2.0.0/16}]}`:                                                               `spec.subnets[1].cidr: 10.2.0.0/16: a second subnet of its family`,
		`{layer: 2, subnets: [{cidr: 10.1.0.0/16, gateway: 10.2.0.1}]}`:                                                                 `spec.subnets[0].gateway: "10.2.0.1": want an address within 10.1.0.0/16`,
		`{layer: 3, subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.1}]}`:                                                                 `spec.subnets[0].gateway: "10.1.0.1" with layer 3: the first address of each node's block is the gateway, want none`,
		`{layer: 2, router: r, subnets: [{cidr: 10.1.0.0/16}]}`:                                                                         `spec.subnets[0].gateway: "": want an address for router "r" to have`,
		`{layer: 2, subnets: [{cidr: 10.1.0.0/16, exclude: [10.2.0.0/24]}]}`:                                                            `spec.subnets[0].exclude[0]: "10.2.0.0/24": want an address or a prefix within 10.1.0.0/16`,
		`{layer: 2, portsPerNode: 12, subnets: [{cidr: 10.1.0.0/16}]}`:                                                                  `spec.portsPerNode: 12: want 8, 16, 32, 64, 128 or 256`,
		`{layer: 2, overlay: {encapsulation: vxlan, vni: 5000}, subnets: [{cidr: 10.1.0.0/16}]}`:                                        `spec.overlay.vni: 5000: want 1 to 4095 with vxlan`,
		`{layer: 3, vlan: {physicalNetwork: p}, overlay: {}, router: r, subnets: [{cidr: 10.1.0.0/16}]}`:                                "spec.overlay: want vlan or overlay, not both\nspec.layer: 3 with vlan: a VLAN-backed network is one broadcast domain, want 2\nspec.router: \"r\" with vlan: its router is the physical network's, want none",
		`{layer: 2, mtu: 100, subnets: [{cidr: 10.1.0.0/16}], dhcp: {options: {router: 10.1.0.1}}}`:                                     "spec.mtu: 100: want 576 to 9978 bytes\nspec.dhcp.options.router: \"10.1.0.1\": this one follows from the network",
		`{layer: 2, subnets: [{cidr: 10.1.0.0/16}], firewall: {rules: [{direction: up, ports: ["0"], protocol: icmp, action: allow}]}}`: "spec.firewall.rules[0].direction: \"up\": want in or out\nspec.firewall.rules[0].ports: with protocol \"icmp\": want tcp, udp or sctp\nspec.firewall.rules[0].ports[0]: \"0\": want a port or a range such as 8000-8080, within 1 and 65535",
		`{layer: 2, subnets: [{cidr: 10.1.0.0/16}], dns: {servers: [ns], records: [{name: A, addresses: []}]}}`:                         "spec.dns.servers[0]: \"ns\": want an IP address\nspec.dns.records[0].name: \"A\": want a name in lower case\nspec.dns.records[0].addresses: want at least one",
	} {
		if _, err := resolveNetwork(t, spec); err == nil || err.Error() != want {
			t.Errorf("%s: got\n%v\nwant\n%s", spec, err, want)
		}
	}
}

func TestDecodeNetworks(t *testing.T) {
	one := netHead + "{layer: 2, subnets: [{cidr: 10.1.0.0/16}]}\n"
	docs, err := DecodeNetworks([]byte(one + "---\n" + strings.ReplaceAll(one, "blue", "red") + "---\n"))
	if err != nil || len(docs) != 2 || docs[1].Name != "red" {
		t.Errorf("two documents: %v, %v", docs, err)
	}
	for raw, want := range map[string]string{
		"":                                "the document is empty",
		netHead + "{layer: 2, colour: x}": `colour`,
		netHead + `{layer: "2"}`:          "spec.layer",
		strings.Replace(one, "Network", "NodeNIC", 1): `kind "NodeNIC": want sluice.dev/v1alpha1, Network`,
	} {
		if _, err := DecodeNetworks([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", raw, err, want)
		}
	}
}

// Case B51: of networks that cannot both be, in whatever order they were declared, each
// is told which other it is and what both want; none wins, and the rest are left out of it.
// One that is told nothing goes with every other that is told nothing.
func TestB51NetworksInConflict(t *testing.T) {
	net := func(name string, vni, vlan int, router, cidr string) network.Network {
		n := network.Network{Name: name, Layer: 2, VNI: vni, Router: router, Subnets: []network.Subnet{{Prefix: netip.MustParsePrefix(cidr)}}}
		if vlan != 0 {
			n.VLAN = &network.VLAN{Physical: "phys", ID: vlan}
		}
		return n
	}
	all := []network.Network{
		net("a", 7, 0, "", "10.1.0.0/24"), net("b", 7, 0, "", "10.2.0.0/24"), net("c", 7, 0, "", "10.3.0.0/24"),
		net("d", 0, 5, "r", "10.4.0.0/24"), net("e", 0, 6, "r", "10.4.0.128/25"),
		net("f", 8, 0, "", "10.1.0.0/24"), net("g", 0, 7, "s", "10.4.0.0/24"),
	}
	want := map[string]string{"a": "b c", "b": "a c", "c": "a b", "d": "e", "e": "d"}
	for range 50 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		got := map[string]string{}
		for name, lines := range NetworkConflicts(all) {
			var others []string
			for _, line := range lines {
				what, other, _ := strings.Cut(strings.TrimSuffix(line, " has"), ", as network ")
				if what != "overlay.vni is 7" && !strings.HasPrefix(what, "router is r and subnet 10.4.0.") {
					t.Errorf("%s: %s", name, line)
				}
				others = append(others, other)
			}
			slices.Sort(others)
			got[name] = strings.Join(others, " ")
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("who is in whose way (-want +got): %s", d)
		}
	}
}

// Overlapping addresses are nobody's concern until one router has both.
func TestNetworkConflicts(t *testing.T) {
	net := func(name, router, cidr string, vni int) network.Network {
		return network.Network{Name: name, Layer: 2, Router: router, VNI: vni, Subnets: []network.Subnet{{Prefix: netip.MustParsePrefix(cidr)}}}
	}
	vlan := func(name string, id int) network.Network {
		n := net(name, "", "10.9.0.0/16", 0)
		n.VLAN = &network.VLAN{Physical: "phys", ID: id}
		return n
	}
	got := NetworkConflicts([]network.Network{
		net("a", "", "10.1.0.0/16", 0), net("b", "", "10.1.0.0/16", 0),
		net("c", "r", "10.1.0.0/16", 7), net("d", "r", "10.1.128.0/17", 7), net("e", "s", "10.1.0.0/16", 8),
		vlan("f", 5), vlan("g", 5), vlan("h", 6),
	})
	want := map[string][]string{
		"c": {"overlay.vni is 7, as network d has", "router is r and subnet 10.1.0.0/16 overlaps 10.1.128.0/17, as network d has"},
		"d": {"overlay.vni is 7, as network c has", "router is r and subnet 10.1.0.0/16 overlaps 10.1.128.0/17, as network c has"},
		"f": {"vlan is 5 of phys, as network g has"},
		"g": {"vlan is 5 of phys, as network f has"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
