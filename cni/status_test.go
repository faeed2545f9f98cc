package cni

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/nic"
)

func (w *world) status(p pod) error {
	args := w.args(p)
	args.ContainerID, args.Netns, args.IfName = "", "", ""
	return w.plugin().Status(context.Background(), args)
}

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world)
		code  uint
		want  string // "" fine
	}{
		"all well":         {func(*world) {}, 0, ""},
		"nothing recorded": {func(w *world) { os.RemoveAll(w.dir) }, 0, ""},
		"state folder": {func(w *world) {
			w.t.Helper()
			if err := os.WriteFile(filepath.Join(w.dir, "attachments"), nil, 0o600); err != nil {
				w.t.Fatal(err)
			}
		}, types.ErrPluginNotAvailable, "attachments cannot be recorded: mkdir "},
		"committed state": {func(w *world) {
			dir := filepath.Join(w.dir, "journal")
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "committed.json"), []byte("{"), 0o600)); err != nil {
				w.t.Fatal(err)
			}
		}, types.ErrPluginNotAvailable, "what the agent has reached cannot be read: the committed state: unexpected end"},
		"legacy mode": {func(w *world) {
			for _, pf := range w.state().PFs {
				if err := w.sim.Machine().Devlink.SetEswitch(context.Background(), pf.Handle, nic.Legacy); err != nil {
					w.t.Fatal(err)
				}
			}
		}, types.ErrPluginNotAvailable, "no NIC of the node has its eswitch in switchdev mode: want one"},
		"no VFs": {func(w *world) {
			for _, pf := range w.state().PFs {
				if err := w.sim.Machine().PCI.SetVFs(context.Background(), pf.Handle.Name, 0); err != nil {
					w.t.Fatal(err)
				}
			}
		}, types.ErrPluginNotAvailable, "no NIC of the node in switchdev mode has VFs: want some"},
		"switch away": {func(w *world) { w.sw.down = true }, types.ErrLimitedConnectivity, "no ovsdb-server"},
		"no bridge":   {func(w *world) { w.sw.bridges = nil }, types.ErrPluginNotAvailable, `bridge = "br-int": no such bridge`},
		"no offload":  {func(w *world) { w.sw.settings.HWOffload = false }, types.ErrPluginNotAvailable, "want other_config:hw-offload=true"},
		"skip_sw":     {func(w *world) { w.sw.settings = offload.Settings{HWOffload: true, TCPolicy: "skip_sw"} }, types.ErrPluginNotAvailable, "with which flows with conntrack cannot be offloaded: want none"},
		"IPAM":        {func(w *world) { w.ipam.fail = failAt(1) }, types.ErrPluginNotAvailable, "ipam status: " + syscall.EIO.Error()},
		"several":     {func(w *world) { w.sw.down, w.ipam.fail = true, failAt(1) }, types.ErrLimitedConnectivity, "; ipam status: "},
		"IPAM, limits": {func(w *world) {
			w.ipam.fail = func(int, string) error { return &types.Error{Code: 51, Msg: "no pool"} }
		}, types.ErrLimitedConnectivity, "no pool"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.pod("c1", "")
			p = p.with("deviceID", nil)
			c.spoil(w)
			before := w.sim.Writes()
			err := w.status(p)
			if w.sim.Writes() != before {
				t.Error("STATUS writes")
			}
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var e *types.Error
			if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Msg, c.want) {
				t.Errorf("%#v, want code %d, %q", err, c.code, c.want)
			}
		})
	}
}
