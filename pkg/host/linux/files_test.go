package linux

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/pci"
)

// sysfs is a tree of files in a sysfs's place: what nobody answers for.
type sysfs struct {
	t    *testing.T
	root string
}

func (s sysfs) file(name, value string) {
	s.t.Helper()
	must(s.t, os.MkdirAll(filepath.Dir(s.root+"/"+name), 0o700))
	must(s.t, os.WriteFile(s.root+"/"+name, []byte(value), 0o600))
}

func (s sysfs) link(name, target string) {
	s.t.Helper()
	must(s.t, os.MkdirAll(filepath.Dir(s.root+"/"+name), 0o700))
	must(s.t, os.Symlink(target, s.root+"/"+name))
}

const (
	pfAt, vfAt, otherAt = "0000:03:00.0", "0000:03:00.2", "0000:05:00.0"
)

// card has a PF with one VF that has no driver, and a function without SR-IOV.
func card(t *testing.T) (sysfs, *Machine) {
	t.Helper()
	s := sysfs{t: t, root: t.TempDir()}
	for address, device := range map[string]string{pfAt: "101D", vfAt: "101E", otherAt: "1015"} {
		s.file("bus/pci/devices/"+address+"/uevent", "PCI_CLASS=20000\nPCI_ID=15B3:"+device+"\n")
		s.file("bus/pci/devices/"+address+"/driver_override", "(null)\n")
	}
	pf, vf := "bus/pci/devices/"+pfAt, "bus/pci/devices/"+vfAt
	for name, value := range map[string]string{"sriov_totalvfs": "8", "sriov_numvfs": "1", "sriov_drivers_autoprobe": "1"} {
		s.file(pf+"/"+name, value+"\n")
	}
	s.link(pf+"/virtfn0", "../"+vfAt)
	s.link(vf+"/physfn", "../"+pfAt)
	s.link(pf+"/driver", "../../drivers/mlx5_core")
	s.file("bus/pci/drivers/mlx5_core/bind", "")
	s.file("bus/pci/drivers/vfio-pci/bind", "")
	s.file("bus/pci/drivers_probe", "")
	m, err := Open(Options{Sys: s.root, Run: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return s, m
}

func TestPCIRefusals(t *testing.T) {
	_, m := card(t)
	ctx := t.Context()
	for name, c := range map[string]struct {
		err  error
		is   error
		says string
	}{
		"count of nothing":       {m.PCI.SetVFs(ctx, "0000:99:00.0", 1), fs.ErrNotExist, "set VF count 1 of 0000:99:00.0: no such PCI function"},
		"count of a VF":          {m.PCI.SetVFs(ctx, vfAt, 1), host.ErrNotSupported, "it is a VF, of " + pfAt},
		"count without SR-IOV":   {m.PCI.SetVFs(ctx, otherAt, 1), host.ErrNotSupported, "no SR-IOV"},
		"count below zero":       {m.PCI.SetVFs(ctx, pfAt, -1), unix.EINVAL, "set VF count -1 of " + pfAt},
		"autoprobe of a VF":      {m.PCI.SetAutoprobe(ctx, vfAt, true), host.ErrNotSupported, "it is a VF"},
		"unbind a PF":            {m.PCI.Unbind(ctx, pfAt), host.ErrNotSupported, "a PF is never unbound"},
		"unbind nothing":         {m.PCI.Unbind(ctx, "0000:99:00.0"), fs.ErrNotExist, ""},
		"bind nothing":           {m.PCI.Bind(ctx, "0000:99:00.0", ""), fs.ErrNotExist, ""},
		"bind to what is not":    {m.PCI.Bind(ctx, vfAt, "igb_uio"), fs.ErrNotExist, "no PCI driver igb_uio is loaded"},
		"bind what is bound":     {m.PCI.Bind(ctx, pfAt, "vfio-pci"), host.ErrBusy, "it is bound to mlx5_core"},
		"bind what nobody wants": {m.PCI.Bind(ctx, vfAt, ""), fs.ErrNotExist, "no loaded driver took it"},
		"unbound is unbound":     {m.PCI.Unbind(ctx, vfAt), nil, ""},
	} {
		if !errors.Is(c.err, c.is) || c.err != nil && !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v, want %v saying %q", name, c.err, c.is, c.says)
		}
	}
}

// The driver's words for what a write to sriov_numvfs means.
func TestExplain(t *testing.T) {
	s, _ := card(t)
	p := pciFunctions{sys: pci.New(s.root, false)}
	for errno, want := range map[unix.Errno]struct {
		is   error
		says string
	}{
		unix.ERANGE: {unix.ERANGE, "it can have 8"},
		unix.EBUSY:  {host.ErrBusy, "it has 1 VFs, which must go first"},
		unix.ENOENT: {host.ErrNotSupported, "its driver mlx5_core makes no VFs"},
		unix.ENOSPC: {host.ErrExhausted, "no space left"},
		unix.ENOMEM: {host.ErrExhausted, "cannot allocate memory"},
	} {
		err := p.explain("set VF count 9", pfAt, 1, &fs.PathError{Op: "write", Path: "x", Err: errno})
		if !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.says) || !strings.HasPrefix(err.Error(), "set VF count 9 of "+pfAt) {
			t.Errorf("%v: %v, want %v saying %q", errno, err, want.is, want.says)
		}
	}
}

