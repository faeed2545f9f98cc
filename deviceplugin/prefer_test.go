package deviceplugin

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

// three returns devices of PFs a, b and c: a0, a1, ... by the counts given.
func three(counts ...int) []Device {
	var out []Device
	for i, n := range counts {
		pf := string(rune('a' + i))
		for j := range n {
			out = append(out, Device{ID: fmt.Sprint(pf, j), PF: nic.PCI(pf), Index: j})
		}
	}
	return out
}

func TestPrefer(t *testing.T) {
	for _, c := range []struct {
		available, must string
		size            int
		want            string
	}{
		{"a0 b0 c0", "", 1, "a0"},
		{"a1 a0 a3 b2", "", 2, "a0 a1"},
		{"a0 b0 b1 b2 c0 c1", "", 2, "c0 c1"},       // fits best
		{"a0 b0 b1 c0 c1 c2", "", 4, "c0 c1 c2 a0"}, // largest, then what fits best
		{"a0 b0 b1 b2 c0", "c1", 2, "c1 c0"},        // the PF that is begun
		{"a0 b0 b1 b2", "c1", 3, "c1 b0 b1"},        // it has no more
		{"a0 a1 b0", "a0", 2, "a0 a1"},              // must is among the available
		{"a0 a0 x7 b0 b1", "", 2, "b0 b1"},          // twice, unknown
		{"", "x7", 1, "x7"},                         // whatever must be
		{"a0", "", 0, ""},
	} {
		got, err := Prefer(nic.Packed, three(4, 4, 4), strings.Fields(c.available), strings.Fields(c.must), c.size)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%d of %q with %q: %v, %v; want %s", c.size, c.available, c.must, got, err, c.want)
		}
	}
}

func TestPreferRefuses(t *testing.T) {
	for _, c := range []struct {
		available, must string
		size            int
		want            string
	}{
		{"a0 a1", "", 3, "3 devices: only 2 are available"},
		{"a0 x1", "", 2, "only 1 are available"},
		{"a0", "a0 a1", 1, "1 devices: 2 must be among them"},
	} {
		got, err := Prefer(nic.Packed, three(4), strings.Fields(c.available), strings.Fields(c.must), c.size)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d of %q with %q: %v, %v; want %s", c.size, c.available, c.must, got, err, c.want)
		}
	}
}

// Compared with all choices of PFs: none does with fewer.
func TestPreferTakesFewestPFs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		devices := three(r.IntN(5), r.IntN(5), r.IntN(5), r.IntN(5), r.IntN(5))
		var available, must []string
		for _, d := range devices {
			switch r.IntN(5) {
			case 0:
			case 1:
				must = append(must, d.ID)
			default:
				available = append(available, d.ID)
			}
		}
		size := len(must)
		if len(available) > 0 {
			size += r.IntN(len(available) + 1)
		}
		got, err := Prefer(nic.Packed, devices, available, must, size)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != size || !slices.Equal(got[:len(must)], must) {
			t.Fatalf("%d of %v with %v: %v", size, available, must, got)
		}
		for _, id := range got[len(must):] {
			if !slices.Contains(available, id) {
				t.Fatalf("%s is not available", id)
			}
		}
		used := 0
		for _, id := range got {
			used |= 1 << (id[0] - 'a')
		}
		if fewest := fewestPFs(available, must, size); bits.OnesCount(uint(used)) != fewest {
			t.Fatalf("%d of %v with %v: %v has %d PFs, %d would do", size, available, must, got, bits.OnesCount(uint(used)), fewest)
		}
		again, _ := Prefer(nic.Packed, devices, available, must, size)
		if d := cmp.Diff(got, again); d != "" {
			t.Fatal(d)
		}
	}
}

func fewestPFs(available, must []string, size int) int {
	fewest := 99
	for set := range 1 << 5 {
		n, ok := len(must), true
		for _, id := range must {
			ok = ok && set>>(id[0]-'a')&1 == 1
		}
		for _, id := range available {
			n += set >> (id[0] - 'a') & 1
		}
		if ok && n >= size {
			fewest = min(fewest, bits.OnesCount(uint(set)))
		}
	}
	return fewest
}
