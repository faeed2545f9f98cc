package tc_test

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/tc"
)

// captured are messages of a real kernel: see TestLabFlower.
func captured(t testing.TB) [][]byte {
	t.Helper()
	f, err := os.Open("testdata/flower.hex")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]byte
	for s := bufio.NewScanner(f); s.Scan(); {
		b, err := hex.DecodeString(s.Text())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func checkRules(t *testing.T, rules []tc.Rule) {
	t.Helper()
	byText := map[string]bool{}
	for _, r := range rules {
		byText[r.String()] = true
	}
	var missing []string
	for _, want := range flowerRules {
		if !byText[want.want] {
			missing = append(missing, want.want)
		}
		delete(byText, want.want)
	}
	for _, m := range missing {
		t.Errorf("missing %s", m)
	}
	for got := range byText {
		t.Errorf("read    %s", got)
	}
}

func TestParse(t *testing.T) {
	var rules []tc.Rule
	for _, m := range captured(t) {
		r, ok, err := tc.Parse(m)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			// The reader puts names there; here b0 is the one that is redirected to.
			for i, a := range r.Actions {
				for j, p := range a.Params {
					if p.Name == "ifindex" {
						r.Actions[i].Params[j] = tc.Param{Name: "dev", Value: "b0"}
					}
				}
			}
			rules = append(rules, r)
		}
	}
	checkRules(t, rules)
}

// attr writes one attribute.
func attr(kind int, data ...byte) []byte {
	b := make([]byte, 4, 4+len(data)+3)
	binary.NativeEndian.PutUint16(b, uint16(4+len(data)))
	binary.NativeEndian.PutUint16(b[2:], uint16(kind))
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func nest(kind int, parts ...[]byte) []byte {
	var data []byte
	for _, p := range parts {
		data = append(data, p...)
	}
	return attr(kind, data...)
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func counter(kind int, bytes uint64, packets uint32) []byte {
	b := binary.NativeEndian.AppendUint64(nil, bytes)
	b = append(b, u32(packets)...)
	return attr(kind, append(b, 0, 0, 0, 0)...)
}

// message is a flower rule whose one action, gact drop, has the given statistics.
func message(flags, count uint32, stats ...[]byte) []byte {
	head := append([]byte{0, 0, 0, 0}, u32(7)...)           // ifindex
	head = append(head, u32(1)...)                          // handle
	head = append(head, u32(0xfffffff2)...)                 // parent
	head = append(head, u32(3<<16|uint32(0x0008))...)       // prio 3, ip
	gen := append(append(u32(0), u32(0)...), u32(2)...)     // drop
	gen = append(gen, append(u32(1), u32(1)...)...)         // refcnt, bindcnt
	tm := append(make([]byte, 8), 250, 0, 0, 0, 0, 0, 0, 0) // lastuse 2.5 s ago
	action := nest(1, attr(1, []byte("gact\x00")...),
		nest(4, stats...),
		attr(6, 0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
		nest(2, attr(2, gen...), attr(1, append(tm, make([]byte, 16)...)...)))
	options := nest(2, attr(22, u32(flags)...), attr(86, u32(count)...), attr(300, 1, 2), nest(3, action))
	return append(head, append(append(attr(1, []byte("flower\x00")...), attr(11, u32(9)...)...), options...)...)
}

func TestParseHardware(t *testing.T) {
	const inHW = 4
	big := binary.NativeEndian.AppendUint64(nil, 1<<33)
	for name, c := range map[string]struct {
		msg             []byte
		total, hw, soft tc.Counter
	}{
		"software only": {message(inHW, 1, counter(1, 1000, 10)), tc.Counter{Packets: 10, Bytes: 1000}, tc.Counter{}, tc.Counter{Packets: 10, Bytes: 1000}},
		"both": {message(inHW, 1, counter(1, 1000, 10), counter(7, 900, 9)),
			tc.Counter{Packets: 10, Bytes: 1000}, tc.Counter{Packets: 9, Bytes: 900}, tc.Counter{Packets: 1, Bytes: 100}},
		"more than 32 bits": {message(inHW, 1, counter(1, 1<<40, 0), attr(8, big...), counter(7, 1<<40, 0), attr(8, big...)),
			tc.Counter{Packets: 1 << 33, Bytes: 1 << 40}, tc.Counter{Packets: 1 << 33, Bytes: 1 << 40}, tc.Counter{}},
		"hardware ahead of the total": {message(inHW, 1, counter(1, 100, 1), counter(7, 200, 2)),
			tc.Counter{Packets: 1, Bytes: 100}, tc.Counter{Packets: 2, Bytes: 200}, tc.Counter{}},
	} {
		r, ok, err := tc.Parse(c.msg)
		if err != nil || !ok {
			t.Fatalf("%s: %v %v", name, ok, err)
		}
		if r.Total != c.total || r.Hardware != c.hw || r.Software() != c.soft {
			t.Errorf("%s: total %+v, hardware %+v, software %+v", name, r.Total, r.Hardware, r.Software())
		}
	}
	r, _, err := tc.Parse(message(inHW, 2, counter(1, 1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if !r.InHW || r.InHWCount != 2 || r.SkipHW || r.SkipSW || r.Where() != "in_hw" || r.Chain != 9 || r.Prio != 3 || r.Protocol != "ip" || r.IdleSeconds != 2.5 {
		t.Errorf("%+v", r)
	}
	if d := cmp.Diff([]tc.Param{{Name: "key_300", Value: "0102"}}, r.Match); d != "" {
		t.Errorf("unknown key:\n%s", d)
	}
	if r.Cookie != "deadbeef000102030405060708090a0b" {
		t.Errorf("cookie %s", r.Cookie)
	}
	// A pair that Open vSwitch and the kernel showed for one flow, on x86-64.
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		if got := tc.UFID("44e8fac80b4df9d9262eb59ee1d5bbd6"); got != "c8fae844-d9f9-4d0b-9eb5-2e26d6bbd5e1" {
			t.Errorf("ufid %s", got)
		}
	}
	if got, want := r.String(), "chain 9 prio 3 ip flower key_300 0102 in_hw: drop"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for flags, want := range map[uint32]string{1: "skip_hw", 8: "not_in_hw", 0: "not_in_hw", 2 | 4: "in_hw"} {
		if r, _, _ := tc.Parse(message(flags, 0)); r.Where() != want {
			t.Errorf("flags %d: %s, want %s", flags, r.Where(), want)
		}
	}
}

func TestGoes(t *testing.T) {
	r := tc.Rule{Actions: []tc.Action{{Kind: "ct", Control: "pipe"}, {Kind: "gact", Control: "goto chain 12"}}}
	if chain, on := r.Goes(); !on || chain != 12 {
		t.Errorf("%d %v", chain, on)
	}
	if _, on := (tc.Rule{Actions: []tc.Action{{Kind: "gact", Control: "drop"}}}).Goes(); on {
		t.Error("a drop goes on")
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range captured(f) {
		f.Add(m)
	}
	f.Add(message(4, 1, counter(1, 1, 1)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, m []byte) {
		r, ok, err := tc.Parse(m)
		if err != nil || !ok {
			return
		}
		s := r.String()
		if !strings.HasPrefix(s, "chain ") {
			t.Errorf("%q", s)
		}
		// What is shown can be sent.
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again tc.Rule
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	msgs := captured(b)
	for b.Loop() {
		for _, m := range msgs {
			if _, _, err := tc.Parse(m); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(msgs)), "ns/rule")
}
