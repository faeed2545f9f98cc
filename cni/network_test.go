package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	logical "sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/network/slots"
)

const vf0, vf1 = "0000:03:00.2", "0000:03:00.3"

// blue is a Network whose block 1 the node has: slots 8 to 15, dual stack.
func (w *world) blue() slots.Store {
	w.t.Helper()
	s := slots.Open(w.dir)
	err := s.Put(slots.Grant{Block: 1, Network: logical.Network{
		Name: "blue", Layer: 2, Encapsulation: "geneve", Ports: 8, MTU: 1400,
		Subnets: []logical.Subnet{
			{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
			{Prefix: netip.MustParsePrefix("fd00:1::/64")},
		},
		DNS: logical.DNS{Servers: []netip.Addr{netip.MustParseAddr("10.1.0.53")}, Search: []string{"lab.example"}},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// native is a process of the plugin with the real IPAM.
func (w *world) native() *Plugin {
	p := w.plugin()
	p.IPAM = Delegate{}
	return p
}

func (p pod) in(network string) pod {
	return p.with("network", network).with("ipam", nil).with("bridge", nil)
}

func (w *world) taken(s slots.Store) string {
	w.t.Helper()
	leases, err := s.Leases("blue")
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, l := range leases {
		all = append(all, l.Owner)
	}
	return strings.Join(all, " ")
}

// An attachment to a Network has everything from the slot that it takes, and gives
// back what it took.
func TestNetwork(t *testing.T) {
	w := newWorld(t)
	s := w.blue()
	before := w.snap()
	p := w.pod("a", vf0).in("blue")
	if err := w.native().Add(t.Context(), w.args(p)); err != nil {
		t.Fatal(err)
	}
	var result struct {
		IPs    []struct{ Address, Gateway string }
		Routes []struct{ Dst, GW string }
		DNS    types.DNS
	}
	if err := json.Unmarshal(w.out.Bytes(), &result); err != nil {
		t.Fatal(err)
	}
	g, err := s.Get("blue")
	if err != nil {
		t.Fatal(err)
	}
	if len(result.IPs) != 2 || result.IPs[0].Address != "10.1.0.8/24" || result.IPs[0].Gateway != "10.1.0.1" || result.IPs[1].Address != "fd00:1::8/64" {
		t.Errorf("addresses: %+v", result.IPs)
	}
	if len(result.Routes) != 1 || result.Routes[0].Dst != "0.0.0.0/0" || result.Routes[0].GW != "10.1.0.1" {
		t.Errorf("routes: %+v", result.Routes)
	}
	if d := cmp.Diff([]string{"10.1.0.53"}, result.DNS.Nameservers); d != "" {
		t.Error(d)
	}
	if len(w.sw.ports) != 1 {
		t.Fatalf("ports: %v", w.sw.ports)
	}
	var rep string
	for rep = range w.sw.ports {
	}
	port := w.sw.ports[rep]
	if port.Bridge != "br-int" || port.ExternalIDs["iface-id"] != "sluice.blue.8" || port.ExternalIDs["attached_mac"] != g.Network.MAC(8).String() {
		t.Errorf("port: %+v", port)
	}
	if steps := w.steps(vf0); !strings.Contains(steps, "set net.ipv6.conf.IFNAME.accept_dad 0 of VF netdev net1 in the pod\n") || !strings.HasSuffix(steps, "wait for OVN's flows of representor "+rep+"\nattached: write the device file of VF "+vf0+"\nattached: done\n") {
		t.Errorf("steps end otherwise:\n%s", steps)
	}
	if got := w.taken(s); got != "a/net1" {
		t.Errorf("taken by %q", got)
	}
	if err := w.native().Del(t.Context(), w.args(p)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, w.snap()); d != "" || w.taken(s) != "" {
		t.Errorf("left: %q, %s", w.taken(s), d)
	}
}

// What goes wrong gives the slot back, wherever it goes wrong.
func TestNetworkUndone(t *testing.T) {
	w := newWorld(t)
	s := w.blue()
	p := w.pod("a", vf0).in("blue")
	for n := 1; ; n++ {
		crashed, err := w.crash(n, func() error { return w.native().Add(context.Background(), w.args(p)) })
		if err != nil {
			t.Fatal(err)
		}
		if err := w.native().Del(t.Context(), w.args(p)); err != nil {
			t.Fatalf("DEL after %d: %v", n, err)
		}
		if got := w.taken(s); got != "" {
			t.Fatalf("ended after %d pieces of work: taken by %s", n, got)
		}
		if !crashed {
			break
		}
	}
	for name, c := range map[string]struct {
		pod  pod
		code uint
		text string
	}{
		"no such network": {w.pod("b", vf1).in("green"), types.ErrInvalidNetworkConfig, `network = "green": this node has no block of network "green"`},
		"no such bridge":  {w.pod("c", vf1).in("blue").with("bridge", "br9"), types.ErrInvalidNetworkConfig, "br9"},
		"with ipam":       {w.pod("d", vf1).in("blue").with("ipam", map[string]string{"type": "x"}), types.ErrInvalidNetworkConfig, "ipam beside network"},
		"with a MAC":      {w.pod("e", vf1).in("blue").with("mac", "02:00:00:00:00:01"), types.ErrInvalidNetworkConfig, "mac beside network"},
	} {
		err := w.native().Add(t.Context(), w.args(c.pod))
		if e := new(types.Error); !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Msg, c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if got := w.taken(s); got != "" {
			t.Errorf("%s: taken by %s", name, got)
		}
	}
}

// GC gives back what nobody knows of any more, not what another configuration of the
// same Network has, nor what is so new that its ADD may still run.
func TestNetworkGC(t *testing.T) {
	w := newWorld(t)
	s := w.blue()
	p := w.pod("a", vf0).in("blue").with("name", "other")
	if err := w.native().Add(t.Context(), w.args(p)); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"old/net1", "valid/net1", "new/net1"} {
		_, slot, err := s.Take("blue", owner)
		if err != nil {
			t.Fatal(err)
		}
		if owner == "new/net1" {
			continue
		}
		then := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(w.dir, "networks/blue", fmt.Sprint(slot)), then, then); err != nil {
			t.Fatal(err)
		}
	}
	q := w.pod("none", vf1).in("blue").with("cni.dev/valid-attachments", []map[string]string{{"containerID": "valid", "ifname": "net1"}})
	if err := w.native().GC(t.Context(), w.args(q)); err != nil {
		t.Fatal(err)
	}
	if got := w.taken(s); got != "a/net1 valid/net1 new/net1" {
		t.Errorf("taken by %q", got)
	}
}
