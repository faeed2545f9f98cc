package deviceplugin

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// Grant is what a container gets with its devices.
type Grant struct {
	Env   map[string]string
	Files []File
}

// File is a device file, to be read and written.
type File struct {
	Host      string // path on the machine
	Container string // path in the container
}

// Allocate says what a container gets that was given the VFs ids of p, or which
// of them it must not get and why. Two variables name the devices, in the form
// that programs of the SR-IOV network device plugin read:
//
//	PCIDEVICE_SLUICE_DEV_FAST=0000:03:00.2,0000:03:00.3
//	PCIDEVICE_SLUICE_DEV_FAST_INFO={"0000:03:00.2":{"generic":{"deviceID":"0000:03:00.2"}},...}
//
// with "vfio" {mount, dev-mount} and "rdma" {rdma_dev, uverbs, umad, issm,
// rdma_cm} where a VF has these. Devices are ordered by address, however the
// kubelet, which keeps them as a set, ordered its request.
func Allocate(p Pool, n Node, ids []string) (Grant, error) {
	ids = slices.Sorted(slices.Values(ids))
	devices, _ := List(p, n)
	byID := make(map[string]Device, len(devices))
	for _, d := range devices {
		byID[d.ID] = d
	}
	g := Grant{Env: map[string]string{}}
	info := map[string]map[string]map[string]string{}
	for i, id := range ids {
		d, ok := byID[id]
		switch {
		case i > 0 && id == ids[i-1]:
			return Grant{}, fmt.Errorf("allocate of %s: %q is asked for twice: want each device once", p, id)
		case !ok:
			return Grant{}, fmt.Errorf("allocate of %s: %q is no VF of this pool: want the PCI address of a listed device", p, id)
		case !d.Healthy():
			return Grant{}, fmt.Errorf("allocate of %s: %s is unhealthy: %s", p, id, d.Problem)
		}
		about, files, problem := p.give(n.State.PF(d.VF.PF), d, n)
		if problem != "" {
			return Grant{}, fmt.Errorf("allocate of %s: %s cannot be given: %s", p, id, problem)
		}
		info[id] = about
		for _, f := range files {
			if !slices.Contains(g.Files, f) {
				g.Files = append(g.Files, f)
			}
		}
	}
	text, err := json.Marshal(info)
	if err != nil {
		return Grant{}, fmt.Errorf("allocate of %s: %w", p, err)
	}
	g.Env[p.envKey()] = strings.Join(ids, ",")
	g.Env[p.infoKey()] = string(text)
	return g, nil
}

// give says what a healthy device brings along. A VF that is still in use counts
// as healthy without its files, so they may be missing here.
func (p Pool) give(pf *nic.PF, d Device, n Node) (about map[string]map[string]string, files []File, problem string) {
	v := &pf.VFs[d.VF.Index]
	about = map[string]map[string]string{"generic": {"deviceID": d.ID}}
	if p.driver() == nic.DriverVFIO {
		onHost, inContainer, problem := vfioGroup(v, n)
		if problem != "" {
			return nil, nil, problem
		}
		about["vfio"] = map[string]string{"mount": vfioCtl, "dev-mount": inContainer}
		return about, []File{{vfioCtl, vfioCtl}, {onHost, inContainer}}, ""
	}
	if p.RDMA {
		paths, problem := rdmaFiles(pf, v, n)
		if problem != "" {
			return nil, nil, problem
		}
		about["rdma"] = map[string]string{"rdma_dev": v.RDMA[0]}
		for _, f := range paths {
			files = append(files, File{f, f})
			if kind := kindOf(f); about["rdma"][kind] == "" {
				about["rdma"][kind] = f
			}
		}
	}
	return about, files, ""
}

// kindOf is a device file's name without its number: uverbs, umad, issm, rdma_cm.
func kindOf(file string) string { return strings.TrimRight(path.Base(file), "0123456789") }

// envKey is PCIDEVICE_PREFIX_NAME in upper case. Dots become underscores and
// dashes stay, as programs expect that know it from elsewhere.
func (p Pool) envKey() string {
	return strings.ToUpper(strings.ReplaceAll("PCIDEVICE_"+p.prefix()+"_"+p.Name, ".", "_"))
}

func (p Pool) infoKey() string { return p.envKey() + "_INFO" }
