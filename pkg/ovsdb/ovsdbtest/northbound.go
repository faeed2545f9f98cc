package ovsdbtest

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"sluice.dev/sluice/pkg/ovsdb"
)

// EachNorthbound runs f on an OVN_Northbound database in the process, and on one in a
// real ovsdb-server, which is skipped, with the reason, where the machine has not got
// it. f is given a client, which lives as long as its test.
func EachNorthbound(t *testing.T, f func(t *testing.T, c *ovsdb.Client)) {
	t.Helper()
	t.Run("process", func(t *testing.T) { f(t, inProcessNorthbound(t)) })
	t.Run("real", func(t *testing.T) { f(t, realNorthbound(t)) })
}

func inProcessNorthbound(t *testing.T) *ovsdb.Client {
	t.Helper()
	return connect(t, Northbound(t))
}

// Northbound starts an OVN_Northbound database in the process and gives its endpoint.
func Northbound(t *testing.T) string {
	t.Helper()
	path := filepath.Join(folder(t), "nb.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(l, newDatabase("OVN_Northbound", northbound()))
	t.Cleanup(s.stop)
	return "unix:" + path
}

func realNorthbound(t *testing.T) *ovsdb.Client {
	t.Helper()
	const file = "/usr/share/ovn/ovn-nb.ovsschema"
	for _, p := range []string{"ovsdb-tool", "ovsdb-server"} {
		if find(p) == "" {
			t.Skipf("the real northbound is left out: there is no %s (package openvswitch-common)", p)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Skipf("the real northbound is left out: %v (package ovn-common)", err)
	}
	d := &daemons{folder: folder(t)}
	run(t, nil, "ovsdb-tool", "create", d.path("conf.db"), file)
	d.startDatabase(t)
	t.Cleanup(func() { end(d.database) })
	return connect(t, "unix:"+d.path("db.sock"))
}

func connect(t *testing.T, endpoint string) *ovsdb.Client {
	t.Helper()
	c, err := ovsdb.Connect(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
