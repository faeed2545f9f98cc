package linux

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/ethtool"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/rtnl"
)

func is[T any](v T) *T { return &v }

// whole is what the kernel tells of a PF with one VF, all at once; the object's mode
// says what of it is the object's.
func whole() (*told, nic.PF) {
	h := nic.PCI(pfAt)
	p := nic.PF{Handle: h, Driver: "mlx5_core", Uplink: nic.Netdev{Ifindex: 7},
		VFs: []nic.VF{{Address: vfAt, Netdev: nic.Netdev{Ifindex: 9}, Rep: nic.Representor{Port: 131072}}},
		SFs: []nic.SF{{Num: 5, Port: 32768}}}
	t := newTold()
	t.eswitches[h] = devlink.Eswitch{Inline: "none", Encap: "basic"}
	t.addParam(devlink.Param{Handle: h, Name: paramSteering, Values: map[devlink.Mode]devlink.Value{devlink.Runtime: {Type: devlink.String, Text: "smfs"}}})
	t.addParam(devlink.Param{Handle: h, Name: paramRoCE, Values: map[devlink.Mode]devlink.Value{devlink.DriverInit: {Type: devlink.Bool, Number: 1}}})
	t.addLink(rtnl.Link{Ifindex: 7, MTU: 1500, Up: true, Sizes: rtnl.Sizes{GSO: 65536, GRO: 65536, GSOIPv4: 65536, GROIPv4: 65536, TSO: 524280},
		VFs: []rtnl.VF{{Trust: is(true), SpoofCheck: is(false), LinkState: "auto", VLAN: rtnl.VLAN{ID: 7, QoS: 3, Protocol: 0x8100},
			MinRate: 10, MaxRate: 100, NodeGUID: 1, PortGUID: 2}}})
	t.addLink(rtnl.Link{Ifindex: 9, MTU: 1500, Sizes: rtnl.Sizes{GSO: 65536}})
	t.tc[7] = ethtool.Feature{On: true}
	t.channels[9] = ethtool.Channels{Combined: ethtool.Count{N: 4, Max: 8}}
	t.rings[9] = ethtool.Rings{RX: ethtool.Count{N: 1024, Max: 8192}, TX: ethtool.Count{N: 512, Max: 4096}}
	for _, port := range []uint32{131072, 32768} {
		t.ports[portID{h, port}] = devlink.Port{Function: &devlink.Function{RoCE: is(false), MaxIOEQs: is(uint32(24))}}
		t.addRate(devlink.Rate{Handle: h, Of: devlink.RateOf{Port: port}, Share: 1250000, Max: 125000000})
	}
	t.addRate(devlink.Rate{Handle: h, Of: devlink.RateOf{Node: "gold"}, Max: 1})
	return t, p
}

