package sim_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

func TestSaveLoad(t *testing.T) {
	dir := t.TempDir()
	for seed := range uint64(60) {
		s := sim.RandomNode(seed)
		s.Inject(sim.Fault{Verb: sim.SetMTU, Errno: 5})
		path := dir + "/machine.json"
		must(t, s.Save(path))
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode() != 0o600 {
			t.Errorf("mode %v: want 0600", info.Mode())
		}
		again, err := sim.Load(path)
		must(t, err)
		if d := cmp.Diff(observe(t, s), observe(t, again)); d != "" {
			t.Errorf("seed %d: another machine came back:\n%s", seed, d)
		}
		must(t, again.Save(path+"2"))
		a, err := os.ReadFile(path)
		must(t, err)
		b, err := os.ReadFile(path + "2")
		must(t, err)
		if d := cmp.Diff(string(a), string(b)); d != "" {
			t.Errorf("seed %d: saved again it is another file:\n%s", seed, d)
		}
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 2 {
		t.Errorf("files left behind: %v", left)
	}
}

// A namespace that only an open handle kept alive ends with the process.
func TestLoadEndsNamespaces(t *testing.T) {
	s := parse(t, "mlx5:numvfs=1")
	must(t, s.AddNetns("/run/netns/a"))
	v := observe(t, s).PFs[0].VFs[0]
	must(t, s.Machine().Links.Move(t.Context(), v.Netdev.Ifindex, "/run/netns/a"))
	_, err := s.Machine().Netns.Open(t.Context(), "/run/netns/a")
	must(t, err)
	must(t, s.DeleteNetns("/run/netns/a"))
	path := t.TempDir() + "/machine.json"
	must(t, s.Save(path))
	if got := observe(t, parse(t, "@"+path)).PFs[0].VFs[0]; got.Away || got.Netdev.Name != v.Netdev.Name {
		t.Errorf("%+v", got)
	}
}

func TestSaveFails(t *testing.T) {
	s := parse(t, "mlx5")
	dir := t.TempDir()
	if err := s.Save(dir + "/none/machine.json"); err == nil {
		t.Error("saved to a folder that is not there")
	}
	must(t, os.Mkdir(dir+"/folder", 0o700))
	if err := s.Save(dir + "/folder"); err == nil {
		t.Error("saved over a folder")
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 1 {
		t.Errorf("files left behind: %v", left)
	}
}

// edited is a saved machine with one thing changed.
func edited(t testing.TB, edit func(m map[string]any)) []byte {
	t.Helper()
	s := parse(t, "mlx5:numvfs=2,mode=switchdev")
	must(t, s.AddNetns("/run/netns/a"))
	path := t.TempDir() + "/machine.json"
	must(t, s.Save(path))
	b, err := os.ReadFile(path)
	must(t, err)
	var m map[string]any
	must(t, json.Unmarshal(b, &m))
	edit(m)
	b, err = json.Marshal(m)
	must(t, err)
	return b
}

func TestDecodeRefuses(t *testing.T) {
	pf := func(m map[string]any, i int) map[string]any { return m["pfs"].([]any)[i].(map[string]any) }
	link := func(m map[string]any, i int) map[string]any { return m["links"].([]any)[i].(map[string]any) }
	for _, c := range []struct {
		want string
		edit func(m map[string]any)
	}{
		{"version 1: want 2", func(m map[string]any) { m["version"] = 1 }},
		{`unknown field "colour"`, func(m map[string]any) { m["colour"] = "red" }},
		{"pfs[1]: null", func(m map[string]any) { m["pfs"].([]any)[1] = nil }},
		{`pfs[0]: no profile "bnxt"`, func(m map[string]any) { pf(m, 0)["profile"] = "bnxt" }},
		{`pfs[1]: address "0000:03:00.0": want 0000:03:00.1`, func(m map[string]any) { pf(m, 1)["address"] = "0000:03:00.0" }},
		{"pfs[0]: 2 of 1 VFs", func(m map[string]any) { pf(m, 0)["totalVFs"] = 1 }},
		{`pfs[0]: driver "e1000"`, func(m map[string]any) { pf(m, 0)["driver"] = "e1000" }},
		{"pfs[0]: VFs of a PF without driver", func(m map[string]any) { pf(m, 0)["driver"] = "" }},
		{`pfs[0]: mode "sideways"`, func(m map[string]any) { pf(m, 0)["mode"] = "sideways" }},
		{"pfs[0]: vfs[0]: null, or a driver", func(m map[string]any) { pf(m, 0)["vfs"].([]any)[0] = nil }},
		{"no port 2 of 2", func(m map[string]any) { pf(m, 1)["port"] = 2 }},
		{"pfs[2]: address 0000:03:00.1 is taken", func(m map[string]any) { m["pfs"] = append(m["pfs"].([]any), pf(m, 1)) }},
		{"netns: none is the host's", func(m map[string]any) { m["netns"] = nil }},
		{"netns[1]: number 1", func(m map[string]any) { m["netnsID"] = 0 }},
		{"links[1]: no namespace 7", func(m map[string]any) { link(m, 1)["netns"] = 7 }},
		{"links[1]: no namespace 0, or ifindex 99", func(m map[string]any) { link(m, 1)["ifindex"] = 99 }},
		{"is there twice", func(m map[string]any) { link(m, 2)["name"] = link(m, 1)["name"] }},
		{`links[1]: "a b" is no name`, func(m map[string]any) { link(m, 1)["name"] = "a b" }},
		{"links[1]: a netdev \"vf\" of pf 0 vf -1", func(m map[string]any) { link(m, 1)["role"] = "vf" }},
		{"links[1]: no function pf 9", func(m map[string]any) { link(m, 1)["pf"] = 9 }},
		{"rdma[0]: no function", func(m map[string]any) { m["rdma"].([]any)[0].(map[string]any)["vf"] = 5 }},
		{"rdma[0]: name \"\"", func(m map[string]any) { m["rdma"].([]any)[0].(map[string]any)["name"] = "" }},
		{"RDMA modes", func(m map[string]any) { m["rdmaMode"] = "both" }},
		{`pfs[0]: no setting "colour"`, func(m map[string]any) { pf(m, 0)["set"] = map[string]any{"colour": "red"} }},
		{`pfs[0]: no setting "encap-mode", or not with value "often"`, func(m map[string]any) { pf(m, 0)["set"] = map[string]any{"encap-mode": "often"} }},
		{"pfs[0]: mode \"switchdev\"", func(m map[string]any) { pf(m, 0)["infiniband"] = true }},
		{"pfs[0]: 1 of 0 SFs", func(m map[string]any) { pf(m, 0)["maxSFs"] = 0; pf(m, 0)["sfs"] = []any{map[string]any{"num": 1}} }},
		{"pfs[0]: sfs[0]: null", func(m map[string]any) { pf(m, 0)["sfs"] = []any{nil} }},
		{"pfs[0]: sfs[1]: null, or a number", func(m map[string]any) {
			pf(m, 0)["sfs"] = []any{map[string]any{"num": 1}, map[string]any{"num": 1, "slot": 1}}
		}},
		{"links[1]: enp3s0f0np0 cannot be in a bond 1", func(m map[string]any) { link(m, 1)["master"] = 1 }},
		{"links[1]: a bond without options", func(m map[string]any) { link(m, 1)["bond"] = map[string]any{"mode": "802.3ad"} }},
		{"lags[0]: null, of no card", func(m map[string]any) { m["lags"] = []any{map[string]any{"card": 0}} }},
		{"rdma[0]: of a LAG that there is not", func(m map[string]any) { m["rdma"].([]any)[0].(map[string]any)["lag"] = true }},
		{"delay", func(m map[string]any) { m["delay"] = -1 }},
	} {
		_, err := sim.Decode(edited(t, c.edit))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v: want %s", err, c.want)
		}
	}
	if _, err := sim.Decode(append(edited(t, func(map[string]any) {}), "{}"...)); err == nil {
		t.Error("took two values")
	}
	if _, err := sim.Decode(edited(t, func(map[string]any) {})); err != nil {
		t.Errorf("unedited: %v", err)
	}
	if _, err := sim.Load(t.TempDir() + "/none.json"); err == nil || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("%v: want the file's name", err)
	}
}

