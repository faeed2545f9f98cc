package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/nic"
)

// What a pod is given of a VF behind a real IOMMU, of a VF with a verbs device, and of
// the machine is what programs need: each file is there, is a device and can be used.
// `lab/gotest --nics iommu,igb ./cmd/sluice -- -test.run InLab`.
func TestDeviceFilesInLab(t *testing.T) {
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs the lab's card behind an IOMMU")
	}
	for _, m := range []string{"vfio-pci", "vhost_net", "tun", "rdma_rxe", "ib_umad", "rdma_ucm"} {
		command(t, "modprobe", m)
	}
	o := &options{stateDir: t.TempDir(), output: "table"}
	n, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	ctx := t.Context()
	state, err := n.observe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(state.PFs, func(p nic.PF) bool { return p.Driver == "igb" })
	if i < 0 {
		t.Fatal("the lab has no igb: want --nics iommu,igb")
	}
	pf := state.PFs[i].Handle
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(n.machine.PCI.SetVFs(ctx, pf.Name, 3))
	defer func() { must(n.machine.PCI.SetVFs(context.Background(), pf.Name, 0)) }()
	if state, err = n.observe(ctx); err != nil {
		t.Fatal(err)
	}
	vfs := state.PF(pf).VFs
	must(n.machine.PCI.Unbind(ctx, vfs[0].Address))
	must(n.machine.PCI.Bind(ctx, vfs[0].Address, "vfio-pci"))
	command(t, "ip", "link", "set", vfs[1].Netdev.Name, "up")
	command(t, "rdma", "link", "add", "rxe_slc", "type", "rxe", "netdev", vfs[1].Netdev.Name)
	defer command(t, "rdma", "link", "delete", "rxe_slc")

	one := func(i int) []nic.Pick { return []nic.Pick{{PF: pf, Indexes: nic.Ranges{{First: i, Last: i}}}} }
	dir, err := os.MkdirTemp("", "dp") // sockets' paths are short
	must(err)
	defer os.RemoveAll(dir)
	plugin, err := deviceplugin.New(deviceplugin.Config{Dir: dir, DeviceInfo: filepath.Join(dir, "info"), Look: n.see, Pools: []nic.Pool{
		{Name: "vfio", Driver: nic.DriverVFIO, Select: one(0)},
		{Name: "verbs", RDMA: true, Select: one(1)},
		{Name: "vhost", VhostNet: true, Select: one(2)},
	}})
	must(err)
	k, err := kubelettest.Start(kubelettest.Options{Dir: dir})
	must(err)
	defer k.Stop()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- plugin.Run(ctx, nil) }()
	defer func() { cancel(); <-ended }()

	given := func(resource string) (files []string, info map[string]map[string]string) {
		t.Helper()
		must(k.Wait(resource, time.Minute, func(devices []*api.Device, served bool) bool {
			return served && len(devices) == 1 && devices[0].Health == api.Healthy
		}))
		ids, r, err := k.Allocate(ctx, resource, 1)
		must(err)
		for _, d := range r.Devices {
			if s := (unix.Stat_t{}); unix.Stat(d.HostPath, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFCHR || d.Permissions != "rw" || d.ContainerPath != d.HostPath {
				t.Errorf("%s: %+v is no device that a container can use", resource, d)
			}
			files = append(files, d.HostPath)
		}
		all := map[string]map[string]map[string]string{}
		for name, text := range r.Envs {
			if strings.HasSuffix(name, "_INFO") {
				must(json.Unmarshal([]byte(text), &all))
			}
		}
		return files, all[ids[0]]
	}

	files, info := given("sluice.dev/vfio")
	for _, f := range []string{info["vfio"]["mount"], info["vfio"]["dev-mount"]} {
		if !slices.Contains(files, f) {
			t.Errorf("of vfio %v are given, and told of %v", files, info)
		}
	}
	usable(t, info["vfio"]["mount"], info["vfio"]["dev-mount"])
	if cdev := info["vfio"]["cdev"]; cdev != "" {
		opens(t, info["vfio"]["iommufd"])
		opens(t, cdev)
	} else if _, err := os.Stat("/dev/vfio/devices"); err == nil {
		t.Errorf("this kernel has files for iommufd, and none is told of: %v", info)
	}

	files, info = given("sluice.dev/verbs")
	if info["rdma"]["rdma_dev"] != "rxe_slc" || len(files) != 3 {
		t.Errorf("of verbs %v are given, and told of %v", files, info)
	}
	for _, kind := range []string{"uverbs", "umad", "rdma_cm"} {
		opens(t, info["rdma"][kind])
	}

	files, info = given("sluice.dev/vhost")
	if !slices.Equal(files, []string{"/dev/vhost-net", "/dev/net/tun"}) || info["vhost"]["net-mount"] != "/dev/vhost-net" || info["vhost"]["tun-mount"] != "/dev/net/tun" {
		t.Errorf("of vhost %v are given, and told of %v", files, info)
	}
	for _, f := range files {
		opens(t, f)
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %q: %v: %s", name, args, err, out)
	}
}

func opens(t *testing.T, file string) {
	t.Helper()
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("open %q: %v", file, err)
		return
	}
	unix.Close(fd)
}

// Requests of include/uapi/linux/vfio.h.
const (
	vfioGetAPIVersion     = ';'<<8 | 100
	vfioSetIOMMU          = ';'<<8 | 102
	vfioGroupSetContainer = ';'<<8 | 104
	vfioType1v2           = 3
)

// usable brings a group under its IOMMU, as a userspace driver does: that works with
// its own files alone, and when all of the group is bound to VFIO.
func usable(t *testing.T, control, group string) {
	t.Helper()
	c, err := unix.Open(control, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("open %q: %v", control, err)
		return
	}
	defer unix.Close(c)
	g, err := unix.Open(group, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("open %q: %v", group, err)
		return
	}
	defer unix.Close(g)
	if v, err := unix.IoctlRetInt(c, vfioGetAPIVersion); err != nil || v != 0 {
		t.Errorf("version of VFIO: %d, %v", v, err)
	}
	if err := unix.IoctlSetPointerInt(g, vfioGroupSetContainer, c); err != nil {
		t.Errorf("group %s into a container: %v", group, err)
	}
	if err := unix.IoctlSetInt(c, vfioSetIOMMU, vfioType1v2); err != nil {
		t.Errorf("IOMMU of a container: %v", err)
	}
}
