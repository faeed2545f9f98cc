package sim_test

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// The rules of drivers and kernel that the machine keeps, one line each. What is
// common to all machines stands in hosttest.

// set sets a setting of what "pf 0", "vf 1" or "sf 7" names, of the first PF.
func set(t *testing.T, s *sim.Sim, of string, name nic.Setting, value string) error {
	t.Helper()
	m, p := s.Machine().Settings, observe(t, s).PFs[0]
	kind, n := split(t, of)
	switch kind {
	case "vf":
		return m.SetVF(t.Context(), p, n, name, value)
	case "sf":
		return m.SetSF(t.Context(), p, n, name, value)
	}
	return m.SetPF(t.Context(), p, name, value)
}

// get is the value that is read; "" when the setting is not offered.
func get(t *testing.T, s *sim.Sim, of string, name nic.Setting) string {
	t.Helper()
	p := observe(t, s).PFs[0]
	kind, n := split(t, of)
	switch {
	case kind == "vf" && n < len(p.VFs):
		return p.VFs[n].Settings[name]
	case kind == "sf" && p.SF(n) != nil:
		return p.SF(n).Settings[name]
	case kind == "pf":
		return p.Settings[name]
	}
	return ""
}

func split(t *testing.T, of string) (kind string, n int) {
	t.Helper()
	kind, digits, _ := strings.Cut(of, " ")
	if len(digits) != 1 {
		t.Fatalf("%q", of)
	}
	return kind, int(digits[0] - '0')
}

const (
	legacy    = "mlx5:numvfs=2"
	switchdev = "mlx5:numvfs=2,mode=switchdev"
	unbound   = "mlx5:numvfs=2,mode=switchdev,autoprobe=off"
	withSF    = "mlx5:mode=switchdev,numsfs=1"
	ib        = "mlx5:link=infiniband,numvfs=2"
)

