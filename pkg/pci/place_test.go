package pci

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlaceOf(t *testing.T) {
	for target, want := range map[string]string{
		"../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0":                  "pci0000:00/0000:00:01.0/0000:01:00.0",
		"../../../devices/pci0000:00/0000:03:00.0":                                            "pci0000:00",
		"../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0":    "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0",
		"../../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:01/pcifoo/pci1234:00/1234:00:00.0": "pci1234:00",
		"../../../devices/platform/soc/pcie/pci0002:00/0002:00:00.0":                          "pci0002:00",
		"0000:03:00.0":             "",
		"pci0000:00":               "",
		"../../../devices/virtual": "",
		"":                         "",
	} {
		if got := placeOf(target); got != want {
			t.Errorf("%q hangs at %q, want %q", target, got, want)
		}
	}
}

func TestGPUs(t *testing.T) {
	tr := newTree(t)
	tr.pf("0000:03:00.0", 4, 1)
	for address, class := range map[string]string{
		"0000:09:00.0": "0x030000", "0000:41:00.0": "0x030200", "0000:42:00.0": "0x120000", "0000:00:1f.2": "0x010601", "0000:00:01.0": "",
	} {
		d := tr.function(address, "10DE", "2330", "0", "")
		tr.file(d+"/class", class+"\n")
	}
	tr.file("devices/pci0000:00/0000:42:00.0/numa_node", "-1\n")
	got, err := New(tr.root, false).GPUs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []GPU{
		{Address: "0000:09:00.0", NUMA: 1, Path: "pci0000:00"},
		{Address: "0000:41:00.0", NUMA: 1, Path: "pci0000:00"},
		{Address: "0000:42:00.0", NUMA: -1, Path: "pci0000:00"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got, err := New(t.TempDir(), false).GPUs(context.Background()); err != nil || got != nil {
		t.Errorf("without a bus: %v, %v", got, err)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(tr.root, false).GPUs(done); err == nil {
		t.Error("an ended context is no error")
	}
}
