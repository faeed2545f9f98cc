package deviceplugin

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// Character devices that do not belong to one function.
const (
	vfioDir  = "/dev/vfio/"
	vfioCtl  = vfioDir + "vfio"
	vfioCdev = vfioDir + "devices/"
	iommu    = "/dev/iommu"
	rdmaCM   = "/dev/infiniband/rdma_cm"
	vhostNet = "/dev/vhost-net"
	tun      = "/dev/net/tun"
	noIOMMU  = "noiommu-"
	uverbsIs = "uverbs"
	umadIs   = "umad"
)

// gift is what one device brings into a container.
type gift struct {
	about map[string]map[string]string // as _INFO has it
	files []File
	info  deviceInfo
}

// add adds a file under a key of about, and to the files. Who only asks what is
// missing has no gift, nil.
func (g *gift) add(topic, key string, f File) {
	if g == nil {
		return
	}
	g.tell(topic, key, f.Container)
	if !slices.Contains(g.files, f) {
		g.files = append(g.files, f)
	}
}

func (g *gift) tell(topic, key, value string) {
	if g == nil {
		return
	}
	if g.about[topic] == nil {
		g.about[topic] = map[string]string{}
	}
	if g.about[topic][key] == "" {
		g.about[topic][key] = value
	}
}

func newGift(id string) gift {
	return gift{about: map[string]map[string]string{"generic": {"deviceID": id}}}
}

// giveVF says what a VF brings along, or what is missing.
func (o on) giveVF(v *nic.VF) (g gift, problem string) {
	g = newGift(v.Address)
	g.info = o.infoOfVF(v)
	return g, o.ofVF(&g, v)
}

func (o on) ofVF(g *gift, v *nic.VF) (problem string) {
	if nic.DriverOf(v.Driver) == nic.DriverVFIO {
		problem = o.addVFIO(g, v)
	} else {
		problem = o.addRDMA(g, v.RDMA)
	}
	if problem == "" && o.pool.VDPA != "" {
		problem = o.addVDPA(g, v)
	}
	if problem == "" {
		problem = o.addVhostNet(g)
	}
	return problem
}

func (o on) giveSF(f *nic.SF) (g gift, problem string) {
	g = newGift(f.Device)
	g.info = o.infoOfSF(f)
	return g, o.ofSF(&g, f)
}

func (o on) ofSF(g *gift, f *nic.SF) (problem string) {
	if problem = o.addRDMA(g, f.RDMA); problem == "" {
		problem = o.addVhostNet(g)
	}
	return problem
}

func (o on) giveHCA() (g gift, problem string) {
	g = newGift(o.pf.Handle.Name)
	return g, o.addRDMA(&g, o.pf.RDMA)
}

// addVFIO adds v's group and the container's file, and where the kernel has them
// the device's own file and /dev/iommu, by which iommufd does without groups
// (Documentation/driver-api/vfio.rst). Kernels may be built without groups.
func (o on) addVFIO(g *gift, v *nic.VF) (problem string) {
	onHost, inContainer, problem := o.vfioGroup(v)
	cdev := vfioCdev + v.VFIO
	byFD := v.VFIO != "" && o.node.Exists(cdev) && o.node.Exists(iommu)
	if problem != "" && !byFD {
		return problem
	}
	if problem == "" {
		g.add("vfio", "mount", File{vfioCtl, vfioCtl})
		g.add("vfio", "dev-mount", File{onHost, inContainer})
	}
	if byFD {
		g.add("vfio", "iommufd", File{iommu, iommu})
		g.add("vfio", "cdev", File{cdev, cdev})
	}
	return ""
}

// vfioGroup returns the file of v's IOMMU group on the host and its name in a
// container, or why there is none. Without an IOMMU the host's name carries a
// prefix (vfio_main.c, vfio_device_set_group), which containers do not see.
func (o on) vfioGroup(v *nic.VF) (onHost, inContainer, problem string) {
	if v.IOMMUGroup < 0 {
		return "", "", "no IOMMU group"
	}
	if !o.node.Exists(vfioCtl) {
		return "", "", "no " + vfioCtl
	}
	group := strconv.Itoa(v.IOMMUGroup)
	inContainer = vfioDir + group
	for _, onHost := range []string{inContainer, vfioDir + noIOMMU + group} {
		if o.node.Exists(onHost) {
			return onHost, inContainer, ""
		}
	}
	return "", "", "no " + inContainer
}

func (o on) addRDMA(g *gift, rdma []string) (problem string) {
	if !o.pool.RDMA {
		return ""
	}
	files, problem := o.rdmaFiles(rdma)
	if problem != "" {
		return problem
	}
	if problem := o.guidProblem(rdma); problem != "" {
		return problem
	}
	g.tell("rdma", "rdma_dev", rdma[0])
	for _, f := range files {
		g.add("rdma", kindOf(f), File{f, f})
	}
	return ""
}

// rdmaFiles returns the files through which a container uses RDMA devices, or what
// is missing of them. Their modules load one after the other at boot, so a VF may
// have some files before others. What its PF's device has tells that a module is
// loaded which is not loaded everywhere (infiniband/core/user_mad.c,
// ib_umad_add_one: device after device).
func (o on) rdmaFiles(rdma []string) (files []string, problem string) {
	if len(rdma) == 0 {
		return nil, "no RDMA device"
	}
	for _, name := range rdma {
		own := o.node.RDMA[name].Files
		if !hasKind(own, uverbsIs) {
			return nil, fmt.Sprintf("RDMA device %s has no uverbs file", name)
		}
		for _, of := range o.pf.RDMA {
			if hasKind(o.node.RDMA[of].Files, umadIs) && !hasKind(own, umadIs) {
				return nil, fmt.Sprintf("RDMA device %s has no umad file, and %s of its PF has one", name, of)
			}
		}
		for _, f := range own {
			if !o.node.Exists(f) {
				return nil, "no " + f
			}
		}
		files = append(files, own...)
	}
	if !o.node.Exists(rdmaCM) {
		return nil, "no " + rdmaCM
	}
	return append(files, rdmaCM), ""
}

func hasKind(files []string, kind string) bool {
	return slices.ContainsFunc(files, func(f string) bool { return kindOf(f) == kind })
}

// kindOf is a device file's name without its number: uverbs, umad, issm, rdma_cm.
func kindOf(file string) string { return strings.TrimRight(path.Base(file), "0123456789") }

// addVDPA adds the file of a vDPA device that vhost drives; one of virtio is a
// netdev, which the CNI plugin moves.
func (o on) addVDPA(g *gift, v *nic.VF) (problem string) {
	switch use := v.Settings[nic.VDPA]; {
	case use != string(o.pool.VDPA):
		return fmt.Sprintf("its vDPA device is %q, want %s", use, o.pool.VDPA)
	case o.pool.VDPA != nic.VDPAVhost:
		return ""
	case v.VDPA.File == "":
		return "its vDPA device has no file"
	case !o.node.Exists(v.VDPA.File):
		return "no " + v.VDPA.File
	}
	g.add("vdpa", "mount", File{v.VDPA.File, v.VDPA.File})
	return ""
}

func (o on) addVhostNet(g *gift) (problem string) {
	if !o.pool.VhostNet {
		return ""
	}
	for _, f := range []string{vhostNet, tun} {
		if !o.node.Exists(f) {
			return "no " + f
		}
	}
	g.add("vhost", "net-mount", File{vhostNet, vhostNet})
	g.add("vhost", "tun-mount", File{tun, tun})
	return ""
}
