package probe

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

// Reader says where the node is. The zero value is the running one.
type Reader struct {
	Root     string // of proc, sys, boot and lib/modules; "" is /
	Endpoint string // of ovsdb-server; "" is the usual one
	RunDir   string // of ovs-vswitchd; "" is the usual one
	Rules    Rules  // nil: what is in hardware is not looked for
}

// Rules reads the rules on a netdev of the host; *tc.Conn does.
type Rules interface {
	Ingress(ctx context.Context, ifindex int) ([]tc.Rule, error)
}

// Read reads the facts; state is what was observed of the NICs.
func (r Reader) Read(ctx context.Context, state nic.State) capability.Facts {
	f := capability.Facts{
		Kernel: r.Kernel(),
		Switch: r.Switch(ctx),
		RDMA:   r.rdma(),
		IOMMU:  r.iommu(),
		PFs:    capability.PFsOf(state),
	}
	f.RDMA.AtBoot = state.RDMA.AtBoot
	for i := range f.PFs {
		r.driver(&f.PFs[i], f.Kernel.Release)
		f.PFs[i].InHW = r.inHW(ctx, state.PFs[i])
	}
	return f
}

func (r Reader) path(name string) string { return r.Root + name }

// line reads a file of one line; "" if it cannot.
func (r Reader) line(name string) string {
	b, err := os.ReadFile(r.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// rdma: the module's parameter follows the mode that was set last
// (drivers/infiniband/core/device.c, ib_devices_shared_netns).
func (r Reader) rdma() capability.RDMA {
	const file = "/sys/module/ib_core/parameters/netns_mode"
	out := capability.RDMA{From: file}
	switch r.line(file) {
	case "Y":
		out.Mode = nic.RDMAShared
	case "N":
		out.Mode = nic.RDMAExclusive
	}
	return out
}

func (r Reader) iommu() capability.IOMMU {
	var out capability.IOMMU
	if groups, err := os.ReadDir(r.path("/sys/kernel/iommu_groups")); err == nil {
		out.Groups = len(groups)
	}
	for _, table := range []string{"DMAR", "IVRS"} {
		if _, err := os.Lstat(r.path("/sys/firmware/acpi/tables/" + table)); err == nil {
			out.Table = table
		}
	}
	for word := range strings.FieldsSeq(r.line("/proc/cmdline")) {
		if key, _, _ := strings.Cut(word, "="); strings.HasSuffix(key, "iommu") {
			out.CommandLine = append(out.CommandLine, word)
		}
	}
	return out
}

// driver finds out whose module the PF's driver is.
func (r Reader) driver(p *capability.PF, release string) {
	if p.Driver == "" {
		return
	}
	if target, err := os.Readlink(r.path("/sys/bus/pci/drivers/" + p.Driver + "/module")); err == nil {
		p.Module = filepath.Base(target)
		p.Foreign = r.foreign(p.Module, release)
	}
	_, err := os.Lstat(r.path("/sys/kernel/debug/mlx5/" + p.Handle.Name + "/ct"))
	p.Conntrack = err == nil
}

// foreign names the file that tells that a module is not of the kernel's tree: it
// taints the kernel with O (Documentation/admin-guide/tainted-kernels.rst), or
// passes for built in (no initstate: Documentation/ABI/testing/sysfs-module) while
// the kernel's list of those does not have it.
func (r Reader) foreign(module, release string) string {
	taint := "/sys/module/" + module + "/taint"
	if strings.Contains(r.line(taint), "O") {
		return taint
	}
	if _, err := os.Lstat(r.path("/sys/module/" + module + "/initstate")); err == nil {
		return ""
	}
	builtin := "/lib/modules/" + release + "/modules.builtin"
	b, err := os.ReadFile(r.path(builtin))
	if err != nil || parseModules(b, "")[strings.ReplaceAll(module, "-", "_")] {
		return ""
	}
	return builtin
}

// inHW counts the rules in hardware on the PF's ports. A port that cannot be read
// has none.
func (r Reader) inHW(ctx context.Context, p nic.PF) (out capability.InHW) {
	if r.Rules == nil || p.Eswitch != nic.Switchdev {
		return out
	}
	ports := []nic.Netdev{p.Uplink}
	for _, v := range p.VFs {
		ports = append(ports, v.Rep.Netdev)
	}
	for _, f := range p.SFs {
		ports = append(ports, f.Rep)
	}
	for _, port := range ports {
		if !port.Exists() {
			continue
		}
		rules, err := r.Rules.Ingress(ctx, port.Ifindex)
		if err != nil {
			continue
		}
		for _, rule := range rules {
			count(&out, rule)
		}
	}
	return out
}

func count(n *capability.InHW, rule tc.Rule) {
	if !rule.InHW {
		return
	}
	n.Rules++
	if uses(rule, "ct", "ct_") {
		n.Conntrack++
	}
	if uses(rule, "tunnel_key", "enc_") {
		n.Tunnels++
	}
}

// uses says whether the rule has the action, or a match of the family.
func uses(rule tc.Rule, action, match string) bool {
	return slices.ContainsFunc(rule.Actions, func(a tc.Action) bool { return a.Kind == action }) ||
		slices.ContainsFunc(rule.Match, func(m tc.Param) bool { return strings.HasPrefix(m.Name, match) })
}