func TestSettingRules(t *testing.T) {
	const no, bad, busy = syscall.EOPNOTSUPP, syscall.EINVAL, syscall.EBUSY
	for _, c := range []struct {
		spec, of    string
		name        nic.Setting
		first       string // what is read before; "" not offered
		value       string
		errno       syscall.Errno
		ext, source string
	}{
		// mlx5/core/eswitch_offloads.c
		{legacy, "pf 0", nic.InlineMode, "none", "link", no, "mlx5_core: Inline mode can't be set", "mlx5_devlink_eswitch_inline_mode_set"},
		{legacy, "pf 0", nic.EncapMode, "basic", "none", 0, "", "mlx5_devlink_eswitch_encap_mode_set"},
		{switchdev, "pf 0", nic.EncapMode, "basic", "none", 0, "", ""},
		{"ice", "pf 0", nic.EncapMode, "", "none", no, "", "ice_devlink_ops has none"},
		{"igb", "pf 0", nic.EncapMode, "", "none", no, "", ""},
		{switchdev, "vf 0", nic.RoCE, "on", "off", bad, "mlx5_core: Failed setting HCA roce cap", "SET_HCA_CAP under a driver"},
		{unbound, "vf 0", nic.RoCE, "on", "off", 0, "", "mlx5_devlink_port_fn_roce_set"},
		{legacy, "vf 0", nic.RoCE, "", "off", no, "", "the VF has no port"},
		{switchdev, "vf 0", nic.EventQueues, "120", "8", bad, "mlx5_core: Failed setting HCA caps", "mlx5_devlink_port_fn_max_io_eqs_set"},
		{unbound, "vf 0", nic.EventQueues, "120", "8", 0, "", ""},
		{unbound, "vf 0", nic.EventQueues, "120", "4294967295", bad, "mlx5_core: Supplied value out of range", ""},
		{withSF, "sf 1", nic.RoCE, "on", "off", bad, "mlx5_core: Failed setting HCA roce cap", ""},
		{withSF, "sf 1", nic.EventQueues, "8", "16", bad, "mlx5_core: Failed setting HCA caps", "MLX5_ESW_DEFAULT_SF_COMP_EQS"},
		// mlx5/core/fs_core.c
		{legacy, "pf 0", nic.SteeringMode, "dmfs", "smfs", 0, "", "mlx5_fs_mode_validate"},
		{legacy, "pf 0", nic.SteeringMode, "dmfs", "hmfs", no, "mlx5_core: Hardware steering is not supported by current device", ""},
		{switchdev, "pf 0", nic.SteeringMode, "dmfs", "smfs", no, "mlx5_core: Changing fs mode is not supported when eswitch offloads enabled.", ""},
		// mlx5/core/devlink.c
		{"mlx5", "pf 0", nic.RoCE, "on", "off", 0, "", "enable_roce and a reload"},
		{legacy, "pf 0", nic.RoCE, "on", "off", busy, "it takes a reload, which VFs and switchdev mode do not outlive", ""},
		{"mlx5:mode=switchdev", "pf 0", nic.RoCE, "on", "off", busy, "it takes a reload, which VFs and switchdev mode do not outlive", ""},
		{"mlx5+bond:name=b,members=0.0/0.1", "pf 0", nic.RoCE, "on", "off", no, "mlx5_core: Multi port slave/Lag device can't configure RoCE", "mlx5_devlink_enable_roce_validate"},
		// mlx5/core/esw/legacy.c
		{legacy, "vf 0", nic.Trust, "off", "on", 0, "", "mlx5_eswitch_set_vport_trust"},
		{legacy, "vf 0", nic.SpoofCheck, "off", "on", 0, "", "mlx5_eswitch_set_vport_spoofchk"},
		{legacy, "vf 0", nic.LinkState, "auto", "disable", 0, "", "mlx5_eswitch_set_vport_state"},
		{legacy, "vf 0", nic.VLAN, "0", "7/3", 0, "", "mlx5_eswitch_set_vport_vlan"},
		{legacy, "vf 0", nic.VLAN, "0", "7/802.1ad", syscall.EPROTONOSUPPORT, "", "mlx5e_set_vf_vlan"},
		{legacy, "vf 0", nic.VLAN, "0", "4095", bad, `"4095": want ID[/QOS][/802.1ad], for example 7/3`, "rtnetlink: over 4094"},
		{switchdev, "vf 0", nic.Trust, "", "on", no, "", "EOPNOTSUPP unless MLX5_ESWITCH_LEGACY"},
		{switchdev, "vf 0", nic.SpoofCheck, "", "on", no, "", ""},
		{switchdev, "vf 0", nic.LinkState, "", "enable", no, "", ""},
		{switchdev, "vf 0", nic.VLAN, "", "7", no, "", ""},
		{"ice:numvfs=1", "vf 0", nic.VLAN, "0", "7/802.1ad", 0, "", "ice_set_vf_port_vlan"},
		{"ice:numvfs=1", "vf 0", nic.SpoofCheck, "on", "off", 0, "", "ice_set_vf_spoofchk"},
		{"ice:numvfs=1,mode=switchdev", "vf 0", nic.Trust, "", "on", no, "", "ice_set_vf_trust"},
		{"igb:numvfs=1", "vf 0", nic.Trust, "off", "on", 0, "", "igb_ndo_set_vf_trust"},
		{"igb:numvfs=1", "vf 0", nic.LinkState, "", "enable", no, "", "no ndo_set_vf_link_state"},
		{"generic:numvfs=1", "vf 0", nic.Trust, "off", "on", 0, "", ""},
		// mlx5/core/esw/qos.c; net/core/rtnetlink.c
		{switchdev, "vf 0", nic.MaxRate, "0", "100000", 0, "", "mlx5_esw_devlink_rate_leaf_tx_max_set"},
		{switchdev, "vf 0", nic.MaxRate, "0", "100001", bad, "mlx5_core: TX rate value exceed link maximum speed", "mlx5_esw_qos_link_speed_verify"},
		{switchdev, "vf 0", nic.MinRate, "0", "100001", bad, "mlx5_core: TX rate value exceed link maximum speed", ""},
		{withSF, "sf 1", nic.MaxRate, "0", "500", 0, "", ""},
		{legacy, "vf 0", nic.MaxRate, "0", "100001", 0, "", "mlx5_esw_qos_set_vport_rate asks for no speed"},
		{"igb:numvfs=1", "vf 0", nic.MinRate, "", "10", no, "", "igb_ndo_set_vf_bw: EINVAL"},
		{"igb:numvfs=1", "vf 0", nic.MaxRate, "0", "1001", bad, "", "igb_ndo_set_vf_bw"},
		{"generic:numvfs=1,mode=switchdev", "vf 0", nic.MaxRate, "", "10", no, "", "no devlink rate"},
		// the netdev's own: ethtool, net/core/rtnetlink.c
		{legacy, "pf 0", nic.Channels, "16", "8", 0, "", ""},
		{switchdev, "pf 0", nic.Channels, "1", "16", 0, "", "MLX5E_REP_PARAMS_DEF_NUM_CHANNELS"},
		{legacy, "pf 0", nic.Channels, "16", "17", bad, "requested channel count exceeds maximum", "ethnl_set_channels"},
		{legacy, "vf 0", nic.Channels, "11", "0", bad, "requested channel count exceeds maximum", ""},
		{legacy, "vf 0", nic.RxRing, "1024", "8192", 0, "", "mlx5e_ethtool_set_ringparam"},
		{legacy, "vf 0", nic.RxRing, "1024", "16384", bad, "requested ring size exceeds maximum", "ethnl_set_rings"},
		{legacy, "vf 0", nic.TxRing, "1024", "1", bad, "tx-ring (1) < min (64)", ""},
		{legacy, "vf 0", nic.RxRing, "1024", "1000", 0, "the driver would make it 1024", "order_base_2"},
		{"ice", "pf 0", nic.RxRing, "2048", "1000", 0, "the driver would make it 1024", "ICE_REQ_DESC_MULTIPLE"},
		{"igb:numvfs=1", "vf 0", nic.Channels, "", "1", no, "", "igbvf has no set_channels"},
		{legacy, "pf 0", nic.GSOMax, "65536", "524280", 0, "", "GSO_MAX_SIZE"},
		{legacy, "pf 0", nic.GSOMax, "65536", "524281", bad, "too big gso_max_size", "validate_linkmsg"},
		{"ice:numvfs=1", "pf 0", nic.GSOMax, "65536", "131073", bad, "too big gso_max_size", "ICE_MAX_TSO_SIZE"},
		{"ice:numvfs=1", "vf 0", nic.GSOMaxIPv4, "65536", "65537", bad, "too big gso_ipv4_max_size", "TSO_LEGACY_MAX_SIZE"},
		{"igb", "pf 0", nic.GROMax, "65536", "524280", 0, "", "GRO_MAX_SIZE, whatever the device"},
		{"igb", "pf 0", nic.GROMaxIPv4, "65536", "524281", bad, "too big gro_ipv4_max_size", ""},
		{unbound, "vf 0", nic.GSOMax, "", "65536", no, "", "it has no netdev"},
		{legacy, "pf 0", nic.TCOffload, "off", "on", 0, "", "mlx5e_build_nic_netdev"},
		{"igb", "pf 0", nic.TCOffload, "", "on", no, "", "82576 has no NETIF_F_HW_TC"},
		{legacy, "pf 0", nic.LinkMTU, "1500", "9978", 0, "", ""},
		{legacy, "pf 0", nic.LinkMTU, "1500", "9979", bad, "mtu greater than device maximum", "dev_validate_mtu"},
		{legacy, "pf 0", nic.AdminLink, "up", "down", 0, "", ""},
		// vDPA, InfiniBand
		{switchdev, "vf 0", nic.VDPA, "none", "vhost", 0, "", "mlx5_vnet_supported"},
		{unbound, "vf 0", nic.VDPA, "", "vhost", no, "", ""},
		{legacy, "vf 0", nic.VDPA, "", "vhost", no, "", ""},
		{switchdev, "pf 0", nic.VDPA, "", "vhost", no, "", "never of a PF"},
		{ib, "vf 0", nic.NodeGUID, "00:00:00:00:00:00:00:00", "02:00:00:00:00:00:00:01", 0, "", "mlx5_ib_set_vf_guid"},
		{ib, "vf 0", nic.PortGUID, "00:00:00:00:00:00:00:00", "2:1", bad, "", ""},
		{ib, "vf 0", nic.LinkState, "auto", "enable", 0, "", "mlx5_ib_set_vf_link_state"},
		{ib, "vf 0", nic.Trust, "", "on", no, "", ""},
		{ib, "pf 0", nic.EncapMode, "", "none", no, "", "mlx5_eswitch_check"},
		{legacy, "vf 0", nic.NodeGUID, "", "02:00:00:00:00:00:00:01", no, "", "ipoib only"},
		{"mlx5:numvfs=1+machine:settings=off", "vf 0", nic.Trust, "", "on", no, "", ""},
	} {
		s := parse(t, c.spec)
		if got := get(t, s, c.of, c.name); got != c.first {
			t.Errorf("%s of %s of %s is %q: want %q (%s)", c.name, c.of, c.spec, got, c.first, c.source)
		}
		err := set(t, s, c.of, c.name, c.value)
		want := c.value
		if c.errno != 0 || c.ext != "" {
			want = c.first
			if c.errno != 0 && !errors.Is(err, c.errno) || err == nil || c.ext != "" && errExt(err) != c.ext {
				t.Errorf("%s %s of %s of %s: %v: want %v, %q (%s)", c.name, c.value, c.of, c.spec, err, c.errno, c.ext, c.source)
			}
		} else if err != nil {
			t.Errorf("%s of %s of %s: %v (%s)", c.name, c.of, c.spec, err, c.source)
		}
		if got := get(t, s, c.of, c.name); got != want {
			t.Errorf("%s of %s of %s is %q in the end: want %q (%s)", c.name, c.of, c.spec, got, want, c.source)
		}
	}
}

