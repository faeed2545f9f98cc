package offload_test

import (
	"errors"
	"strings"
	"testing"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

func TestCheckBridge(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		err := offload.CheckBridge(t.Context(), c, "br0")
		if !errors.Is(err, offload.ErrNoBridge) || !strings.Contains(err.Error(), `"br0" in Open vSwitch: there is none`) {
			t.Errorf("none: %v", err)
		}
		o.AddBridge(t, "br1")
		o.AddBridge(t, "br0")
		if err := offload.CheckBridge(t.Context(), c, "br0"); err != nil {
			t.Error(err)
		}
		err = offload.CheckBridge(t.Context(), c, "br2")
		if !errors.Is(err, offload.ErrNoBridge) || !strings.Contains(err.Error(), "there are br0, br1") {
			t.Errorf("another: %v", err)
		}
	})
}
