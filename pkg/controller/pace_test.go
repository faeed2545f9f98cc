package controller

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A node that fails puts nobody's next look off, and without one there is the backoff of
// errors.
func TestFailuresPutNoLookOff(t *testing.T) {
	failure := errors.New("no")
	for _, c := range []struct {
		again time.Duration
		err   error
		fails bool
	}{{0, nil, false}, {time.Second, nil, false}, {time.Second, failure, false}, {0, failure, true}} {
		r, err := inTime(t.Context(), c.again, c.err)
		if r.RequeueAfter != c.again || (err != nil) != c.fails {
			t.Errorf("%+v: %v, %v", c, r, err)
		}
	}
}

// What is cut is still text: other bytes come back from the API server as others, and
// would be written anew each time.
func TestClipIsText(t *testing.T) {
	if got := clip(strings.Repeat("ä", 4096)); !utf8.ValidString(got) || len(got) > 4096+4 {
		t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	if got := clip("x" + strings.Repeat("ä", 4096)); !utf8.ValidString(got) {
		t.Error("cut inside a character")
	}
}