// TestRatePair: rates of legacy mode go down together, and are checked together.
func TestRatePair(t *testing.T) {
	s := parse(t, legacy)
	must(t, set(t, s, "vf 0", nic.MaxRate, "100"))
	if err := set(t, s, "vf 0", nic.MinRate, "101"); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("a least rate over the most: %v", err)
	}
	must(t, set(t, s, "vf 0", nic.MinRate, "50"))
	if err := set(t, s, "vf 0", nic.MaxRate, "49"); !errors.Is(err, host.ErrInvalid) {
		t.Errorf("a most under the least: %v", err)
	}
	must(t, set(t, s, "vf 0", nic.MaxRate, "0"))
}

// TestWhatEnds: what is set ends with what holds it.
func TestWhatEnds(t *testing.T) {
	ctx := t.Context()
	count := func(m host.Machine) error {
		return errors.Join(m.PCI.SetVFs(ctx, pf0, 0), m.PCI.SetVFs(ctx, pf0, 2))
	}
	mode := func(modes ...nic.Eswitch) func(m host.Machine) error {
		return func(m host.Machine) error {
			for _, e := range modes {
				if err := m.Devlink.SetEswitch(ctx, nic.PCI(pf0), e); err != nil {
					return err
				}
			}
			return nil
		}
	}
	rebind := func(m host.Machine) error {
		const vf = "0000:03:00.2"
		return errors.Join(m.PCI.Unbind(ctx, vf), m.PCI.Bind(ctx, vf, ""))
	}
	for _, c := range []struct {
		spec, of string
		name     nic.Setting
		value    string
		what     string
		do       func(m host.Machine) error
		after    string
	}{
		{legacy, "vf 0", nic.Trust, "on", "count", count, "off"},
		{legacy, "vf 0", nic.VLAN, "7", "count", count, "0"},
		{unbound, "vf 0", nic.RoCE, "off", "count", count, "on"},
		{unbound, "vf 0", nic.MaxRate, "100", "count", count, "0"},
		{legacy, "vf 0", nic.Trust, "on", "switchdev", mode(nic.Switchdev), ""},
		{legacy, "vf 0", nic.Trust, "on", "both modes", mode(nic.Switchdev, nic.Legacy), "on"},
		{legacy, "vf 0", nic.VLAN, "7", "both modes", mode(nic.Switchdev, nic.Legacy), "7"},
		{legacy, "vf 0", nic.MaxRate, "100", "switchdev", mode(nic.Switchdev), "0"}, // esw_vport_cleanup
		{unbound, "vf 0", nic.MaxRate, "100", "legacy", mode(nic.Legacy), "0"},
		{legacy, "vf 0", nic.MinRate, "100", "switchdev", mode(nic.Switchdev), "0"},
		{unbound, "vf 0", nic.RoCE, "off", "both modes", mode(nic.Legacy, nic.Switchdev), "off"},
		{legacy, "vf 0", nic.Channels, "2", "bind", rebind, "11"},
		{legacy, "vf 0", nic.RxRing, "512", "bind", rebind, "1024"},
		{legacy, "vf 0", nic.GSOMax, "131072", "bind", rebind, "65536"},
		{legacy, "vf 0", nic.Trust, "on", "bind", rebind, "on"},
		{switchdev, "vf 0", nic.VDPA, "vhost", "bind", rebind, "none"},
		{legacy, "vf 0", nic.Channels, "2", "switchdev", mode(nic.Switchdev), "2"},
		{legacy, "pf 0", nic.EncapMode, "none", "both modes", mode(nic.Switchdev, nic.Legacy), "none"},
		{legacy, "pf 0", nic.EncapMode, "none", "count", count, "none"},
		{legacy, "pf 0", nic.SteeringMode, "smfs", "switchdev", mode(nic.Switchdev), "smfs"},
		{legacy, "pf 0", nic.TCOffload, "on", "both modes", mode(nic.Switchdev, nic.Legacy), "on"},
		{legacy, "pf 0", nic.LinkMTU, "9000", "switchdev", mode(nic.Switchdev), "9000"},
		{legacy, "pf 0", nic.GSOMax, "131072", "switchdev", mode(nic.Switchdev), "131072"},
		{legacy, "pf 0", nic.Channels, "8", "switchdev", mode(nic.Switchdev), "1"}, // mlx5e_build_rep_params
		{legacy, "pf 0", nic.Channels, "8", "both modes", mode(nic.Switchdev, nic.Legacy), "16"},
		{legacy, "pf 0", nic.RxRing, "512", "switchdev", mode(nic.Switchdev), "1024"},
		{"mlx5", "pf 0", nic.LinkMTU, "9000", "reload", func(m host.Machine) error {
			return m.Settings.SetPF(ctx, nic.PF{Handle: nic.PCI(pf0)}, nic.RoCE, "off")
		}, "1500"},
		{withSF, "sf 1", nic.MaxRate, "100", "inactive", func(m host.Machine) error {
			return m.Devlink.SetSFActive(ctx, nic.PCI(pf0), 0x8000, false)
		}, "100"},
		{withSF, "sf 1", nic.Channels, "2", "activate anew", func(m host.Machine) error {
			return errors.Join(
				m.Devlink.SetSFActive(ctx, nic.PCI(pf0), 0x8000, false), m.Devlink.SetSFActive(ctx, nic.PCI(pf0), 0x8000, true),
			)
		}, "8"},
		{withSF, "sf 1", nic.MaxRate, "100", "both modes", mode(nic.Legacy, nic.Switchdev), ""},
	} {
		s := parse(t, c.spec)
		must(t, set(t, s, c.of, c.name, c.value))
		must(t, c.do(s.Machine()))
		if got := get(t, s, c.of, c.name); got != c.after {
			t.Errorf("%s: %s %s of %s is %q after %s: want %q", c.spec, c.name, c.value, c.of, got, c.what, c.after)
		}
	}
}

