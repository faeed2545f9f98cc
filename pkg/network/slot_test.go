package network

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func blue(layer int, ports int, cidrs ...string) Network {
	n := Network{Name: "blue", Layer: layer, Encapsulation: "geneve", Ports: ports}
	for _, c := range cidrs {
		n.Subnets = append(n.Subnets, Subnet{Prefix: netip.MustParsePrefix(c)})
	}
	return n
}

func TestSlots(t *testing.T) {
	flat := blue(2, 8, "10.1.0.0/27", "fd00:1::/64")
	flat.Subnets[0].Gateway = netip.MustParseAddr("10.1.0.3")
	flat.Subnets[1].Exclude = []netip.Prefix{netip.MustParsePrefix("fd00:1::1c/126")}
	for name, c := range map[string]struct {
		net   Network
		block int
		slots []Slot
		first []string
	}{
		"not the network's own address, nor the gateway's": {flat, 0, []Slot{1, 2, 4, 5, 6, 7}, []string{"10.1.0.1/27", "fd00:1::1/64"}},
		"in the middle all":                          {flat, 1, []Slot{8, 9, 10, 11, 12, 13, 14, 15}, []string{"10.1.0.8/27", "fd00:1::8/64"}},
		"neither what is excluded nor the broadcast": {flat, 3, []Slot{24, 25, 26, 27}, []string{"10.1.0.24/27", "fd00:1::18/64"}},
		"layer 3: the block is the subnet":           {blue(3, 8, "10.1.0.0/16"), 2, []Slot{18, 19, 20, 21, 22}, []string{"10.1.0.18/29"}},
		"layer 3, IPv6 alone: no broadcast":          {blue(3, 8, "fd00::/48"), 2, []Slot{18, 19, 20, 21, 22, 23}, []string{"fd00::12/125"}},
	} {
		t.Run(name, func(t *testing.T) {
			slots := c.net.Slots(c.block)
			if d := cmp.Diff(c.slots, slots); d != "" {
				t.Fatal(d)
			}
			var got []string
			for _, a := range c.net.Addresses(slots[0]) {
				got = append(got, a.String())
			}
			if d := cmp.Diff(c.first, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		net  Network
		want int
	}{
		{blue(2, 8, "10.1.0.0/27"), 4},
		{blue(2, 8, "10.1.0.0/27", "fd00::/64"), 4},
		{blue(2, 32, "10.0.0.0/28"), 0},
		{blue(2, 256, "fd00::/64"), 1 << 16},
	} {
		if got := c.net.Blocks(); got != c.want {
			t.Errorf("%s, %d ports: %d blocks, want %d", c.net, c.net.Ports, got, c.want)
		}
	}
}

func TestGateways(t *testing.T) {
	three := blue(3, 16, "10.1.0.0/16", "fd00:1::/64")
	if d := cmp.Diff("[10.1.0.33 fd00:1::21]", cmpText(three.Gateways(2))); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("[10.1.0.32/28 fd00:1::20/124]", cmpText(three.Links(2))); d != "" {
		t.Error(d)
	}
	if g := blue(2, 16, "10.1.0.0/16").Gateways(0); len(g) != 0 {
		t.Errorf("layer 2 without a gateway has %v", g)
	}
}

func cmpText[T interface{ String() string }](all []T) string {
	text := "["
	for i, a := range all {
		if i > 0 {
			text += " "
		}
		text += a.String()
	}
	return text + "]"
}

// No two of a network's ports, nor of those and its routers', have a MAC address in
// common, and networks differ.
func TestMACs(t *testing.T) {
	n, other := blue(3, 8, "10.1.0.0/20"), blue(3, 8, "10.1.0.0/20")
	other.Name = "red"
	seen := map[string]bool{}
	for block := range n.Blocks() {
		for _, m := range []string{n.RouterMAC(block).String(), other.RouterMAC(block).String()} {
			if seen[m] {
				t.Fatalf("%s twice", m)
			}
			seen[m] = true
		}
		for _, s := range n.Slots(block) {
			for _, m := range []string{n.MAC(s).String(), other.MAC(s).String()} {
				if seen[m] {
					t.Fatalf("%s twice", m)
				}
				seen[m] = true
			}
		}
	}
	if m := n.MAC(0x010203).String(); m[:2] != "0a" || m[9:] != "01:02:03" {
		t.Errorf("MAC of slot 0x010203 is %s", m)
	}
}

func TestAssign(t *testing.T) {
	n := blue(2, 8, "10.1.0.0/27") // four blocks
	claims := []Claim{{"a", 0}, {"b", 1}, {"lost", 2}}
	out, without := n.Assign(claims, []string{"a", "b", "c"})
	if d := cmp.Diff([]Claim{{"a", 0}, {"b", 1}, {"c", 3}}, out); d != "" || without != nil {
		t.Errorf("%s, without %v", d, without)
	}
	out, without = n.Assign(out, []string{"a", "b", "c", "d", "e"})
	if d := cmp.Diff([]Claim{{"a", 0}, {"b", 1}, {"d", 2}, {"c", 3}}, out); d != "" || cmp.Diff([]string{"e"}, without) != "" {
		t.Errorf("%s, without %v", d, without)
	}
	// What cannot be is not kept: a block twice, one that is not there, a second one.
	out, _ = n.Assign([]Claim{{"a", 1}, {"b", 1}, {"a", 2}, {"c", 9}}, []string{"a", "b", "c"})
	if d := cmp.Diff([]Claim{{"c", 0}, {"a", 1}, {"b", 3}}, out); d != "" {
		t.Error(d)
	}
}
