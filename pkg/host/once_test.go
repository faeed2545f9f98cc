package host

import (
	"errors"
	"testing"
)

func TestOnce(t *testing.T) {
	n := 0
	read := func() (int, error) { n++; return n, nil }
	for i := range 2 {
		if got, _ := Once(t.Context(), "a", read); got != i+1 {
			t.Errorf("outside of an observation: %d, want it read each time", got)
		}
	}
	ctx := observing(t.Context())
	a, _ := Once(ctx, "a", read)
	b, _ := Once(ctx, "b", read)
	again, _ := Once(ctx, "a", read)
	if a != 3 || b != 4 || again != 3 {
		t.Errorf("within one: %d, %d and %d, want 3, 4 and 3", a, b, again)
	}
	if other, _ := Once(observing(t.Context()), "a", read); other != 5 {
		t.Errorf("within another one: %d, want 5", other)
	}
	fail := true
	if _, err := Once(ctx, "c", func() (int, error) { return 0, errors.New("not now") }); err == nil {
		t.Error("no error")
	}
	if got, err := Once(ctx, "c", func() (int, error) { fail = false; return 7, nil }); err != nil || got != 7 || fail {
		t.Errorf("after an error: %d, %v", got, err)
	}
}
