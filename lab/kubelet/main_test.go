package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// still is a machine of one PF, of which no change is told.
type still struct {
	deviceplugin.Sight
	pf nic.PF
}

func (s still) State() nic.State        { return nic.State{PFs: []nic.PF{s.pf}} }
func (s still) RDMA() []host.RDMADevice { return nil }

func TestConversation(t *testing.T) {
	dir, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	pf := nic.PF{Handle: nic.PCI("0000:03:00.0"), NUMA: 1, Driver: "mlx5_core"}
	for i, a := range []string{"0000:03:00.2", "0000:03:00.3"} {
		pf.VFs = append(pf.VFs, nic.VF{Index: i, Address: a, Driver: "mlx5_core", Netdev: nic.Netdev{Name: "eth", Ifindex: 7 + i}, IOMMUGroup: -1})
	}
	plugin, err := deviceplugin.New(deviceplugin.Config{
		Dir:   dir,
		Pools: []nic.Pool{{Name: "fast", Select: []nic.Pick{{PF: pf.Handle}}}},
		Look:  func(context.Context) (deviceplugin.Sight, error) { return still{pf: pf}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- plugin.Run(ctx, nil) }()

	stdin, say := io.Pipe()
	hear, stdout := io.Pipe()
	result := make(chan error, 1)
	go func() {
		result <- run(t.Context(), dir, stdin, stdout)
		stdout.Close()
	}()
	time.AfterFunc(20*time.Second, func() { stdout.CloseWithError(os.ErrDeadlineExceeded) })
	lines := bufio.NewScanner(hear)
	expect := func(event string) line {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("no more lines: %v; want event %s", lines.Err(), event)
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if l.Event != event {
			t.Fatalf("got %s, want event %s", lines.Text(), event)
		}
		return l
	}
	tell := func(s string) {
		t.Helper()
		if _, err := io.WriteString(say, s+"\n"); err != nil {
			t.Fatal(err)
		}
	}

	expect("listening")
	l := expect("devices")
	if l.Resource != "sluice.dev/fast" || len(l.Devices) != 2 || l.Devices[0].Health != "Healthy" || *l.Devices[0].NUMA != 1 {
		t.Errorf("devices: %+v", l)
	}
	tell("allocate sluice.dev/fast 2")
	if l := expect("allocated"); strings.Join(l.IDs, " ") != "0000:03:00.2 0000:03:00.3" || l.Env["PCIDEVICE_SLUICE_DEV_FAST"] != "0000:03:00.2,0000:03:00.3" {
		t.Errorf("allocated: %+v", l)
	}
	tell("allocate sluice.dev/fast 1")
	if l := expect("refused"); !strings.Contains(l.Error, "Available: 0") {
		t.Errorf("refused: %+v", l)
	}
	tell("release sluice.dev/fast 0000:03:00.3")
	expect("released")
	tell("allocate sluice.dev/fast 1")
	if l := expect("allocated"); strings.Join(l.IDs, " ") != "0000:03:00.3" {
		t.Errorf("allocated: %+v", l)
	}
	for _, s := range []string{"allocate sluice.dev/fast x", "allocate", "dance", "allocate sluice.dev/none 1"} {
		tell(s)
		if l := expect("refused"); l.Error == "" {
			t.Errorf("%s: %+v", s, l)
		}
	}
	for _, s := range []string{"restart", "kill"} {
		tell(s)
		// The connection's end makes the devices unhealthy.
		if l := expect("devices"); l.Devices[0].Health != "Unhealthy" {
			t.Errorf("%s: %+v", s, l)
		}
		expect("listening")
		if l := expect("devices"); len(l.Devices) != 2 || l.Devices[0].Health != "Healthy" {
			t.Errorf("after %s: %+v", s, l)
		}
	}
	say.Close()
	if l := expect("devices"); l.Devices[1].Health != "Unhealthy" {
		t.Errorf("at the end: %+v", l)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
