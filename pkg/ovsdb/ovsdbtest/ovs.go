package ovsdbtest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/ovsdb"
)

// OVS is a running Open vSwitch that belongs to one test.
type OVS struct {
	Endpoint string // for ovsdb.Connect

	// Real says that the daemons are Open vSwitch's own.
	Real bool

	// DatapathType is what a bridge needs here: "netdev" with the real daemons,
	// which run without the kernel's datapath, else "".
	DatapathType string

	folder string
	memory *memory
	daemon *daemons
}

type memory struct {
	db      *database
	switchd *switchd

	mu     sync.Mutex
	server *server
}

// Each runs f on the Open vSwitch in the process and on the real one. The second
// is skipped, with the reason, where the machine has not got it.
func Each(t *testing.T, f func(t *testing.T, o *OVS)) {
	t.Helper()
	t.Run("process", func(t *testing.T) { f(t, InProcess(t)) })
	t.Run("real", func(t *testing.T) { f(t, Daemons(t)) })
}

// InProcess starts the Open vSwitch in the test's own process.
func InProcess(t testing.TB) *OVS {
	t.Helper()
	o := &OVS{folder: folder(t)}
	db := newDatabase("Open_vSwitch", schema())
	o.memory = &memory{db: db, switchd: startSwitchd(db)}
	o.Endpoint = "unix:" + filepath.Join(o.folder, "db.sock")
	t.Cleanup(func() {
		o.memory.switchd.stop()
		o.StopDatabase(t)
	})
	o.StartDatabase(t)
	o.Transact(t, ovsdb.Insert("Open_vSwitch", ovsdb.Row{"ovs_version": "0.0.0"}, ""))
	return o
}

// folder is short: a socket's path has at most 107 bytes, and t.TempDir can be
// longer.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Connect opens a client that lives as long as the test.
func (o *OVS) Connect(t testing.TB) *ovsdb.Client {
	t.Helper()
	c, err := ovsdb.Connect(t.Context(), o.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Transact runs one transaction over a connection of its own.
func (o *OVS) Transact(t testing.TB, ops ...ovsdb.Op) []ovsdb.Result {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	c, err := ovsdb.Connect(ctx, o.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out, err := c.Transact(ctx, ops...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// AddBridge makes a bridge with its internal port, as ovs-vsctl add-br does.
func (o *OVS) AddBridge(t testing.TB, name string) {
	t.Helper()
	o.Transact(t,
		ovsdb.Insert("Interface", ovsdb.Row{"name": name, "type": "internal"}, "i"),
		ovsdb.Insert("Port", ovsdb.Row{"name": name, "interfaces": ovsdb.Named("i")}, "p"),
		ovsdb.Insert("Bridge", ovsdb.Row{"name": name, "datapath_type": o.DatapathType, "ports": ovsdb.Named("p")}, "b"),
		ovsdb.Mutate("Open_vSwitch", ovsdb.All(),
			ovsdb.Mutation{Column: "bridges", Mutator: "insert", Value: ovsdb.Named("b")},
			ovsdb.Mutation{Column: "next_cfg", Mutator: "+=", Value: 1}),
	)
}

// AddPort puts a netdev into a bridge as somebody else would, with external_ids
// of the Port.
func (o *OVS) AddPort(t testing.TB, bridge, name string, ids ovsdb.Map) {
	t.Helper()
	o.Transact(t,
		ovsdb.Insert("Interface", ovsdb.Row{"name": name}, "i"),
		ovsdb.Insert("Port", ovsdb.Row{"name": name, "interfaces": ovsdb.Named("i"), "external_ids": ids}, "p"),
		ovsdb.Mutate("Bridge", ovsdb.Is("name", bridge),
			ovsdb.Mutation{Column: "ports", Mutator: "insert", Value: ovsdb.Named("p")}),
	)
}

// AddNetdev makes a network interface that the switch can open.
func (o *OVS) AddNetdev(t testing.TB, name string) {
	t.Helper()
	if o.Real {
		o.daemon.netdev(t, "add", name)
		return
	}
	o.memory.switchd.netdev(name, true)
}

// DelNetdev takes it away again.
func (o *OVS) DelNetdev(t testing.TB, name string) {
	t.Helper()
	if o.Real {
		o.daemon.netdev(t, "del", name)
		return
	}
	o.memory.switchd.netdev(name, false)
}

// PauseSwitch halts ovs-vswitchd: the database still answers, but nothing is
// taken up. ResumeSwitch goes on.
func (o *OVS) PauseSwitch(t testing.TB) {
	t.Helper()
	if o.Real {
		o.daemon.signalSwitch(t, true)
		return
	}
	o.memory.switchd.pause(true)
}

// ResumeSwitch is the end of PauseSwitch.
func (o *OVS) ResumeSwitch(t testing.TB) {
	t.Helper()
	if o.Real {
		o.daemon.signalSwitch(t, false)
		return
	}
	o.memory.switchd.pause(false)
}

// StopDatabase ends ovsdb-server: connections break, nobody listens.
func (o *OVS) StopDatabase(t testing.TB) {
	t.Helper()
	if o.Real {
		o.daemon.stopDatabase(t)
		return
	}
	m := o.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server != nil {
		m.server.stop()
		m.server = nil
	}
}

// StartDatabase is the end of StopDatabase: the rows are there again.
func (o *OVS) StartDatabase(t testing.TB) {
	t.Helper()
	if o.Real {
		o.daemon.startDatabase(t)
		return
	}
	l, err := net.Listen("unix", filepath.Join(o.folder, "db.sock"))
	if err != nil {
		t.Fatal(err)
	}
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	o.memory.server = serve(l, o.memory.db)
}

// DropAt ends the connection instead of the nth transaction from now (1 is the
// next one). With done the transaction is carried out and only its answer lost.
// Only for InProcess.
func (o *OVS) DropAt(t testing.TB, nth int, done bool) {
	t.Helper()
	if o.Real {
		t.Fatal("DropAt: only the Open vSwitch in the process can drop a connection at will")
	}
	s := o.memory.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = done
	s.drop = func(int) bool {
		nth--
		return nth == 0
	}
}
