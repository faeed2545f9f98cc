package look_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/offload/why"
	"sluice.dev/sluice/offload/why/look"
	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/rtnl"
	"sluice.dev/sluice/pkg/tc"
)

// node is a simulated card of two ports in switchdev mode, whose first VF a pod has.
func node(t *testing.T) look.Node {
	t.Helper()
	s, err := sim.Parse("mlx5:vfs=8,numvfs=2,mode=switchdev")
	if err != nil {
		t.Fatal(err)
	}
	m := s.Machine()
	state, err := host.Observe(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	links, err := m.Links.Links(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	links = append(links,
		host.Link{Netdev: nic.Netdev{Name: "veth0", Ifindex: 900}, Kind: "veth"},
		host.Link{Netdev: nic.Netdev{Name: "genev_sys_6081", Ifindex: 901}, Kind: "geneve"})
	yes := true
	n := look.Node{State: state, Links: links, Bridges: look.Bridges{}, Capabilities: capability.Facts{
		Kernel: capability.Kernel{Config: "/boot/config", Options: map[string]string{"NET_TC_SKB_EXT": "n"}},
		Switch: capability.Switch{HWOffload: true, TCPolicy: "none", Offloading: &yes},
	}}
	for _, pf := range state.PFs {
		n.Bridges[pf.Uplink.Name] = look.Member{Bridge: "br"}
		for i, vf := range pf.VFs {
			n.Bridges[vf.Rep.Netdev.Name] = look.Member{Bridge: "br"}
			n.Records = append(n.Records, &record.Record{
				VF: vf.Address, IfName: fmt.Sprintf("net%d", i), Pod: record.Pod{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)},
			})
		}
	}
	return n
}

// kernel holds rules by ifindex, and what drivers answer.
type kernel struct {
	rules  map[int][]tc.Rule
	answer tc.Verdict
	asked  int
}

func (k *kernel) Ingress(_ context.Context, ifindex int) ([]tc.Rule, error) {
	return k.rules[ifindex], nil
}

func (k *kernel) Offer(_ context.Context, r tc.Rule) (tc.Verdict, error) {
	k.asked++
	if r.Handle == 99 {
		return tc.Verdict{}, fmt.Errorf("rule: %w", fs.ErrNotExist)
	}
	return k.answer, nil
}

type flows []proof.Flow

func (f flows) All(context.Context) ([]proof.Flow, error) {
	if f == nil {
		return nil, fmt.Errorf("no switch: %w", fs.ErrNotExist)
	}
	return f, nil
}

// ways knows one address.
type ways map[string]rtnl.Way

func (w ways) WayTo(_ context.Context, to netip.Addr) (rtnl.Way, error) {
	if way, ok := w[to.String()]; ok {
		return way, nil
	}
	return rtnl.Way{}, fs.ErrNotExist
}

const number = "01020304-0506-0708-090a-0b0c0d0e0f10"

// cookie is number as the kernel keeps it.
const cookie = "04030201080706050c0b0a09100f0e0d"

func TestAt(t *testing.T) {
	n := node(t)
	rep := n.State.PFs[0].VFs[0].Rep.Netdev
	if tc.UFID(cookie) != number {
		t.Fatalf("the cookie is %s", tc.UFID(cookie))
	}
	k := &kernel{answer: tc.Verdict{Text: "mlx5_core: Not implemented offload action", Errno: "not supported"}, rules: map[int][]tc.Rule{rep.Ifindex: {
		{Kind: "flower", Handle: 1, Cookie: cookie, Total: tc.Counter{Packets: 5}},
		{Kind: "flower", Handle: 2, Cookie: "aa", InHW: true, Total: tc.Counter{Packets: 9}, Hardware: tc.Counter{Packets: 8}},
		{Kind: "matchall", Handle: 3},
		{Kind: "flower", Handle: 99, Cookie: "bb"},
	}}}
	f := flows{
		{UFID: number, Port: rep.Name, Layer: "tc", Match: "in_port(" + rep.Name + ")", Actions: "set(tunnel(dst=192.0.2.1)),genev_sys_6081"},
		{UFID: "ffffffff-0000-0000-0000-000000000000", Port: rep.Name, Layer: "tc", Match: "gone", Actions: "x"},
		{UFID: "abcdef01-0000-0000-0000-000000000000", Port: rep.Name, Layer: "ovs", Match: "recirc_id(0x1)", Actions: "drop", Total: tc.Counter{Packets: 3}},
		{UFID: "abcdef02-0000-0000-0000-000000000000", Port: "other", Layer: "ovs"},
	}
	r := look.Reader{Rules: k, Switch: f, Ways: ways{}, Ask: true}
	reports, err := r.At(t.Context(), n, rep.Name)
	if err != nil || len(reports) != 1 {
		t.Fatalf("%v, %v", reports, err)
	}
	got := reports[0]
	var lines []string
	for _, v := range got.Flows {
		lines = append(lines, fmt.Sprintf("%s %s %d+%d %s", v.UFID[:2], v.Where, v.Hardware.Packets, v.Software.Packets, v.Class()))
	}
	want := []string{"aa hardware 8+1 ", "01 tc 0+5 tunnel", "bb tc 0+0 unknown", "ab datapath 0+3 recirculation"}
	if d := cmp.Diff(want, lines); d != "" {
		t.Error(d)
	}
	if k.asked != 2 {
		t.Errorf("drivers were asked %d times", k.asked)
	}
	if p := got.Port; p.Pod != "shop/web-0" || p.Interface != "net0" || p.VF == nil || p.Netdev != rep.Name {
		t.Errorf("%+v", p)
	}

	k.asked, r.Ask = 0, false
	if pod, err := r.At(t.Context(), n, "shop/web-0"); err != nil || len(pod) != 2 || k.asked != 0 {
		t.Errorf("%v, %v, asked %d times", pod, err, k.asked)
	}
	for _, name := range []string{number, "ufid:" + number, "01020304"} {
		one, err := r.At(t.Context(), n, name)
		if err != nil || len(one) != 1 || len(one[0].Flows) != 1 || one[0].Flows[0].UFID != number {
			t.Errorf("%s: %+v, %v", name, one, err)
		}
	}
	for name, text := range map[string]string{
		"shop/web-9": "4 attachments", "01020399": "among the 4", "nothing": "the representors are", "abcdef02": `"other"`,
	} {
		if _, err := r.At(t.Context(), n, name); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.At(t.Context(), n, n.State.PFs[0].VFs[1].Netdev.Name); err == nil || !strings.Contains(err.Error(), "its rules are on the representor") {
		t.Errorf("a VF's own netdev: %v", err)
	}
}

func TestAskIsBounded(t *testing.T) {
	n := node(t)
	rep := n.State.PFs[0].VFs[0].Rep.Netdev
	k := &kernel{rules: map[int][]tc.Rule{}}
	for i := range 3 * look.Most {
		k.rules[rep.Ifindex] = append(k.rules[rep.Ifindex], tc.Rule{Kind: "flower", Handle: uint32(i + 200), Cookie: fmt.Sprint(i)})
	}
	if _, err := (look.Reader{Rules: k, Switch: flows{}, Ask: true}).At(t.Context(), n, rep.Name); err != nil || k.asked != look.Most {
		t.Errorf("asked %d times, %v", k.asked, err)
	}
}

func TestAll(t *testing.T) {
	n := node(t)
	r := look.Reader{Rules: &kernel{}, Switch: flows(nil)}
	if all, err := r.All(t.Context(), n); err != nil || len(all) != 4 || all[0].Port.Pod == "" {
		t.Errorf("%v, %v", all, err)
	}
	n.Records = n.Records[:1]
	if all, err := r.All(t.Context(), n); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	n.Records = nil
	if all, err := r.All(t.Context(), n); err != nil || len(all) != 4 || all[0].Port.Pod != "" {
		t.Errorf("%v, %v", all, err)
	}
}

// A VF that another CNI plugin has put into a pod: its port is found though we have no
// record of it and its representor has another name; the kubelet says whose it is, and
// where it says nothing the VF is in use all the same. The agent's own look has ours alone.
func TestPortsOfOtherPlugins(t *testing.T) {
	n := node(t)
	ours := n.Records[:1]
	n.Records = ours
	const renamed = "4d1f9a8b7c_h"
	theirs := &n.State.PFs[0].VFs[1]
	was := theirs.Rep.Netdev.Name
	theirs.Rep.Netdev.Name, theirs.Owner = renamed, "pod shop/web-7"
	n.State.PFs[1].VFs[0].Away = true
	n.Bridges[renamed] = look.Member{Bridge: "br-int"}
	delete(n.Bridges, was)
	for i := range n.Links {
		if n.Links[i].Name == was {
			n.Links[i].Name = renamed
		}
	}
	r := look.Reader{Rules: &kernel{}, Switch: flows{{UFID: number, Port: renamed, Layer: "ovs", Match: "recirc_id(0x1)", Actions: "drop"}}}
	said := func(reports []why.Report, err error) (out []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range reports {
			out = append(out, fmt.Sprintf("%s %q %d", p.Port.Address, p.Port.Pod, len(p.Flows)))
		}
		return out
	}
	mine := fmt.Sprintf("%s %q 0", ours[0].VF, "shop/web-0")
	web7 := fmt.Sprintf("%s %q 1", theirs.Address, "shop/web-7")
	unknown := fmt.Sprintf("%s %q 0", n.State.PFs[1].VFs[0].Address, "")
	for what, c := range map[string]struct{ got, want []string }{
		"all":         {said(r.All(t.Context(), n)), []string{mine, web7, unknown}},
		"our records": {said(r.Ours(t.Context(), n)), []string{mine}},
		"its name":    {said(r.At(t.Context(), n, renamed)), []string{web7}},
		"its pod":     {said(r.At(t.Context(), n, "shop/web-7")), []string{web7}},
		"its flow":    {said(r.At(t.Context(), n, "01020304")), []string{web7}},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
}

// A switch that uses more zones than the card tells apart, and one that is not there.
func TestOfTheNode(t *testing.T) {
	n := node(t)
	rep := n.State.PFs[0].VFs[0].Rep.Netdev
	var f flows
	for i := range 300 {
		f = append(f, proof.Flow{UFID: fmt.Sprint(i), Port: "other", Layer: "tc", Actions: fmt.Sprintf("ct(commit,zone=%d),x", i)})
	}
	got, err := (look.Reader{Rules: &kernel{}, Switch: f}).At(t.Context(), n, rep.Name)
	if err != nil || len(got[0].Reasons) != 1 || got[0].Reasons[0].Class != why.Limit {
		t.Errorf("%+v, %v", got, err)
	}
	n.Capabilities.Switch = capability.Switch{Error: "no database"}
	got, err = (look.Reader{Rules: &kernel{}, Switch: flows(nil)}).At(t.Context(), n, rep.Name)
	if err != nil || len(got[0].Reasons) != 1 || !strings.Contains(got[0].Reasons[0].What, "does not run: no database") {
		t.Errorf("%+v, %v", got, err)
	}
}
