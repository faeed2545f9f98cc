package sim

import (
	"fmt"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// profile is what a kind of card and its drivers can do.
type profile struct {
	name             string
	vendor           string
	device, vfDevice string // PCI ids
	product          string // VPD; "" none
	oui              [3]byte
	driver, vfDriver string
	maxPorts         int
	maxVFs           int // a port
	maxMTU           int
	minMTU           int

	devlink      bool // the PF has an instance, and with it an eswitch
	vfDevlink    bool // a VF has one too
	modeWithVFs  bool // the mode can change while VFs exist
	portMAC      bool // port functions have hw_addr
	repMAC       bool // representors take an address
	devlinkInfo  bool // serial in devlink info instead of VPD
	inline       string
	encap        string
	rdma         string // prefix of RDMA device names; "" none
	vfRDMA       bool
	vfOffset     func(port, ports, totalVFs int) int // first VF's routing id less the PF's
	vfStride     int
	uplinkPort   func(port int) uint32
	vfPort       func(port, vf int) uint32 // the representor's devlink port
	defaultPorts int
	defaultVFs   int
}

// profileNamed returns the profile of a name that Parse knows.
func profileNamed(name string) (profile, bool) {
	switch name {
	case "mlx5":
		return profile{
			name: name, vendor: "15b3", device: "101d", vfDevice: "101e",
			product: "ConnectX-6 Dx EN adapter card, 100GbE, Dual-port QSFP56", oui: [3]byte{0xb8, 0xce, 0xf6},
			driver: "mlx5_core", vfDriver: "mlx5_core",
			maxPorts: 2, defaultPorts: 2, maxVFs: 128, defaultVFs: 16, minMTU: 68, maxMTU: 9978,
			devlink: true, vfDevlink: true, modeWithVFs: true, portMAC: true, repMAC: true,
			inline: "none", encap: "basic", rdma: "mlx5_", vfRDMA: true,
			// All VFs of port 1 come after all that port 0 could have.
			vfOffset: func(port, ports, totalVFs int) int { return ports - port + port*totalVFs }, vfStride: 1,
			// mlx5_esw_vport_to_devlink_port_index; VF n is vport n+1, the
			// uplink is vport 0xffff (MLX5_VPORT_UPLINK).
			uplinkPort: func(port int) uint32 { return uint32(port)<<16 | 0xffff },
			vfPort:     func(port, vf int) uint32 { return uint32(port)<<16 | uint32(vf+1) },
		}, true
	case "ice":
		return profile{
			name: name, vendor: "8086", device: "1592", vfDevice: "1889",
			product: "Intel(R) Ethernet Network Adapter E810-CQDA2", oui: [3]byte{0x64, 0x9d, 0x99},
			driver: "ice", vfDriver: "iavf",
			maxPorts: 2, defaultPorts: 2, maxVFs: 128, defaultVFs: 16, minMTU: 68, maxMTU: 9702,
			devlink: true, devlinkInfo: true, rdma: "irdma",
			vfOffset: func(port, ports, totalVFs int) int { return 8 - port + port*totalVFs }, vfStride: 1,
			// ice_devlink_create_vf_port: the index of the VSI.
			uplinkPort: func(int) uint32 { return 0 },
			vfPort:     func(_, vf int) uint32 { return uint32(vf + 1) },
		}, true
	case "igb":
		return profile{
			name: name, vendor: "8086", device: "10c9", vfDevice: "10ca",
			oui:    [3]byte{0x00, 0x1b, 0x21},
			driver: "igb", vfDriver: "igbvf",
			maxPorts: 2, defaultPorts: 1, maxVFs: 7, defaultVFs: 7, minMTU: 68, maxMTU: 9216,
			vfOffset: func(int, int, int) int { return 128 }, vfStride: 2,
		}, true
	}
	return profile{}, false
}

// profileNames are the names that profileNamed knows, for messages.
func profileNames() []string { return []string{"mlx5", "ice", "igb"} }

// vfioDriver takes any function that is in an IOMMU group.
const vfioDriver = string(nic.DriverVFIO)

// knownDriver says whether the machine's kernel has a driver of that name.
func knownDriver(driver string) bool {
	if driver == vfioDriver {
		return true
	}
	for _, n := range profileNames() {
		if p, _ := profileNamed(n); p.driver == driver || p.vfDriver == driver {
			return true
		}
	}
	return false
}

// vfAddress is the address of a VF: its routing id is the PF's plus offset plus
// index times stride, which may be on a later bus (PCIe SR-IOV 3.3.9, 3.3.10).
func (p profile) vfAddress(pf string, port, ports, totalVFs, i int) string {
	domain, bus, devfn := splitAddress(pf)
	rid := bus<<8 | devfn + p.vfOffset(port, ports, totalVFs) + i*p.vfStride
	return fmt.Sprintf("%s:%02x:%02x.%d", domain, rid>>8&0xff, rid>>3&0x1f, rid&7)
}

func pfAddress(card, port int) string {
	return fmt.Sprintf("0000:%02x:00.%d", cardBus(card), port)
}

// cardBus leaves room after each card for the buses of its VFs.
func cardBus(card int) int { return 0x03 + card*0x10 }

// splitAddress takes an address that nic.IsPCIAddress accepts apart.
func splitAddress(a string) (domain string, bus, devfn int) {
	domain, rest, _ := strings.Cut(a, ":")
	b, _ := strconv.ParseUint(rest[:2], 16, 8)
	d, _ := strconv.ParseUint(rest[3:5], 16, 8)
	return domain, int(b), int(d)<<3 | int(rest[6]-'0')
}
