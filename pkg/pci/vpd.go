package pci

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// vpdCache keeps what the cards said of themselves. The key is the address, the
// check the directory's inode number: a function that is removed and found again
// has a new one, so another card in the same slot is read anew.
type vpdCache struct {
	mu    sync.Mutex
	known map[string]vpdEntry
}

type vpdEntry struct {
	ino             uint64
	product, serial string
	retry           time.Time // zero: read for good
}

// A card does not answer while its firmware restarts; asking costs up to an
// eighth of a second a word (pci_vpd_wait), so not each time.
const vpdRetry = time.Minute

func (c *vpdCache) read(d dir, address string) (product, serial string) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d), &st); err != nil {
		return "", ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.known[address]
	if ok && e.ino == st.Ino && (e.retry.IsZero() || time.Now().Before(e.retry)) {
		return e.product, e.serial
	}
	e = vpdEntry{ino: st.Ino}
	fd, err := d.openAt("vpd", unix.O_RDONLY)
	if err == nil {
		e.product, e.serial, err = readVPD(func(p []byte, off int64) (int, error) { return unix.Pread(fd, p, off) })
		_ = unix.Close(fd)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		e.retry = time.Now().Add(vpdRetry)
	}
	c.known[address] = e
	return e.product, e.serial
}

// Resource tags and keywords: PCI Local Bus Specification 3.0, appendix I. A
// large resource is its tag and a length of two bytes; VPD-R holds fields of a
// keyword of two letters, a length of one byte, and text.
const (
	vpdString = 0x82
	vpdR      = 0x90
	vpdLarge  = 0x80
	vpdEnd    = 0x78
	vpdMax    = 32768 // an address in VPD has 15 bits
)

var errVPD = errors.New("no vital product data")

// readVPD reads no further than it must: identifier string, then the read-only
// fields up to the serial number.
func readVPD(pread func([]byte, int64) (int, error)) (product, serial string, err error) {
	at := func(off int64, n int) ([]byte, error) {
		b := make([]byte, n)
		for got := 0; got < n; {
			m, err := pread(b[got:], off+int64(got))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if m <= 0 {
				return nil, errVPD
			}
			got += m
		}
		return b, nil
	}
	for off := int64(0); off < vpdMax; {
		head, err := at(off, 1)
		if err != nil {
			return product, serial, err
		}
		tag := head[0]
		if tag&vpdLarge == 0 {
			if tag&^7 == vpdEnd || tag == 0 {
				return product, serial, nil
			}
			off += 1 + int64(tag&7)
			continue
		}
		if head, err = at(off+1, 2); err != nil {
			return product, serial, err
		}
		n := int(binary.LittleEndian.Uint16(head))
		off += 3
		if off+int64(n) > vpdMax {
			return product, serial, errVPD
		}
		switch tag {
		case vpdString:
			b, err := at(off, n)
			if err != nil {
				return product, serial, err
			}
			product = printable(b)
		case vpdR:
			for o := off; o+3 <= off+int64(n); {
				head, err := at(o, 3)
				if err != nil {
					return product, serial, err
				}
				size := int64(head[2])
				if o+3+size > off+int64(n) {
					return product, serial, errVPD
				}
				if string(head[:2]) == "SN" {
					b, err := at(o+3, int(size))
					if err != nil {
						return product, serial, err
					}
					serial = printable(b)
					if product != "" {
						return product, serial, nil
					}
				}
				o += 3 + size
			}
		}
		off += int64(n)
	}
	return product, serial, errVPD
}

// printable drops padding and whatever a terminal should not get.
func printable(b []byte) string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, string(b))
	return strings.TrimSpace(s)
}
