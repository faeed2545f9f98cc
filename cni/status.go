package cni

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
)

// Status says why an ADD of this network cannot work now, all reasons at once: code
// 50, or 51 when pods that are attached suffer as well. Nothing is changed.
func (p *Plugin) Status(ctx context.Context, args *skel.CmdArgs) error {
	return report(p.status(ctx, args))
}

func (p *Plugin) status(ctx context.Context, args *skel.CmdArgs) error {
	c, err := ParseConfig(args.StdinData, "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limits.Run)
	defer cancel()
	code := types.ErrPluginNotAvailable
	var bad []string
	say := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }

	if err := record.In(c.StateDir).Writable(); err != nil {
		say("attachments cannot be recorded: %v", err)
	}
	journal := apply.Journal{Dir: filepath.Join(c.StateDir, "journal")}
	if _, err := journal.Committed(); err != nil {
		say("what the agent has reached cannot be read: %v", err)
	}
	st, err := p.observe(ctx)
	if err != nil {
		say("the node cannot be observed: %v", err)
	} else if why := noDevices(st, c); why != "" && !c.software() {
		say("%s", why)
	}
	if err := c.deviceStatus(); err != nil {
		say("%v", err)
	}
	if c.Bridge == "" {
		// In legacy mode nothing else has a part in it.
	} else if down, err := p.switchStatus(ctx, c); err != nil {
		if down {
			code = types.ErrLimitedConnectivity
		}
		say("%v", err)
	}
	if c.IPAM != "" {
		call := Call{Plugin: c.IPAM, Config: c.Raw, Path: args.Path}
		if err := errors.Join(p.IPAM.Find(call), p.IPAM.Status(ctx, call)); err != nil {
			if codeOf(err) == types.ErrLimitedConnectivity {
				code = types.ErrLimitedConnectivity
			}
			say("%v", err)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return coded(code, "network %s: %s", c.Name, strings.Join(bad, "; "))
}

// noDevices says why no VF of the node could be attached as the network wants it.
func noDevices(st nic.State, c Config) string {
	mode := "legacy"
	switchdev := c.Bridge != "" || c.Attach == AttachRep
	if switchdev {
		mode = "switchdev"
	}
	ports, vfs := 0, 0
	for _, pf := range st.PFs {
		if (pf.Eswitch == nic.Switchdev) == switchdev {
			ports++
			vfs += len(pf.VFs) + len(pf.SFs)
		}
	}
	switch {
	case len(st.PFs) == 0:
		return "the node has no NIC"
	case ports == 0:
		return fmt.Sprintf("no NIC of the node has its eswitch in %s mode: want one (eswitch: %[1]s in the node's NodeNIC, sluice apply)", mode)
	case vfs == 0:
		return fmt.Sprintf("no NIC of the node in %s mode has VFs: want some (numVfs in the node's NodeNIC, sluice apply)", mode)
	}
	return ""
}

// switchStatus says what is wrong with Open vSwitch; down, that it is not there at
// all, so that flows of pods that are attached end as well.
func (p *Plugin) switchStatus(ctx context.Context, c Config) (down bool, err error) {
	sw, err := p.Switch(ctx, c.OVSDB)
	if err != nil {
		return errors.Is(err, ovsdb.ErrUnavailable), err
	}
	defer sw.Close()
	if err := sw.CheckBridge(ctx, c.Bridge); err != nil {
		return errors.Is(err, ovsdb.ErrUnavailable), fmt.Errorf("bridge = %q: %w", c.Bridge, err)
	}
	s, err := sw.Settings(ctx)
	switch {
	case err != nil:
		return errors.Is(err, ovsdb.ErrUnavailable), err
	case !s.HWOffload:
		return false, errors.New("flows are not offered to the hardware by Open vSwitch: want other_config:hw-offload=true (ovs-vsctl set Open_vSwitch . other_config:hw-offload=true)")
	case s.TCPolicy == "skip_sw":
		return false, errors.New("other_config:tc-policy of Open vSwitch is skip_sw, with which flows with conntrack cannot be offloaded: want none (ovs-vsctl remove Open_vSwitch . other_config tc-policy, and a restart of ovs-vswitchd)")
	}
	return false, nil
}