func TestOffers(t *testing.T) {
	told, p := whole()
	check := func(what string, got offers, want nic.Settings, limits nic.Limits) {
		t.Helper()
		if d := cmp.Diff(want, got.settings) + cmp.Diff(limits, got.limits); d != "" {
			t.Errorf("%s: want (-), got (+):\n%s", what, d)
		}
	}
	check("PF", told.pf(p), nic.Settings{
		nic.InlineMode: "none", nic.EncapMode: "basic", nic.SteeringMode: "smfs", nic.RoCE: "on", nic.LinkMTU: "1500", nic.AdminLink: "up",
		nic.TCOffload: "on", nic.GSOMax: "65536", nic.GROMax: "65536", nic.GSOMaxIPv4: "65536", nic.GROMaxIPv4: "65536",
	}, nic.Limits{nic.GSOMax: 524280, nic.GSOMaxIPv4: 524280, nic.GROMax: 524280, nic.GROMaxIPv4: 524280})

	netdev := nic.Settings{nic.Channels: "4", nic.RxRing: "1024", nic.TxRing: "512", nic.GSOMax: "65536"}
	limits := nic.Limits{nic.Channels: 8, nic.RxRing: 8192, nic.TxRing: 4096, nic.GSOMax: 65536}
	check("VF in legacy mode", told.vf(p, p.VFs[0]), netdev.With(nic.Trust, "on").With(nic.SpoofCheck, "off").With(nic.LinkState, "auto").
		With(nic.VLAN, "7/3").With(nic.MinRate, "10").With(nic.MaxRate, "100"), limits)
	told.vdpa[nic.PCI(vfAt)] = vdpaNone
	p.Eswitch = nic.Switchdev
	check("VF in switchdev mode", told.vf(p, p.VFs[0]), netdev.With(nic.RoCE, "off").With(nic.EventQueues, "24").
		With(nic.MinRate, "10").With(nic.MaxRate, "1000").With(nic.VDPA, "none"), limits)
	check("SF without a netdev", told.sf(p, p.SFs[0]), nic.Settings{
		nic.RoCE: "off", nic.EventQueues: "24", nic.MinRate: "10", nic.MaxRate: "1000",
	}, nil)

	p.Eswitch, p.VFs[0].Netdev = "", nic.Netdev{}
	delete(told.vdpa, nic.PCI(vfAt))
	p.InfiniBand = true
	check("VF of InfiniBand", told.vf(p, p.VFs[0]), nic.Settings{
		nic.LinkState: "auto", nic.NodeGUID: "00:00:00:00:00:00:00:01", nic.PortGUID: "00:00:00:00:00:00:00:02",
	}, nil)
	p.InfiniBand, p.Driver = false, "igb"
	check("VF of igb", told.vf(p, p.VFs[0]), nic.Settings{nic.Trust: "on", nic.SpoofCheck: "off", nic.VLAN: "7/3", nic.MaxRate: "100"}, nil)
	check("nothing", newTold().pf(p), nil, nil)
}

func TestVLANText(t *testing.T) {
	for text, v := range map[string]rtnl.VLAN{
		"0": {Protocol: 0x8100}, "7": {ID: 7, Protocol: 0x8100}, "7/3": {ID: 7, QoS: 3, Protocol: 0x8100},
		"7/802.1ad": {ID: 7, Protocol: 0x88a8}, "4094/7/802.1ad": {ID: 4094, QoS: 7, Protocol: 0x88a8},
	} {
		if got := vlanText(v); got != text {
			t.Errorf("%+v is written %q, want %q", v, got, text)
		}
		if got, ok := parseVLAN(text); !ok || got != v {
			t.Errorf("%q is read %+v, %v", text, got, ok)
		}
	}
	for _, bad := range []string{"", "4095", "7/8", "7/0", "07", "-1", "0/3", "0/802.1ad", "7/3/802.1q", "7/802.1ad/3", "a"} {
		if v, ok := parseVLAN(bad); ok {
			t.Errorf("%q gave %+v", bad, v)
		}
	}
}

func FuzzVLANText(f *testing.F) {
	f.Add("7/3/802.1ad")
	f.Fuzz(func(t *testing.T, s string) {
		if v, ok := parseVLAN(s); ok && vlanText(v) != s {
			t.Errorf("%q is read %+v and written %q", s, v, vlanText(v))
		}
	})
}

func TestCheckValue(t *testing.T) {
	limits := nic.Limits{nic.Channels: 8}
	for name, values := range map[nic.Setting][2][]string{
		nic.InlineMode:   {{"none", "transport"}, {"", "l2"}},
		nic.SteeringMode: {{"dmfs", "smfs", "hmfs"}, {"fast"}},
		nic.Trust:        {{"on", "off"}, {"true", "1"}},
		nic.AdminLink:    {{"up", "down"}, {"on"}},
		nic.LinkState:    {{"auto", "enable", "disable"}, {"up"}},
		nic.LinkMTU:      {{"68", "9000"}, {"67", "9k", "+1500", "01500"}},
		nic.Channels:     {{"1", "8"}, {"0", "9"}},
		nic.RxRing:       {{"1024"}, {"0"}},
		nic.MaxRate:      {{"0", "200000"}, {"-1", "1.5", "99999999999"}},
		nic.GSOMax:       {{"65536", "524280"}, {"524281", "0"}},
		nic.VLAN:         {{"0", "7/3"}, {"7/9"}},
		nic.NodeGUID:     {{"02:00:00:00:00:00:00:01"}, {"2:0:0:0:0:0:0:1", "02:00:00:00:00:00:00:0A", "020000"}},
		nic.VDPA:         {{"none", "vhost", "virtio"}, {"on"}},
	} {
		for _, good := range values[0] {
			if err := checkValue(name, good, limits); err != nil {
				t.Errorf("%s %q: %v", name, good, err)
			}
		}
		for _, bad := range values[1] {
			if err := checkValue(name, bad, limits); !errors.Is(err, host.ErrInvalid) || !strings.Contains(err.Error(), "want ") {
				t.Errorf("%s %q: %v", name, bad, err)
			}
		}
	}
}

