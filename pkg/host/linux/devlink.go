package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/pci"
)

// eswitches is the machine's devlink.
type eswitches struct {
	sys     *pci.Sys
	root    string // sysfs
	devlink *devlink.Client
	links   *links
	brief   bool
}

// Devices asks the instances for eswitch and info that can have them: not those of
// VFs nor of parts of a function on the auxiliary bus (mlx5_core.eth.N, one for
// each PF and VF), of which there are hundreds. They have no eswitch, and the
// serial number is their PF's.
func (e eswitches) Devices(ctx context.Context) ([]host.DevlinkDevice, error) {
	handles, err := e.devlink.Devices(ctx)
	if err != nil {
		return nil, fail("list", "devlink devices", err)
	}
	failing := e.failing(ctx)
	out := make([]host.DevlinkDevice, 0, len(handles))
	for _, h := range handles {
		if err := begin(ctx, "list", "devlink devices"); err != nil {
			return nil, err
		}
		d := e.device(ctx, h)
		d.Failing = failing[h]
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b host.DevlinkDevice) int { return a.Handle.Compare(b.Handle) })
	return out, nil
}

// failing is the reporters in state error, from one list. Where it cannot be read
// none is known of.
func (e eswitches) failing(ctx context.Context) map[nic.Handle][]string {
	if e.brief {
		return nil
	}
	reporters, err := e.devlink.Reporters(ctx)
	if err != nil {
		return nil
	}
	out := map[nic.Handle][]string{}
	for _, r := range reporters {
		if r.State == "error" && !slices.Contains(out[r.Handle], r.Name) {
			out[r.Handle] = append(out[r.Handle], r.Name)
		}
	}
	return out
}

func (e eswitches) device(ctx context.Context, h nic.Handle) host.DevlinkDevice {
	d := host.DevlinkDevice{Handle: h}
	switch h.Bus {
	case "auxiliary":
		return d
	case "pci":
		d.Driver = e.sys.Driver(h.Name)
		if _, isVF := e.sys.PF(h.Name); isVF {
			return d
		}
	}
	if s, err := e.eswitch(ctx, h); err == nil {
		d.Eswitch, d.Inline, d.Encap = s.Mode, s.Inline, s.Encap
		// mlx5/core/sf/hw_table.c, mlx5_sf_hw_table_res_register
		if r, err := e.devlink.Resources(h); !e.brief && err == nil {
			d.MaxSFs = int(min(r["max_local_SFs"], math.MaxInt32))
		}
	}
	if e.brief && d.Driver != "" {
		return d
	}
	if i, err := e.devlink.Info(h); err == nil {
		d.Serial, d.Firmware, d.PSID = i.Serial, i.Firmware, i.PSID
		if i.Driver != "" {
			d.Driver = i.Driver
		}
	}
	return d
}

func (e eswitches) Ports(ctx context.Context) ([]host.DevlinkPort, error) {
	ports, err := e.list(ctx)
	if err != nil {
		return nil, fail("list", "devlink ports", err)
	}
	out := make([]host.DevlinkPort, len(ports))
	for i, p := range ports {
		out[i] = devlinkPort(p)
	}
	return out, nil
}

// list is the one list from which ports and settings are taken: a driver asks the
// card's firmware for each port function.
func (e eswitches) list(ctx context.Context) ([]devlink.Port, error) {
	type all struct{ *devlink.Client }
	return host.Once(ctx, all{e.devlink}, func() ([]devlink.Port, error) { return e.devlink.Ports(ctx) })
}

func (e eswitches) eswitch(ctx context.Context, h nic.Handle) (devlink.Eswitch, error) {
	type of struct {
		*devlink.Client
		nic.Handle
	}
	return host.Once(ctx, of{e.devlink, h}, func() (devlink.Eswitch, error) { return e.devlink.Eswitch(h) })
}

func devlinkPort(p devlink.Port) host.DevlinkPort {
	out := host.DevlinkPort{
		Handle: p.Handle, Index: p.Index, Flavour: host.Flavour(p.Flavour), Controller: p.Controller, External: p.External,
		PF: p.PF, VF: p.VF, SF: p.SF, Ifindex: p.Ifindex, Netdev: p.Netdev,
	}
	if f := p.Function; f != nil {
		out.Active, out.Attached = f.State == "active", f.OpState == "attached"
		if f.MAC != nil {
			out.HasMAC, out.MAC = true, *f.MAC
		}
	}
	return out
}

func (e eswitches) Port(ctx context.Context, h nic.Handle, index uint32) (host.DevlinkPort, error) {
	p, err := e.port(ctx, "read port", h, index)
	return devlinkPort(p), err
}

// port reads one port for op.
func (e eswitches) port(ctx context.Context, op string, h nic.Handle, index uint32) (devlink.Port, error) {
	object := portName(h, index)
	if err := begin(ctx, op, object); err != nil {
		return devlink.Port{}, err
	}
	p, err := e.devlink.Port(h, index)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.2 a port that is not there
		return p, refuse(op, object, unix.ENODEV, fmt.Errorf("no such port: %w", fs.ErrNotExist))
	}
	return p, fail(op, object, err)
}

