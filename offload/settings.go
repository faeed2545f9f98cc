package offload

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/ovsdb"
)

// Settings is what decides whether Open vSwitch offers flows to the hardware
// (ovs-vswitchd.conf.db(5), Open_vSwitch other_config). It is what is configured:
// ovs-vswitchd takes hw-offload going from false to true up at once, and any
// other change only when it starts again.
type Settings struct {
	HWOffload bool   `json:"hwOffload"`         // other_config:hw-offload
	TCPolicy  string `json:"tcPolicy"`          // other_config:tc-policy: none, skip_sw or skip_hw
	Version   string `json:"version,omitempty"` // written by the start script ovs-ctl; "" without it
}

// ReadSettings reads them.
func ReadSettings(ctx context.Context, c *ovsdb.Client) (Settings, error) {
	out, err := c.Transact(ctx, ovsdb.Select(ovsdb.TableOpenVSwitch, ovsdb.All(), ovsdb.OpenVSwitchColumns()...))
	if err != nil {
		return Settings{}, fmt.Errorf("read settings of Open vSwitch: %w", err)
	}
	root, err := first[ovsdb.OpenVSwitch](out[0], ovsdb.TableOpenVSwitch)
	if err != nil || root == nil {
		return Settings{TCPolicy: "none"}, err
	}
	s := Settings{HWOffload: root.OtherConfig["hw-offload"] == "true", TCPolicy: root.OtherConfig["tc-policy"]}
	if s.TCPolicy == "" {
		s.TCPolicy = "none"
	}
	s.Version, _ = root.OVSVersion.One()
	return s, nil
}
