package sim

import (
	"fmt"
	"slices"
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

	devlink     bool // the PF has an instance, and with it an eswitch
	vfDevlink   bool // a VF has one too
	modeWithVFs bool // the mode can change while VFs exist
	portMAC     bool // port functions have hw_addr
	repMAC      bool // representors take an address
	devlinkInfo bool // serial in devlink info instead of VPD
	inline      string
	encap       string // when nobody has set it; "" not offered
	infiniband  bool   // its ports can be InfiniBand
	speed       int    // of a port, Mbit/s

	modeAfterVFs        bool          // switchdev mode is refused without VFs, and ends with them
	newQueues           bool          // a mode change resets channels and rings of the PF's netdev
	steering            string        // param flow_steering_mode when nobody has set it; "" none
	roce                bool          // param enable_roce, with a reload
	tcOffload           string        // hw-tc-offload of the PF's netdev when nobody has set it; "" none
	vfAttributes        []nic.Setting // in legacy mode, by the PF's netdev
	devlinkRates        bool          // in switchdev mode
	functionCaps        bool          // VF and SF ports have roce and max_io_eqs
	vdpa                bool          // VFs have a vDPA management device
	lag                 bool          // bonds of its ports are taken into hardware
	maxSFs              int           // a port; 0 none
	defaultSFs          int
	noSFs               string // the refusal where there are none
	pfNet, vfNet, sfNet queues
	rdma                string // prefix of RDMA device names; "" none
	vfRDMA              bool
	vfOffset            func(port, ports, totalVFs int) int // first VF's routing id less the PF's
	vfStride            int
	uplinkPort          func(port int) uint32
	vfPort              func(port, vf int) uint32 // the representor's devlink port
	defaultPorts        int
	defaultVFs          int
}

// queues is what ethtool and rtnetlink let be set of a function's own netdev. Zero
// mostChannels or mostRing: not offered.
type queues struct {
	channels, mostChannels int
	repChannels            int // of the PF in switchdev mode, with newQueues; 0 as channels
	rx, tx                 int // ring entries
	minRing, mostRing      int
	ringStep               int // what the driver rounds up to; 0 a power of two
	tso                    int // tso_max_size
}

// CPUs of the machine, and the kernel's bounds of sizes (include/linux/netdevice.h).
const (
	cpus         = 16
	minMTU       = 68        // ETH_MIN_MTU
	legacyMax    = 65536     // GSO_LEGACY_MAX_SIZE, GRO_LEGACY_MAX_SIZE
	coalesceMost = 8 * 65535 // GSO_MAX_SIZE, GRO_MAX_SIZE
)

// attributesBut are all that rtnetlink has for a VF (IFLA_VF_*), without some.
func attributesBut(without ...nic.Setting) []nic.Setting {
	all := []nic.Setting{nic.Trust, nic.SpoofCheck, nic.LinkState, nic.VLAN, nic.MinRate, nic.MaxRate}
	return slices.DeleteFunc(all, func(n nic.Setting) bool { return slices.Contains(without, n) })
}

// vfsBehind has the VFs of port 0 begin that many routing ids behind it, and those of
// a port behind all of the one before.
func vfsBehind(first int) func(port, ports, totalVFs int) int {
	return func(port, _, totalVFs int) int { return first - port + port*totalVFs }
}

// vfsAt has each port's VFs begin as far from it.
func vfsAt(offset int) func(port, ports, totalVFs int) int {
	return func(int, int, int) int { return offset }
}

