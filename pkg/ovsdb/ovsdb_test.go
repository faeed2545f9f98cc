package ovsdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

func TestEndpoints(t *testing.T) {
	for _, bad := range []string{"/run/db.sock", "unix:db.sock", "unix:", "tcp:", "tcp:host", "tcp::6640", "http://x", "punix:/x"} {
		_, err := ovsdb.Connect(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), "want unix:/PATH") || !strings.Contains(err.Error(), bad) {
			t.Errorf("Connect(%q): %v", bad, err)
		}
	}
	_, err := ovsdb.Connect(t.Context(), "ssl:127.0.0.1:6640")
	if err == nil || !strings.Contains(err.Error(), "needs keys") {
		t.Errorf("ssl without keys: %v", err)
	}
}

// The servers of a cluster: the first that is there; if none is, all are named.
func TestSeveralEndpoints(t *testing.T) {
	o := ovsdbtest.InProcess(t)
	none := "unix:" + filepath.Join(t.TempDir(), "db.sock")
	c, err := ovsdb.Connect(t.Context(), none+","+o.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Transact(t.Context(), ovsdb.Comment("x")); err != nil || c.Endpoint() != o.Endpoint {
		t.Errorf("%v at %s", err, c.Endpoint())
	}
	_, err = ovsdb.Connect(t.Context(), none+","+none+"2")
	if !errors.Is(err, ovsdb.ErrUnavailable) || !strings.Contains(err.Error(), none+":") || !strings.Contains(err.Error(), none+"2:") {
		t.Errorf("none is there: %v", err)
	}
	if _, err := ovsdb.Connect(t.Context(), none+",somewhere"); err == nil || !strings.Contains(err.Error(), `"somewhere" is no ovsdb endpoint`) {
		t.Errorf("one is none: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	missing := "unix:" + filepath.Join(t.TempDir(), "db.sock")
	_, err := ovsdb.Connect(t.Context(), missing)
	if !errors.Is(err, ovsdb.ErrUnavailable) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("socket absent: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "tcp:" + l.Addr().String()
	l.Close()
	if _, err = ovsdb.Connect(t.Context(), closed); !errors.Is(err, ovsdb.ErrUnavailable) || !strings.Contains(err.Error(), closed) {
		t.Errorf("nobody listens: %v", err)
	}
}

// A server that takes connections and never answers holds a call up until its
// context ends, no longer.
func TestSilentServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := ovsdb.Connect(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := c.Transact(ctx, ovsdb.Select("Bridge", ovsdb.All())); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	// More than the socket's buffers hold: the write itself has to end.
	big := strings.Repeat("x", 1<<20)
	ctx, stop = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := c.Transact(ctx, ovsdb.Comment(big)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Transact(t.Context(), ovsdb.Comment("after")); !errors.Is(err, ovsdb.ErrUnavailable) {
		t.Errorf("after half a message: %v", err)
	}
}

func TestGarbageFromServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("SSH-2.0-OpenSSH\r\n"))
		}
	}()
	c, err := ovsdb.Connect(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Transact(t.Context(), ovsdb.Comment("x")); !errors.Is(err, ovsdb.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func rows[T any](t *testing.T, r ovsdb.Result) []T {
	t.Helper()
	var out []T
	if err := r.Decode(&out); err != nil {
		t.Fatalf("%s: %v", r.Rows, err)
	}
	return out
}

func TestTransactions(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		ctx := t.Context()
		o.AddBridge(t, "br0")
		o.AddPort(t, "br0", "p0", ovsdb.Map{"a": "1", "b": "2"})

		out, err := c.Transact(ctx,
			ovsdb.Select(ovsdb.TableBridge, ovsdb.All(), ovsdb.BridgeColumns()...),
			ovsdb.Select(ovsdb.TablePort, ovsdb.Is("name", "p0"), ovsdb.PortColumns()...),
			ovsdb.Select(ovsdb.TablePort, ovsdb.Is("name", "none"), ovsdb.PortColumns()...),
		)
		if err != nil {
			t.Fatal(err)
		}
		bridges, ports := rows[ovsdb.Bridge](t, out[0]), rows[ovsdb.Port](t, out[1])
		if len(bridges) != 1 || bridges[0].Name != "br0" || len(rows[ovsdb.Port](t, out[2])) != 0 {
			t.Errorf("bridges %v", bridges)
		}
		if len(ports) != 1 || len(ports[0].Interfaces) != 1 || len(ports[0].Tag) != 0 {
			t.Fatalf("ports %+v", ports)
		}
		if d := cmp.Diff(ovsdb.Map{"a": "1", "b": "2"}, ports[0].ExternalIDs); d != "" {
			t.Error(d)
		}
		p := ports[0]

		t.Run("where", func(t *testing.T) {
			for name, q := range map[string]struct {
				table string
				where ovsdb.Where
				want  int
			}{
				"includes uuid":     {"Bridge", ovsdb.Includes("ports", p.UUID), 1},
				"includes pair":     {"Port", ovsdb.Includes("external_ids", ovsdb.Map{"a": "1"}), 1},
				"includes other":    {"Port", ovsdb.Includes("external_ids", ovsdb.Map{"a": "2"}), 0},
				"by uuid":           {"Port", ovsdb.Is("_uuid", p.UUID), 1},
				"excludes":          {"Port", ovsdb.Where{{Column: "external_ids", Function: "excludes", Value: ovsdb.Map{"a": "1"}}}, 1},
				"not equal":         {"Port", ovsdb.Where{{Column: "name", Function: "!=", Value: "p0"}}, 1},
				"less":              {"Open_vSwitch", ovsdb.Where{{Column: "next_cfg", Function: "<", Value: 0}}, 0},
				"greater or equal":  {"Open_vSwitch", ovsdb.Where{{Column: "next_cfg", Function: ">=", Value: 0}}, 1},
				"all of several":    {"Port", append(ovsdb.Is("name", "p0"), ovsdb.Is("name", "br0")...), 0},
				"empty optional":    {"Port", ovsdb.Is("tag", ovsdb.Set[int]{}), 2},
				"optional of value": {"Port", ovsdb.Is("tag", 5), 0},
			} {
				out, err := c.Transact(ctx, ovsdb.Select(q.table, q.where, "_uuid"))
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if got := len(rows[ovsdb.Port](t, out[0])); got != q.want {
					t.Errorf("%s: %d rows, want %d", name, got, q.want)
				}
			}
		})

		t.Run("update and mutate", func(t *testing.T) {
			out, err := c.Transact(ctx,
				ovsdb.Update("Port", ovsdb.Is("name", "p0"), ovsdb.Row{"tag": 7}),
				ovsdb.Mutate("Port", ovsdb.Is("name", "p0"),
					ovsdb.Mutation{Column: "external_ids", Mutator: "delete", Value: ovsdb.Set[string]{"a"}},
					ovsdb.Mutation{Column: "external_ids", Mutator: "insert", Value: ovsdb.Map{"a": "3", "b": "kept as it is"}}),
				ovsdb.Select("Port", ovsdb.Is("name", "p0"), "tag", "external_ids"),
				ovsdb.Comment("a comment changes nothing"),
			)
			if err != nil {
				t.Fatal(err)
			}
			got := rows[ovsdb.Port](t, out[2])[0]
			if tag, ok := got.Tag.One(); !ok || tag != 7 || out[0].Count != 1 {
				t.Errorf("tag %v, count %d", got.Tag, out[0].Count)
			}
			if d := cmp.Diff(ovsdb.Map{"a": "3", "b": "2"}, got.ExternalIDs); d != "" {
				t.Error(d)
			}
		})

		t.Run("all or nothing", func(t *testing.T) {
			_, err := c.Transact(ctx,
				ovsdb.Update("Port", ovsdb.Is("name", "p0"), ovsdb.Row{"tag": 8}),
				ovsdb.Wait("Port", ovsdb.Is("name", "none"), []string{"name"}, []ovsdb.Row{{"name": "none"}}, 0),
				ovsdb.Update("Port", ovsdb.Is("name", "p0"), ovsdb.Row{"tag": 9}),
			)
			var refused *ovsdb.OpError
			if !errors.Is(err, ovsdb.ErrTimedOut) || !errors.As(err, &refused) || !strings.Contains(refused.Op, `"op":"wait"`) {
				t.Fatalf("got %v", err)
			}
			out, err := c.Transact(ctx, ovsdb.Select("Port", ovsdb.Is("name", "p0"), "tag"))
			if err != nil {
				t.Fatal(err)
			}
			if tag, _ := rows[ovsdb.Port](t, out[0])[0].Tag.One(); tag != 7 {
				t.Errorf("tag is %d", tag)
			}
		})

		t.Run("refusals", func(t *testing.T) {
			for name, q := range map[string]struct {
				op   ovsdb.Op
				want string
			}{
				"no such table":    {ovsdb.Select("Nonsense", ovsdb.All(), "name"), "syntax error"},
				"no such column":   {ovsdb.Update("Port", ovsdb.All(), ovsdb.Row{"nonsense": 1}), "unknown column"},
				"out of range":     {ovsdb.Update("Port", ovsdb.Is("name", "p0"), ovsdb.Row{"tag": 5000}), "constraint violation"},
				"immutable column": {ovsdb.Update("Port", ovsdb.Is("name", "p0"), ovsdb.Row{"name": "q"}), "constraint violation"},
				"name twice":       {ovsdb.Insert("Bridge", ovsdb.Row{"name": "br0"}, "b"), ""}, // not referred to: goes by itself
				"no interface": {ovsdb.Mutate("Port", ovsdb.Is("name", "p0"),
					ovsdb.Mutation{Column: "interfaces", Mutator: "delete", Value: p.Interfaces}), "constraint violation"},
				"dangling": {ovsdb.Update("Port", ovsdb.Is("name", "p0"),
					ovsdb.Row{"interfaces": ovsdb.UUID("00000000-0000-4000-8000-000000000001")}), "referential integrity violation"},
			} {
				_, err := c.Transact(ctx, q.op)
				var refused *ovsdb.OpError
				if q.want == "" {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				} else if !errors.As(err, &refused) || refused.Name != q.want {
					t.Errorf("%s: got %v, want %q", name, err, q.want)
				}
			}
			_, err := c.Transact(ctx,
				ovsdb.Insert("Interface", ovsdb.Row{"name": "p0"}, "i"),
				ovsdb.Insert("Port", ovsdb.Row{"name": "q0", "interfaces": ovsdb.Named("i")}, "p"),
				ovsdb.Mutate("Bridge", ovsdb.Is("name", "br0"), ovsdb.Mutation{Column: "ports", Mutator: "insert", Value: ovsdb.Named("p")}))
			if !errors.Is(err, ovsdb.ErrConstraint) {
				t.Errorf("interface name twice: %v", err)
			}
		})

		t.Run("unreferenced rows go", func(t *testing.T) {
			out, err := c.Transact(ctx,
				ovsdb.Mutate("Bridge", ovsdb.Includes("ports", p.UUID), ovsdb.Mutation{Column: "ports", Mutator: "delete", Value: p.UUID}))
			if err != nil || out[0].Count != 1 {
				t.Fatal(out, err)
			}
			out, err = c.Transact(ctx,
				ovsdb.Select("Port", ovsdb.Is("name", "p0"), "name"), ovsdb.Select("Interface", ovsdb.Is("name", "p0"), "name"))
			if err != nil {
				t.Fatal(err)
			}
			if n := len(rows[ovsdb.Port](t, out[0])) + len(rows[ovsdb.Interface](t, out[1])); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		})
	})
}

// A wait is answered by the server when it comes true, and other transactions of
// the same connection are served meanwhile.
func TestWait(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		o.AddBridge(t, "br0")
		there := []ovsdb.Row{{"name": "p1"}}

		_, err := c.Transact(t.Context(), ovsdb.Wait("Port", ovsdb.Is("name", "p1"), []string{"name"}, there, 20))
		if !errors.Is(err, ovsdb.ErrTimedOut) {
			t.Errorf("nothing came: %v", err)
		}

		got := make(chan error, 1)
		go func() {
			_, err := c.Transact(t.Context(), ovsdb.Wait("Port", ovsdb.Is("name", "p1"), []string{"name"}, there, 20000))
			got <- err
		}()
		if _, err := c.Transact(t.Context(), ovsdb.Select("Bridge", ovsdb.All(), "name")); err != nil {
			t.Fatal(err)
		}
		o.AddPort(t, "br0", "p1", nil)
		if err := <-got; err != nil {
			t.Error(err)
		}

		// Until no row matches any more.
		go func() {
			_, err := c.Transact(t.Context(), ovsdb.Wait("Port", ovsdb.Is("name", "p1"), []string{"name"}, nil, 20000))
			got <- err
		}()
		o.Transact(t, ovsdb.Update("Bridge", ovsdb.Is("name", "br0"), ovsdb.Row{"ports": ovsdb.Set[ovsdb.UUID]{}}))
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

// Giving up takes the transaction out of the server's queue: it is not carried
// out later.
func TestCancel(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		o.AddBridge(t, "br0")
		ctx, stop := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := c.Transact(ctx,
				ovsdb.Wait("Port", ovsdb.Is("name", "p1"), []string{"name"}, []ovsdb.Row{{"name": "p1"}}, 20000),
				ovsdb.Update("Port", ovsdb.Is("name", "p1"), ovsdb.Row{"tag": 9}))
			got <- err
		}()
		stop()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		// The same connection, so the server has read the cancellation before this.
		if _, err := c.Transact(t.Context(), ovsdb.Comment("after")); err != nil {
			t.Fatal(err)
		}
		o.AddPort(t, "br0", "p1", nil)
		out := o.Transact(t, ovsdb.Select("Port", ovsdb.Is("name", "p1"), "tag"))
		if p := rows[ovsdb.Port](t, out[0]); len(p) != 1 || len(p[0].Tag) != 0 {
			t.Errorf("ports %+v", p)
		}
	})
}

