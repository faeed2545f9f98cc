package deviceplugin

import (
	"encoding/json"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// deviceInfo is a file of the Network Plumbing Working Group's device information
// specification, version 1.1.0, by which CNI plugins learn what they were given.
type deviceInfo struct {
	Type    string    `json:"type"` // pci or vdpa
	Version string    `json:"version"`
	PCI     *pciInfo  `json:"pci,omitempty"`
	VDPA    *vdpaInfo `json:"vdpa,omitempty"`
}

const deviceInfoVersion = "1.1.0"

// pciInfo of an SF has no address, as SFs have none.
type pciInfo struct {
	Address     string `json:"pci-address,omitempty"`
	VhostNet    string `json:"vhost-net,omitempty"`
	RDMA        string `json:"rdma-device,omitempty"` // separated by commas
	PF          string `json:"pf-pci-address,omitempty"`
	Representor string `json:"representor-device,omitempty"`
}

type vdpaInfo struct {
	Parent      string `json:"parent-device,omitempty"`
	Driver      string `json:"driver,omitempty"` // vhost or virtio
	Path        string `json:"path,omitempty"`
	Address     string `json:"pci-address,omitempty"`
	PF          string `json:"pf-pci-address,omitempty"`
	Representor string `json:"representor-device,omitempty"`
}

// deviceInfoFile is the name that readers look for.
func deviceInfoFile(resource, id string) string {
	return strings.ReplaceAll(resource+"-"+id+"-device.json", "/", "-")
}

func (o on) infoOfVF(v *nic.VF) deviceInfo {
	if o.pool.VDPA != "" {
		return deviceInfo{Type: "vdpa", Version: deviceInfoVersion, VDPA: &vdpaInfo{
			Parent: v.VDPA.Name, Driver: string(o.pool.VDPA), Path: v.VDPA.File,
			Address: v.Address, PF: o.pf.Handle.Name, Representor: v.Rep.Netdev.Name,
		}}
	}
	return o.pciInfo(v.Address, v.RDMA, v.Rep.Netdev)
}

func (o on) infoOfSF(f *nic.SF) deviceInfo { return o.pciInfo("", f.RDMA, f.Rep) }

func (o on) pciInfo(address string, rdma []string, rep nic.Netdev) deviceInfo {
	p := &pciInfo{Address: address, PF: o.pf.Handle.Name, Representor: rep.Name}
	if o.pool.RDMA {
		p.RDMA = strings.Join(rdma, ",")
	}
	if o.pool.VhostNet {
		p.VhostNet = vhostNet
	}
	return deviceInfo{Type: "pci", Version: deviceInfoVersion, PCI: p}
}

// text is the file's content.
func (i deviceInfo) text() ([]byte, error) { return json.Marshal(i) }
