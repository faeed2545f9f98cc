package linux

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/pci"
)

// AddSF gives the PF's number as mlx5 wants it, which is the PCI function's
// (mlx5_sf_new_check_attr).
func (e eswitches) AddSF(ctx context.Context, h nic.Handle, num int) error {
	op := fmt.Sprintf("add SF %d", num)
	if err := begin(ctx, op, h.String()); err != nil {
		return err
	}
	if num < 0 {
		return refuse(op, h.String(), unix.EINVAL, fmt.Errorf("an SF's number is not negative: %w", unix.EINVAL))
	}
	function := uint16(0)
	if nic.IsPCIAddress(h.Name) {
		function = uint16(h.Name[len(h.Name)-1] - '0')
	}
	made, err := e.devlink.AddSF(h, function, uint32(num))
	if err != nil {
		return fail(op, h.String(), err)
	}
	return fail(op, h.String(), until(ctx, limit(1), func() (string, error) {
		p, err := e.devlink.Port(h, made.Index)
		if err != nil || p.Ifindex != 0 {
			return "", err
		}
		return "its representor is not there", nil
	}))
}

func (e eswitches) DelSF(ctx context.Context, h nic.Handle, port uint32) error {
	const op = "remove SF"
	was, err := e.sfPort(ctx, op, h, port)
	if err != nil {
		return err
	}
	if err := e.devlink.DelPort(h, port); err != nil {
		return fail(op, portName(h, port), err)
	}
	return fail(op, portName(h, port), until(ctx, limit(1), func() (string, error) {
		if _, there := e.sfDevice(h, was.SF); there {
			return "its device is still there", nil
		}
		return "", nil
	}))
}

// sfPort reads the port of an SF for op, and refuses another.
func (e eswitches) sfPort(ctx context.Context, op string, h nic.Handle, port uint32) (devlink.Port, error) {
	p, err := e.port(ctx, op, h, port)
	if err == nil && p.Flavour != string(host.FlavourPCISF) {
		err = refuse(op, portName(h, port), 0, fmt.Errorf("the port is of flavour %s, not an SF's: %w", p.Flavour, host.ErrNotSupported))
	}
	return p, err
}

func (e eswitches) sfDevice(h nic.Handle, num int) (pci.SF, bool) {
	all, err := e.sys.SFs()
	if err != nil {
		return pci.SF{}, false
	}
	for _, f := range all {
		if f.PF == h.Name && f.Num == num {
			return f, true
		}
	}
	return pci.SF{}, false
}

func (e eswitches) SetSFActive(ctx context.Context, h nic.Handle, port uint32, active bool) error {
	op := "deactivate SF"
	if active {
		op = "activate SF"
	}
	was, err := e.sfPort(ctx, op, h, port)
	if err != nil {
		return err
	}
	if devlinkPort(was).Active != active {
		if err := e.devlink.SetPortFunction(h, port, devlink.FunctionChange{Active: &active}); err != nil {
			return fail(op, portName(h, port), err)
		}
	}
	start := time.Now()
	return fail(op, portName(h, port), until(ctx, limit(1), func() (string, error) {
		p, err := e.devlink.Port(h, port)
		if err != nil {
			return "", err
		}
		return e.missingOfSF(ctx, devlinkPort(p), active, time.Since(start) < unboundGrace)
	}))
}

// missingOfSF says what an SF lacks to be what it was set to. A device that has
// had its time without a driver is taken for one that nobody wants, as a VF is.
func (e eswitches) missingOfSF(ctx context.Context, p host.DevlinkPort, active, early bool) (string, error) {
	device, there := e.sfDevice(p.Handle, p.SF)
	switch {
	case p.Attached != active && active:
		return "it is not attached", nil
	case p.Attached != active:
		return "it is still attached", nil
	case there && !active:
		return "its device is still there", nil
	case !active:
		return "", nil
	case !there:
		return "it has no device", nil
	case device.Driver == "" && early:
		return "its device has no driver", nil
	case device.Driver == "" || device.Away:
		return "", nil
	}
	if err := e.enableSF(device.Name); err != nil {
		return "", err
	}
	list, err := e.links.Links(ctx)
	if err != nil {
		return "", err
	}
	for _, l := range list {
		if l.Parent == device.Name {
			return "", nil
		}
	}
	return "its device has no netdev", nil
}

// enableSF has an SF's driver make its netdev and RDMA device. Since Linux 6.5 mlx5
// brings SFs up with nothing but their devlink instance, so that whoever wants
// something else pays for no more (mlx5/core/main.c, mlx5_init_one_light); before,
// and with other drivers, there is nothing to switch on.
func (e eswitches) enableSF(device string) error {
	h := nic.Handle{Bus: "auxiliary", Name: device}
	on := devlink.Value{Type: devlink.Bool, Number: 1}
	changed := false
	for _, name := range []string{"enable_eth", "enable_rdma"} {
		p, err := e.devlink.Param(h, name)
		if v, ok := p.Values[devlink.DriverInit]; err != nil || !ok || v == on {
			continue
		}
		if err := e.devlink.SetParam(h, name, devlink.DriverInit, on); err != nil {
			return fail("switch on "+name, h.String(), err)
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return fail("reload", h.String(), e.devlink.Reload(h))
}