func TestServerGoesAway(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		got := make(chan error, 1)
		sent := make(chan struct{})
		go func() {
			close(sent)
			_, err := c.Transact(t.Context(), ovsdb.Wait("Port", ovsdb.Is("name", "p1"), []string{"name"}, []ovsdb.Row{{"name": "p1"}}, 20000))
			got <- err
		}()
		<-sent
		o.StopDatabase(t)
		if err := <-got; !errors.Is(err, ovsdb.ErrUnavailable) || !strings.Contains(err.Error(), o.Endpoint) {
			t.Errorf("under way: %v", err)
		}
		if _, err := c.Transact(t.Context(), ovsdb.Comment("x")); !errors.Is(err, ovsdb.ErrUnavailable) {
			t.Errorf("afterwards: %v", err)
		}
		o.StartDatabase(t)
		if _, err := o.Connect(t).Transact(t.Context(), ovsdb.Comment("x")); err != nil {
			t.Errorf("back again: %v", err)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20 {
					if _, err := c.Transact(t.Context(), ovsdb.Mutate("Open_vSwitch", ovsdb.All(),
						ovsdb.Mutation{Column: "external_ids", Mutator: "insert", Value: ovsdb.Map{"k": "v"}},
						ovsdb.Mutation{Column: "next_cfg", Mutator: "+=", Value: 1})); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		out, err := c.Transact(t.Context(), ovsdb.Select("Open_vSwitch", ovsdb.All(), ovsdb.OpenVSwitchColumns()...))
		if err != nil {
			t.Fatal(err)
		}
		if got := rows[ovsdb.OpenVSwitch](t, out[0])[0].NextCfg; got < 160 {
			t.Errorf("next_cfg %d after 160 additions", got)
		}
	})
}

