package cni

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// TestCheck damages an attachment in each way there is.
func TestCheck(t *testing.T) {
	ctx := context.Background()
	type damage struct {
		name string
		harm func(w *world, p pod, l host.Link, ns host.NetnsLinks) error
		want string
	}
	for _, c := range []damage{
		{"MAC", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return ns.SetMAC(ctx, l.Ifindex, nic.MAC{2, 9, 9, 9, 9, 9})
		}, "VF netdev net1 in the pod: its MAC is 02:09:09:09:09:09, want 02:00:00:00:00:01"},
		{"MTU", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return ns.SetMTU(ctx, l.Ifindex, 1400)
		}, "VF netdev net1 in the pod: its MTU is 1400, want 9000"},
		{"name", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return ns.SetName(ctx, l.Ifindex, "other0")
		}, "VF netdev other0 in the pod: its name is to be net1"},
		{"down", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return ns.SetUp(ctx, l.Ifindex, false)
		}, "VF netdev net1 in the pod is down; VF netdev net1 in the pod lacks address fd56::1/64; VF netdev net1 in the pod lacks route 0.0.0.0/0"},
		{"taken home", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return ns.Move(ctx, l.Ifindex, "")
		}, "its netdev is not in the pod's network namespace"},
		{"representor down", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return w.sim.Machine().Links.SetUp(ctx, w.state().PFs[0].VFs[1].Rep.Netdev.Ifindex, false)
		}, "representor enp3s0f0npf0vf1 is down"},
		{"representor MTU", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return w.sim.Machine().Links.SetMTU(ctx, w.state().PFs[0].VFs[1].Rep.Netdev.Ifindex, 1500)
		}, "representor enp3s0f0npf0vf1: its MTU is 1500, want 9000"},
		{"no representor", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return w.sim.Machine().Devlink.SetEswitch(ctx, w.state().PFs[0].Handle, nic.Legacy)
		}, "its representor is gone"},
		{"unplugged", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			clear(w.sw.ports)
			return nil
		}, "representor enp3s0f0npf0vf1 is not plugged into bridge br-int for it"},
		{"plugged by another", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			for rep, port := range w.sw.ports {
				port.Owner = "other/net1"
				w.sw.ports[rep] = port
			}
			return nil
		}, "representor enp3s0f0npf0vf1 is not plugged into bridge br-int for it"},
		{"VLAN", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			for rep, port := range w.sw.ports {
				port.VLAN = 7
				w.sw.ports[rep] = port
			}
			return nil
		}, "representor enp3s0f0npf0vf1 is in bridge br-int vlan 7, want bridge br-int vlan 100"},
		{"external id", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			for rep := range w.sw.ports {
				delete(w.sw.ports[rep].ExternalIDs, "iface-id")
			}
			return nil
		}, `representor enp3s0f0npf0vf1: its external id iface-id is "", want "shop_c1"`},
		{"netns gone", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			return errors.Join(ns.Close(), w.sim.DeleteNetns(p.netns))
		}, "network namespace /run/netns/c1 is not there any more"},
		{"record gone", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			w.mustDel(p)
			return nil
		}, "VF 0000:03:00.3 is not attached to container c1 (net1): there is no record of it"},
		{"held by another", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			w.mustDel(p)
			w.mustAdd(w.pod("c2", p.vf))
			return nil
		}, "VF 0000:03:00.3 is not attached to container c1 (net1): it is held by container c2 (net1)"},
		{"detaching", func(w *world, p pod, l host.Link, ns host.NetnsLinks) error {
			w.sw.down = true
			if w.del(p) == nil {
				return errors.New("DEL without Open vSwitch succeeded")
			}
			w.sw.down = false
			return nil
		}, `its record says to be detached, stopped at "unplug representor enp3s0f0npf0vf1 of c1/net1"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := full(w.pod("c1", w.vf(0, 1)))
			result := w.mustAdd(p)
			if err := w.check(p, result); err != nil {
				t.Fatalf("CHECK before the damage: %v", err)
			}
			l, ns := w.inPod(p.netns)
			if err := c.harm(w, p, l, ns); err != nil {
				t.Fatal(err)
			}
			before := w.sim.Writes()
			err := w.check(p, result)
			var e *types.Error
			if !errors.As(err, &e) || e.Code != ErrDamage || !strings.Contains(e.Msg, c.want) {
				t.Errorf("CHECK: %v\nwant: %s", err, c.want)
			}
			if w.sim.Writes() != before {
				t.Error("CHECK writes")
			}
		})
	}
}

func TestCheckIPAM(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	result := w.mustAdd(p)
	clear(w.ipam.leases)
	if err := w.check(p, result); err == nil || !strings.Contains(err.Error(), "no lease of c1") {
		t.Errorf("CHECK: %v", err)
	}
}

func TestCheckBadInput(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	result := w.mustAdd(p)
	for _, c := range []struct {
		prev func(string) string
		want string
	}{
		{func(string) string { return "null" }, "prevResult is missing: want the result of ADD"},
		{func(s string) string { return strings.ReplaceAll(s, "net1", "net2") }, "prevResult has no interface net1 in /run/netns/c1"},
		{func(s string) string { return strings.ReplaceAll(s, `"mac": "`, `"mac": "x`) }, `is no MAC address`},
	} {
		var prev any
		if err := json.Unmarshal([]byte(c.prev(result)), &prev); err != nil {
			t.Fatal(err)
		}
		err := w.plugin().Check(context.Background(), w.args(p.with("prevResult", prev)))
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Msg, c.want) {
			t.Errorf("CHECK: %v\nwant: %s", err, c.want)
		}
	}
}
