package pci

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSFs(t *testing.T) {
	tr := newTree(t)
	if list, err := New(tr.root, false).SFs(); err != nil || len(list) != 0 {
		t.Errorf("without the bus: %+v, %v", list, err)
	}
	tr.pf("0000:03:00.0", 4, 0)
	tr.mkdir("bus/auxiliary/devices")
	tr.mkdir("bus/auxiliary/drivers/mlx5_core.sf")
	device := func(name, num string) string {
		d := "devices/pci0000:00/0000:03:00.0/" + name
		tr.mkdir(d)
		tr.link("../../../"+d, "bus/auxiliary/devices/"+name)
		if num != "" {
			tr.file(d+"/sfnum", num)
		}
		return d
	}
	device("mlx5_core.eth.0", "")
	bound := device("mlx5_core.sf.4", "88\n")
	tr.link("../../../../bus/auxiliary/drivers/mlx5_core.sf", bound+"/driver")
	tr.mkdir(bound + "/net/eth7")
	away := device("mlx5_core.sf.5", "7\n")
	tr.link("../../../../bus/auxiliary/drivers/mlx5_core.sf", away+"/driver")
	tr.mkdir(away + "/net")
	device("mlx5_core.sf.6", "9\n")
	device("mlx5_core.sf.7", "")

	got, err := New(tr.root, false).SFs()
	if err != nil {
		t.Fatal(err)
	}
	want := []SF{
		{Name: "mlx5_core.sf.4", PF: "0000:03:00.0", Num: 88, Driver: "mlx5_core.sf"},
		{Name: "mlx5_core.sf.5", PF: "0000:03:00.0", Num: 7, Driver: "mlx5_core.sf", Away: true},
		{Name: "mlx5_core.sf.6", PF: "0000:03:00.0", Num: 9},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
}
