package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"sluice.dev/sluice/cni/devfile"
	"sluice.dev/sluice/pkg/nic"
)

// How a device is attached, for programs.
const (
	asNetdev      = "netdev"
	asUserspace   = "userspace"
	asRepresentor = "representor"
)

func (j *job) files() devfile.Store { return devfile.In(j.store.StateDir()) }

func (j *job) readFile(context.Context) (err error) {
	j.state.Filed, err = j.files().Exists(j.rec.Key())
	return err
}

// file is what programs in the pod are told, as things are when ADD has done the rest.
func (j *job) file() devfile.File {
	r := j.rec
	f := devfile.File{
		Container: r.Container, Network: r.Network, Interface: r.IfName, Attached: asNetdev,
		Device: r.VF, PF: r.PF.Name, Index: r.Index, NUMA: j.pf.NUMA,
		MTU: j.state.VF.MTU, Switch: &devfile.Switch{Mode: cmp.Or(string(j.pf.Eswitch), string(nic.Legacy))},
	}
	mac := j.state.VF.MAC
	if r.Userspace {
		f.Attached, mac, f.MTU = asUserspace, j.state.AdminMAC, j.want.MTU
	}
	if !mac.IsZero() {
		f.MAC = mac.String()
	}
	f.GUID = j.want.GUID
	if j.state.Lease != nil {
		for _, a := range j.state.Lease.Addresses {
			f.Addresses = append(f.Addresses, a.String())
		}
	}
	switch {
	case r.SF:
		f.SF = true
		if sf := j.pf.SF(r.Index); sf != nil {
			f.Driver, f.RDMA = asVF(*sf).Driver, sf.RDMA
		}
	case r.Index < len(j.pf.VFs):
		f.Driver = j.pf.VFs[r.Index].Driver
		f.RDMA = j.pf.VFs[r.Index].RDMA
	}
	if f.Switch.Mode == string(nic.Switchdev) {
		f.Switch.ID, f.Switch.Representor = string(j.pf.SwitchID), j.state.Rep.Name
	}
	if r.OfRep {
		f.Attached, f.RDMA, f.Switch.Representor = asRepresentor, nil, j.state.VF.Name
		return f
	}
	if p := j.want.Port; p.Bridge != "" {
		f.Switch.Bridge, f.Switch.VLAN, f.Switch.Port = p.Bridge, int(p.VLAN), p.ExternalIDs[idIface]
	} else {
		id, _, _ := strings.Cut(j.want.Settings[nic.VLAN], "/")
		f.Switch.VLAN, _ = strconv.Atoi(id) // 0 for none
	}
	if q := j.queues(); q != (devfile.Queues{}) && !r.Userspace {
		f.Queues = &q
	}
	return f
}

// queues are as ADD has set them, or found them.
func (j *job) queues() devfile.Queues {
	number := func(name nic.Setting) int {
		n, _ := strconv.Atoi(cmp.Or(j.want.Settings[name], j.rec.Before.Settings[name])) // 0 when not known
		return n
	}
	return devfile.Queues{Channels: number(nic.Channels), RxRing: number(nic.RxRing), TxRing: number(nic.TxRing)}
}

// fileDamage says how the device file is not as ADD wrote it; "" when it is.
func (j *job) fileDamage(m *made) string {
	f, err := j.files().Read(j.rec.Key())
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its device file is gone"
	case errors.As(err, &syntax):
		return fmt.Sprintf("its device file cannot be read: %v", err)
	case err != nil:
		return err.Error()
	case f.Container != j.rec.Container || f.Interface != j.rec.IfName:
		return fmt.Sprintf("its device file is of %s of container %s", f.Interface, f.Container)
	case !m.mac.IsZero() && f.MAC != m.mac.String():
		return fmt.Sprintf("its device file says MAC %s, want %s", f.MAC, m.mac)
	}
	return ""
}