// A bind that fails leaves driver_override as it was, one that succeeds leaves
// none. Nobody binds in a tree of files but this test, when it is told to.
func TestBindLeavesNoOverride(t *testing.T) {
	s, m := card(t)
	override := s.root + "/bus/pci/devices/" + vfAt + "/driver_override"
	s.file("bus/pci/devices/"+vfAt+"/driver_override", "kept\n")
	must(t, os.Remove(s.root+"/bus/pci/drivers/vfio-pci/bind"))
	if err := m.PCI.Bind(t.Context(), vfAt, "vfio-pci"); err == nil {
		t.Error("bound to a driver that cannot be")
	}
	if b, _ := os.ReadFile(override); string(b) != "kept\n" {
		t.Errorf("driver_override is %q", b)
	}
	s.file("bus/pci/drivers/vfio-pci/bind", "")
	bound := make(chan error)
	go func() {
		for {
			b, err := os.ReadFile(s.root + "/bus/pci/drivers/vfio-pci/bind")
			if err == nil && string(b) != vfAt+"\n" {
				time.Sleep(time.Millisecond)
				continue
			}
			bound <- errors.Join(err, os.Symlink("../../drivers/vfio-pci", s.root+"/bus/pci/devices/"+vfAt+"/driver"))
			return
		}
	}()
	err := m.PCI.Bind(t.Context(), vfAt, "vfio-pci")
	must(t, errors.Join(err, <-bound))
	if b, _ := os.ReadFile(override); string(b) != "\n" {
		t.Errorf("driver_override is %q after a bind", b)
	}
}

// TestB09VFsComeLate: VFs appear and get their drivers one after the other, each
// longer after the first than the grace of one; SetVFs returns when all have theirs.
// Where nobody wants them it returns soon.
func TestB09VFsComeLate(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, m := card(t)
			pf := s.root + "/bus/pci/devices/" + pfAt
			must(t, errors.Join(os.Remove(pf+"/virtfn0"), os.WriteFile(pf+"/sriov_numvfs", []byte("0\n"), 0o600)))
			vfs := []string{"0000:03:00.2", "0000:03:00.3", "0000:03:00.4", "0000:03:00.5"}
			for _, at := range vfs { // InfiniBand: no netdev to wait for, which a tree cannot show
				s.file("bus/pci/devices/"+at+"/uevent", "PCI_CLASS=20700\nPCI_ID=15B3:101E\n")
			}
			go func() {
				for i, at := range vfs {
					time.Sleep(unboundGrace * 3 / 4)
					s.link("bus/pci/devices/"+pfAt+"/virtfn"+string(rune('0'+i)), "../"+at)
				}
				for _, at := range vfs {
					time.Sleep(unboundGrace * 3 / 4)
					if wanted {
						s.link("bus/pci/devices/"+at+"/driver", "../../drivers/mlx5_core")
					}
				}
			}()
			start := time.Now()
			must(t, m.PCI.SetVFs(t.Context(), pfAt, len(vfs)))
			took, bound := time.Since(start), 0
			for _, at := range vfs {
				if _, err := os.Lstat(s.root + "/bus/pci/devices/" + at + "/driver"); err == nil {
					bound++
				}
			}
			if wanted && bound != len(vfs) {
				t.Errorf("back after %s with %d of %d VFs bound", took, bound, len(vfs))
			}
			if most := 5 * unboundGrace; !wanted && took > most {
				t.Errorf("nobody wants the VFs: back after %s, want %s at most", took, most)
			}
			time.Sleep(10 * unboundGrace) // the VFs' end
		})
	}
}

// TestB11EqualCountIsNotWritten: to write the count that is there is EBUSY for the
// kernel.
func TestB11EqualCountIsNotWritten(t *testing.T) {
	s, m := card(t)
	s.file("bus/pci/devices/"+pfAt+"/sriov_drivers_autoprobe", "0\n")
	s.file("bus/pci/devices/"+pfAt+"/sriov_numvfs", " 1\n") // as nobody writes it
	must(t, m.PCI.SetVFs(t.Context(), pfAt, 1))
	if b, _ := os.ReadFile(s.root + "/bus/pci/devices/" + pfAt + "/sriov_numvfs"); string(b) != " 1\n" {
		t.Errorf("%q was written over it", b)
	}
}