// The event queues that a VF is bound with bound its channels.
func TestEventQueuesBoundChannels(t *testing.T) {
	s := parse(t, unbound)
	must(t, set(t, s, "vf 0", nic.EventQueues, "4"))
	must(t, s.Machine().PCI.Bind(t.Context(), "0000:03:00.2", ""))
	if got := observe(t, s).PFs[0].VFs[0]; got.Settings[nic.Channels] != "4" || got.Limits[nic.Channels] != 4 {
		t.Errorf("%v %v", got.Settings, got.Limits)
	}
}

// InfiniBand: no eswitch, no devlink port, names and GUIDs of its own.
func TestInfiniBand(t *testing.T) {
	s := parse(t, ib)
	p := observe(t, s).PFs[0]
	if !p.InfiniBand || p.Eswitch != "" || p.Uplink.Name != "ibp3s0f0" || p.VFs[0].Netdev.Name != "ibp3s0f0v0" || p.Uplink.MTU != 2044 {
		t.Errorf("%+v", p)
	}
	if err := s.Machine().Devlink.SetEswitch(t.Context(), p.Handle, nic.Switchdev); !errors.Is(err, host.ErrNotSupported) {
		t.Error(err)
	}
	if err := s.Machine().Links.SetVFMAC(t.Context(), p.Uplink.Ifindex, 0, nic.MAC{2}); !errors.Is(err, host.ErrNotSupported) {
		t.Error(err)
	}
	const guid = "02:00:00:00:00:00:00:01"
	must(t, set(t, s, "vf 1", nic.NodeGUID, guid))
	guids, vf := map[string]string{}, p.VFs[1].Address
	early, err := s.Machine().RDMA.Devices(t.Context())
	must(t, err)
	for _, d := range early {
		guids[d.Parent] = d.NodeGUID
	}
	if guids[vf] != "00:00:00:00:00:00:00:00" {
		t.Errorf("a VF that is bound has taken a GUID: %v", guids)
	}
	must(t, s.Machine().PCI.Unbind(t.Context(), vf))
	must(t, s.Machine().PCI.Bind(t.Context(), vf, ""))
	devices, err := s.Machine().RDMA.Devices(t.Context())
	must(t, err)
	for _, d := range devices {
		if len(d.Ports) != 1 || d.Ports[0].LinkLayer != "InfiniBand" {
			t.Errorf("%+v", d)
		}
		guids[d.Parent] = d.NodeGUID
	}
	if guids[p.VFs[1].Address] != guid || guids[p.VFs[0].Address] != "00:00:00:00:00:00:00:00" || guids[pf0] == guids[p.VFs[0].Address] {
		t.Errorf("%v", guids)
	}
}

// A card of a driver that nobody knows: VFs first, and no mode without them.
func TestGeneric(t *testing.T) {
	s := parse(t, "generic")
	m, h := s.Machine(), nic.PCI(pf0)
	err := m.Devlink.SetEswitch(t.Context(), h, nic.Switchdev)
	if !errors.Is(err, syscall.EPERM) || errExt(err) != "generic: Enable VFs before setting switchdev mode" {
		t.Error(err)
	}
	must(t, m.PCI.SetVFs(t.Context(), pf0, 2))
	must(t, m.Devlink.SetEswitch(t.Context(), h, nic.Switchdev))
	if p := observe(t, s).PFs[0]; !p.VFs[1].Rep.Exists() || p.VFs[1].Rep.Port != 129 {
		t.Errorf("%+v", p.VFs)
	}
	must(t, m.PCI.SetVFs(t.Context(), pf0, 0))
	if p := observe(t, s).PFs[0]; p.Eswitch != nic.Legacy {
		t.Errorf("mode %s without VFs", p.Eswitch)
	}
}

