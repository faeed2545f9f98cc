package probe

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

// serveDaemon answers as an ovs-vswitchd that knows these commands, each with its
// arguments, and gives its run folder.
func serveDaemon(t *testing.T, answers map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "run") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"), []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "ovs-vswitchd.7.ctl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var request struct {
				ID     int      `json:"id"`
				Method string   `json:"method"`
				Params []string `json:"params"`
			}
			if json.NewDecoder(c).Decode(&request) == nil {
				answer, ok := answers[strings.Join(append([]string{request.Method}, request.Params...), " ")]
				reply := map[string]any{"id": request.ID, "result": answer, "error": nil}
				if !ok {
					reply["result"], reply["error"] = nil, fmt.Sprintf("%q is not a valid command\n", request.Method)
				}
				_ = json.NewEncoder(c).Encode(reply)
			}
			c.Close()
		}
	}()
	return dir
}

func TestOpenVSwitch(t *testing.T) {
	yes := true
	for name, tt := range map[string]struct {
		config  ovsdb.Map
		bridges []string
		answers map[string]string
		want    capability.Switch
	}{
		"3.5": {
			ovsdb.Map{"hw-offload": "true", "tc-policy": "none", "max-idle": "30000"}, []string{"br-b", "br-a"},
			map[string]string{"version": "ovs-vswitchd (Open vSwitch) 3.5.0\n", "dpif/show-dp-features br-a": "Recirc: Yes\nCT state: Yes\n"},
			capability.Switch{
				HWOffload: true, TCPolicy: "none", MaxIdle: "30000", Version: "3.5.0",
				Datapath: map[string]string{"Recirc": "Yes", "CT state": "Yes"},
			},
		},
		"3.7, no bridge": {
			nil, nil,
			map[string]string{"version": "ovs-vswitchd (Open vSwitch) 3.7.1\n", "dpif/offload/show": "Globally enabled: true\n"},
			capability.Switch{Version: "3.7.1", Offloading: &yes},
		},
		"a daemon that says nothing": {ovsdb.Map{"hw-offload": "false"}, []string{"br"}, nil, capability.Switch{Version: "0.0.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := ovsdbtest.InProcess(t)
			o.Transact(t, ovsdb.Update("Open_vSwitch", ovsdb.All(), ovsdb.Row{"other_config": tt.config}))
			for _, b := range tt.bridges {
				o.AddBridge(t, b)
			}
			r := Reader{Root: t.TempDir(), Endpoint: o.Endpoint, RunDir: serveDaemon(t, tt.answers)}
			tt.want.Endpoint = o.Endpoint
			if d := cmp.Diff(tt.want, r.Switch(t.Context())); d != "" {
				t.Error(d)
			}
		})
	}
}

// The real daemons, on their userspace datapath: a bridge of it is not asked for
// what the kernel can.
func TestRealOpenVSwitch(t *testing.T) {
	o := ovsdbtest.Daemons(t)
	o.AddBridge(t, "br0")
	got := Reader{Endpoint: o.Endpoint, RunDir: o.RunDir()}.Read(t.Context(), nic.State{}).Switch
	if got.Error != "" || got.DaemonError != "" || got.HWOffload || got.Datapath != nil || got.Version == "" || got.Version == "0.0.0" {
		t.Errorf("%+v", got)
	}
}

// Half an Open vSwitch: the database answers, and nobody works on it; or neither.
func TestOpenVSwitchAway(t *testing.T) {
	o := ovsdbtest.InProcess(t)
	got := Reader{Endpoint: o.Endpoint, RunDir: t.TempDir()}.Switch(t.Context())
	if got.Error != "" || !strings.Contains(got.DaemonError, "ovs-vswitchd") {
		t.Errorf("%+v", got)
	}
	got = Reader{Endpoint: "unix:/nowhere/db.sock", RunDir: t.TempDir()}.Switch(t.Context())
	if !strings.Contains(got.Error, "/nowhere/db.sock") || got.DaemonError == "" {
		t.Errorf("%+v", got)
	}
}
