package linux

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
	"sluice.dev/sluice/pkg/nic"
)

// TestSoftDeviceStaysInLab asks for the move of a soft device, which its driver
// cannot in any mode.
func TestSoftDeviceStaysInLab(t *testing.T) {
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs a kernel with soft RoCE: lab/gotest ./pkg/host/linux")
	}
	run := func(words ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", words, err, out)
		}
	}
	run("modprobe", "rdma_rxe")
	home, err := os.Open(netlink.ThreadNetns)
	must(t, err)
	defer home.Close()
	netnstest.Veth(t, home, "rc", "rd")
	run("rdma", "link", "add", "soft1", "type", "rxe", "netdev", "rc")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "rc").Run() }) // and the soft device with it

	m, err := Open(Options{})
	must(t, err)
	defer m.Close()
	ns := netnstest.New(t)
	err = m.RDMA.Move(t.Context(), "soft1", pathOf(ns))
	if !errors.Is(err, host.ErrNotSupported) || !strings.Contains(err.Error(), "soft1") {
		t.Errorf("moved to a namespace: %v", err)
	}
	in, err := m.Netns.Open(t.Context(), pathOf(ns))
	must(t, err)
	defer in.Close()
	s, err := m.RDMA.System(t.Context())
	must(t, err)
	names, err := in.RDMADevices(t.Context())
	must(t, err)
	if shared := s.Mode == nic.RDMAShared; slices.Contains(names, "soft1") != shared {
		t.Errorf("the namespace has %q, devices being %s", names, s.Mode)
	}
	want := host.ErrNotSupported
	if s.Mode == nic.RDMAExclusive {
		want = fs.ErrNotExist // it is not there
	}
	if err := in.MoveRDMA(t.Context(), "soft1", ""); !errors.Is(err, want) {
		t.Errorf("moved from a namespace: %v, want %v", err, want)
	}
}
