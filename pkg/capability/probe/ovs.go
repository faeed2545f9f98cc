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

func (r Reader) openVSwitch(ctx context.Context) capability.Switch {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	s := capability.Switch{Endpoint: r.Endpoint}
	if s.Endpoint == "" {
		s.Endpoint = ovsdb.DefaultEndpoint
	}
	if err := settings(ctx, &s); err != nil {
		s.Error = err.Error()
	}
	if err := r.daemon(ctx, &s); err != nil {
		s.DaemonError = err.Error()
	}
	return s
}

func settings(ctx context.Context, s *capability.Switch) error {
	c, err := ovsdb.Connect(ctx, s.Endpoint)
	if err != nil {
		return err
	}
	defer c.Close()
	out, err := c.Transact(ctx,
		ovsdb.Select(ovsdb.TableOpenVSwitch, ovsdb.All(), ovsdb.OpenVSwitchColumns()...),
		ovsdb.Select(ovsdb.TableDatapath, ovsdb.All(), ovsdb.DatapathColumns()...))
	if err != nil {
		return err
	}
	var roots []ovsdb.OpenVSwitch
	if err := out[0].Decode(&roots); err != nil {
		return err
	}
	for _, root := range roots { // at most one
		s.HWOffload = root.OtherConfig["hw-offload"] == "true"
		s.TCPolicy = root.OtherConfig["tc-policy"]
		s.MaxIdle = root.OtherConfig["max-idle"]
		s.Version, _ = root.OVSVersion.One()
	}
	var datapaths []ovsdb.Datapath
	if err := out[1].Decode(&datapaths); err != nil {
		return err
	}
	for _, d := range datapaths {
		if d.Version != "<built-in>" { // that one is in userspace
			s.Datapath = d.Capabilities
		}
	}
	return nil
}

// daemon asks ovs-vswitchd itself.
func (r Reader) daemon(ctx context.Context, s *capability.Switch) error {
	socket, err := unixctl.Socket(r.RunDir, "ovs-vswitchd")
	if err != nil {
		return err
	}
	version, err := unixctl.Call(ctx, socket, "version")
	if err != nil {
		return err
	}
	if v := parseVersion(version); v != "" {
		s.Version = v
	}
	show, err := unixctl.Call(ctx, socket, "dpif/offload/show")
	var refused *unixctl.Error
	if errors.As(err, &refused) {
		return nil // before 3.7 there is no such command
	}
	if err != nil {
		return err
	}
	s.Offloading = parseOffloading(show)
	return nil
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
