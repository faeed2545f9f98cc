package cni

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
)

// A VF of an InfiniBand port has a GUID instead of a MAC address. Its PF sets it, and the
// VF's driver takes it when it binds (drivers/infiniband/hw/mlx5/ib_virt.c): so it is
// bound anew, by steps as all others are. Whether the GUID is in effect the VF's own RDMA
// device tells, which is looked at before the VF goes to a pod and after it came home.

const guidForm = "eight octets, neither all 00 nor all ff, for example 02:00:00:00:00:00:00:01"

// parseGUID reads one into nic.NodeGUID's form.
func parseGUID(s string) (string, bool) {
	parts := strings.Split(strings.ToLower(s), ":")
	sum, product := uint64(0), uint64(0xff)
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 16, 8)
		if err != nil || len(p) != 2 {
			return "", false
		}
		sum, product = sum|n, product&n
	}
	return strings.Join(parts, ":"), len(parts) == 8 && sum != 0 && product != 0xff
}

func guid(raw json.RawMessage, into *string) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	g, ok := parseGUID(s)
	if !ok {
		return errForm
	}
	*into = g
	return nil
}

// fitsLink refuses the address of another link layer than the VF's.
func (c *Config) fitsLink(pf *nic.PF, vf *nic.VF) error {
	bad := func(format string, a ...any) error { return coded(types.ErrInvalidNetworkConfig, format, a...) }
	node, can := vf.Settings[nic.NodeGUID]
	switch {
	case c.GUID != "" && !pf.InfiniBand:
		return bad("guid = %s: %s is on a port of Ethernet, which has no GUIDs: want mac, or it away", c.GUID, record.Name(c.VF))
	case pf.InfiniBand && !c.MAC.IsZero():
		return bad("mac = %s: %s is on a port of InfiniBand, which has no MAC addresses: want guid, or it away", c.MAC, record.Name(c.VF))
	case c.GUID != "" && can && node == c.GUID && vf.Settings[nic.PortGUID] != c.GUID:
		// Which port GUID is in effect nothing tells.
		return bad("guid = %s: %s has it as node GUID already, and port GUID %s: want these alike before, or another", c.GUID, record.Name(c.VF), vf.Settings[nic.PortGUID])
	}
	return nil
}

// bindable notes how a VF was before it is bound anew.
func (p *Plugin) bindable(ctx context.Context, r *record.Record, vf *nic.VF) error {
	in, err := p.guidInEffect(ctx, r.VF)
	if err == nil && in == "" {
		err = coded(ErrNode, "%s has no RDMA device, which shows whether a GUID is in effect: want its driver's (modprobe mlx5_ib; rdma link show)", record.Name(r.VF))
	}
	r.Before.GUID, r.Before.Driver = in, vf.Driver
	return err
}

// guidInEffect is the node GUID that a VF was bound with; "" where no RDMA device of it is
// in the host's namespace.
func (p *Plugin) guidInEffect(ctx context.Context, vf string) (string, error) {
	all, err := p.Host.RDMA.Devices(ctx)
	for _, d := range all {
		if d.Parent == vf {
			return d.NodeGUID, err
		}
	}
	return "", err
}

func (j *job) readGUID(ctx context.Context) (err error) {
	j.state.GUID = ""
	if j.rec.Before.GUID == "" {
		return nil
	}
	defer j.p.span("kernel", "read GUID")()
	j.state.GUID, err = j.p.guidInEffect(ctx, j.rec.VF)
	return err
}

// bind gives the VF its driver. Its RDMA devices may have other names now, which the
// record has to know before they go anywhere.
func (j *job) bind(ctx context.Context, s BindVF) error {
	if err := j.p.Host.PCI.Bind(ctx, s.VF, s.Driver); err != nil {
		return err
	}
	j.state.Rebound = true
	if j.want.Goal != record.Attached || len(j.rec.RDMA) == 0 {
		return nil
	}
	all, err := j.p.Host.RDMA.Devices(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, d := range all {
		if d.Parent == s.VF {
			names = append(names, d.Name)
		}
	}
	if slices.Equal(names, j.rec.RDMA) {
		return nil
	}
	j.rec.RDMA, j.want.RDMA = names, names
	if err := j.store.Save(j.rec); err != nil {
		return coded(types.ErrIOFailure, "record the RDMA devices of %s: %w", record.Name(s.VF), err)
	}
	return nil
}
