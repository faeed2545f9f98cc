package policy

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// resolved reads and resolves the spec of a document.
func resolved(t *testing.T, text string, state nic.State) nic.Spec {
	t.Helper()
	spec, err := Resolve(decoded(t, text), state)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func decoded(t *testing.T, text string) *v1alpha1.NodeNIC {
	t.Helper()
	doc, err := Decode([]byte(head + text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func refused(t *testing.T, text string, state nic.State) string {
	t.Helper()
	spec, err := Resolve(decoded(t, text), state)
	if err == nil {
		t.Fatalf("accepted: %v", spec)
	}
	return err.Error()
}

// Every field of a PF, a VF and an SF comes out as the setting that it stands for.
func TestEverySetting(t *testing.T) {
	state := node()
	state.PFs[1].InfiniBand = true // VFs of Ethernet have no GUID
	got := resolved(t, `
  rdma: {netns: exclusive}
  pfs:
  - pf: ens1f1
    eswitch: legacy
    inlineMode: transport
    encapMode: basic
    flowSteering: hmfs
    hwTCOffload: on
    mtu: 9216
    link: up
    roce: off
    channels: 8
    rxRing: 4096
    txRing: 2048
    gsoMaxSize: 185000
    groMaxSize: 186000
    gsoIPv4MaxSize: 187000
    groIPv4MaxSize: 188000
    numVfs: 1
    vfGroups:
    - driver: kernel
      mac: stable
      guid: stable
      mtu: 9000
      roce: true
      eventQueues: 0
      minRate: 500Mbit
      maxRate: 2.5Gbit
      trust: true
      spoofCheck: false
      linkState: enable
      vlan: {id: 100, qos: 3, proto: 802.1ad}
      channels: 2
      rxRing: 512
      txRing: 256
      gsoMaxSize: 65536
      groMaxSize: 65537
      gsoIPv4MaxSize: 1500
      groIPv4MaxSize: 524280
      vdpa: none
    sfs:
    - {range: "20", mac: driver, maxRate: none}
    - range: 3,1-2
      mac: stable
      mtu: 1500
      roce: false
      eventQueues: 16
      minRate: 1Gbit
      maxRate: 10Gbit
      channels: 4
      gsoMaxSize: 131072
`, state)
	pf := state.PFs[1]
	one, mac, guid := 1, StableMAC(pf, 0), StableGUID(pf, 0)
	sf := func(num int) nic.SFSpec {
		mac := StableSFMAC(pf, num)
		return nic.SFSpec{Num: num, MAC: &mac, MTU: 1500, RepMTU: 1500, Settings: nic.Settings{
			nic.RoCE: "off", nic.EventQueues: "16", nic.MinRate: "1000", nic.MaxRate: "10000", nic.Channels: "4", nic.GSOMax: "131072",
		}}
	}
	want := nic.Spec{RDMA: nic.RDMAExclusive, PFs: []nic.PFSpec{{
		Handle: pf.Handle, Named: true, Eswitch: nic.Legacy, VFCount: &one,
		Settings: nic.Settings{
			nic.InlineMode: "transport", nic.EncapMode: "basic", nic.SteeringMode: "hmfs", nic.TCOffload: "on", nic.LinkMTU: "9216",
			nic.AdminLink: "up", nic.RoCE: "off", nic.Channels: "8", nic.RxRing: "4096", nic.TxRing: "2048",
			nic.GSOMax: "185000", nic.GROMax: "186000", nic.GSOMaxIPv4: "187000", nic.GROMaxIPv4: "188000",
		},
		VFs: []nic.VFSpec{{Driver: nic.DriverKernel, MAC: &mac, MTU: 9000, Settings: nic.Settings{
			nic.RoCE: "on", nic.EventQueues: "0", nic.MinRate: "500", nic.MaxRate: "2500", nic.Trust: "on", nic.SpoofCheck: "off",
			nic.LinkState: "enable", nic.VLAN: "100/3/802.1ad", nic.Channels: "2", nic.RxRing: "512", nic.TxRing: "256",
			nic.GSOMax: "65536", nic.GROMax: "65537", nic.GSOMaxIPv4: "1500", nic.GROMaxIPv4: "524280", nic.VDPA: "none",
			nic.NodeGUID: guid, nic.PortGUID: guid,
		}}},
		SFs: &[]nic.SFSpec{sf(1), sf(2), sf(3), {Num: 20, Settings: nic.Settings{nic.MaxRate: "0"}}},
	}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A list of SFs that is empty wants none; one that is left out says nothing.
func TestNoSFsIsNotUnsaid(t *testing.T) {
	if spec := resolved(t, "  pfs: [{pf: ens1f0, sfs: []}]\n", node()); spec.PFs[0].SFs == nil || len(*spec.PFs[0].SFs) != 0 {
		t.Errorf("%v: want an empty list", spec.PFs[0].SFs)
	}
	if spec := resolved(t, "  pfs: [{pf: ens1f0}]\n", node()); spec.PFs[0].SFs != nil {
		t.Errorf("%v: want nothing said", spec.PFs[0].SFs)
	}
}

// Without a netdev of the VF, its MTU is the representor's.
func TestMTUWithoutNetdev(t *testing.T) {
	for _, driver := range []string{"vfio-pci", "none"} {
		spec := resolved(t, "  pfs: [{pf: ens1f0, eswitch: switchdev, vfGroups: [{driver: "+driver+", mtu: 9000}]}]\n", node())
		if d := cmp.Diff(nic.VFSpec{Driver: nic.Driver(driver), RepMTU: 9000}, spec.PFs[0].VFs[1]); d != "" {
			t.Error(d)
		}
	}
	// In legacy mode, wanted or as it is, there is nobody to take it.
	for _, mode := range []string{"eswitch: legacy, ", ""} {
		got := refused(t, "  pfs: [{pf: ens1f0, "+mode+"vfGroups: [{driver: vfio-pci, mtu: 9000}]}]\n", node())
		if !strings.HasPrefix(got, "spec.pfs[0].vfGroups[0].mtu: 9000, but with driver vfio-pci") {
			t.Error(got)
		}
	}
}

func TestVLANs(t *testing.T) {
	for text, want := range map[string]string{
		"{id: 0}":                           "0",
		"{id: 4094}":                        "4094",
		"{id: 7, qos: 5}":                   "7/5",
		"{id: 7, proto: 802.1Q}":            "7",
		"{id: 7, proto: 802.1ad}":           "7/802.1ad",
		"{id: 7, qos: 1, proto: 802.1Q}":    "7/1",
		"{id: 7, qos: 7, proto: '802.1ad'}": "7/7/802.1ad",
	} {
		spec := resolved(t, "  pfs: [{pf: ens1f0, vfGroups: [{vlan: "+text+"}]}]\n", node())
		if got := spec.PFs[0].VFs[0].Settings[nic.VLAN]; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]int{
		"none": 0, "0Mbit": 0, "1Mbit": 1, "500Mbit": 500, "10Gbit": 10_000, "2.5Gbit": 2500, "0.5Gbit": 500, "0.125Gbit": 125,
		"2147483647Mbit": 2147483647, "2147483.647Gbit": 2147483647,
	} {
		if got, ok := parseRate(text); !ok || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "500", "Mbit", "Gbit", ".5Gbit", "2.Gbit", "2.5Mbit", "0.0001Gbit", "-1Mbit", "+1Mbit", "1e3Mbit", "5 Gbit", "5Gb", "5gbit",
		"500Kbit", "2147483648Mbit", "2147483.648Gbit", "5GbitMbit", "1.2.3Gbit", "٣Mbit",
	} {
		if got, ok := parseRate(text); ok {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

// VFs of a group share no map: who changes one does not change its neighbour.
func TestSettingsAreNotShared(t *testing.T) {
	spec := resolved(t, "  pfs: [{pf: ens1f0, vfGroups: [{trust: true}]}]\n", node())
	spec.PFs[0].VFs[0].Settings[nic.Trust] = "off"
	if spec.PFs[0].VFs[1].Settings[nic.Trust] != "on" {
		t.Error("both VFs have one map")
	}
}

func TestStableGUIDsAreLocalAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, pf := range node().PFs[:2] {
		for i := range 128 {
			guid := StableGUID(pf, i)
			if len(guid) != 23 || strings.Count(guid, ":") != 7 || !strings.ContainsRune("26ae", rune(guid[1])) {
				t.Errorf("%s is no local unicast EUI-64", guid)
			}
			if seen[guid] {
				t.Errorf("%s twice", guid)
			}
			seen[guid] = true
		}
	}
	pf := node().PFs[0]
	if StableMAC(pf, 1) == StableSFMAC(pf, 1) {
		t.Error("VF 1 and SF 1 have one address")
	}
}

// The values that people keep in their switches and DHCP servers do not change
// with a new version.
func TestStableAddressesStay(t *testing.T) {
	pf := nic.PF{Handle: nic.PCI("0000:03:00.1"), Serial: "MT2143X00001"}
	got := []string{StableMAC(pf, 3).String(), StableSFMAC(pf, 3).String(), StableGUID(pf, 3)}
	want := []string{"8e:60:f0:c8:b6:ed", "32:59:eb:a7:44:21", "be:6e:9a:ee:4c:8f:92:ca"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A card that says nothing of itself would give all its like the same addresses.
func TestStableNeedsACard(t *testing.T) {
	state := node()
	state.PFs[4].VFs = []nic.VF{{Index: 0, Address: "0000:81:00.2"}}
	got := refused(t, "  pfs: [{pf: '0000:81:00.0', vfGroups: [{mac: stable, guid: stable}], sfs: [{range: '1', mac: stable}]}]\n", state)
	want := `spec.pfs[0].vfGroups[0].mac: stable follows from the card, and pci/0000:81:00.0 tells neither a serial number nor an address: want driver
spec.pfs[0].vfGroups[0].guid: stable follows from the card, and pci/0000:81:00.0 tells neither a serial number nor an address: want driver
spec.pfs[0].sfs[0].mac: stable follows from the card, and pci/0000:81:00.0 tells neither a serial number nor an address: want driver`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// VFs of Ethernet have no GUID. A port whose netdev is away does not tell what it is.
func TestStableGUIDOfEthernet(t *testing.T) {
	const doc = "  pfs: [{pf: '0000:03:00.1', numVfs: 1, vfGroups: [{guid: stable}]}]\n"
	state := node()
	want := "spec.pfs[0].vfGroups[0].guid: stable, but pci/0000:03:00.1 (ens1f1) is a port of Ethernet, whose VFs have no GUID: want no guid, or mac"
	if d := cmp.Diff(want, refused(t, doc, state)); d != "" {
		t.Error(d)
	}
	state.PFs[1].Uplink = nic.Netdev{}
	resolved(t, doc, state)
}

// Without a serial number the addresses follow from the uplink's, and members of a
// bond have the bond's: they would change with it.
func TestStableUnderABond(t *testing.T) {
	group := "  pfs: [{pf: ens1f1, eswitch: switchdev, numVfs: 1, vfGroups: [{mac: stable}]}]\n"
	bond := "  bonds: [{name: bond0, pfs: [ens1f0, ens1f1], mode: active-backup}]\n"
	const want = "spec.pfs[0].vfGroups[0].mac: stable follows from the address of pci/0000:03:00.1, which tells no serial number, and a bond changes that: want driver"
	state := node()
	resolved(t, group+bond, state) // it has a serial number
	state.PFs[0].Serial, state.PFs[1].Serial = "", ""
	resolved(t, group, state)
	if d := cmp.Diff(want, refused(t, group+bond, state)); d != "" {
		t.Errorf("a bond that is wanted: %s", d)
	}
	state.Bonds = []nic.Bond{{Netdev: nic.Netdev{Name: "bond0", Ifindex: 9}, Members: []nic.Handle{state.PFs[1].Handle}}}
	if d := cmp.Diff(want, refused(t, group, state)); d != "" {
		t.Errorf("a bond that is there: %s", d)
	}
}

func TestConduct(t *testing.T) {
	all := `
  probe: {addresses: ["192.0.2.1", "2001:db8::1"], connect: ["192.0.2.10:6443", "[2001:db8::1]:6443"], defaultRoute: true, timeout: 2m}
  protect: {routesTo: ["192.0.2.10"]}
  drift: report
  openVSwitch: {hwOffload: true, maxIdle: 1m30s, flowLimit: 300000}
`
	for text, want := range map[string]Conduct{
		"  pfs: []\n": {Probe: Probe{Timeout: 30 * time.Second}, Drift: DriftMend},
		all: {
			Probe: Probe{
				Addresses:    []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
				Connect:      []string{"192.0.2.10:6443", "[2001:db8::1]:6443"},
				DefaultRoute: true, Timeout: 2 * time.Minute,
			},
			Protect: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, Drift: DriftReport,
			Switch: Switch{HWOffload: true, MaxIdle: 90 * time.Second, FlowLimit: 300000},
		},
		"  openVSwitch: {}\n": {Probe: Probe{Timeout: 30 * time.Second}, Drift: DriftMend},
	} {
		got, err := ConductOf(decoded(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Error(d)
		}
	}
	got, err := ConductOf(decoded(t, "  drift: mendd\n  probe: {timeout: 1ms}\n"))
	if err == nil || got.Drift != "" || !strings.Contains(err.Error(), "spec.drift") || !strings.Contains(err.Error(), "spec.probe.timeout") {
		t.Errorf("%+v, %v: want both problems and nothing else", got, err)
	}
	for text, want := range map[string]string{
		"{maxIdle: 5}": "spec.openVSwitch.maxIdle", "{maxIdle: 1ms}": "from 500ms to 1h", "{maxIdle: 2h}": "from 500ms to 1h", "{maxIdle: 1500us}": "whole milliseconds",
		"{flowLimit: 10}": "want 1000 to 10000000", "{flowLimit: -1}": "want 1000 to 10000000", "{hwOffload: 1}": "want true or false", "{tcPolicy: none}": "tcPolicy",
	} {
		var doc *v1alpha1.NodeNIC
		doc, err := Decode([]byte(head + "  openVSwitch: " + text + "\n"))
		if err == nil {
			_, err = ConductOf(doc)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %s", text, err, want)
		}
	}
}