func TestSFLimit(t *testing.T) {
	s := parse(t, "mlx5:mode=switchdev,sfs=2")
	d, h := s.Machine().Devlink, nic.PCI(pf0)
	must(t, d.AddSF(t.Context(), h, 7))
	must(t, d.AddSF(t.Context(), h, 0))
	if err := d.AddSF(t.Context(), h, 8); !errors.Is(err, host.ErrExhausted) {
		t.Error(err)
	}
	if err := d.AddSF(t.Context(), h, 7); !errors.Is(err, fs.ErrExist) || errExt(err) != "mlx5_core: SF already exist. Choose different sfnum" {
		t.Error(err)
	}
	must(t, d.AddSF(t.Context(), nic.PCI("0000:03:00.1"), 7))
	must(t, d.SetSFActive(t.Context(), nic.PCI("0000:03:00.1"), 0x18000, true))
	must(t, d.SetSFActive(t.Context(), h, 0x8001, true))
	var got []string
	st := observe(t, s)
	for _, p := range st.PFs {
		for _, f := range p.SFs {
			got = append(got, f.Device)
		}
	}
	if diff := cmp.Diff([]string{"mlx5_core.sf.3", "", "mlx5_core.sf.2"}, got); diff != "" {
		t.Error(diff)
	}
	// An SF is removed in whatever state it is (mlx5_sf_dealloc), and its place is free.
	must(t, d.DelSF(t.Context(), h, 0x8001))
	must(t, d.AddSF(t.Context(), h, 8))
	if p := observe(t, s).PFs[0]; p.SF(8) == nil || p.SF(8).Port != 0x8001 || p.SF(0) != nil {
		t.Errorf("%+v", p.SFs)
	}
	err := parse(t, "mlx5").Machine().Devlink.AddSF(t.Context(), h, 1)
	if !errors.Is(err, host.ErrNotSupported) || errExt(err) != "mlx5_core: SF ports are only supported in eswitch switchdev mode." {
		t.Error(err)
	}
}

// An SF has a devlink instance of its own, which is no PF.
func TestSFInstance(t *testing.T) {
	s := parse(t, withSF)
	own := nic.Handle{Bus: "auxiliary", Name: "mlx5_core.sf.2"}
	ports, err := s.Machine().Devlink.Ports(t.Context())
	must(t, err)
	n := 0
	for _, p := range ports {
		if p.Handle == own {
			n++
			if p.Flavour != "virtual" || p.Ifindex != observe(t, s).PFs[0].SF(1).Netdev.Ifindex {
				t.Errorf("%+v", p)
			}
		}
	}
	if n != 1 {
		t.Errorf("%d ports of %s", n, own)
	}
	if err := s.Machine().Devlink.SetEswitch(t.Context(), own, nic.Switchdev); !errors.Is(err, syscall.EPERM) {
		t.Error(err)
	}
}

