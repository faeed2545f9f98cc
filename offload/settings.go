package offload

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"sluice.dev/sluice/pkg/ovsdb"
)

// Settings is what decides whether Open vSwitch offers flows to the hardware, and how
// many and how long (ovs-vswitchd.conf.db(5), Open_vSwitch other_config). It is what is
// configured: ovs-vswitchd takes hw-offload going from false to true up at once, with
// tc-policy as it is then; hw-offload going back, and tc-policy while it offloads, only
// when it starts again (lib/netdev-offload.c, netdev_set_flow_api_enabled). The others it
// takes up at once (ofproto-dpif-upcall.c).
type Settings struct {
	HWOffload bool   `json:"hwOffload"`         // other_config:hw-offload
	TCPolicy  string `json:"tcPolicy"`          // other_config:tc-policy: none, skip_sw or skip_hw
	MaxIdle   string `json:"maxIdle"`           // other_config:max-idle, milliseconds; "" is the default, 10000
	FlowLimit string `json:"flowLimit"`         // other_config:flow-limit; "" is the default, 200000
	Version   string `json:"version,omitempty"` // written by the start script ovs-ctl; "" without it
}

// The keys in other_config.
const (
	keyHWOffload = "hw-offload"
	keyTCPolicy  = "tc-policy"
	keyMaxIdle   = "max-idle"
	keyFlowLimit = "flow-limit"
)

// Wish is what is wanted of them. What is left out stays as it is.
type Wish struct {
	HWOffload bool          // hw-offload on, and rules to hardware and software alike (tc-policy none)
	MaxIdle   time.Duration // how long a flow may rest before it is taken back, in whole milliseconds
	FlowLimit int           // flows that the datapath may hold
}

// IsZero says that nothing is wanted.
func (w Wish) IsZero() bool { return w == Wish{} }

// Change is one setting that is not as wanted.
type Change struct {
	Key  string // in other_config
	Is   string // "" it is not there
	Want string // "" it is to be removed

	// Restart: ovs-vswitchd takes it up only when it starts again.
	Restart bool
}

func (c Change) String() string {
	s := fmt.Sprintf("other_config:%s=%s", c.Key, c.Want)
	if c.Want == "" {
		s = "other_config:" + c.Key + " removed"
	}
	if c.Is != "" {
		s += " (it was " + c.Is + ")"
	}
	if c.Restart {
		s += ", which counts from the next start of ovs-vswitchd"
	}
	return s
}

// Missing is what is not as wanted, in order of writing.
func (s Settings) Missing(w Wish) (out []Change) {
	if w.HWOffload && s.TCPolicy != "none" {
		out = append(out, Change{Key: keyTCPolicy, Is: s.TCPolicy, Restart: s.HWOffload})
	}
	if w.HWOffload && !s.HWOffload {
		out = append(out, Change{Key: keyHWOffload, Want: "true"})
	}
	if want := strconv.FormatInt(w.MaxIdle.Milliseconds(), 10); w.MaxIdle > 0 && s.MaxIdle != want {
		out = append(out, Change{Key: keyMaxIdle, Is: s.MaxIdle, Want: want})
	}
	if want := strconv.Itoa(w.FlowLimit); w.FlowLimit > 0 && s.FlowLimit != want {
		out = append(out, Change{Key: keyFlowLimit, Is: s.FlowLimit, Want: want})
	}
	return out
}

// ReadSettings reads them.
func ReadSettings(ctx context.Context, c *ovsdb.Client) (Settings, error) {
	root, err := readRoot(ctx, c)
	if err != nil || root == nil {
		return Settings{TCPolicy: "none"}, err
	}
	return settingsOf(*root), nil
}

func readRoot(ctx context.Context, c *ovsdb.Client) (*ovsdb.OpenVSwitch, error) {
	out, err := c.Transact(ctx, ovsdb.Select(ovsdb.TableOpenVSwitch, ovsdb.All(), ovsdb.OpenVSwitchColumns()...))
	if err != nil {
		return nil, fmt.Errorf("read settings of Open vSwitch: %w", err)
	}
	return first[ovsdb.OpenVSwitch](out[0], ovsdb.TableOpenVSwitch)
}

func settingsOf(root ovsdb.OpenVSwitch) Settings {
	o := root.OtherConfig
	s := Settings{HWOffload: o[keyHWOffload] == "true", TCPolicy: o[keyTCPolicy], MaxIdle: o[keyMaxIdle], FlowLimit: o[keyFlowLimit]}
	if s.TCPolicy == "" {
		s.TCPolicy = "none"
	}
	s.Version, _ = root.OVSVersion.One()
	return s
}

// KeepSettings writes what is missing, in one transaction that holds only while nobody
// else has changed other_config since it was read, and answers what it wrote: nothing
// when all is as wanted. Other keys stay. It does not restart Open vSwitch: a Change
// says where that is needed.
func KeepSettings(ctx context.Context, c *ovsdb.Client, w Wish) ([]Change, error) {
	var wrote []Change
	_, err := write(ctx, c, "settings for offload", func() ([]ovsdb.Op, error) {
		root, err := readRoot(ctx, c)
		if err != nil || root == nil {
			return nil, err
		}
		wrote = settingsOf(*root).Missing(w)
		return settingOps(*root, wrote), nil
	})
	if err != nil {
		return nil, fmt.Errorf("set Open vSwitch's settings for offload: %w", err)
	}
	return wrote, nil
}

func settingOps(root ovsdb.OpenVSwitch, changes []Change) []ovsdb.Op {
	if len(changes) == 0 {
		return nil
	}
	var stale ovsdb.Set[string]
	fresh := ovsdb.Map{}
	for _, c := range changes {
		stale = append(stale, c.Key)
		if c.Want != "" {
			fresh[c.Key] = c.Want
		}
	}
	mutations := []ovsdb.Mutation{{Column: "other_config", Mutator: "delete", Value: stale}}
	if len(fresh) > 0 {
		mutations = append(mutations, ovsdb.Mutation{Column: "other_config", Mutator: "insert", Value: fresh})
	}
	was := root.OtherConfig
	if was == nil {
		was = ovsdb.Map{}
	}
	return []ovsdb.Op{
		still(ovsdb.TableOpenVSwitch, ovsdb.All(), ovsdb.Row{"other_config": was}),
		ovsdb.Mutate(ovsdb.TableOpenVSwitch, ovsdb.All(), mutations...),
	}
}