// The last word of modprobe's files counts, and ours comes behind others'.
func TestRDMAModeAtBoot(t *testing.T) {
	etc := t.TempDir()
	r := rdma{etc: etc}
	if got := r.atBoot(); got != "" {
		t.Errorf("without files: %q", got)
	}
	ctx := t.Context()
	for _, m := range []nic.RDMAMode{"", nic.RDMAExclusive, "", nic.RDMAShared} {
		must(t, r.SetModeAtBoot(ctx, m))
		if got := r.atBoot(); got != m {
			t.Errorf("%q after it was set to %q", got, m)
		}
	}
	put := func(name, text string) { must(t, os.WriteFile(etc+"/modprobe.d/"+name, []byte(text), 0o600)) }
	put("ib.conf", "# x\noptions ib_core netns_mode=0 other=1\n")
	put("zzz.conf.bak", "options ib_core netns_mode=0\n")
	if got := r.atBoot(); got != nic.RDMAShared {
		t.Errorf("beside another file: %q", got)
	}
	put("zzz.conf", "options ib_core netns_mode=Y\noptions ib_core netns_mode=N\noptions other netns_mode=1\n")
	if got := r.atBoot(); got != nic.RDMAExclusive {
		t.Errorf("behind another file: %q", got)
	}
	if err := r.SetModeAtBoot(ctx, nic.RDMAShared); !errors.Is(err, host.ErrNotSupported) || !strings.Contains(err.Error(), "exclusive") {
		t.Errorf("got %v", err)
	}
	if names, err := os.ReadDir(etc + "/modprobe.d"); err != nil || len(names) != 4 {
		t.Errorf("%v, %v: want no other files", names, err)
	}
}

// mlx5 says in debugfs whether it aggregates.
func TestLAG(t *testing.T) {
	s := sysfs{t: t, root: t.TempDir()}
	b := bonds{links: &links{sys: s.root}}
	if got, err := b.LAG(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without debugfs: %v, %v", got, err)
	}
	s.file("kernel/debug/mlx5/0000:03:00.0/lag/state", "active\n")
	s.file("kernel/debug/mlx5/0000:03:00.1/lag/state", "disabled\n")
	s.file("kernel/debug/mlx5/0000:03:00.2/pages/fw", "1\n")
	got, err := b.LAG(t.Context())
	must(t, err)
	if d := cmp.Diff(map[string]nic.LAG{"0000:03:00.0": nic.LAGActive, "0000:03:00.1": nic.LAGInactive}, got); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	must(t, b.AwaitLAG(t.Context(), []string{"0000:03:00.0"}))
}

func FuzzDefaultRoute(f *testing.F) {
	head := []byte{unix.AF_INET, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0}
	f.Add(append(head, netlink.Attr(unix.RTA_OIF, []byte{3, 0, 0, 0}).Serialize()...))
	f.Add(append(head, netlink.Attr(unix.RTA_MULTIPATH, []byte{8, 0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0}).Serialize()...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := defaultThrough(b); len(got)*4 > len(b) {
			t.Errorf("%d interfaces in %d bytes", len(got), len(b))
		}
	})
}
