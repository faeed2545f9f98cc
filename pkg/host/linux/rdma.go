package linux

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/pci"
	nldev "sluice.dev/sluice/pkg/rdma"
)

// rdma reads RDMA devices where ib_core shows them
// (Documentation/ABI/stable/sysfs-class-infiniband), and what sysfs tells in a file
// for each thing, over netlink. In exclusive mode sysfs shows those of its mount's
// network namespace only.
type rdma struct {
	sys, dev, etc string
	home          *netnsFile
	client        *nldev.Client
}

func (r rdma) Devices(ctx context.Context) ([]host.RDMADevice, error) {
	if err := begin(ctx, "list", "RDMA devices"); err != nil {
		return nil, err
	}
	names, err := readDir(r.sys + "/class/infiniband")
	if err != nil {
		return nil, fail("list", "RDMA devices", err)
	}
	files, told := r.files(), map[string]nldev.Device(nil)
	if len(names) > 0 {
		told = r.told(ctx)
	}
	out := make([]host.RDMADevice, 0, len(names))
	for _, name := range names {
		d := host.RDMADevice{Name: name, Files: files[name]}
		// ../../devices/pci0000:00/0000:00:01.0/0000:03:00.0/infiniband/mlx5_0:
		// what is before the class is the parent, of soft devices none.
		target, err := os.Readlink(r.sys + "/class/infiniband/" + name)
		if err != nil {
			continue // gone since
		}
		if parent := filepath.Base(filepath.Dir(filepath.Dir(target))); nic.IsPCIAddress(parent) || pci.IsSF(parent) {
			d.Parent = parent
		} else {
			d.Netdev = attribute(r.sys + "/class/infiniband/" + name + "/parent")
		}
		if known, ok := told[name]; ok {
			d.NodeGUID = nldev.GUID(known.NodeGUID)
			d.Ports = r.ports(ctx, known)
		}
		out = append(out, d)
	}
	return out, nil
}

// told is what netlink says of the devices, by name; nothing where there is none to
// ask (before Linux 4.18).
func (r rdma) told(ctx context.Context) map[string]nldev.Device {
	if r.client == nil {
		return nil
	}
	list, err := r.client.Devices(ctx)
	if err != nil {
		return nil
	}
	out := make(map[string]nldev.Device, len(list))
	for _, d := range list {
		out[d.Name] = d
	}
	return out
}

func (r rdma) ports(ctx context.Context, d nldev.Device) []host.RDMAPort {
	list, err := r.client.Ports(ctx, d.Index)
	if err != nil {
		return nil
	}
	layer := "Ethernet" // of RoCE and iWARP
	if d.Protocol == "ib" || d.Protocol == "opa" {
		layer = "InfiniBand"
	}
	out := make([]host.RDMAPort, len(list))
	for i, p := range list {
		out[i] = host.RDMAPort{Number: p.Number, LinkLayer: layer, State: p.State, Netdev: p.Netdev}
	}
	return out
}

// files finds the character devices, each of which names its RDMA device in the
// attribute ibdev.
func (r rdma) files() map[string][]string {
	out := map[string][]string{}
	for _, class := range []string{"infiniband_verbs", "infiniband_mad", "infiniband_cm"} {
		names, err := readDir(r.sys + "/class/" + class)
		if err != nil {
			continue
		}
		for _, name := range names {
			if device := attribute(r.sys + "/class/" + class + "/" + name + "/ibdev"); device != "" {
				out[device] = append(out[device], r.dev+"/infiniband/"+name)
			}
		}
	}
	for _, files := range out {
		slices.Sort(files)
	}
	return out
}

// readDir lists a folder in order; one that is not there is empty.
func readDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// attribute reads one line; "" if it cannot.
func attribute(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