// What the switch does with a port: a number, or a reason.
func TestSwitchTakesPorts(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		o.AddBridge(t, "br0")
		o.AddNetdev(t, "v0")
		state := func(name string) (int, string) {
			out := o.Transact(t,
				ovsdb.Wait("Interface", append(ovsdb.Is("name", name), ovsdb.Is("ofport", ovsdb.Set[int]{})...), []string{"name"}, nil, 10000),
				ovsdb.Select("Interface", ovsdb.Is("name", name), ovsdb.InterfaceColumns()...))
			i := rows[ovsdb.Interface](t, out[1])[0]
			n, _ := i.Ofport.One()
			why, _ := i.Error.One()
			return n, why
		}
		o.AddPort(t, "br0", "v0", nil)
		if n, why := state("v0"); n < 1 || why != "" {
			t.Errorf("v0: %d %q", n, why)
		}
		o.AddPort(t, "br0", "none", nil)
		n, why := state("none")
		if want := "could not open network device none (No such device)"; n != -1 || why != want {
			t.Errorf("none: %d %q, want -1 %q", n, why, want)
		}
		o.PauseSwitch(t)
		o.AddNetdev(t, "v1")
		o.AddPort(t, "br0", "v1", nil)
		out := o.Transact(t, ovsdb.Select("Interface", ovsdb.Is("name", "v1"), ovsdb.InterfaceColumns()...))
		if i := rows[ovsdb.Interface](t, out[0])[0]; len(i.Ofport) != 0 {
			t.Errorf("a halted switch gave v1 %v", i.Ofport)
		}
		o.ResumeSwitch(t)
		if n, why := state("v1"); n < 1 {
			t.Errorf("v1: %d %q", n, why)
		}
	})
}

