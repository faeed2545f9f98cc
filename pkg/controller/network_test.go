package controller

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Case B49: a northbound that takes connections and says nothing holds up one turn, for
// as long as is allowed.
func TestB49SilentNorthbound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nb.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := &networks{northbound: "unix:" + path, patience: 100 * time.Millisecond}
	done := make(chan error, 1)
	go func() {
		_, err := n.write(context.Background(), nil, nil)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the turn does not end")
	}
}
