package probe

import (
	"context"
	"errors"
	"strings"
	"time"

	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/unixctl"
)

// patience bounds what is asked of Open vSwitch: a report waits for nobody long.
const patience = 10 * time.Second

// Switch asks Open vSwitch's database and daemon, ten seconds at most.
func (r Reader) Switch(ctx context.Context) capability.Switch {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	s := capability.Switch{Endpoint: r.Endpoint}
	if s.Endpoint == "" {
		s.Endpoint = ovsdb.DefaultEndpoint
	}
	bridge, err := settings(ctx, &s)
	if err != nil {
		s.Error = err.Error()
	}
	if err := r.daemon(ctx, &s, bridge); err != nil {
		s.DaemonError = err.Error()
	}
	return s
}

// settings reads what is configured, and the name of a bridge, "" for none.
func settings(ctx context.Context, s *capability.Switch) (bridge string, err error) {
	c, err := ovsdb.Connect(ctx, s.Endpoint)
	if err != nil {
		return "", err
	}
	defer c.Close()
	out, err := c.Transact(ctx,
		ovsdb.Select(ovsdb.TableOpenVSwitch, ovsdb.All(), ovsdb.OpenVSwitchColumns()...),
		// In userspace ("netdev") there are no representors.
		ovsdb.Select(ovsdb.TableBridge, ovsdb.Where{{Column: "datapath_type", Function: "!=", Value: "netdev"}}, ovsdb.BridgeColumns()...))
	if err != nil {
		return "", err
	}
	var roots []ovsdb.OpenVSwitch
	if err := out[0].Decode(&roots); err != nil {
		return "", err
	}
	for _, root := range roots { // at most one
		s.HWOffload = root.OtherConfig["hw-offload"] == "true"
		s.TCPolicy = root.OtherConfig["tc-policy"]
		s.MaxIdle = root.OtherConfig["max-idle"]
		s.Version, _ = root.OVSVersion.One()
	}
	var bridges []ovsdb.Bridge
	if err := out[1].Decode(&bridges); err != nil {
		return "", err
	}
	for _, b := range bridges { // the first by name, so that each look asks the same
		if bridge == "" || b.Name < bridge {
			bridge = b.Name
		}
	}
	return bridge, nil
}

// daemon asks ovs-vswitchd itself. Commands that it does not know are left out.
func (r Reader) daemon(ctx context.Context, s *capability.Switch, bridge string) error {
	socket, err := unixctl.Socket(r.RunDir, "ovs-vswitchd")
	if err != nil {
		return err
	}
	ask := func(command string, args ...string) (string, error) {
		out, err := unixctl.Call(ctx, socket, command, args...)
		var refused *unixctl.Error
		if errors.As(err, &refused) {
			return "", nil
		}
		return out, err
	}
	version, err := ask("version")
	if err != nil {
		return err
	}
	if v := parseVersion(version); v != "" {
		s.Version = v
	}
	show, err := ask("dpif/offload/show")
	if err != nil {
		return err
	}
	s.Offloading = parseOffloading(show)
	if bridge == "" {
		return nil
	}
	features, err := ask("dpif/show-dp-features", bridge)
	s.Datapath = parseFeatures(features)
	return err
}

// parseVersion reads "ovs-vswitchd (Open vSwitch) 3.5.0" and what may follow it.
func parseVersion(text string) string {
	_, after, ok := strings.Cut(text, "(Open vSwitch)")
	words := strings.Fields(after)
	if !ok || len(words) == 0 {
		return ""
	}
	return words[0]
}

// parseOffloading reads the line "Globally enabled: true" (ovs 3.7,
// lib/dpif-offload.c); nil when there is none.
func parseOffloading(text string) *bool {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !strings.EqualFold(name, "Globally enabled") {
			continue
		}
		on := strings.TrimSpace(value) == "true"
		return &on
	}
	return nil
}

// parseFeatures reads lines such as "CT state: Yes" (ofproto/ofproto-dpif.c,
// dpif_show_support); nil when there are none.
func parseFeatures(text string) map[string]string {
	var out map[string]string
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || name == "" {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out
}
