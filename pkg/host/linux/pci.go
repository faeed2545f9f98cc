package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/pci"
)

type pciFunctions struct {
	sys       *pci.Sys
	eswitches eswitches
	links     *links
	udev      string // the file that is there while udev works
}

func (p pciFunctions) Functions(ctx context.Context) ([]host.Function, error) {
	list, err := p.sys.Functions(ctx)
	if err != nil {
		return nil, fail("list", "PCI functions", err)
	}
	out := make([]host.Function, len(list))
	for i, f := range list {
		out[i] = host.Function(f)
	}
	return out, nil
}

func (p pciFunctions) Function(ctx context.Context, address string) (host.Function, error) {
	const op = "read function"
	if err := begin(ctx, op, address); err != nil {
		return host.Function{}, err
	}
	f, ok := p.sys.Function(address)
	if !ok {
		return host.Function{}, refuse(op, address, unix.ENOENT, fmt.Errorf("no such network function: %w", fs.ErrNotExist))
	}
	return host.Function(f), nil
}

func (p pciFunctions) SFs(ctx context.Context) ([]host.SFDevice, error) {
	if err := begin(ctx, "list", "SFs"); err != nil {
		return nil, err
	}
	list, err := p.sys.SFs()
	if err != nil {
		return nil, fail("list", "SFs", err)
	}
	out := make([]host.SFDevice, len(list))
	for i, f := range list {
		out[i] = host.SFDevice(f)
	}
	return out, nil
}

// sriov says why pf has no SR-IOV to be set; nil when it has.
func (p pciFunctions) sriov(op, pf string) error {
	if !p.sys.Exists(pf) {
		return refuse(op, pf, unix.ENOENT, fmt.Errorf("no such PCI function: %w", fs.ErrNotExist))
	}
	if of, isVF := p.sys.PF(pf); isVF {
		return refuse(op, pf, 0, fmt.Errorf("it is a VF, of %s: %w", of, host.ErrNotSupported))
	}
	if _, ok := p.sys.NumVFs(pf); !ok {
		return refuse(op, pf, 0, fmt.Errorf("it has no SR-IOV: %w", host.ErrNotSupported))
	}
	return nil
}

func (p pciFunctions) SetVFs(ctx context.Context, pf string, n int) error {
	op := fmt.Sprintf("set VF count %d", n)
	if err := begin(ctx, op, pf); err != nil {
		return err
	}
	if err := p.sriov(op, pf); err != nil {
		return err
	}
	if n < 0 {
		return fail(op, pf, unix.EINVAL)
	}
	if have, _ := p.sys.NumVFs(pf); have != n {
		if err := p.sys.SetNumVFs(pf, n); err != nil {
			return p.explain(op, pf, have, err)
		}
	}
	// A driver may make fewer than asked, and the kernel calls that success.
	if have, _ := p.sys.NumVFs(pf); have != n {
		return refuse(op, pf, unix.ENOSPC, fmt.Errorf("the driver made %d: %w", have, unix.ENOSPC))
	}
	return fail(op, pf, p.awaitVFs(ctx, pf, n))
}

// explain says what the errno of a write to sriov_numvfs means
// (drivers/pci/iov.c, sriov_numvfs_store).
func (p pciFunctions) explain(op, pf string, have int, err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return fail(op, pf, err)
	}
	switch errno {
	case unix.ERANGE:
		return refuse(op, pf, errno, fmt.Errorf("it can have %d: %w", p.sys.TotalVFs(pf), errno))
	case unix.EBUSY:
		if have > 0 {
			return refuse(op, pf, errno, fmt.Errorf("it has %d VFs, which must go first: %w", have, errno))
		}
	case unix.ENOENT: // no driver, or one without sriov_configure
		driver := p.sys.Driver(pf)
		if driver == "" {
			return refuse(op, pf, 0, fmt.Errorf("no driver is bound to make VFs: %w", host.ErrNotSupported))
		}
		return refuse(op, pf, 0, fmt.Errorf("its driver %s makes no VFs: %w", driver, host.ErrNotSupported))
	}
	return fail(op, pf, errno)
}

// unboundGrace is how long a VF with autoprobe on may be without a driver, while
// nothing comes of any other, before it is taken for one that nobody wants: its
// driver is not loaded, or refused it.
const unboundGrace = time.Second

