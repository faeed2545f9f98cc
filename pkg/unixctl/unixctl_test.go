package unixctl_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
	"sluice.dev/sluice/pkg/unixctl"
)

func TestSocket(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := unixctl.Socket(dir, "ovs-vswitchd"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no pid file: %v", err)
	}
	write("ovs-vswitchd.pid", "junk\n")
	if _, err := unixctl.Socket(dir, "ovs-vswitchd"); err == nil || !strings.Contains(err.Error(), "want a process number") {
		t.Errorf("junk: %v", err)
	}
	write("ovs-vswitchd.pid", "123\n")
	if _, err := unixctl.Socket(dir, "ovs-vswitchd"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no socket: %v", err)
	}
	write("ovs-vswitchd.123.ctl", "")
	if got, err := unixctl.Socket(dir, "ovs-vswitchd"); err != nil || got != filepath.Join(dir, "ovs-vswitchd.123.ctl") {
		t.Errorf("%s %v", got, err)
	}
}

// One real daemon answers, and refuses.
func TestCallRealDaemon(t *testing.T) {
	o := ovsdbtest.Daemons(t)
	o.AddBridge(t, "br0")
	o.AddNetdev(t, "v0")
	socket, err := unixctl.Socket(o.RunDir(), "ovs-vswitchd")
	if err != nil {
		t.Fatal(err)
	}
	out, err := unixctl.Call(t.Context(), socket, "list-commands")
	if err != nil || !strings.Contains(out, "dpctl/dump-flows") {
		t.Errorf("%q %v", out, err)
	}
	var refused *unixctl.Error
	if _, err := unixctl.Call(t.Context(), socket, "no-such-command"); !errors.As(err, &refused) || !strings.Contains(refused.Text, "not a valid command") {
		t.Errorf("%v", err)
	}
	if out, err := unixctl.Call(t.Context(), socket, "dpctl/dump-flows", "-m", "netdev@ovs-netdev"); err != nil {
		t.Errorf("%q %v", out, err)
	}
}

func TestCallEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if _, err := unixctl.Call(t.Context(), path, "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nobody: %v", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	if _, err := unixctl.Call(ctx, path, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent: %v", err)
	}
	for answer, want := range map[string]string{
		"junk":     "read the answer",
		`{"id":1}`: "neither result nor error",
		`{"id":1,"result":null,"error":" no \n"}`: ": no",
	} {
		_, err := unixctl.Call(t.Context(), answering(t, answer), "x")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", answer, err, want)
		}
	}
}

// answering listens and answers each request in the same way.
func answering(t *testing.T, answer string) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1000))
			_, _ = c.Write([]byte(answer))
			_ = c.Close()
		}
	}()
	return socket
}
