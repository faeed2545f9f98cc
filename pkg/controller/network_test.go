package controller

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// What an agent says that its node cannot do is what warnings are of; what it does not
// know, or has not said, is none.
func TestAbilitiesOfANode(t *testing.T) {
	o := &v1alpha1.NodeNIC{}
	o.Name = "n1"
	if got := ableOf(o); got.Name != "n1" || len(got.Cannot) > 0 {
		t.Errorf("without inventory: %+v", got)
	}
	o.Status.Inventory = &v1alpha1.Inventory{Offload: []v1alpha1.Capability{
		{Name: "flows", Answer: "yes"}, {Name: "geneve", Answer: "unknown", Why: "the modules could not be read"}, {Name: "conntrack", Answer: "no", Why: "CONFIG_NET_TC_SKB_EXT is not set"},
	}}
	if d := cmp.Diff(map[string]string{"conntrack": "CONFIG_NET_TC_SKB_EXT is not set"}, ableOf(o).Cannot); d != "" {
		t.Error(d)
	}
}

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
		_, err := n.write(context.Background(), nil, nil, nil)
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
