package capability

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// The names of the capabilities.
const (
	VFs           = "vfs"
	Switchdev     = "switchdev"
	Flows         = "flows"
	FromWire      = "from-wire"
	Conntrack     = "conntrack"
	Geneve        = "geneve"
	VXLAN         = "vxlan"
	OpenVSwitch   = "open-vswitch"
	VFLAG         = "vf-lag"
	SFs           = "sfs"
	VDPA          = "vdpa"
	VFIO          = "vfio"
	RDMADevices   = "rdma"
	RDMAExclusive = "rdma-exclusive"
	BigTCP        = "big-tcp"
	IPsec         = "ipsec"
)

// rule is one capability and how it is judged.
type rule struct {
	name, means string
	needs       []string // capabilities that come before
	judge       func(Facts) []Finding
}

func rules() []rule {
	return []rule{
		{VFs, "VFs can be made", nil, vfs},
		{Switchdev, "the eswitch can be in switchdev mode", nil, switchdev},
		{Flows, "plain flows run in the NIC", []string{Switchdev}, flows},
		{FromWire, "plain flows that come from the wire run in the NIC", []string{Flows}, fromWire},
		{Conntrack, "flows with conntrack, NAT or recirculation run in the NIC", []string{Flows}, conntrack},
		{Geneve, "Geneve is put on and taken off in the NIC", []string{Flows}, tunnel("GENEVE")},
		{VXLAN, "VXLAN is put on and taken off in the NIC", []string{Flows}, tunnel("VXLAN")},
		{OpenVSwitch, "Open vSwitch hands its flows to the NIC", nil, openVSwitch},
		{VFLAG, "a bond of a card's ports carries its VFs", []string{Switchdev}, vfLAG},
		{SFs, "subfunctions can be made", []string{Switchdev}, sfs},
		{VDPA, "a VF can be a virtio device", []string{VFs}, vdpa},
		{VFIO, "a VF can be given to vfio-pci", []string{VFs}, vfio},
		{RDMADevices, "there are RDMA devices", nil, rdma},
		{RDMAExclusive, "a pod sees the RDMA devices that are its own, and no others", []string{RDMADevices}, rdmaExclusive},
		{BigTCP, "packets over 64 KiB inside the node", nil, bigTCP},
		{IPsec, "IPsec in the NIC", nil, ipsec},
	}
}

// Judge makes the report.
func Judge(f Facts) Report {
	r := Report{Facts: f}
	for _, rule := range rules() {
		c := Capability{Name: rule.name, Means: rule.means}
		for _, n := range rule.needs {
			c.Findings = append(c.Findings, needed(r.Get(n)))
		}
		for _, found := range rule.judge(f) {
			if f.Simulated {
				found.From = f.Kernel.Config
			}
			if !slices.Contains(c.Findings, found) && !r.said(rule.needs, found) {
				c.Findings = append(c.Findings, found)
			}
		}
		c.Answer = answer(c.Findings)
		r.Capabilities = append(r.Capabilities, c)
	}
	return r
}

// needed is what a capability says of another that it rests on.
func needed(c *Capability) Finding {
	if c.Answer == Yes {
		return Finding{Answer: Yes, What: c.Name}
	}
	return Finding{Answer: c.Answer, What: fmt.Sprintf("it rests on %s, which is %s: see there", c.Name, c.Answer)}
}

// said: what keeps away a capability that others rest on stands with that one alone.
func (r Report) said(needs []string, found Finding) bool {
	return found.Answer != Yes && slices.ContainsFunc(needs, func(n string) bool {
		c := r.Get(n)
		return c.Answer != Yes && (slices.Contains(c.Findings, found) || r.said(needsOf(n), found))
	})
}

func needsOf(name string) []string {
	all := rules()
	return all[slices.IndexFunc(all, func(r rule) bool { return r.name == name })].needs
}

func vfs(f Facts) []Finding {
	out := f.Kernel.built("PCI_IOV")
	var can []string
	for _, p := range f.PFs {
		if p.TotalVFs > 0 {
			can = append(can, fmt.Sprintf("%s can have %d", p.Handle, p.TotalVFs))
		}
	}
	if len(can) == 0 {
		return append(out, Finding{
			Answer: No, What: "no PF can have VFs", From: "sriov_totalvfs",
			Change: "switch SR-IOV on in the card's firmware (mstconfig: SRIOV_EN, NUM_OF_VFS) and in the machine's",
		})
	}
	return append(out, Finding{Answer: Yes, What: strings.Join(can, ", "), From: "sriov_totalvfs"})
}

