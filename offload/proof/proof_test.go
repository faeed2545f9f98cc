package proof_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

const pod = "/run/netns/pod"

// machine is a card with two VFs on each port, of which VF 1 of the second port
// is in a pod as eth0.
func machine(t *testing.T, mode nic.Eswitch) (host.Machine, nic.State) {
	t.Helper()
	s, err := sim.Parse("mlx5:vfs=8,numvfs=2,mode=" + string(mode))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pod, "/run/netns/empty"} {
		if err := s.AddNetns(path); err != nil {
			t.Fatal(err)
		}
	}
	m := s.Machine()
	state, err := host.Observe(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	index := state.PFs[1].VFs[1].Netdev.Ifindex
	if err := m.Links.SetName(t.Context(), index, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := m.Links.Move(t.Context(), index, pod); err != nil {
		t.Fatal(err)
	}
	return m, state
}

// kernel holds rules by ifindex; every netdev has had 42 packets.
type kernel map[int][]tc.Rule

func (k kernel) Ingress(_ context.Context, ifindex int) ([]tc.Rule, error) { return k[ifindex], nil }

func (k kernel) Link(context.Context, int) (tc.Link, error) { return tc.Link{RX: packets(42)}, nil }

func packets(n uint64) tc.Counter { return tc.Counter{Packets: n, Bytes: 100 * n} }

func rule(handle uint32, inHW bool, total, hardware uint64, last string) tc.Rule {
	return tc.Rule{
		Chain: 0, Prio: 1, Protocol: "ip", Kind: "flower", Handle: handle, Cookie: fmt.Sprintf("%032x", handle), InHW: inHW,
		Match: []tc.Param{{Name: "eth_type", Value: "ip"}, {Name: "dst_ip", Value: "10.0.0.2"}},
		Actions: []tc.Action{
			{Kind: "ct", Params: []tc.Param{{Name: "zone", Value: "5"}}, Control: "pipe"}, {Kind: "gact", Control: last},
		},
		Total: packets(total), Hardware: packets(hardware),
	}
}

func TestPort(t *testing.T) {
	m, state := machine(t, nic.Switchdev)
	pf, vf := state.PFs[1], state.PFs[1].VFs[1]
	rep := vf.Rep.Netdev
	k := kernel{rep.Ifindex: {rule(1, true, 100, 97, "drop"), rule(2, false, 3, 0, "pass"), rule(3, true, 500, 500, "goto chain 5")}}
	got, err := proof.Reader{Machine: m, Rules: k}.Port(t.Context(), rep.Name)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`%s (representor of %s vf 1, %s): 2 of 3 rules in hardware; 97 packets in hardware, 6 in software (94.2%% in hardware); the host saw 42 packets`,
		rep.Name, pf.Handle, vf.Address)
	if got.String() != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	rows := [][]string{
		{"in_hw", "0", "1", "ip dst_ip 10.0.0.2", "ct zone 5, drop", "97", "3", "0.0s"},
		{"not_in_hw", "0", "1", "ip dst_ip 10.0.0.2", "ct zone 5, pass", "0", "3", "0.0s"},
		{"in_hw", "0", "1", "ip dst_ip 10.0.0.2", "ct zone 5, goto chain 5", "500", "0", "0.0s"},
	}
	if d := cmp.Diff(rows, got.Rows()); d != "" {
		t.Error(d)
	}
	for _, row := range rows {
		if len(row) != len(proof.Columns()) {
			t.Errorf("%d cells under %d headings", len(row), len(proof.Columns()))
		}
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"vf":{"pf":"` + pf.Handle.String() + `","index":1}`; !strings.Contains(string(b), want) {
		t.Errorf("no %s in %s", want, b)
	}
	var again proof.Report
	if err := json.Unmarshal(b, &again); err != nil || !cmp.Equal(got, again) {
		t.Errorf("%v %s\n%s", err, cmp.Diff(got, again), b)
	}
}

// flows is what a switch has.
type flows []proof.Flow

func (f flows) Flows(context.Context) ([]proof.Flow, error) {
	if f == nil {
		return nil, fmt.Errorf("no switch: %w", fs.ErrNotExist)
	}
	return f, nil
}

func TestFlowsOfTheKernelOnly(t *testing.T) {
	m, state := machine(t, nic.Switchdev)
	rep := state.PFs[0].VFs[0].Rep.Netdev
	r := proof.Reader{Machine: m, Rules: kernel{rep.Ifindex: {rule(1, true, 60, 60, "drop")}}, Switch: flows{
		{UFID: "u", Port: rep.Name, Layer: "ovs", Match: "in_port(x),eth_type(0x0800)", Actions: "userspace(...)", Total: packets(20), Used: "0.1s"},
		{UFID: "w", Port: "other", Layer: "ovs", Total: packets(1000)},
	}}
	got, err := r.Port(t.Context(), rep.Name)
	if err != nil || len(got.Flows) != 1 || got.Software != packets(20) || got.Share == nil || *got.Share != 0.75 {
		t.Errorf("%+v %v", got, err)
	}
	if d := cmp.Diff([]string{"dp:ovs", "-", "-", "in_port(x),eth_type(0x0800)", "userspace(...)", "0", "20", "0.1s"}, got.Rows()[1]); d != "" {
		t.Error(d)
	}
	if !strings.Contains(got.String(), "1 of 1 rules in hardware, 1 flows in the kernel only;") {
		t.Error(got)
	}
	r.Switch = flows(nil) // does not run
	if got, err := r.Port(t.Context(), rep.Name); err != nil || len(got.Flows) != 0 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestPortWithoutTraffic(t *testing.T) {
	m, state := machine(t, nic.Switchdev)
	uplink := state.PFs[0].Uplink // any netdev of the host will do
	got, err := proof.Reader{Machine: m, Rules: kernel{}}.Port(t.Context(), uplink.Name)
	if err != nil || got.Share != nil || got.Port.VF != nil || got.Port.Ifindex != uplink.Ifindex {
		t.Errorf("%+v %v", got, err)
	}
	if want := uplink.Name + ": 0 of 0 rules in hardware; no packets yet; the host saw 42 packets"; got.String() != want {
		t.Errorf("got %s", got)
	}
}

func TestPortErrors(t *testing.T) {
	for _, mode := range []nic.Eswitch{nic.Switchdev, nic.Legacy} {
		m, state := machine(t, mode)
		pf, vf := state.PFs[0], state.PFs[0].VFs[1]
		missing := `netdev "pf9vf9": file does not exist; there is no representor`
		itself := fmt.Sprintf("%s vf 1 has no representor: %s is legacy, want switchdev", pf.Handle, pf.Handle)
		if mode == nic.Switchdev {
			missing = `netdev "pf9vf9": file does not exist; the representors are ` + pf.VFs[0].Rep.Netdev.Name + ", "
			itself = fmt.Sprintf("%s is the netdev of %s vf 1 itself: its rules are on the representor %s", vf.Netdev.Name, pf.Handle, vf.Rep.Netdev.Name)
		}
		r := proof.Reader{Machine: m, Rules: kernel{}}
		if _, err := r.Port(t.Context(), "pf9vf9"); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), missing) {
			t.Errorf("%s: got  %v\nwant %s", mode, err, missing)
		}
		if _, err := r.Port(t.Context(), vf.Netdev.Name); err == nil || err.Error() != itself {
			t.Errorf("%s: got  %v\nwant %s", mode, err, itself)
		}
	}
}

func TestNetns(t *testing.T) {
	m, state := machine(t, nic.Switchdev)
	vf := state.PFs[1].VFs[1]
	r := proof.Reader{Machine: m, Rules: kernel{vf.Rep.Netdev.Ifindex: {rule(1, true, 1, 1, "drop")}}}
	got, err := r.Netns(t.Context(), pod)
	if err != nil || len(got) != 1 {
		t.Fatalf("%v %v", got, err)
	}
	want := proof.Port{
		Netdev: vf.Rep.Netdev.Name, Ifindex: vf.Rep.Netdev.Ifindex,
		VF: &nic.VFID{PF: state.PFs[1].Handle, Index: 1}, Address: vf.Address, PodDev: "eth0",
	}
	if d := cmp.Diff(want, got[0].Port); d != "" || len(got[0].Rules) != 1 {
		t.Errorf("%s %v", d, got[0])
	}
	for _, path := range []string{"/run/netns/empty", "/run/netns/none"} {
		if _, err := r.Netns(t.Context(), path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	m, _ = machine(t, nic.Legacy)
	if _, err := (proof.Reader{Machine: m, Rules: kernel{}}).Netns(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "want switchdev") {
		t.Errorf("legacy: %v", err)
	}
}

func TestSince(t *testing.T) {
	port := proof.Port{Netdev: "pf0vf0"}
	before := proof.New(port, []tc.Rule{rule(1, true, 100, 90, "drop"), rule(2, true, 50, 50, "drop")},
		[]proof.Flow{{UFID: "u", Total: packets(7)}}, tc.Link{RX: packets(1000), CPU: &tc.Directions{RX: packets(60)}})
	after := proof.New(port, []tc.Rule{
		rule(1, true, 180, 170, "drop"), // 80 more, all in hardware
		rule(2, true, 5, 4, "drop"),     // removed and made again
		rule(3, true, 20, 19, "drop"),   // new
	}, []proof.Flow{{UFID: "u", Total: packets(9)}, {UFID: "v", Total: packets(4), Actions: "ct,recirc(0x5)"}},
		tc.Link{RX: packets(1105), CPU: &tc.Directions{RX: packets(62)}})
	got := after.Since(before)
	if got.Hardware != packets(80+4+19) || got.Software != packets(0+1+1+2) || got.HostSaw() != 2 || got.Link.RX != packets(105) {
		t.Errorf("%s: %+v", got, got)
	}
	if after.Hardware != packets(170+4+19) {
		t.Errorf("the report itself was changed: %+v", after.Hardware)
	}
}