// TestLAGRules: mlx5/core/lag/lag.c.
func TestLAGRules(t *testing.T) {
	const pf1 = "0000:03:00.1"
	ctx := t.Context()
	nothing := func(host.Machine, *nic.State) error { return nil }
	for _, c := range []struct {
		what, spec string
		do         func(m host.Machine, st *nic.State) error
		want       nic.LAG
		why        string // of AwaitLAG, about the first port
	}{
		{"both ports in switchdev mode", "mlx5:mode=switchdev+bond:name=b,members=0.0/0.1", nothing, nic.LAGActive, ""},
		{"balance-xor", "mlx5:mode=switchdev+bond:name=b,members=0.0/0.1,mode=balance-xor", nothing, nic.LAGActive, ""},
		{"802.3ad", "mlx5:mode=switchdev+bond:name=b,members=0.0/0.1,mode=802.3ad", nothing, nic.LAGActive, ""},
		{"legacy mode without VFs", "mlx5+bond:name=b,members=0.0/0.1", nothing, nic.LAGActive, ""},
		{"legacy mode with VFs", "mlx5:numvfs=1+bond:name=b,members=0.0/0.1", nothing, nic.LAGInactive, "there are VFs in legacy mode"},
		{"one port", "mlx5:mode=switchdev+bond:name=b,members=0.0", nothing, nic.LAGInactive, "the ports are not in one bond"},
		{"ports of two cards", "mlx5:cards=2,mode=switchdev+bond:name=b,members=0.0/1.1", nothing, nic.LAGInactive, "the ports are not in one bond"},
		{"two bonds", "mlx5:mode=switchdev+bond:name=b,members=0.0+bond:name=c,members=0.1", nothing, nic.LAGInactive, "the ports are not in one bond"},
		{"three ports", "mlx5:cards=2,mode=switchdev+bond:name=b,members=0.0/0.1/1.0", nothing, nic.LAGInactive, "the bond has another member, enp19s0f0np0"},
		{"a driver that says nothing", "ice:mode=switchdev+bond:name=b,members=0.0/0.1", nothing, "", "its driver tells nothing"},
		{"a card of one port", "mlx5:cards=2,ports=1,mode=switchdev+bond:name=b,members=0.0/1.0", nothing, nic.LAGInactive, "the card has not two Ethernet ports"},
		{"never", "mlx5:mode=switchdev+machine:lag=never+bond:name=b,members=0.0/0.1", nothing, nic.LAGInactive, "the driver has not done it"},
		{"unequal modes", "mlx5:mode=switchdev+bond:name=b,members=0.0/0.1", func(m host.Machine, _ *nic.State) error {
			return m.Devlink.SetEswitch(ctx, nic.PCI(pf1), nic.Legacy)
		}, nic.LAGInactive, "one port is in switchdev mode, the other in legacy mode"},
		{"unequal modes, by the port that has the RDMA device", "mlx5:mode=switchdev+bond:name=b,members=0.0/0.1", func(m host.Machine, _ *nic.State) error {
			return m.Devlink.SetEswitch(ctx, nic.PCI(pf0), nic.Legacy)
		}, nic.LAGInactive, "one port is in legacy mode, the other in switchdev mode"},
		{"modes equal again", "mlx5:mode=switchdev+bond:name=b,members=0.0/0.1", func(m host.Machine, _ *nic.State) error {
			return errors.Join(m.Devlink.SetEswitch(ctx, nic.PCI(pf1), nic.Legacy), m.Devlink.SetEswitch(ctx, nic.PCI(pf1), nic.Switchdev))
		}, nic.LAGActive, ""},
		{"VFs bound meanwhile", "mlx5:mode=switchdev,numvfs=2+bond:name=b,members=0.0/0.1", nothing, nic.LAGActive, ""},
		{"VFs bound when it is to begin", "mlx5:mode=switchdev,numvfs=2+bond:name=b,members=0.0", func(m host.Machine, st *nic.State) error {
			return m.Bonds.Enslave(ctx, st.Bonds[0].Ifindex, st.PF(nic.PCI(pf1)).Uplink.Ifindex)
		}, nic.LAGInactive, "VFs were bound when it was to begin"},
		{"VFs unbound after that, which nobody looks at", "mlx5:mode=switchdev,numvfs=1+bond:name=b,members=0.0", func(m host.Machine, st *nic.State) error {
			return errors.Join(
				m.Bonds.Enslave(ctx, st.Bonds[0].Ifindex, st.PF(nic.PCI(pf1)).Uplink.Ifindex),
				m.PCI.Unbind(ctx, st.PFs[0].VFs[0].Address), m.PCI.Unbind(ctx, st.PFs[1].VFs[0].Address),
			)
		}, nic.LAGInactive, "the driver has not done it"},
		{"put in anew", "mlx5:mode=switchdev,numvfs=1+bond:name=b,members=0.0", func(m host.Machine, st *nic.State) error {
			b, port := st.Bonds[0].Ifindex, st.PF(nic.PCI(pf1)).Uplink.Ifindex
			return errors.Join(
				m.Bonds.Enslave(ctx, b, port),
				m.PCI.Unbind(ctx, st.PFs[0].VFs[0].Address), m.PCI.Unbind(ctx, st.PFs[1].VFs[0].Address),
				m.Bonds.Release(ctx, b, port), m.Bonds.Enslave(ctx, b, port),
			)
		}, nic.LAGActive, ""},
		{"VFs in legacy mode", "mlx5+bond:name=b,members=0.0/0.1", func(m host.Machine, _ *nic.State) error {
			return m.PCI.SetVFs(ctx, pf1, 1)
		}, nic.LAGInactive, "there are VFs in legacy mode"},
		{"a third member", "mlx5:cards=2,mode=switchdev+bond:name=b,members=0.0/0.1", func(m host.Machine, st *nic.State) error {
			return m.Bonds.Enslave(ctx, st.Bonds[0].Ifindex, st.PFs[2].Uplink.Ifindex)
		}, nic.LAGInactive, "the bond has another member, enp19s0f0np0"},
		{"other RoCE", "mlx5+bond:name=b,members=0.0", func(m host.Machine, st *nic.State) error {
			return errors.Join(
				m.Settings.SetPF(ctx, *st.PF(nic.PCI(pf1)), nic.RoCE, "off"),
				func() error {
					after, err := host.Observe(ctx, m)
					return errors.Join(err, m.Bonds.Enslave(ctx, st.Bonds[0].Ifindex, after.PF(nic.PCI(pf1)).Uplink.Ifindex))
				}(),
			)
		}, nic.LAGInactive, "one port has RoCE, the other not"},
		{"the firmware does not", "mlx5:mode=switchdev+fail:verb=activate LAG,times=-1+bond:name=b,members=0.0", func(m host.Machine, st *nic.State) error {
			return m.Bonds.Enslave(ctx, st.Bonds[0].Ifindex, st.PF(nic.PCI(pf1)).Uplink.Ifindex)
		}, nic.LAGInactive, "the driver has not done it"},
	} {
		s := parse(t, c.spec)
		if err := c.do(s.Machine(), observe(t, s)); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		s.SetClock(&sim.Jump{})
		if err := s.Machine().Bonds.AwaitLAG(ctx, []string{pf0}); c.why == "" && err != nil ||
			c.why != "" && (!errors.Is(err, host.ErrNotActive) || errExt(err) != pf0+": "+c.why) {
			t.Errorf("%s: %v: want %q", c.what, err, c.why)
		}
		st := observe(t, s)
		bonded, own := 0, map[string]int{}
		for _, p := range st.PFs[:2] {
			if p.LAG != c.want {
				t.Errorf("%s: LAG of %s is %q: want %q", c.what, p.Handle, p.LAG, c.want)
			}
		}
		devices, err := s.Machine().RDMA.Devices(ctx)
		must(t, err)
		for _, d := range devices {
			own[d.Parent]++
			if strings.HasPrefix(d.Name, "mlx5_bond_") {
				bonded++
				if d.Name != "mlx5_bond_0" || d.Parent != pf0 {
					t.Errorf("%s: %+v", c.what, d)
				}
			}
		}
		if (bonded == 1) != (c.want == nic.LAGActive) || own[pf0] != 1 || own[st.PFs[1].Handle.Name] != 1-bonded {
			t.Errorf("%s: LAG %q and RDMA devices %+v", c.what, c.want, devices)
		}
	}
}