// switchdev: an eswitch that answers needs no option of its driver to be believed.
func switchdev(f Facts) []Finding {
	out := f.Kernel.built("NET_SWITCHDEV", "NET_DEVLINK")
	var have []string
	for _, p := range f.PFs {
		if p.Eswitch != "" {
			have = append(have, fmt.Sprintf("%s is in %s mode", p.Handle, p.Eswitch))
		}
	}
	if len(have) == 0 {
		return append(append(out, f.offers(partEswitch)...), f.noSwitch())
	}
	return append(out, Finding{Answer: Yes, What: strings.Join(have, ", "), From: "devlink"})
}

// inSwitchdev is the finding that a PF is in switchdev mode now.
func (f Facts) inSwitchdev() Finding {
	var on, off []string
	for _, p := range f.PFs {
		switch p.Eswitch {
		case nic.Switchdev:
			on = append(on, p.Handle.String())
		case "":
		default:
			off = append(off, p.Handle.String())
		}
	}
	switch {
	case len(on) > 0:
		return Finding{Answer: Yes, What: "in switchdev mode: " + strings.Join(on, ", "), From: "devlink"}
	case len(off) > 0:
		return Finding{
			Answer: No, What: "in legacy mode: " + strings.Join(off, ", "), From: "devlink",
			Change: "write \"eswitch: switchdev\" for the PF into the node's document, then sluice apply",
		}
	}
	return f.noSwitch()
}

func flows(f Facts) []Finding {
	out := f.Kernel.built("NET_CLS_ACT", "NET_CLS_FLOWER", "NET_SCH_INGRESS", "NET_ACT_MIRRED", "NET_ACT_GACT", "NET_ACT_PEDIT", "NET_ACT_VLAN")
	out = append(append(out, f.offers(partFlows)...), f.inSwitchdev())
	return append(out, f.ruleRoom()...)
}

// fromWire: an uplink takes no rules while its hw-tc-offload is off (mlx5:
// en_tc.c, "TC offload is disabled on net device"). mlx5 begins with off.
func fromWire(f Facts) []Finding {
	var out []Finding
	for _, p := range f.PFs {
		if p.Eswitch != nic.Switchdev {
			continue
		}
		found := Finding{From: "ethtool", What: fmt.Sprintf("hw-tc-offload of %s is %s", p.Netdev, p.TCOffload)}
		switch p.TCOffload {
		case "on":
			found.Answer = Yes
		case "off":
			found.Answer, found.Change = No, fmt.Sprintf("write \"hwTCOffload: true\" for it into the node's document, or ethtool -K %s hw-tc-offload on", p.Netdev)
		default:
			found.Answer, found.What = Unknown, fmt.Sprintf("hw-tc-offload of %s cannot be read", p.Handle)
			found.Change = "look with ethtool -k"
		}
		out = append(out, found)
	}
	return out
}

// conntrack: the datapath refuses to share recirculation ids with tc without
// NET_TC_SKB_EXT (net/openvswitch/datapath.c, ovs_dp_change), so that Open vSwitch
// offloads no flow behind a recirculation.
func conntrack(f Facts) []Finding {
	out := f.Kernel.built("NET_TC_SKB_EXT", "NET_ACT_CT", "NF_FLOW_TABLE", "NF_CONNTRACK")
	return append(out, f.offers(partConntrack)...)
}

func tunnel(kind string) func(Facts) []Finding {
	return func(f Facts) []Finding {
		out := append(f.Kernel.built("NET_ACT_TUNNEL_KEY", kind), f.offers(partTunnels)...)
		for _, p := range f.PFs {
			if p.Encap == "none" {
				out = append(out, Finding{
					Answer: No, What: fmt.Sprintf("encap-mode of %s is none", p.Handle), From: "devlink",
					Change: fmt.Sprintf("write \"encapMode: basic\" for it into the node's document, or devlink dev eswitch set %s encap-mode basic", p.Handle),
				})
			}
		}
		return out
	}
}

func vfLAG(f Facts) []Finding {
	out := append(f.Kernel.built("BONDING"), f.offers(partLAG)...)
	ports := map[string]int{}
	for _, p := range f.PFs {
		if !p.switches() {
			continue
		}
		ports[p.Card]++
		if ports[p.Card] == 2 {
			out = append(out, Finding{Answer: Yes, What: "a card with two ports: " + p.Card, From: "serial numbers"})
			return append(out, f.ruleRoom()...)
		}
	}
	return append(out, Finding{
		Answer: No, What: "no card has two ports with an eswitch", From: "serial numbers",
		Change: "use a card with two ports: a bond of ports of different cards is not carried in hardware",
	})
}

// ruleRoom says what VF-LAG costs, where there is one.
func (f Facts) ruleRoom() []Finding {
	var out []Finding
	said := map[string]bool{}
	for _, p := range f.PFs {
		if p.Rules.Why == "" || said[p.Card] {
			continue
		}
		said[p.Card] = true
		out = append(out, Finding{
			Answer: Yes, From: "debugfs mlx5/" + p.Handle.Name + "/lag",
			What: fmt.Sprintf("card %s has %d %% of its room for offloaded rules: %s", p.Card, p.Rules.Percent, p.Rules.Why),
		})
	}
	return out
}

