package capability

import (
	"fmt"
	"slices"
	"strings"
)

// option is what is to be known of a kernel option besides its value.
type option struct {
	module string // that it builds when it is m
	symbol string // in the kernel only with it; for options that build no module
	needs  string // the option that keeps it out, where that is another one
}

// options are those that the report asks for (the Kconfig files of linux: net/sched,
// net/openvswitch, drivers/net, drivers/infiniband, drivers/vdpa, drivers/vfio).
var options = map[string]option{
	"NET_CLS_ACT":            {},
	"NET_CLS_FLOWER":         {module: "cls_flower"},
	"NET_SCH_INGRESS":        {module: "sch_ingress"},
	"NET_ACT_MIRRED":         {module: "act_mirred"},
	"NET_ACT_GACT":           {module: "act_gact"},
	"NET_ACT_PEDIT":          {module: "act_pedit"},
	"NET_ACT_VLAN":           {module: "act_vlan"},
	"NET_SWITCHDEV":          {},
	"NET_DEVLINK":            {},
	"NET_TC_SKB_EXT":         {symbol: "tc_skb_ext_tc_enable"}, // net/sched/cls_api.c
	"NET_ACT_CT":             {module: "act_ct"},
	"NF_FLOW_TABLE":          {module: "nf_flow_table"},
	"NF_CONNTRACK":           {module: "nf_conntrack"},
	"NET_ACT_TUNNEL_KEY":     {module: "act_tunnel_key"},
	"GENEVE":                 {module: "geneve"},
	"VXLAN":                  {module: "vxlan"},
	"OPENVSWITCH":            {module: "openvswitch"},
	"BONDING":                {module: "bonding"},
	"PCI_IOV":                {},
	"VFIO_PCI":               {module: "vfio_pci"},
	"VDPA":                   {module: "vdpa"},
	"VHOST_VDPA":             {module: "vhost_vdpa"},
	"VIRTIO_VDPA":            {module: "virtio_vdpa"},
	"INFINIBAND":             {module: "ib_core"},
	"INFINIBAND_USER_ACCESS": {module: "ib_uverbs"},
	"XFRM_OFFLOAD":           {},
	"INET_ESP_OFFLOAD":       {module: "esp4_offload"},

	"MLX5_ESWITCH":    {},
	"MLX5_CLS_ACT":    {needs: "NET_TC_SKB_EXT"}, // linux 6.12 and 7.2; 6.1 builds it without
	"MLX5_TC_CT":      {needs: "NET_TC_SKB_EXT"},
	"MLX5_SF":         {},
	"MLX5_SF_MANAGER": {needs: "MLX5_SF"},
	"MLX5_EN_IPSEC":   {},
	"MLX5_VDPA_NET":   {module: "mlx5_vdpa"},
	"MLX5_INFINIBAND": {module: "mlx5_ib"},

	"ICE_SWITCHDEV":    {},
	"INFINIBAND_IRDMA": {module: "irdma"},
}

// Options are the kernel options that Judge looks at, without "CONFIG_".
func Options() []string { return sorted(options, func(name string, _ option) string { return name }) }

// Modules are the modules that Judge looks for, in the kernel's spelling.
func Modules() []string { return sorted(options, func(_ string, o option) string { return o.module }) }

// Symbols are the symbols that Judge looks for where there is no configuration.
func Symbols() []string { return sorted(options, func(_ string, o option) string { return o.symbol }) }

func sorted(from map[string]option, name func(string, option) string) []string {
	var out []string
	for k, o := range from {
		if n := name(k, o); n != "" {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// built finds out whether the kernel has all of the options. Those it has are one
// finding for each place where that was read, each other one is a finding of its own.
func (k Kernel) built(names ...string) []Finding {
	var has, lacks []Finding
	for _, name := range names {
		f := k.option(name)
		if f.Answer != Yes {
			lacks = append(lacks, f)
			continue
		}
		i := slices.IndexFunc(has, func(h Finding) bool { return h.From == f.From })
		if i < 0 {
			has = append(has, f)
			continue
		}
		has[i].What += ", " + f.What
	}
	return append(has, lacks...)
}

func (k Kernel) option(name string) Finding {
	if k.Config == "" {
		return k.traces(name)
	}
	o, full := options[name], "CONFIG_"+name
	switch value := k.Options[name]; value {
	case "y":
		return Finding{Answer: Yes, What: full + "=y", From: k.Config}
	case "m":
		if _, there := k.Modules[o.module]; !there && o.module != "" && k.ModulesFrom != "" {
			return Finding{
				Answer: No, What: fmt.Sprintf("%s=m in %s, but the kernel has no module %s", full, k.Config, o.module), From: k.ModulesFrom,
				Change: fmt.Sprintf("install the package with the rest of the modules of kernel %s", k.Release),
			}
		}
		return Finding{Answer: Yes, What: full + "=m", From: k.Config}
	case "n":
		return Finding{Answer: No, What: full + " is not set", From: k.Config, Change: needKernel(name)}
	case "":
		what := full + " is not there: what it depends on is off, or the kernel does not know it"
		if o.needs != "" && k.Options[o.needs] != "y" {
			what = fmt.Sprintf("%s is not there: it depends on CONFIG_%s, which is off", full, o.needs)
		}
		return Finding{Answer: No, What: what, From: k.Config, Change: needKernel(name)}
	default:
		return Finding{Answer: Unknown, What: fmt.Sprintf("%s=%s: want y, m or nothing", full, value), From: k.Config}
	}
}

// needKernel says with which option a kernel must be built. What keeps an option
// out is named with it.
func needKernel(name string) string {
	change := fmt.Sprintf("run a kernel built with CONFIG_%s", name)
	if needs := options[name].needs; needs != "" {
		return change + " and CONFIG_" + needs
	}
	return change
}

// traces looks for what an option leaves behind in a kernel whose configuration
// cannot be read: its module, or a symbol.
func (k Kernel) traces(name string) Finding {
	o, full := options[name], "CONFIG_"+name
	if state, there := k.Modules[o.module]; there {
		return Finding{Answer: Yes, What: fmt.Sprintf("module %s is %s", o.module, state), From: k.ModulesFrom}
	}
	if o.module != "" && k.ModulesFrom != "" {
		return Finding{Answer: No, What: "the kernel has no module " + o.module, From: k.ModulesFrom, Change: needKernel(name)}
	}
	switch has, looked := k.Symbols[o.symbol]; {
	case looked && has:
		return Finding{Answer: Yes, What: fmt.Sprintf("%s: the kernel has %s", full, o.symbol), From: "/proc/kallsyms"}
	case looked:
		return Finding{Answer: No, What: fmt.Sprintf("%s is not set: the kernel has no %s", full, o.symbol), From: "/proc/kallsyms", Change: needKernel(name)}
	}
	return Finding{
		Answer: Unknown, What: fmt.Sprintf("%s: no configuration of kernel %s can be read", full, k.Release), From: strings.Join(k.NotRead, "; "),
		Change: fmt.Sprintf("put the kernel's configuration where it is looked for, for example /boot/config-%s", k.Release),
	}
}