// awaitVFs waits for n VFs to be there with what they bring: links in sysfs,
// representors in switchdev mode, netdevs with autoprobe on.
func (p pciFunctions) awaitVFs(ctx context.Context, pf string, n int) error {
	if n > 0 {
		if err := settle(ctx, p.udev, limit(n)); err != nil {
			return err
		}
	}
	auto, _ := p.sys.Autoprobe(pf)
	moved, come, done := time.Now(), 0, 0
	err := until(ctx, limit(n), func() (string, error) {
		if address, ok := p.sys.VF(pf, n); ok {
			return fmt.Sprintf("VF %d at %s is still there", n, address), nil
		}
		// What was seen of one VF stays, so each look goes on from there.
		for ; done < n; done++ {
			address, ok := p.sys.VF(pf, done)
			if !ok {
				return fmt.Sprintf("VF %d is not there", done), nil
			}
			if !auto {
				continue
			}
			if p.sys.Driver(address) == "" {
				if now := p.come(pf, n); now != come {
					moved, come = time.Now(), now
				}
				if time.Since(moved) < unboundGrace {
					return fmt.Sprintf("VF %d has no driver", done), nil
				}
			}
			if p.wantsNetdev(address) && !p.sys.Netdev(address) {
				return fmt.Sprintf("VF %d has no netdev", done), nil
			}
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	if auto {
		all := make([]string, 0, n)
		for i := range n {
			if address, ok := p.sys.VF(pf, i); ok {
				all = append(all, address)
			}
		}
		if err := p.awaitNetdevs(ctx, all...); err != nil {
			return err
		}
	}
	h := nic.PCI(pf)
	mode, err := p.eswitches.mode(h)
	if err != nil || mode == "" {
		return nil // no eswitch: no representors
	}
	return p.eswitches.await(ctx, h, mode, n, false)
}

// come counts what there is of the first n VFs: themselves, and their drivers.
func (p pciFunctions) come(pf string, n int) int {
	count := 0
	for i := range n {
		if address, ok := p.sys.VF(pf, i); ok {
			count++
			if p.sys.Driver(address) != "" {
				count++
			}
		}
	}
	return count
}

// wantsNetdev says whether the function's driver makes a netdev: of an Ethernet
// controller, and not one that hands it to programs. InfiniBand's come from
// ib_ipoib, if it is loaded.
func (p pciFunctions) wantsNetdev(address string) bool {
	return p.sys.Driver(address) != "" && strings.HasPrefix(p.sys.Class(address), "0200") && !p.sys.Userspace(address)
}

// awaitNetdevs waits until the functions' netdevs are to be seen: sysfs shows
// net/ a moment before a list of interfaces has it (register_netdevice).
func (p pciFunctions) awaitNetdevs(ctx context.Context, functions ...string) error {
	return until(ctx, limit(len(functions)), func() (string, error) {
		list, err := p.links.Links(ctx)
		if err != nil {
			return "", err
		}
		shown := make(map[string]bool, len(list))
		for _, l := range list {
			shown[l.Parent] = true
		}
		for _, f := range functions {
			if shown[f] || !p.wantsNetdev(f) || p.sys.Away(f) {
				continue
			}
			return fmt.Sprintf("%s has no netdev", f), nil
		}
		return "", nil
	})
}

func (p pciFunctions) SetAutoprobe(ctx context.Context, pf string, on bool) error {
	op := "set autoprobe off"
	if on {
		op = "set autoprobe on"
	}
	if err := begin(ctx, op, pf); err != nil {
		return err
	}
	if err := p.sriov(op, pf); err != nil {
		return err
	}
	switch was, ok := p.sys.Autoprobe(pf); {
	case !ok: // before Linux 4.12
		return refuse(op, pf, 0, fmt.Errorf("the kernel has no sriov_drivers_autoprobe: %w", host.ErrNotSupported))
	case was == on:
		return nil
	}
	unlock, err := p.lockAutoprobe(ctx, pf)
	if err != nil {
		return fail(op, pf, err)
	}
	defer unlock()
	return fail(op, pf, p.sys.SetAutoprobe(pf, on))
}

// lockAutoprobe keeps others of our kind from a PF's autoprobe while one of them
// has it on for a moment.
func (p pciFunctions) lockAutoprobe(ctx context.Context, pf string) (unlock func(), err error) {
	f, err := os.Open(p.sys.AutoprobeFile(pf))
	if err != nil {
		return nil, err
	}
	err = until(ctx, limit(1), func() (string, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return "its autoprobe is locked", nil
		}
		return "", err
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func (p pciFunctions) Bind(ctx context.Context, function, driver string) error {
	op := "bind " + driver
	if driver == "" {
		op = "bind the kernel's driver"
	}
	if err := begin(ctx, op, function); err != nil {
		return err
	}
	if !p.sys.Exists(function) {
		return refuse(op, function, unix.ENOENT, fmt.Errorf("no such PCI function: %w", fs.ErrNotExist))
	}
	bound := p.sys.Driver(function)
	switch {
	case bound == "":
		if err := p.bind(ctx, op, function, driver); err != nil {
			return err
		}
	case bound == driver, driver == "" && !p.sys.Userspace(function):
	default:
		return refuse(op, function, unix.EBUSY, fmt.Errorf("it is bound to %s: %w", bound, unix.EBUSY))
	}
	if !p.wantsNetdev(function) {
		return nil
	}
	if err := settle(ctx, p.udev, limit(1)); err != nil {
		return fail(op, function, err)
	}
	return fail(op, function, p.awaitNetdevs(ctx, function))
}

func (p pciFunctions) bind(ctx context.Context, op, function, driver string) error {
	before := p.sys.Override(function)
	if driver != "" && !p.sys.HasDriver(driver) {
		return refuse(op, function, unix.ENOENT, fmt.Errorf("no PCI driver %s is loaded: %w", driver, fs.ErrNotExist))
	}
	if before != driver {
		if err := p.sys.SetOverride(function, driver); err != nil {
			return fail(op, function, err)
		}
	}
	if driver == "" {
		return p.probe(ctx, op, function)
	}
	err := p.sys.Bind(function, driver)
	if err != nil && p.sys.Driver(function) == driver { // somebody was quicker
		err = nil
	}
	// The override has done its work. Left in place it would keep the kernel's
	// own driver away at the next bind.
	after := ""
	if err != nil {
		after = before
	}
	if e := p.sys.SetOverride(function, after); err == nil {
		err = e
	}
	if err != nil {
		return fail(op, function, err)
	}
	return fail(op, function, p.awaitDriver(ctx, function))
}

func (p pciFunctions) awaitDriver(ctx context.Context, function string) error {
	return until(ctx, unboundGrace, func() (string, error) {
		if p.sys.Driver(function) == "" {
			return "it has no driver", nil
		}
		return "", nil
	})
}

// probeVF turns the PF's autoprobe on for the moment when it is off: without it
// the kernel binds a VF to nothing but its driver_override (drivers/pci/
// pci-driver.c, pci_device_can_probe), and which driver it would pick is not
// written anywhere.
func (p pciFunctions) probeVF(ctx context.Context, function string) (err error) {
	pf, isVF := p.sys.PF(function)
	if !isVF {
		return p.sys.Probe(function)
	}
	if _, ok := p.sys.Autoprobe(pf); !ok {
		return p.sys.Probe(function)
	}
	unlock, err := p.lockAutoprobe(ctx, pf)
	if err != nil {
		return err
	}
	defer unlock()
	if on, _ := p.sys.Autoprobe(pf); !on {
		if err := p.sys.SetAutoprobe(pf, true); err != nil {
			return err
		}
		defer func() {
			if e := p.sys.SetAutoprobe(pf, false); err == nil {
				err = e
			}
		}()
	}
	return p.sys.Probe(function)
}

// probe has the kernel look for a driver. That nobody wants the function is
// success to the kernel, a probe that failed is EINVAL whatever it was
// (drivers/base/bus.c, drivers_probe_store).
func (p pciFunctions) probe(ctx context.Context, op, function string) error {
	failed := p.probeVF(ctx, function)
	err := failed
	if failed == nil {
		err = p.awaitDriver(ctx, function)
	}
	switch {
	case p.sys.Driver(function) != "":
		return nil
	case failed != nil:
		var errno unix.Errno
		if errors.As(failed, &errno) && errno == unix.EINVAL {
			return refuse(op, function, errno, fmt.Errorf("its driver refused it, see the kernel's log: %w", errno))
		}
		return fail(op, function, failed)
	case errors.Is(err, unix.ETIMEDOUT):
		return refuse(op, function, unix.ENODEV, fmt.Errorf("no loaded driver took it; if one tried, the kernel's log says why: %w", unix.ENODEV))
	}
	return fail(op, function, err)
}

func (p pciFunctions) Unbind(ctx context.Context, vf string) error {
	const op = "unbind"
	if err := begin(ctx, op, vf); err != nil {
		return err
	}
	if !p.sys.Exists(vf) {
		return refuse(op, vf, unix.ENOENT, fmt.Errorf("no such PCI function: %w", fs.ErrNotExist))
	}
	if _, isVF := p.sys.PF(vf); !isVF {
		return refuse(op, vf, 0, fmt.Errorf("a PF is never unbound: %w", host.ErrNotSupported))
	}
	driver := p.sys.Driver(vf)
	if driver == "" {
		return nil
	}
	if err := p.sys.Unbind(vf, driver); err != nil && p.sys.Driver(vf) != "" {
		return fail(op, vf, err)
	}
	return nil
}
