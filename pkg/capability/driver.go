package capability

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// part is something that a NIC's driver must offer.
type part string

const (
	partEswitch   part = "an eswitch that can be set"
	partFlows     part = "rules in hardware"
	partConntrack part = "connections in hardware"
	partTunnels   part = "tunnels in hardware"
	partLAG       part = "a bond of its ports in hardware"
	partSF        part = "subfunctions"
	partVDPA      part = "vDPA devices"
	partRDMA      part = "RDMA devices"
	partIPsec     part = "IPsec in hardware"
)

// drivers are the options that decide on the parts of a driver (linux:
// drivers/net/ethernet/mellanox/mlx5/core/Kconfig, drivers/net/ethernet/intel/
// Kconfig, drivers/vdpa/Kconfig). A part that is not listed is not known of; none
// means that the driver has none of it, whatever the options.
var drivers = map[string]map[part][]string{
	"mlx5_core": {
		partEswitch: {"MLX5_ESWITCH"}, partFlows: {"MLX5_CLS_ACT"}, partConntrack: {"MLX5_TC_CT"},
		partTunnels: {"MLX5_CLS_ACT"}, partLAG: {"MLX5_ESWITCH"}, partSF: {"MLX5_SF", "MLX5_SF_MANAGER"},
		partVDPA: {"MLX5_VDPA_NET"}, partRDMA: {"MLX5_INFINIBAND"}, partIPsec: {"MLX5_EN_IPSEC"},
	},
	"ice": {
		partEswitch: {"ICE_SWITCHDEV"}, partFlows: {"ICE_SWITCHDEV"}, partTunnels: {"ICE_SWITCHDEV"},
		partLAG: {"ICE_SWITCHDEV"}, partRDMA: {"INFINIBAND_IRDMA"},
	},
}

// offers finds out whether one of the node's drivers offers p. A node may have
// other NICs beside; the best driver counts.
func (f Facts) offers(p part) []Finding {
	var best []Finding
	seen := map[string]bool{}
	for _, pf := range f.PFs {
		if !pf.switches() || seen[pf.Driver] {
			continue
		}
		seen[pf.Driver] = true
		got := f.driverOffers(pf, p)
		if best == nil || better(answer(got), answer(best)) {
			best = got
		}
	}
	if best == nil {
		return []Finding{f.noSwitch()}
	}
	return best
}

func better(a, b Answer) bool {
	order := []Answer{No, Unknown, Yes}
	return slices.Index(order, a) > slices.Index(order, b)
}

// switches says whether the PF has an eswitch, or would with another kernel.
func (p PF) switches() bool {
	_, can := drivers[p.Driver][partEswitch]
	return can || p.Eswitch != ""
}

func (f Facts) driverOffers(pf PF, p part) []Finding {
	if found, seen := f.seen(pf.Driver, p); seen {
		return []Finding{found}
	}
	if pf.Foreign != "" {
		change := "see what came with the driver, or try"
		if p == partFlows || p == partConntrack || p == partTunnels {
			change = "look at what it does: sluice flows shows which rules it has taken"
		}
		return []Finding{{
			Answer: Unknown, From: pf.Foreign,
			What:   fmt.Sprintf("%s was not built with this kernel: the kernel's options do not tell whether it offers %s", pf.Driver, p),
			Change: change,
		}}
	}
	names, known := drivers[pf.Driver][p]
	if !known {
		return []Finding{{
			Answer: Unknown, What: fmt.Sprintf("whether driver %s offers %s is not known", pf.Driver, p),
			Change: "see the driver's documentation, or try",
		}}
	}
	return f.Kernel.built(names...)
}

// noSwitch says that there is no NIC of the right kind.
func (f Facts) noSwitch() Finding {
	if len(f.PFs) == 0 {
		return Finding{Answer: No, What: "there is no NIC", From: "PCI class 02", Change: "plug one in"}
	}
	var have []string
	for _, p := range f.PFs {
		have = append(have, strings.TrimSpace(p.Handle.String()+" "+p.Driver))
	}
	return Finding{
		Answer: No, What: "no PF has an eswitch: " + strings.Join(have, ", "), From: "devlink",
		Change: "use a NIC whose driver can set its eswitch, mlx5_core or ice for example",
	}
}

// seen finds out whether the driver shows already that it offers p.
func (f Facts) seen(driver string, p part) (Finding, bool) {
	for _, pf := range f.PFs {
		if pf.Driver != driver {
			continue
		}
		n, what := pf.InHW.Rules, "rules"
		switch p {
		case partFlows:
		case partConntrack:
			if pf.Conntrack {
				what := fmt.Sprintf("%s counts offloaded connections of %s", driver, pf.Handle)
				return Finding{Answer: Yes, What: what, From: "debugfs mlx5/" + pf.Handle.Name + "/ct"}, true
			}
			n, what = pf.InHW.Conntrack, "rules with conntrack"
		case partLAG:
			if pf.LAG == nic.LAGActive {
				return Finding{Answer: Yes, What: fmt.Sprintf("%s is in a LAG now", pf.Handle), From: "debugfs mlx5/" + pf.Handle.Name + "/lag"}, true
			}
			continue
		case partTunnels:
			n, what = pf.InHW.Tunnels, "rules with a tunnel"
		default:
			return Finding{}, false
		}
		if n > 0 {
			return Finding{Answer: Yes, What: fmt.Sprintf("%d %s of %s are in hardware now", n, what, pf.Handle), From: "tc, in_hw"}, true
		}
	}
	return Finding{}, false
}