func portName(h nic.Handle, index uint32) string { return fmt.Sprintf("%s/%d", h, index) }

func (e eswitches) SetEswitch(ctx context.Context, h nic.Handle, m nic.Eswitch) error {
	op := fmt.Sprintf("set eswitch mode %s", m)
	if err := begin(ctx, op, h.String()); err != nil {
		return err
	}
	if m != nic.Legacy && m != nic.Switchdev {
		return refuse(op, h.String(), unix.EINVAL, fmt.Errorf("want %s or %s: %w", nic.Legacy, nic.Switchdev, unix.EINVAL))
	}
	was, err := e.devlink.Eswitch(h)
	if err != nil {
		return fail(op, h.String(), err)
	}
	uplink := e.hasUplink(ctx, h)
	if was.Mode != m {
		if err := e.devlink.SetEswitchMode(h, m); err != nil {
			return fail(op, h.String(), err)
		}
	}
	return fail(op, h.String(), e.await(ctx, h, m, e.numVFs(h), uplink))
}

// mode gives the eswitch mode, "" when the device has no eswitch.
func (e eswitches) mode(h nic.Handle) (nic.Eswitch, error) {
	s, err := e.devlink.Eswitch(h)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	return s.Mode, err
}

// numVFs reads the count of a device on any bus: netdevsim has the attribute too.
func (e eswitches) numVFs(h nic.Handle) int {
	b, err := os.ReadFile(fmt.Sprintf("%s/bus/%s/devices/%s/sriov_numvfs", e.root, h.Bus, h.Name))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func (e eswitches) hasUplink(ctx context.Context, h nic.Handle) bool {
	ports, err := e.devlink.Ports(ctx)
	return err == nil && slices.ContainsFunc(ports, func(p devlink.Port) bool { return p.Handle == h && isUplink(p) })
}

func isUplink(p devlink.Port) bool {
	return p.Flavour == string(host.FlavourPhysical) && p.Ifindex != 0
}

// await waits until the representors of n VFs are there with their netdevs, in
// legacy mode until there are none; and for the uplink's netdev if uplink says
// that there was one, because older drivers make it anew.
func (e eswitches) await(ctx context.Context, h nic.Handle, m nic.Eswitch, n int, uplink bool) error {
	return until(ctx, limit(n), func() (string, error) {
		ports, err := e.devlink.Ports(ctx)
		if err != nil {
			return "", err
		}
		there, named := map[int]bool{}, 0
		up := false
		for _, p := range ports {
			switch {
			case p.Handle != h:
			case isUplink(p):
				up = true
			case p.Flavour == string(host.FlavourPCIVF) && !p.External && p.VF >= 0:
				named++
				if p.Ifindex != 0 {
					there[p.VF] = true
				}
			}
		}
		if m != nic.Switchdev {
			n = 0
		}
		switch {
		case uplink && !up:
			return "the uplink has no netdev", nil
		case n == 0 && named > 0:
			return fmt.Sprintf("%d representors are still there", named), nil
		case n > 0 && named == 0:
			return e.awaitByName(ctx, h, n)
		}
		for i := range n {
			if !there[i] {
				return fmt.Sprintf("VF %d has no representor", i), nil
			}
		}
		return "", nil
	})
}

// awaitByName looks for representors of a driver that makes no devlink ports for
// VFs, as drivers before Linux 5.9 did; before 5.8 they had no parent either, and
// hung together with the uplink by the switch alone.
func (e eswitches) awaitByName(ctx context.Context, h nic.Handle, n int) (string, error) {
	list, err := e.links.Links(ctx)
	if err != nil {
		return "", err
	}
	there := representorsByName(list, h)
	for i := range n {
		if !there[i] {
			return fmt.Sprintf("VF %d has no representor", i), nil
		}
	}
	return "", nil
}

// representorsByName are the VFs, by index, that have a representor's netdev.
func representorsByName(list []host.Link, h nic.Handle) map[int]bool {
	var of nic.SwitchID
	for _, l := range list {
		if l.Parent == h.Name && l.SwitchID != "" {
			of = l.SwitchID
		}
	}
	there := map[int]bool{}
	for _, l := range list {
		pf, vf, ok := host.VFOfPortName(l.PortName)
		switch {
		case !ok:
		case l.Parent == h.Name:
			there[vf] = true
		case l.Parent == "" && of != "" && l.SwitchID == of:
			there[vf] = there[vf] || pf < 0 || strings.HasSuffix(h.Name, "."+strconv.Itoa(pf))
		}
	}
	return there
}

func (e eswitches) SetPortMAC(ctx context.Context, h nic.Handle, port uint32, mac nic.MAC) error {
	op := "set hw_addr " + mac.String()
	was, err := e.port(ctx, op, h, port)
	if err != nil {
		return err
	}
	if was.Function != nil && was.Function.MAC != nil && *was.Function.MAC == mac {
		return nil
	}
	return fail(op, portName(h, port), e.devlink.SetPortFunction(h, port, devlink.FunctionChange{MAC: &mac}))
}
