package pci

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func readerOf(b []byte) func([]byte, int64) (int, error) {
	return func(p []byte, off int64) (int, error) {
		if off >= int64(len(b)) {
			return 0, nil
		}
		return copy(p, b[off:]), nil
	}
}

func TestVPD(t *testing.T) {
	good := vpdBytes("ConnectX-6 Dx", "MT1")
	for name, c := range map[string]struct {
		in              []byte
		product, serial string
		bad             bool
	}{
		"good":             {in: good, product: "ConnectX-6 Dx", serial: "MT1"},
		"padded":           {in: vpdBytes(" X \x00\x00", "S\x00 "), product: "X", serial: "S"},
		"no fields":        {in: append([]byte{vpdString, 1, 0, 'x'}, vpdEnd), product: "x"},
		"small tags":       {in: append([]byte{0x09, 'x'}, good...), product: "ConnectX-6 Dx", serial: "MT1"},
		"nothing":          {in: nil, bad: true},
		"no VPD (all 1)":   {in: []byte(strings.Repeat("\xff", 64)), bad: true},
		"all 0":            {in: make([]byte, 64)},
		"cut in string":    {in: good[:7], bad: true},
		"cut after string": {in: good[:16], product: "ConnectX-6 Dx", bad: true},
		"field too long":   {in: []byte{vpdR, 4, 0, 'S', 'N', 9, 'x', vpdEnd}, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			product, serial, err := readVPD(readerOf(c.in))
			if product != c.product || serial != c.serial || (err != nil) != c.bad {
				t.Errorf("got %q, %q, %v", product, serial, err)
			}
		})
	}
	if _, _, err := readVPD(func([]byte, int64) (int, error) { return 0, unix.EIO }); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
}

func FuzzVPD(f *testing.F) {
	f.Add(vpdBytes("ConnectX-6 Dx", "MT1"))
	f.Add([]byte(strings.Repeat("\xff", 64)))
	f.Add([]byte{vpdR, 4, 0, 'S', 'N', 9, 'x', vpdEnd})
	f.Fuzz(func(t *testing.T, b []byte) {
		product, serial, _ := readVPD(readerOf(b))
		for _, s := range []string{product, serial} {
			for _, c := range s {
				if c < ' ' || c > '~' {
					t.Errorf("%q holds what no terminal should get", s)
				}
			}
		}
	})
}

func FuzzUevent(f *testing.F) {
	f.Add([]byte("DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:101D\n"))
	f.Add([]byte("PCI_ID=\nPCI_CLASS=x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fn Function
		class := uevent(b, &fn)
		if (class != "" && len(class) != 6) || (fn.Vendor != "" && len(fn.Vendor) != 4) {
			t.Errorf("class %q, vendor %q", class, fn.Vendor)
		}
	})
}

// VPD is read once a card, again only when another function sits at the address.
func TestVPDIsReadOnce(t *testing.T) {
	tr := newTree(t)
	pf := tr.pf("0000:03:00.0", 0, 0)
	tr.file(pf+"/vpd", string(vpdBytes("p", "one")))
	s := New(tr.root, true)
	if got := functions(t, s)[0].Serial; got != "one" {
		t.Fatalf("serial %q", got)
	}
	tr.file(pf+"/vpd", string(vpdBytes("p", "two")))
	if got := functions(t, s)[0].Serial; got != "one" {
		t.Errorf("serial %q: the card was read a second time", got)
	}
	if err := os.Rename(tr.path(pf), tr.path(pf+".old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(tr.path("bus/pci/devices/0000:03:00.0")); err != nil {
		t.Fatal(err)
	}
	pf = tr.pf("0000:03:00.0", 0, 0)
	tr.file(pf+"/vpd", string(vpdBytes("p", "two")))
	if got := functions(t, s)[0].Serial; got != "two" {
		t.Errorf("serial %q: that of the card that was here before", got)
	}
}
