package deviceplugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// Grant is what a container gets with its devices.
type Grant struct {
	Env   map[string]string
	Files []File   // none with CDI
	CDI   []string // names of devices, of a pool that gives files by them

	// Mounts are folders to be read only, one for each device that has Infos.
	Mounts []File

	// Infos is what is told of each device to CNI plugins, by its ID. An HCA has
	// none: nothing of it is moved.
	Infos map[string][]byte
}

// File is a device file, to be read and written.
type File struct {
	Host      string // path on the machine
	Container string // path in the container
}

// Allocate says what a container gets that was given the devices ids of p, or
// which of them it must not get and why. Two variables name the devices, in the
// form that programs of the SR-IOV network device plugin read:
//
//	PCIDEVICE_SLUICE_DEV_FAST=0000:03:00.2,0000:03:00.3
//	PCIDEVICE_SLUICE_DEV_FAST_INFO={"0000:03:00.2":{"generic":{"deviceID":"0000:03:00.2"}},...}
//
// with "vfio" {mount, dev-mount, iommufd, cdev}, "rdma" {rdma_dev, uverbs, umad,
// issm, rdma_cm}, "vdpa" {mount} and "vhost" {net-mount, tun-mount} where a device
// has these. Devices are ordered by ID, however the kubelet, which keeps them as a
// set, ordered its request.
func Allocate(p nic.Pool, n Node, ids []string) (Grant, error) {
	ids = slices.Sorted(slices.Values(ids))
	devices, _ := List(p, n)
	byID := make(map[string]Device, len(devices))
	for _, d := range devices {
		byID[d.ID] = d
	}
	g := Grant{Env: map[string]string{}}
	about := map[string]map[string]map[string]string{}
	for i, id := range ids {
		d, ok := byID[id]
		switch {
		case i > 0 && id == ids[i-1]:
			return Grant{}, fmt.Errorf("allocate of %s: %q is asked for twice: want each device once", p, id)
		case !ok:
			return Grant{}, fmt.Errorf("allocate of %s: %q is no %s of this pool: want the ID of a listed device, %s", p, id, noun(p), example(p))
		case !d.Healthy():
			return Grant{}, fmt.Errorf("allocate of %s: %s is unhealthy: %s", p, id, d.Problem)
		}
		gift, problem := give(p, n, d)
		if problem != "" {
			return Grant{}, fmt.Errorf("allocate of %s: %s cannot be given: %s", p, id, problem)
		}
		about[id] = gift.about
		if err := g.take(p, id, gift); err != nil {
			return Grant{}, fmt.Errorf("allocate of %s: %w", p, err)
		}
	}
	text, err := json.Marshal(about)
	if err != nil {
		return Grant{}, fmt.Errorf("allocate of %s: %w", p, err)
	}
	variable := policy.PoolVariable(p)
	g.Env[variable] = strings.Join(ids, ",")
	g.Env[variable+"_INFO"] = string(text)
	return g, nil
}

// take adds what one device brings.
func (g *Grant) take(p nic.Pool, id string, one gift) error {
	if p.CDI {
		if len(one.files) > 0 {
			g.CDI = append(g.CDI, cdiName(p, id))
		}
	} else {
		for _, f := range one.files {
			if !slices.Contains(g.Files, f) {
				g.Files = append(g.Files, f)
			}
		}
	}
	if p.IsOf(nic.PoolOfHCAs) {
		return nil
	}
	text, err := one.info.text()
	if err != nil {
		return err
	}
	if g.Infos == nil {
		g.Infos = map[string][]byte{}
	}
	g.Infos[id] = text
	return nil
}

// give says what a device of n brings along. One that is in use counts as healthy
// without its files, so they may be missing here.
func give(p nic.Pool, n Node, d Device) (g gift, problem string) {
	o := on{pool: p, node: n, pf: n.State.PF(d.PF)}
	switch {
	case p.IsOf(nic.PoolOfHCAs):
		g, problem = o.giveHCA()
		g.about["generic"]["deviceID"] = d.ID
		return g, problem
	case p.IsOf(nic.PoolOfSFs):
		return o.giveSF(o.pf.SF(d.Index))
	}
	return o.giveVF(&o.pf.VFs[d.Index])
}

func noun(p nic.Pool) string {
	switch {
	case p.IsOf(nic.PoolOfHCAs):
		return "HCA"
	case p.IsOf(nic.PoolOfSFs):
		return "SF"
	}
	return "VF"
}

func example(p nic.Pool) string {
	switch {
	case p.IsOf(nic.PoolOfHCAs):
		return "for example 0000:03:00.0-0"
	case p.IsOf(nic.PoolOfSFs):
		return "for example mlx5_core.sf.4"
	}
	return "a PCI address"
}