// profileNamed returns the profile of a name that Parse knows.
func profileNamed(name string) (profile, bool) {
	switch name {
	case "mlx5":
		return profile{
			name: name, vendor: "15b3", device: "101d", vfDevice: "101e",
			product: "ConnectX-6 Dx EN adapter card, 100GbE, Dual-port QSFP56", oui: [3]byte{0xb8, 0xce, 0xf6},
			driver: "mlx5_core", vfDriver: "mlx5_core",
			maxPorts: 2, defaultPorts: 2, maxVFs: 128, defaultVFs: 16, maxMTU: 9978,
			devlink: true, vfDevlink: true, modeWithVFs: true, portMAC: true, repMAC: true,
			inline: "none", encap: "basic", rdma: "mlx5_", vfRDMA: true, infiniband: true, speed: 100_000,
			newQueues: true, steering: "dmfs", roce: true, tcOffload: "off",
			vfAttributes: attributesBut(),
			devlinkRates: true, functionCaps: true, vdpa: true, lag: true, maxSFs: 512, defaultSFs: 64,
			// en.h, MLX5E_PARAMS_*; en_rep.c, MLX5E_REP_PARAMS_DEF_NUM_CHANNELS.
			pfNet: queues{channels: cpus, mostChannels: cpus, repChannels: 1, rx: 1024, tx: 1024, minRing: 64, mostRing: 8192, tso: coalesceMost},
			vfNet: queues{channels: 11, mostChannels: 11, rx: 1024, tx: 1024, minRing: 64, mostRing: 8192, tso: coalesceMost},
			sfNet: queues{channels: 8, mostChannels: 8, rx: 1024, tx: 1024, minRing: 64, mostRing: 8192, tso: coalesceMost},
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
			maxPorts: 2, defaultPorts: 2, maxVFs: 128, defaultVFs: 16, maxMTU: 9702,
			devlink: true, devlinkInfo: true, rdma: "irdma", speed: 100_000, tcOffload: "off", devlinkRates: true,
			vfAttributes: attributesBut(),
			// devlink/port.c, ice_devlink_port_new_check_attr: firmware without the capability.
			noSFs:    "ice: Dynamic MSIX-X interrupt allocation is not supported",
			pfNet:    queues{channels: cpus, mostChannels: cpus, rx: 2048, tx: 256, minRing: 64, mostRing: 8160, ringStep: 32, tso: 131072},
			vfNet:    queues{channels: 4, mostChannels: cpus, rx: 512, tx: 512, minRing: 64, mostRing: 4096, ringStep: 32, tso: legacyMax},
			vfOffset: vfsBehind(8), vfStride: 1,
			// ice_devlink_create_vf_port: the index of the VSI.
			uplinkPort: func(int) uint32 { return 0 },
			vfPort:     func(_, vf int) uint32 { return uint32(vf + 1) },
		}, true
	case "igb":
		return profile{
			name: name, vendor: "8086", device: "10c9", vfDevice: "10ca",
			oui:    [3]byte{0x00, 0x1b, 0x21},
			driver: "igb", vfDriver: "igbvf",
			maxPorts: 2, defaultPorts: 1, maxVFs: 7, defaultVFs: 7, maxMTU: 9216,
			vfOffset: vfsAt(128), vfStride: 2, speed: 1000,
			// igb_main.c: igb_ndo_set_vf_bw takes no least rate; there is no link state.
			vfAttributes: attributesBut(nic.MinRate, nic.LinkState),
			pfNet:        queues{channels: 8, mostChannels: 8, rx: 256, tx: 256, minRing: 64, mostRing: 4096, ringStep: 8, tso: legacyMax},
			vfNet:        queues{rx: 256, tx: 256, minRing: 64, mostRing: 4096, ringStep: 8, tso: legacyMax},
		}, true
	case "ixgbe":
		return profile{
			name: name, vendor: "8086", device: "10fb", vfDevice: "10ed",
			oui:    [3]byte{0x90, 0xe2, 0xba},
			driver: "ixgbe", vfDriver: "ixgbevf",
			// ixgbe_sriov.h, IXGBE_MAX_VFS_DRV_LIMIT.
			maxPorts: 2, defaultPorts: 2, maxVFs: 63, defaultVFs: 16, maxMTU: 9710,
			vfOffset: vfsAt(128), vfStride: 2, speed: 10_000,
			// ixgbe_sriov.c, ixgbe_ndo_set_vf_bw takes no least rate.
			vfAttributes: attributesBut(nic.MinRate),
			pfNet:        queues{channels: cpus, mostChannels: cpus, rx: 512, tx: 512, minRing: 64, mostRing: 8192, ringStep: 8, tso: legacyMax},
			vfNet:        queues{rx: 512, tx: 1024, minRing: 64, mostRing: 4096, ringStep: 8, tso: legacyMax},
		}, true
	case "i40e":
		return profile{
			name: name, vendor: "8086", device: "1583", vfDevice: "154c",
			oui:    [3]byte{0x3c, 0xfd, 0xfe},
			driver: "i40e", vfDriver: "iavf",
			maxPorts: 2, defaultPorts: 2, maxVFs: 64, defaultVFs: 16, maxMTU: 9702,
			vfOffset: vfsBehind(16), vfStride: 1, speed: 40_000,
			// i40e_virtchnl_pf.c, i40e_ndo_set_vf_bw takes no least rate.
			vfAttributes: attributesBut(nic.MinRate),
			pfNet:        queues{channels: cpus, mostChannels: cpus, rx: 512, tx: 512, minRing: 64, mostRing: 4096, ringStep: 32, tso: legacyMax},
			vfNet:        queues{channels: 4, mostChannels: 4, rx: 512, tx: 512, minRing: 64, mostRing: 4096, ringStep: 32, tso: legacyMax},
		}, true
	case "generic":
		return profile{
			name: name, vendor: "1d6b", device: "0001", vfDevice: "0002",
			product: "Generic switching adapter", oui: [3]byte{0x02, 0x67, 0x6e},
			driver: "generic", vfDriver: "generic_vf",
			maxPorts: 2, defaultPorts: 2, maxVFs: 64, defaultVFs: 8, maxMTU: 9600,
			devlink: true, modeWithVFs: true, modeAfterVFs: true, repMAC: true, speed: 25_000, tcOffload: "off",
			vfAttributes: attributesBut(),
			pfNet:        queues{channels: 8, mostChannels: 8, rx: 511, tx: 511, minRing: 32, mostRing: 2047, ringStep: 1, tso: legacyMax},
			vfNet:        queues{channels: 4, mostChannels: 4, rx: 511, tx: 511, minRing: 32, mostRing: 2047, ringStep: 1, tso: legacyMax},
			vfOffset:     vfsBehind(8), vfStride: 1,
			// netdevsim/dev.c, nsim_dev_port_index.
			uplinkPort: func(port int) uint32 { return uint32(port) },
			vfPort:     func(_, vf int) uint32 { return uint32(128 + vf) },
		}, true
	}
	return profile{}, false
}

// profileNames are the names that profileNamed knows, for messages.
func profileNames() []string { return []string{"mlx5", "ice", "igb", "ixgbe", "i40e", "generic"} }

// sfPort is the devlink port of an SF; vports of SFs start at a base that the device
// tells (sf_base_id).
func sfPort(port, slot int) uint32 { return uint32(port)<<16 | 0x8000 + uint32(slot) }

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