func TestRDMADevices(t *testing.T) {
	s := sysfs{t: t, root: t.TempDir()}
	s.link("class/infiniband/mlx5_2", "../../devices/pci0000:00/0000:00:01.0/0000:03:00.2/infiniband/mlx5_2")
	s.link("class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0")
	s.file("devices/virtual/infiniband/rxe0/parent", "eth7\n")
	for name, device := range map[string]string{
		"infiniband_verbs/uverbs2": "mlx5_2", "infiniband_verbs/uverbs0": "rxe0",
		"infiniband_mad/umad1": "mlx5_2", "infiniband_mad/issm1": "mlx5_2",
	} {
		s.file("class/"+name+"/ibdev", device+"\n")
	}
	s.file("class/infiniband_verbs/abi_version", "6\n")
	got, err := rdma{sys: s.root, dev: "/dev"}.Devices(t.Context())
	must(t, err)
	want := []host.RDMADevice{
		{Name: "mlx5_2", Parent: "0000:03:00.2", Files: []string{"/dev/infiniband/issm1", "/dev/infiniband/umad1", "/dev/infiniband/uverbs2"}},
		{Name: "rxe0", Netdev: "eth7", Files: []string{"/dev/infiniband/uverbs0"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if got, err := (rdma{sys: t.TempDir()}).Devices(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("a machine without RDMA: %v, %v", got, err)
	}
}

// TestB21RDMAFilesInSteps: while modules load, a device has the files that its
// attributes name by then, and a NIC without RDMA is no error and no device.
func TestB21RDMAFilesInSteps(t *testing.T) {
	s := sysfs{t: t, root: t.TempDir()}
	s.file("bus/pci/devices/"+otherAt+"/uevent", "PCI_CLASS=20000\nPCI_ID=8086:1521\n")
	class := "class/infiniband_"
	for _, step := range []struct {
		what string
		do   func()
		want []host.RDMADevice
	}{
		{"no module", func() {}, []host.RDMADevice{}},
		{"the class without a device", func() { must(t, os.MkdirAll(s.root+"/class/infiniband", 0o700)) }, []host.RDMADevice{}},
		{"mlx5_ib", func() {
			s.link("class/infiniband/mlx5_2", "../../devices/pci0000:00/"+vfAt+"/infiniband/mlx5_2")
		}, []host.RDMADevice{{Name: "mlx5_2", Parent: vfAt}}},
		{"uverbs without its attribute", func() { s.file(class+"verbs/uverbs0/dev", "231:192\n") }, []host.RDMADevice{{Name: "mlx5_2", Parent: vfAt}}},
		{"uverbs", func() { s.file(class+"verbs/uverbs0/ibdev", "mlx5_2\n") },
			[]host.RDMADevice{{Name: "mlx5_2", Parent: vfAt, Files: []string{"/dev/infiniband/uverbs0"}}}},
		{"umad of another device", func() { s.file(class+"mad/umad1/ibdev", "mlx5_3\n") },
			[]host.RDMADevice{{Name: "mlx5_2", Parent: vfAt, Files: []string{"/dev/infiniband/uverbs0"}}}},
		{"umad and issm", func() { s.file(class+"mad/umad0/ibdev", "mlx5_2\n"); s.file(class+"mad/issm0/ibdev", "mlx5_2\n") },
			[]host.RDMADevice{{Name: "mlx5_2", Parent: vfAt, Files: []string{"/dev/infiniband/issm0", "/dev/infiniband/umad0", "/dev/infiniband/uverbs0"}}}},
	} {
		step.do()
		got, err := rdma{sys: s.root, dev: "/dev"}.Devices(t.Context())
		must(t, err)
		if d := cmp.Diff(step.want, got); d != "" {
			t.Errorf("after %s: want (-), got (+):\n%s", step.what, d)
		}
	}
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, looks := time.Now(), 0
		must(t, until(t.Context(), limit(4), func() (string, error) {
			looks++
			if time.Since(start) < 3*time.Second {
				return "VF 3 is not there", nil
			}
			return "", nil
		}))
		if took := time.Since(start); took > 3200*time.Millisecond || looks > 60 {
			t.Errorf("%d looks in %s", looks, took)
		}

		start = time.Now()
		err := until(t.Context(), limit(4), func() (string, error) { return "VF 3 is not there", nil })
		if took := time.Since(start); took < 14*time.Second || took > 15*time.Second {
			t.Errorf("it gave up after %s, want 14 s for 4 VFs", took)
		}
		if err := fail("set VF count 4", pfAt, err); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "set VF count 4 of 0000:03:00.0: VF 3 is not there, after 14s") {
			t.Errorf("got %v", err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = until(ctx, limit(4), func() (string, error) { return "nothing", nil })
		if err := fail("x", "y", err); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 20*time.Second {
			t.Errorf("got %v", err)
		}
		broken := errors.New("broken")
		if err := until(t.Context(), limit(1), func() (string, error) { return "", broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSettle(t *testing.T) {
	queue := t.TempDir() + "/queue"
	must(t, settle(t.Context(), queue, time.Hour)) // no udev: no wait
	must(t, os.WriteFile(queue, nil, 0o600))
	start := time.Now()
	must(t, settle(t.Context(), queue, 50*time.Millisecond)) // stuck: a bound, no error
	if time.Since(start) < 50*time.Millisecond {
		t.Error("it did not wait for udev")
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = os.Remove(queue) })
	must(t, settle(t.Context(), queue, time.Hour))
	must(t, os.WriteFile(queue, nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := settle(ctx, queue, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