func TestWireForms(t *testing.T) {
	for _, o := range []struct {
		op   ovsdb.Op
		want string
	}{
		{ovsdb.Select("Port", ovsdb.All(), "name"), `{"columns":["name"],"op":"select","table":"Port","where":[]}`},
		{ovsdb.Insert("Port", ovsdb.Row{"interfaces": ovsdb.Named("i")}, "p"),
			`{"op":"insert","row":{"interfaces":["named-uuid","i"]},"table":"Port","uuid-name":"p"}`},
		{ovsdb.Wait("Port", ovsdb.Is("name", "x"), []string{"name"}, nil, 0),
			`{"columns":["name"],"op":"wait","rows":[],"table":"Port","timeout":0,"until":"==","where":[["name","==","x"]]}`},
		{ovsdb.Update("Port", ovsdb.Is("tag", ovsdb.Set[int](nil)), ovsdb.Row{"external_ids": ovsdb.Map{"b": "2", "a": "1"}}),
			`{"op":"update","row":{"external_ids":["map",[["a","1"],["b","2"]]]},"table":"Port","where":[["tag","==",["set",[]]]]}`},
	} {
		if got := o.op.String(); got != o.want {
			t.Errorf("got  %s\nwant %s", got, o.want)
		}
	}
}

func FuzzValues(f *testing.F) {
	for _, s := range []string{`["set",[]]`, `["set",[1,2]]`, `7`, `["map",[["a","b"]]]`, `["map",[["a"]]]`, `["uuid","x"]`, `["named-uuid","x"]`, `null`, `[]`, `["set"]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again(t, b, &ovsdb.Set[int]{}, &ovsdb.Set[int]{})
		again(t, b, &ovsdb.Set[ovsdb.UUID]{}, &ovsdb.Set[ovsdb.UUID]{})
		again(t, b, &ovsdb.Map{}, &ovsdb.Map{})
		again(t, b, new(ovsdb.UUID), new(ovsdb.UUID))
		again(t, b, new(ovsdb.Named), new(ovsdb.Named))
	})
}

// again: what was read is written in a form that reads the same.
func again(t *testing.T, b []byte, v, w any) {
	if json.Unmarshal(b, v) != nil {
		return
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%s: read as %v, which cannot be written: %v", b, v, err)
	}
	if err := json.Unmarshal(out, w); err != nil {
		t.Fatalf("%s: written as %s, which does not read: %v", b, out, err)
	}
	if twice, err := json.Marshal(w); err != nil || string(twice) != string(out) {
		t.Fatalf("%s: written as %s, then as %s: %v", b, out, twice, err)
	}
}

// What each CNI call pays before it knows anything: a connection, and the rows of
// one port beside those of a full node.
func BenchmarkConnectAndSelect(b *testing.B) {
	for name, start := range map[string]func(testing.TB) *ovsdbtest.OVS{
		"process": ovsdbtest.InProcess, "real": ovsdbtest.Daemons,
	} {
		b.Run(name, func(b *testing.B) {
			o := start(b)
			o.AddBridge(b, "br0")
			for i := range 128 {
				o.AddPort(b, "br0", "pf0vf"+strconv.Itoa(i), nil)
			}
			for b.Loop() {
				c, err := ovsdb.Connect(b.Context(), o.Endpoint)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Transact(b.Context(),
					ovsdb.Select(ovsdb.TableBridge, ovsdb.All(), ovsdb.BridgeColumns()...),
					ovsdb.Select(ovsdb.TablePort, ovsdb.Is("name", "pf0vf7"), ovsdb.PortColumns()...),
				); err != nil {
					b.Fatal(err)
				}
				_ = c.Close()
			}
		})
	}
}
