package nic

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRanges(t *testing.T) {
	for text, want := range map[string]Ranges{
		"":          nil,
		"0":         {{0, 0}},
		"0-3,7":     {{0, 3}, {7, 7}},
		"7,0-3":     {{0, 3}, {7, 7}},
		"0-1,2-3":   {{0, 3}},
		"3,2,1,0":   {{0, 3}},
		"127,65535": {{127, 127}, {65535, 65535}},
	} {
		got, err := ParseRanges(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func TestParseRangesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"3-1":     `"3-1" in "3-1"`,
		"0-3,":    `"" in "0-3,"`,
		"a":       `"a" in "a"`,
		"-1":      `"-1" in "-1"`,
		"1--2":    `"1--2"`,
		"+1":      `"+1"`,
		" 1":      `" 1"`,
		"0-65536": "0 to 65535",
		"000001":  `"000001"`,
		"0-3,2":   `"0-3,2" names VF 2 twice`,
		"5,5":     "names VF 5 twice",
	} {
		got, err := ParseRanges(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %s", text, got, err, want)
		}
	}
}

func FuzzParseRanges(f *testing.F) {
	for _, s := range []string{"", "0-3,7", "7,0-3", "0-65535", "3-1", "1,,2", "0-1,1-2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRanges(s)
		if err != nil {
			if r != nil || !strings.Contains(err.Error(), "want ") {
				t.Fatalf("%q: %v, %v", s, r, err)
			}
			return
		}
		for i, p := range r {
			if p.First > p.Last || p.First < 0 || p.Last > MaxVFIndex || i > 0 && p.First <= r[i-1].Last+1 {
				t.Fatalf("%q: %v is not in normal form", s, r)
			}
		}
		again, err := ParseRanges(r.String())
		if err != nil {
			t.Fatalf("%q is written as %q, which is refused: %v", s, r, err)
		}
		if d := cmp.Diff(r, again); d != "" {
			t.Fatalf("%q is written as %q: %s", s, r, d)
		}
		// Each index that is written is in the set, and no others.
		if s != "" {
			n := 0
			for _, p := range r {
				n += p.Last - p.First + 1
			}
			for part := range strings.SplitSeq(s, ",") {
				first, last, isRange := strings.Cut(part, "-")
				if !isRange {
					last = first
				}
				a, _ := parseIndex(first)
				b, _ := parseIndex(last)
				if _, in := r.Shared(Ranges{{a, b}}); !in {
					t.Fatalf("%q: %s is not in %v", s, part, r)
				}
				n -= b - a + 1
			}
			if n != 0 {
				t.Fatalf("%q: %v has %d indexes too many", s, r, n)
			}
		}
	})
}

func TestShared(t *testing.T) {
	for _, c := range []struct {
		a, b, want string
	}{
		{"0-3", "4-7", ""},
		{"0-3", "3-7", "3"},
		{"0-3,8-11", "4-9", "8-9"},
		{"", "5-6", "5-6"},
		{"", "", "0-65535"},
	} {
		a, _ := ParseRanges(c.a)
		b, _ := ParseRanges(c.b)
		got, ok := a.Shared(b)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%q and %q share %v, %v; want %q", c.a, c.b, got, ok, c.want)
		}
		back, okBack := b.Shared(a)
		if back != got || okBack != ok {
			t.Errorf("%q and %q share %v one way and %v the other", c.a, c.b, got, back)
		}
	}
}

// What is left of a range is what is in it and not in the other, number by number.
func TestRangesWithout(t *testing.T) {
	draw := func(r *rand.Rand) (Ranges, map[int]bool) {
		set := map[int]bool{}
		for i := range 12 {
			if r.IntN(2) == 0 {
				set[i] = true
			}
		}
		set[r.IntN(12)] = true
		var texts []string
		for i := range 12 {
			if set[i] {
				texts = append(texts, strconv.Itoa(i))
			}
		}
		out, err := ParseRanges(strings.Join(texts, ","))
		if err != nil {
			t.Fatal(err)
		}
		return out, set
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		a, inA := draw(r)
		b, inB := draw(r)
		got := a.Without(b)
		has := map[int]bool{}
		for _, p := range got {
			for i := p.First; i <= p.Last; i++ {
				has[i] = true
			}
		}
		for i := range 12 {
			if has[i] != (inA[i] && !inB[i]) {
				t.Fatalf("%s without %s: %s", a, b, got)
			}
		}
		if again, err := ParseRanges(got.String()); err != nil || len(got) > 0 && again.String() != got.String() {
			t.Fatalf("%s without %s: %s is no set of ranges: %v", a, b, got, err)
		}
	}
}

func TestRangesWithin(t *testing.T) {
	for _, c := range []struct {
		text  string
		count int
		want  string
	}{{"", 4, "0-3"}, {"2-9", 4, "2-3"}, {"4-9", 4, ""}, {"", 0, ""}, {"0,3", 8, "0,3"}} {
		r, err := ParseRanges(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Within(c.count).String(); got != c.want {
			t.Errorf("%q within %d: %q, want %q", c.text, c.count, got, c.want)
		}
	}
}
