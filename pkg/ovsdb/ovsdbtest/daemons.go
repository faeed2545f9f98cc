package ovsdbtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/ovsdb"
)

// daemons is a real ovsdb-server and a real ovs-vswitchd on its userspace
// datapath, the latter in a network namespace of its own that goes with it.
type daemons struct {
	folder   string
	database *os.Process
	vswitchd *os.Process
}

// Daemons starts the real daemons. The test is skipped where they are not
// installed, or without root: ovs-vswitchd has to open network interfaces.
func Daemons(t testing.TB) *OVS {
	t.Helper()
	for _, p := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "nsenter", "ip"} {
		if find(p) == "" {
			t.Skipf("the real Open vSwitch is left out: there is no %s (packages openvswitch-switch, util-linux, iproute2)", p)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("the real Open vSwitch is left out: ovs-vswitchd needs root")
	}
	// A bridge of the userspace datapath is a tap device.
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("the real Open vSwitch is left out: %v (modprobe tun)", err)
	}
	_ = tun.Close()
	d := &daemons{folder: folder(t)}
	o := &OVS{
		Endpoint: "unix:" + filepath.Join(d.folder, "db.sock"), Real: true,
		DatapathType: "netdev", folder: d.folder, daemon: d,
	}
	run(t, nil, "ovsdb-tool", "create", d.path("conf.db"), d.schema(t))
	t.Cleanup(func() {
		end(d.vswitchd)
		end(d.database)
		if t.Failed() {
			d.showLogs(t)
		}
	})
	d.startDatabase(t)
	// The start script ovs-ctl writes the version; the daemons never do.
	o.Transact(t, ovsdb.Insert("Open_vSwitch", ovsdb.Row{"ovs_version": "0.0.0"}, ""))
	d.startSwitch(t)
	// The first configuration is through when cur_cfg has followed.
	o.Transact(t, ovsdb.Mutate("Open_vSwitch", ovsdb.All(), ovsdb.Mutation{Column: "next_cfg", Mutator: "+=", Value: 1}))
	o.Transact(t, ovsdb.Wait("Open_vSwitch", ovsdb.All(), []string{"cur_cfg"}, []ovsdb.Row{{"cur_cfg": 1}}, 10000))
	return o
}

func (d *daemons) path(name string) string { return filepath.Join(d.folder, name) }

func (d *daemons) schema(t testing.TB) string {
	t.Helper()
	const file = "/usr/share/openvswitch/vswitch.ovsschema"
	if _, err := os.Stat(file); err != nil {
		t.Skipf("the real Open vSwitch is left out: %v", err)
	}
	return file
}

func (d *daemons) startDatabase(t testing.TB) {
	t.Helper()
	d.database = start(t, nil, d.environment(), "ovsdb-server", d.path("conf.db"),
		"--remote=punix:"+d.path("db.sock"), "--unixctl="+d.path("db.ctl"),
		"-vconsole:off", "--log-file="+d.path("db.log"))
	await(t, "ovsdb-server to listen", func() bool {
		c, err := net.Dial("unix", d.path("db.sock"))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func (d *daemons) stopDatabase(t testing.TB) {
	t.Helper()
	end(d.database)
	d.database = nil
	_ = os.Remove(d.path("db.sock"))
}

func (d *daemons) startSwitch(t testing.TB) {
	t.Helper()
	d.vswitchd = start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}, d.environment(),
		"ovs-vswitchd", "unix:"+d.path("db.sock"), "--disable-system",
		"--pidfile="+d.path("ovs-vswitchd.pid"), "-vconsole:off", "--log-file="+d.path("vswitchd.log"))
}

// environment keeps the daemons' files in our folder, whatever the caller's says.
func (d *daemons) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "OVS_RUNDIR=" + d.folder, "OVS_LOGDIR=" + d.folder, "OVS_DBDIR=" + d.folder}
}

func (d *daemons) signalSwitch(t testing.TB, halt bool) {
	t.Helper()
	sig := syscall.SIGCONT
	if halt {
		sig = syscall.SIGSTOP
	}
	if err := d.vswitchd.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// netdev makes or removes one end of a veth pair in ovs-vswitchd's namespace.
func (d *daemons) netdev(t testing.TB, verb, name string) {
	t.Helper()
	args := []string{"-t", fmt.Sprint(d.vswitchd.Pid), "-n", "ip", "link", verb, name}
	if verb == "add" {
		args = append(args, "type", "veth", "peer", "name", "p-"+name)
	}
	run(t, nil, "nsenter", args...)
}

func (d *daemons) showLogs(t testing.TB) {
	for _, name := range []string{"db.log", "vswitchd.log"} {
		if b, err := os.ReadFile(d.path(name)); err == nil {
			t.Logf("%s:\n%s", name, b)
		}
	}
}

// find looks a program up where root's programs are, on PATH or not.
func find(name string) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		p := filepath.Join(dir, name)
		if s, err := os.Stat(p); err == nil && s.Mode().IsRegular() && s.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

// start runs a program. A daemon (one with a log file) says on stderr only that
// it has opened it.
func start(t testing.TB, sys *syscall.SysProcAttr, env []string, name string, args ...string) *os.Process {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stderr := os.Stderr
	for _, a := range args {
		if strings.HasPrefix(a, "--log-file=") {
			stderr = null
		}
	}
	p, err := os.StartProcess(find(name), append([]string{name}, args...), &os.ProcAttr{
		Env: env, Files: []*os.File{null, null, stderr}, Sys: sys,
	})
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	return p
}

func run(t testing.TB, env []string, name string, args ...string) {
	t.Helper()
	state, err := start(t, nil, env, name, args...).Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !state.Success() {
		t.Fatalf("%s %s: %s", name, strings.Join(args, " "), state)
	}
}

func end(p *os.Process) {
	if p == nil {
		return
	}
	_ = p.Kill()
	_, _ = p.Wait()
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited 10 s for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// RunDir is where ovs-vswitchd has its pid file and control socket. Only for
// Daemons.
func (o *OVS) RunDir() string { return o.folder }

// Log is a daemon's log so far: "db" or "vswitchd". Only for Daemons.
func (o *OVS) Log(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(o.daemon.path(name + ".log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}
