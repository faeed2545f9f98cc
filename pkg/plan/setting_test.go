package plan

import (
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nic"
)

// Case B57: a size is lowered to what the device itself takes, which is then no
// difference any more; of a device that tells no limit the wish stands.
func TestB57SizesWithinTheDevices(t *testing.T) {
	want := nic.Settings{nic.GSOMax: "524280", nic.GSOMaxIPv4: "200000"}
	for _, c := range []struct {
		have    nic.Settings
		limits  nic.Limits
		pending []nic.Setting
		gso     string
	}{
		{nic.Settings{nic.GSOMax: "65536", nic.GSOMaxIPv4: "65536"}, nic.Limits{nic.GSOMax: 65536, nic.GSOMaxIPv4: 65536}, nil, "65536"},
		{nic.Settings{nic.GSOMax: "65536", nic.GSOMaxIPv4: "65536"}, nic.Limits{nic.GSOMax: 524280, nic.GSOMaxIPv4: 524280}, []nic.Setting{nic.GSOMaxIPv4, nic.GSOMax}, "524280"},
		{nic.Settings{nic.GSOMax: "65536", nic.GSOMaxIPv4: "65536"}, nic.Limits{nic.GSOMax: 262144, nic.GSOMaxIPv4: 262144}, []nic.Setting{nic.GSOMaxIPv4, nic.GSOMax}, "262144"},
		{nic.Settings{nic.GSOMax: "65536", nic.GSOMaxIPv4: "65536"}, nil, []nic.Setting{nic.GSOMaxIPv4, nic.GSOMax}, "524280"},
	} {
		if got := pending(ofVF, netdev, nic.Switchdev, want, c.have, c.limits); !slices.Equal(got, c.pending) {
			t.Errorf("limits %v: %v are to be set, want %v", c.limits, got, c.pending)
		}
		if got := asked(want, c.limits, nic.GSOMax); got != c.gso {
			t.Errorf("limits %v: %s, want %s", c.limits, got, c.gso)
		}
	}
}