// use drives a machine through everything once; it must not panic, whatever the
// machine.
func use(t testing.TB, s *sim.Sim) {
	t.Helper()
	ctx, m := t.Context(), s.Machine()
	s.SetClock(&stopped{})
	s.SetDelay(0)
	s.Heal()
	st, err := host.Observe(ctx, m)
	must(t, err)
	ignore := func(error) {}
	for _, b := range st.Bonds {
		for _, p := range st.PFs {
			ignore(m.Bonds.Release(ctx, b.Ifindex, p.Uplink.Ifindex))
			ignore(m.Bonds.Enslave(ctx, b.Ifindex, p.Uplink.Ifindex))
		}
		ignore(m.Bonds.DelBond(ctx, b.Name))
	}
	for _, p := range st.PFs {
		for name, value := range p.Settings {
			ignore(m.Settings.SetPF(ctx, p, name, value))
		}
		for _, f := range p.SFs {
			ignore(m.Devlink.SetSFActive(ctx, p.Handle, f.Port, !f.Active))
			ignore(m.Devlink.DelSF(ctx, p.Handle, f.Port))
		}
		ignore(m.PCI.SetVFs(ctx, p.Handle.Name, 0))
		ignore(m.Devlink.SetEswitch(ctx, p.Handle, "switchdev"))
		ignore(m.PCI.SetVFs(ctx, p.Handle.Name, 1))
		ignore(m.PCI.Bind(ctx, p.Handle.Name, ""))
		ignore(m.Devlink.AddSF(ctx, p.Handle, 3))
		for _, name := range []nic.Setting{nic.RoCE, nic.Trust, nic.MaxRate, nic.Channels, nic.RxRing, nic.GSOMax, nic.VDPA} {
			ignore(m.Settings.SetPF(ctx, p, name, "off"))
			ignore(m.Settings.SetVF(ctx, p, 0, name, "512"))
		}
	}
	ignore(m.RDMA.SetMode(ctx, nic.RDMAExclusive))
	st, err = host.Observe(ctx, m)
	must(t, err)
	links, err := m.Links.Links(ctx)
	must(t, err)
	for _, l := range links {
		ignore(m.Links.SetMTU(ctx, l.Ifindex, 1400))
		ignore(m.Links.Move(ctx, l.Ifindex, "/run/netns/a"))
	}
	must(t, s.Save(t.TempDir()+"/machine.json"))
}

func FuzzDecode(f *testing.F) {
	f.Add(edited(f, func(map[string]any) {}))
	f.Add([]byte(`{"version":2,"pfs":null,"links":null,"netns":[{"id":0,"last":0}],"netnsID":0}`))
	f.Add([]byte(`{"version":2,"netns":[{"id":0,"last":9}],"links":[{"netns":0,"ifindex":3,"name":"x","role":"uplink","pf":0,"vf":-1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := sim.Decode(b)
		if err != nil {
			return
		}
		use(t, s)
	})
}
