package ovn

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/ovsdb"
)

// cluster is a real northbound of three servers, of which one leads (ovsdb(7), Clustered
// Database Service Model).
type cluster struct {
	t       *testing.T
	dir     string
	servers [3]*exec.Cmd // nil: it does not run
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	for _, p := range []string{"ovsdb-tool", "ovsdb-server", "ovs-appctl"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("the cluster is left out: there is no %s (package openvswitch-switch)", p)
		}
	}
	const schema = "/usr/share/ovn/ovn-nb.ovsschema"
	if _, err := os.Stat(schema); err != nil {
		t.Skipf("the cluster is left out: %v (package ovn-central)", err)
	}
	dir, err := os.MkdirTemp("", "nb") // short: it has sockets in it
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir}
	t.Cleanup(func() {
		for i := range c.servers {
			c.kill(i)
		}
		_ = os.RemoveAll(dir)
	})
	for i := range c.servers {
		raft := "unix:" + c.path(i, "raft")
		if i == 0 {
			c.run("ovsdb-tool", "create-cluster", c.path(i, "db"), schema, raft)
		} else {
			c.run("ovsdb-tool", "join-cluster", c.path(i, "db"), Database, raft, "unix:"+c.path(0, "raft"))
		}
		c.start(i)
	}
	c.await("three members", func() bool { return c.leader() >= 0 && c.joined() == 3 })
	return c
}

func (c *cluster) path(i int, name string) string {
	return filepath.Join(c.dir, fmt.Sprintf("%d.%s", i, name))
}

func (c *cluster) endpoint(i int) string { return "unix:" + c.path(i, "sock") }

func (c *cluster) run(name string, args ...string) string {
	c.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

func (c *cluster) start(i int) {
	c.t.Helper()
	for _, name := range []string{"sock", "ctl"} {
		_ = os.Remove(c.path(i, name))
	}
	cmd := exec.Command("ovsdb-server", "-vconsole:off", "--remote=punix:"+c.path(i, "sock"), "--unixctl="+c.path(i, "ctl"), c.path(i, "db"))
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = cmd
	c.await("a server to listen", func() bool {
		_, err := os.Stat(c.path(i, "ctl"))
		return err == nil
	})
}

func (c *cluster) kill(i int) {
	if c.servers[i] == nil {
		return
	}
	_ = c.servers[i].Process.Kill()
	_ = c.servers[i].Wait()
	c.servers[i] = nil
}

func (c *cluster) status(i int) string {
	if c.servers[i] == nil {
		return ""
	}
	out, _ := exec.Command("ovs-appctl", "-t", c.path(i, "ctl"), "cluster/status", Database).CombinedOutput()
	return string(out)
}

// leader is the one that leads, -1 for nobody.
func (c *cluster) leader() int {
	for i := range c.servers {
		if strings.Contains(c.status(i), "\nRole: leader") {
			return i
		}
	}
	return -1
}

func (c *cluster) joined() (n int) {
	for i := range c.servers {
		if strings.Contains(c.status(i), "\nStatus: cluster member") {
			n++
		}
	}
	return n
}

func (c *cluster) await(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited 2 min for %s: %s%s%s", what, c.status(0), c.status(1), c.status(2))
		}
	}
}

// Case B49: the leader of the northbound's cluster is killed and comes back, again and
// again, with a connection to each server open. Networks are written all the while by way
// of whichever is left, a connection of before says that it is spent, and in the end each
// server has what was wanted, and no more.
func TestB49NorthboundWithoutItsLeader(t *testing.T) {
	n := newCluster(t)
	wanted := [][]Wish{allWishes()[:2], allWishes(), allWishes()[1:], allWishes()}
	for turn, wishes := range wanted {
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		defer stop()
		led := n.leader()
		old, err := ovsdb.Connect(ctx, n.endpoint(led))
		if err != nil {
			t.Fatal(err)
		}
		n.kill(led)
		if _, err := Read(ctx, old); err == nil {
			t.Errorf("turn %d: the connection to a server that is gone gives rows", turn)
		}
		_ = old.Close()
		n.await("another leader", func() bool { return n.leader() >= 0 })
		other := (led + 1 + turn%2) % 3 // the leader, or one that follows
		c, err := ovsdb.Connect(ctx, n.endpoint(other))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Apply(ctx, c, Rows(wishes)); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		_ = c.Close()
		n.start(led)
		n.await("all to be back", func() bool { return n.leader() >= 0 && n.joined() == 3 })
		for i := range n.servers {
			c, err := ovsdb.Connect(ctx, n.endpoint(i))
			if err != nil {
				t.Fatal(err)
			}
			// A server that was away hears of it soon.
			n.await(fmt.Sprintf("turn %d: server %d to have what is wanted", turn, i), func() bool {
				have, err := Read(ctx, c)
				if err != nil {
					return false
				}
				left, err := Plan(Rows(wishes), have)
				return err == nil && len(left) == 0
			})
			_ = c.Close()
		}
	}
}
