package tc

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/netlink"
)

// What is offered is the rule but for its source address, its handle and the
// cookie, and for the hardware alone.
func TestOfferIsTheRule(t *testing.T) {
	raw, err := os.ReadFile("testdata/flower.hex")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		msg, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		want, ok, err := Parse(msg)
		if err != nil || !ok || want.Kind != "flower" {
			continue
		}
		n++
		head, kind, options, err := offer(msg, skipSW)
		if err != nil {
			t.Fatal(err)
		}
		chain := netlink.Attr(tcaChain, binary.NativeEndian.AppendUint32(nil, want.Chain))
		made := append([]byte(head), kind.Serialize()...)
		got, ok, err := Parse(append(append(made, chain.Serialize()...), options.Serialize()...))
		if err != nil || !ok {
			t.Fatalf("%s: %v %v", want, ok, err)
		}
		source := ""
		for i, p := range got.Match {
			if p.Name == "src_mac" {
				source = p.Value
				got.Match = append(got.Match[:i:i], got.Match[i+1:]...)
				break
			}
		}
		if mac, err := hex.DecodeString(strings.ReplaceAll(source, ":", "")); err != nil || len(mac) != 6 || mac[0]&3 != 3 {
			t.Errorf("%s: offered with source %q: want a group address", want, source)
		}
		if !got.SkipSW || got.SkipHW || got.Handle < 1<<30 || got.Handle == want.Handle {
			t.Errorf("%s: offered as %+v", want, got)
		}
		plain := func(r Rule) string {
			r.Handle, r.Cookie, r.SkipHW, r.SkipSW, r.InHW, r.InHWCount = 0, "", false, false, false, 0
			var kept []Param
			for _, p := range r.Match {
				if p.Name != "src_mac" {
					kept = append(kept, p)
				}
			}
			r.Match = kept
			return strings.ReplaceAll(r.String(), "index 0x10000000", "index 0x0")
		}
		if d := cmp.Diff(plain(want), plain(got)); d != "" {
			t.Error(d)
		}
	}
	if n < 10 {
		t.Errorf("%d rules of flower in testdata", n)
	}
}

// Messages that are cut short or out of order are no reason to stumble.
func FuzzOffer(f *testing.F) {
	raw, err := os.ReadFile("testdata/flower.hex")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if msg, err := hex.DecodeString(strings.TrimSpace(line)); err == nil {
			f.Add(msg)
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) < tcmsgSize {
			return
		}
		if _, _, options, err := offer(msg, skipSW); err != nil || len(options.Serialize()) > 64*len(msg)+8192 {
			t.Errorf("%d bytes become %d, %v", len(msg), len(options.Serialize()), err)
		}
	})
}
