package main

import (
	"context"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

type gpuList []host.GPU

func (l gpuList) GPUs(context.Context) ([]host.GPU, error) { return l, nil }

func TestNearGPUs(t *testing.T) {
	state := nic.State{PFs: []nic.PF{
		{Handle: nic.PCI("0000:03:00.0"), Path: "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", Firmware: "22.31.1014"},
		{Handle: nic.PCI("0000:83:00.0"), Path: "pci0000:80/0000:80:01.0", NUMA: 1},
	}}
	m := host.Machine{GPUs: gpuList{{Address: "0000:04:00.0", Path: "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0"}}}
	near, err := nearGPUs(t.Context(), m, state)
	if err != nil || len(near) != 2 || near[0].Near != nic.SameSwitch || near[1].Near != nic.Far {
		t.Fatalf("%+v, %v", near, err)
	}
	var b strings.Builder
	cardTable(&b, state.Cards(), state)
	gpuTable(&b, near)
	for _, w := range []string{"firmware 22.31.1014", "0000:04:00.0  0     pci/0000:03:00.0  same switch", "other NUMA node"} {
		if !strings.Contains(b.String(), w) {
			t.Errorf("%q is not in\n%s", w, b.String())
		}
	}
	if near, err := nearGPUs(t.Context(), host.Machine{}, state); err != nil || near != nil {
		t.Errorf("a machine that does not know: %v, %v", near, err)
	}
}