func sfs(f Facts) []Finding { return f.offers(partSF) }

func vdpa(f Facts) []Finding {
	out := append(f.Kernel.built("VDPA"), f.offers(partVDPA)...)
	// Either way of using a device will do.
	vhost, virtio := f.Kernel.built("VHOST_VDPA"), f.Kernel.built("VIRTIO_VDPA")
	if better(answer(virtio), answer(vhost)) {
		return append(out, virtio...)
	}
	return append(out, vhost...)
}

func vfio(f Facts) []Finding {
	out := f.Kernel.built("VFIO_PCI")
	if f.IOMMU.Groups > 0 {
		return append(out, Finding{Answer: Yes, What: fmt.Sprintf("%d IOMMU groups", f.IOMMU.Groups), From: "/sys/kernel/iommu_groups"})
	}
	found := Finding{Answer: No, What: "no IOMMU is on", From: "/sys/kernel/iommu_groups"}
	if len(f.IOMMU.CommandLine) > 0 {
		found.What += ", booted with " + strings.Join(f.IOMMU.CommandLine, " ")
	}
	switch f.IOMMU.Table {
	case "DMAR":
		found.Change = "boot with intel_iommu=on"
	case "IVRS":
		found.Change = "boot without amd_iommu=off"
	default:
		found.Change = "switch the IOMMU (VT-d, AMD-Vi) on in the machine's firmware, and on Intel boot with intel_iommu=on"
	}
	return append(out, found)
}

// rdma: a device that is there needs no options to be believed.
func rdma(f Facts) []Finding {
	n := 0
	for _, p := range f.PFs {
		n += len(p.RDMA)
	}
	if n > 0 {
		return []Finding{{Answer: Yes, What: fmt.Sprintf("%d RDMA devices of PFs and VFs", n), From: "/sys/class/infiniband"}}
	}
	out := append(f.Kernel.built("INFINIBAND", "INFINIBAND_USER_ACCESS"), f.offers(partRDMA)...)
	return append(out, Finding{
		Answer: No, What: "no PF or VF has an RDMA device", From: "/sys/class/infiniband",
		Change: "load the driver's RDMA module (modprobe mlx5_ib), and leave RoCE on (devlink param enable_roce)",
	})
}

// rdmaExclusive: drivers/infiniband/core/device.c, rdma_compatdev_set, refuses the
// change while there is any other network namespace.
func rdmaExclusive(f Facts) []Finding {
	found := Finding{From: f.RDMA.From}
	switch f.RDMA.Mode {
	case nic.RDMAExclusive:
		found.Answer, found.What = Yes, "RDMA devices belong to one network namespace each"
	case nic.RDMAShared:
		found.Answer, found.What = No, "every network namespace sees all RDMA devices"
		found.Change = "write \"options ib_core netns_mode=0\" into /etc/modprobe.d and boot (rdma system set netns exclusive works only before the first pod)"
		if f.RDMA.AtBoot == nic.RDMAExclusive {
			found.Change = "boot: the setting for it is on disk already"
		}
	default:
		found.Answer, found.What, found.Change = Unknown, "ib_core is not loaded, so it has no mode", "modprobe ib_core"
	}
	return []Finding{found}
}

// bigTCP: IPv6 from Linux 5.19, IPv4 from 6.3 (net/core/rtnetlink.c,
// IFLA_GSO_IPV4_MAX_SIZE).
func bigTCP(f Facts) []Finding {
	if f.Simulated {
		return []Finding{{Answer: Unknown, What: "a simulated machine has no kernel", Change: "look on a real one"}}
	}
	major, minor, ok := f.Kernel.Version()
	found := Finding{From: "/proc/sys/kernel/osrelease"}
	at := major*1000 + minor
	switch {
	case !ok:
		found.Answer, found.What = Unknown, fmt.Sprintf("release %q has no version", f.Kernel.Release)
		found.Change = "look for gso_ipv4_max_size in the output of ip -d link show"
	case at >= 6003:
		found.Answer, found.What = Yes, fmt.Sprintf("kernel %d.%d has it for IPv6 and IPv4, up to each device's tso_max_size", major, minor)
	case at >= 5019:
		found.Answer, found.What = No, fmt.Sprintf("kernel %d.%d has it for IPv6 only", major, minor)
		found.Change = "run kernel 6.3 or newer for IPv4"
	default:
		found.Answer, found.What = No, fmt.Sprintf("kernel %d.%d does not have it", major, minor)
		found.Change = "run kernel 6.3 or newer"
	}
	return []Finding{found}
}

func ipsec(f Facts) []Finding {
	return append(f.Kernel.built("XFRM_OFFLOAD", "INET_ESP_OFFLOAD"), f.offers(partIPsec)...)
}