// LAG comes some time after its bond, and those who watch are told.
func TestLAGDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parse(t, "mlx5:mode=switchdev+machine:lag=3s+bond:name=b,members=0.0")
		m, st := s.Machine(), observe(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := m.Watch.Changes(ctx)
		must(t, err)
		start := time.Now()
		must(t, m.Bonds.Enslave(t.Context(), st.Bonds[0].Ifindex, st.PFs[1].Uplink.Ifindex))
		<-c
		if lag := observe(t, s).PFs[0].LAG; lag != nic.LAGInactive {
			t.Errorf("LAG is %s at once", lag)
		}
		if <-c; time.Since(start) != 3*time.Second {
			t.Errorf("told after %v", time.Since(start))
		}
		must(t, m.Bonds.AwaitLAG(t.Context(), []string{pf0}))
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("it took %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := parse(t, "mlx5:mode=switchdev+machine:lag=never+bond:name=b,members=0.0/0.1")
		start := time.Now()
		err := s.Machine().Bonds.AwaitLAG(t.Context(), []string{pf0})
		if d := time.Since(start); !errors.Is(err, host.ErrNotActive) || d != 5*time.Second {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

// The active member is kept while it has carrier (bond_find_best_slave).
func TestActiveMember(t *testing.T) {
	s := parse(t, "mlx5+bond:name=b,members=0.0/0.1")
	for i, step := range []struct {
		port int
		on   bool
		want int // port that is active; -1 none
	}{{0, true, 0}, {1, false, 0}, {0, false, -1}, {1, true, 1}, {0, true, 1}, {1, false, 0}} {
		must(t, s.SetCarrier(observe(t, s).PFs[step.port].Handle, step.on))
		st, want := observe(t, s), ""
		if step.want >= 0 {
			want = st.PFs[step.want].Uplink.Name
		}
		if b := st.Bonds[0]; b.Active != want || b.Carrier != (want != "") {
			t.Errorf("step %d: active %q, carrier %v: want %q", i, b.Active, b.Carrier, want)
		}
	}
}

// A bond does not leave its namespace (bond_setup, netns_immutable); a member does, and
// its bond.
func TestBondPinned(t *testing.T) {
	s := parse(t, "mlx5+bond:name=b,members=0.0/0.1")
	must(t, s.AddNetns("/run/netns/a"))
	st, l := observe(t, s), s.Machine().Links
	if err := l.Move(t.Context(), st.Bonds[0].Ifindex, "/run/netns/a"); !errors.Is(err, host.ErrNotSupported) {
		t.Error(err)
	}
	must(t, l.Move(t.Context(), st.PFs[1].Uplink.Ifindex, "/run/netns/a"))
	if b := observe(t, s).Bonds[0]; len(b.Members) != 1 || len(b.Others) != 0 {
		t.Errorf("%+v", b)
	}
}

// Only the main table leads anywhere, the longest prefix first, then the least metric.
func TestRouteTo(t *testing.T) {
	s := parse(t, "mlx5+uses:port=0,address=192.0.2.7/24,what=default-route+uses:port=1,address=198.51.100.7/24")
	l, st := s.Machine().Links, observe(t, s)
	a, b := st.PFs[0].Uplink.Ifindex, st.PFs[1].Uplink.Ifindex
	route := func(on int, dst string, metric, table int) {
		must(t, l.AddRoute(t.Context(), on, host.Route{Dst: netip.MustParsePrefix(dst), Priority: metric, Table: table}))
	}
	route(b, "203.0.113.0/24", 0, 100)
	route(b, "10.0.0.0/8", 5, 0)
	route(a, "10.0.0.0/8", 9, 0)
	for to, want := range map[string]int{"203.0.113.1": a, "198.51.100.1": b, "10.1.1.1": b, "192.0.2.1": a} {
		if got, err := l.RouteTo(t.Context(), netip.MustParseAddr(to)); err != nil || got != want {
			t.Errorf("to %s by %d, %v: want %d", to, got, err, want)
		}
	}
}

// TestReboot: what was made at runtime is gone, what configuration files make is there.
func TestReboot(t *testing.T) {
	s := parse(t, "mlx5:numvfs=2,mode=switchdev,numsfs=1,autoprobe=off+igb:bound=off+machine:rdmaboot=exclusive"+
		"+bond:name=theirs,mode=802.3ad,members=0.0/0.1+bond:name=ours,ours=on+uses:bond=theirs,what=default-route")
	must(t, s.AddNetns("/run/netns/a"))
	must(t, set(t, s, "pf 0", nic.EncapMode, "none"))
	s.Inject(sim.Fault{Crash: true})
	_ = s.Machine().PCI.SetVFs(t.Context(), pf0, 0)
	s.Reboot()
	st := observe(t, s)
	for _, p := range st.PFs {
		if len(p.VFs) > 0 || len(p.SFs) > 0 || p.Eswitch == nic.Switchdev || !p.Autoprobe || p.Driver == "" || !p.Uplink.Up {
			t.Errorf("%+v", p)
		}
	}
	if got := get(t, s, "pf 0", nic.EncapMode); got != "basic" {
		t.Errorf("encap mode %q", got)
	}
	if len(st.Bonds) != 1 || st.Bonds[0].Name != "theirs" || len(st.Bonds[0].Members) != 2 || st.Bonds[0].Mode != nic.IEEE8023AD {
		t.Errorf("%+v", st.Bonds)
	}
	if d := cmp.Diff([]string{"address 192.0.2.7/24", "the default route"}, st.PFs[1].Carries); d != "" {
		t.Error(d)
	}
	if st.RDMA != (nic.RDMA{Mode: nic.RDMAExclusive, AtBoot: nic.RDMAExclusive}) {
		t.Errorf("%+v", st.RDMA)
	}
	path := t.TempDir() + "/machine.json"
	must(t, s.Save(path))
	if d := cmp.Diff(st, observe(t, parse(t, "@"+path))); d != "" {
		t.Error(d)
	}
}

// What sluice has not made it does not remove.
func TestForeignBond(t *testing.T) {
	s := parse(t, "mlx5+bond:name=b,mode=802.3ad")
	b, err := s.Machine().Bonds.Bonds(t.Context())
	must(t, err)
	if len(b) != 1 || b[0].Ours || b[0].Miimon != 100 || b[0].LACPRate != "slow" || b[0].Hash != "layer2" {
		t.Errorf("%+v", b)
	}
	if err := s.Machine().Bonds.DelBond(t.Context(), "b"); !errors.Is(err, host.ErrNotSupported) {
		t.Error(err)
	}
}

func TestCarries(t *testing.T) {
	s := parse(t, "mlx5+bond:name=b,members=0.0+uses:bond=b,what=default-route+uses:port=1,address=2001:db8::7/64")
	var got [][]string
	for _, p := range observe(t, s).PFs {
		got = append(got, p.Carries)
	}
	want := [][]string{{"address 192.0.2.7/24", "the default route"}, {"address 2001:db8::7/64"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRDMAModes(t *testing.T) {
	s := parse(t, "mlx5+machine:rdma=exclusive,rdmaboot=shared")
	if got, want := observe(t, s).RDMA, (nic.RDMA{Mode: nic.RDMAExclusive, AtBoot: nic.RDMAShared}); got != want {
		t.Errorf("%+v: want %+v", got, want)
	}
	must(t, s.AddNetns("/run/netns/a"))
	if err := s.Machine().RDMA.SetMode(t.Context(), nic.RDMAShared); !errors.Is(err, host.ErrBusy) {
		t.Error(err)
	}
	must(t, s.Machine().RDMA.SetModeAtBoot(t.Context(), ""))
	if got := observe(t, s).RDMA; !got.Fixed || got.AtBoot != "" {
		t.Errorf("%+v", got)
	}
	if got := observe(t, parse(t, "igb")).RDMA; got != (nic.RDMA{}) {
		t.Errorf("without RDMA: %+v", got)
	}
}

// TestStranger: what another program does is neither counted nor logged, meets no
// fault, goes on after a crash, and is told.
func TestStranger(t *testing.T) {
	s := parse(t, "mlx5:numvfs=1")
	c, err := s.Machine().Watch.Changes(t.Context())
	must(t, err)
	s.Inject(sim.Fault{Times: -1, Crash: true})
	if err := s.Machine().PCI.SetVFs(t.Context(), pf0, 0); !errors.Is(err, sim.ErrCrashed) {
		t.Error(err)
	}
	must(t, s.Stranger(func(m host.Machine) error {
		st, err := host.Observe(t.Context(), m)
		if err != nil {
			return err
		}
		return errors.Join(
			m.Settings.SetVF(t.Context(), st.PFs[0], 0, nic.Trust, "on"),
			m.Bonds.AddBond(t.Context(), nic.BondSpec{Name: "theirs", Mode: nic.BalanceXOR}),
			m.Links.SetMTU(t.Context(), st.PFs[1].Uplink.Ifindex, 9000),
		)
	}))
	for _, want := range []string{"set trust on of pci/0000:03:00.0 vf 0", "add bond balance-xor of theirs", "set mtu 9000 of enp3s0f1np1"} {
		if got := <-c; got.What != want {
			t.Errorf("told %q: want %q", got.What, want)
		}
	}
	if n := s.Writes(); n != 1 || len(s.Log()) != 1 {
		t.Errorf("%d writes: %v", n, s.Log())
	}
	s.Restart()
	s.Heal()
	b, err := s.Machine().Bonds.Bonds(t.Context())
	must(t, err)
	if len(b) != 1 || b[0].Ours || get(t, s, "vf 0", nic.Trust) != "on" {
		t.Errorf("%+v", b)
	}
	err = s.Stranger(func(m host.Machine) error { return m.PCI.SetVFs(t.Context(), pf0, 99) })
	if !errors.Is(err, syscall.ERANGE) {
		t.Error(err)
	}
}

// A slow watcher is told of each thing that has changed; a change of nothing is none.
func TestWatch(t *testing.T) {
	s := parse(t, "mlx5")
	c, err := s.Machine().Watch.Changes(t.Context())
	must(t, err)
	must(t, s.Machine().PCI.SetVFs(t.Context(), pf0, 0)) // so it is
	for n := range 1000 {
		must(t, s.Machine().PCI.SetAutoprobe(t.Context(), pf0, n%2 == 1))
	}
	must(t, s.AddNetns("/run/netns/a"))
	want := host.Thing{Kind: host.OfFunction, Function: pf0}
	told := 0
	for got := <-c; got.What != "netns /run/netns/a"; got = <-c {
		if told++; got.Of != want {
			t.Errorf("told %+v", got)
		}
	}
	if told < 1 || told > 100 { // of the last ones that wait it is told once
		t.Errorf("told %d times", told)
	}
}

// Every verb can be made to fail, before and after its effect, by its name.
func TestFaultOfEachVerb(t *testing.T) {
	ctx := t.Context()
	first := func(st *nic.State) nic.PF { return st.PFs[0] }
	for verb, do := range map[sim.Verb]func(m host.Machine, st *nic.State) error{
		sim.AddSF: func(m host.Machine, _ *nic.State) error { return m.Devlink.AddSF(ctx, nic.PCI(pf0), 9) },
		sim.DelSF: func(m host.Machine, st *nic.State) error {
			return m.Devlink.DelSF(ctx, nic.PCI(pf0), first(st).SFs[0].Port)
		},
		sim.SetSFActive: func(m host.Machine, st *nic.State) error {
			return m.Devlink.SetSFActive(ctx, nic.PCI(pf0), first(st).SFs[0].Port, false)
		},
		sim.AddBond: func(m host.Machine, _ *nic.State) error {
			return m.Bonds.AddBond(ctx, nic.BondSpec{Name: "c", Mode: nic.ActiveBackup})
		},
		sim.DelBond: func(m host.Machine, _ *nic.State) error { return m.Bonds.DelBond(ctx, "empty") },
		sim.Enslave: func(m host.Machine, st *nic.State) error {
			return m.Bonds.Enslave(ctx, st.Bonds[0].Ifindex, st.PFs[1].Uplink.Ifindex)
		},
		sim.Release: func(m host.Machine, st *nic.State) error {
			return m.Bonds.Release(ctx, st.Bonds[0].Ifindex, st.PFs[0].Uplink.Ifindex)
		},
		sim.SetRDMAMode: func(m host.Machine, _ *nic.State) error { return m.RDMA.SetMode(ctx, nic.RDMAExclusive) },
		sim.SetRDMABoot: func(m host.Machine, _ *nic.State) error { return m.RDMA.SetModeAtBoot(ctx, nic.RDMAExclusive) },
		sim.SetOf(nic.TCOffload): func(m host.Machine, st *nic.State) error {
			return m.Settings.SetPF(ctx, first(st), nic.TCOffload, "on")
		},
		sim.SetOf(nic.MaxRate): func(m host.Machine, st *nic.State) error {
			return m.Settings.SetVF(ctx, first(st), 0, nic.MaxRate, "5")
		},
		sim.SetOf(nic.Channels): func(m host.Machine, st *nic.State) error {
			return m.Settings.SetSF(ctx, first(st), 1, nic.Channels, "2")
		},
	} {
		for _, after := range []bool{false, true} {
			s := parse(t, "mlx5:mode=switchdev,numvfs=1,numsfs=1+bond:name=b,members=0.0+bond:name=empty,ours=on")
			before := observe(t, s)
			s.Inject(sim.Fault{Verb: verb, After: after, Errno: syscall.ENOMEM, Ext: "so there"})
			if err := do(s.Machine(), before); !errors.Is(err, host.ErrExhausted) || errExt(err) != "so there" {
				t.Errorf("%s: %v", verb, err)
			}
			if same := cmp.Equal(before, observe(t, s)); same == after {
				t.Errorf("%s: changed %v, although it failed after its effect %v", verb, !same, after)
			}
		}
	}
}
