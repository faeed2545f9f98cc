package policy

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

var update = flag.Bool("update", false, "write the golden files anew")

// node has a card of two ports, one port each of two other cards, the second of
// them of InfiniBand, and a port of a fourth whose driver has no netdev.
func node() nic.State {
	return nic.State{PFs: []nic.PF{
		{
			Handle: nic.PCI("0000:03:00.0"), Serial: "MT1", Vendor: "15b3", Device: "1017", Driver: "mlx5_core",
			Eswitch: nic.Legacy, TotalVFs: 8, NUMA: 0,
			Uplink: nic.Netdev{Name: "ens1f0", Ifindex: 2, MAC: nic.MAC{4, 0, 0, 0, 0, 1}},
			VFs: []nic.VF{
				{Index: 0, Address: "0000:03:00.2"},
				{Index: 1, Address: "0000:03:00.3"},
			},
		},
		{
			Handle: nic.PCI("0000:03:00.1"), Serial: "MT1", Vendor: "15b3", Device: "1017", Driver: "mlx5_core",
			Eswitch: nic.Legacy, TotalVFs: 8, NUMA: 0,
			Uplink: nic.Netdev{Name: "ens1f1", Ifindex: 3, MAC: nic.MAC{4, 0, 0, 0, 0, 2}},
		},
		{
			Handle: nic.PCI("0000:41:00.0"), Serial: "MT2", Vendor: "15b3", Device: "101d", Driver: "mlx5_core",
			Eswitch: nic.Legacy, TotalVFs: 8, NUMA: 1,
			Uplink: nic.Netdev{Name: "ens2f0", Ifindex: 4, MAC: nic.MAC{4, 0, 0, 0, 0, 3}},
			VFs:    []nic.VF{{Index: 0, Address: "0000:41:00.2"}},
		},
		{
			Handle: nic.PCI("0000:42:00.0"), Serial: "MT3", Vendor: "15b3", Device: "101b", Driver: "mlx5_core",
			Eswitch: nic.Legacy, TotalVFs: 8, NUMA: 1, InfiniBand: true,
			Uplink: nic.Netdev{Name: "ib0", Ifindex: 5},
		},
		{Handle: nic.PCI("0000:81:00.0"), Vendor: "8086", Device: "1592", Driver: "vfio-pci", NUMA: -1, TotalVFs: 8},
	}}
}

// Each document under testdata/refused is wrong in many ways, and its golden file
// has every message: one a line, each with path, wrong value and right form.
func TestRefusedDocuments(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			doc, err := Decode(read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			spec, err := Resolve(doc, node())
			if err == nil {
				t.Fatal("accepted")
			}
			if d := cmp.Diff(nic.Spec{}, spec); d != "" {
				t.Errorf("it answers half a spec: %s", d)
			}
			got := err.Error() + "\n"
			for line := range strings.Lines(got) {
				if !strings.HasPrefix(line, "spec.") || !strings.Contains(line, "want ") {
					t.Errorf("no path, or no right form: %s", line)
				}
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(read(t, golden)), got); d != "" {
				t.Error(d)
			}
		})
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
