package tc_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/tc"
)

// A real kernel, real packets, without flower, which not every kernel has.
func TestIngressOfVeth(t *testing.T) {
	inNamespace(t)
	ctx := t.Context()
	sh(t, "ip link add a0 type veth peer name a1")
	sh(t, "ip link add b0 type veth peer name b1")
	for _, n := range []string{"a0", "a1", "b0", "b1"} {
		sh(t, "ip link set "+n+" up")
	}
	c := open(t)
	if rules, err := c.Ingress(ctx, ifindex(t, "a0")); err != nil || len(rules) != 0 {
		t.Errorf("without a qdisc: %v %v", rules, err)
	}
	sh(t, "tc qdisc add dev a0 ingress")
	if rules, err := c.Ingress(ctx, ifindex(t, "a0")); err != nil || len(rules) != 0 {
		t.Errorf("without rules: %v %v", rules, err)
	}
	if out, err := trySh("tc filter add dev a0 ingress prio 7 protocol ip u32 match ip src 10.0.0.1/32 action mirred egress redirect dev b0"); err != nil {
		t.Skipf("this kernel has no u32 or mirred: %s", out)
	}
	send(t, "a1", 5, 100)
	for _, hook := range []string{"ingress", "clsact"} {
		rules, err := c.Ingress(ctx, ifindex(t, "a0"))
		if err != nil {
			t.Fatal(err)
		}
		if len(rules) != 1 {
			t.Fatalf("%s: %v", hook, rules)
		}
		r := rules[0]
		if got, want := r.String(), "chain 0 prio 7 ip u32 not_in_hw: mirred egress redirect dev b0"; got != want {
			t.Errorf("%s: got %q, want %q", hook, got, want)
		}
		if r.Ifindex != ifindex(t, "a0") || r.InHW || r.Hardware != (tc.Counter{}) {
			t.Errorf("%s: %+v", hook, r)
		}
		if r.Total.Packets != 5 || r.Software() != r.Total {
			t.Errorf("%s: total %+v, software %+v", hook, r.Total, r.Software())
		}
		if r.IdleSeconds > 30 {
			t.Errorf("%s: idle %v s right after a packet", hook, r.IdleSeconds)
		}
		if hook == "ingress" {
			sh(t, "tc qdisc del dev a0 ingress")
			sh(t, "tc qdisc add dev a0 clsact")
			sh(t, "tc filter add dev a0 ingress prio 7 protocol ip u32 match ip src 10.0.0.1/32 action mirred egress redirect dev b0")
			send(t, "a1", 5, 100)
		}
	}
	// What it is redirected to is gone: its name is not known any more.
	sh(t, "ip link del b0")
	rules, err := c.Ingress(ctx, ifindex(t, "a0"))
	if err != nil || len(rules) != 1 || rules[0].Actions[0].Dev != "" {
		t.Errorf("%v %v", rules, err)
	}
}

func TestSharedBlock(t *testing.T) {
	inNamespace(t)
	ctx := t.Context()
	for _, n := range []string{"a", "b"} {
		sh(t, "ip link add "+n+"0 type veth peer name "+n+"1")
		sh(t, "tc qdisc add dev "+n+"0 ingress_block 42 ingress")
	}
	if out, err := trySh("tc filter add block 42 prio 1 protocol ip u32 match ip src 10.0.0.1/32 action mirred egress redirect dev b1"); err != nil {
		t.Skipf("this kernel has no u32 or mirred: %s", out)
	}
	c := open(t)
	byBlock, err := c.Block(ctx, 42)
	if err != nil || len(byBlock) != 1 || byBlock[0].Block != 42 || byBlock[0].Ifindex != 0 {
		t.Errorf("%+v %v", byBlock, err)
	}
	for _, n := range []string{"a0", "b0"} {
		if rules, err := c.Ingress(ctx, ifindex(t, n)); err != nil || len(rules) != 1 || rules[0].Block != 42 {
			t.Errorf("%s: %+v %v", n, rules, err)
		}
	}
}

func TestNotThere(t *testing.T) {
	inNamespace(t)
	c := open(t)
	if _, err := c.Ingress(t.Context(), 99999); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Ingress: %v", err)
	}
	if _, err := c.Link(t.Context(), 99999); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Link: %v", err)
	}
}

func TestLinkCounters(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link add a0 type veth peer name a1")
	sh(t, "ip link set a0 up")
	sh(t, "ip link set a1 up")
	c := open(t)
	before, err := c.Link(t.Context(), ifindex(t, "a0"))
	if err != nil {
		t.Fatal(err)
	}
	send(t, "a1", 7, 200)
	after, err := c.Link(t.Context(), ifindex(t, "a0"))
	if err != nil {
		t.Fatal(err)
	}
	if n := after.RX.Packets - before.RX.Packets; n < 7 || after.RX.Bytes-before.RX.Bytes < 7*200 {
		t.Errorf("counted %d packets, %d bytes of 7 of 200", n, after.RX.Bytes-before.RX.Bytes)
	}
	if after.CPU != nil || after.Host() != (tc.Directions{RX: after.RX, TX: after.TX}) {
		t.Errorf("a veth has no hardware: %+v", after)
	}
}

// A connection opened in another namespace reads that one.
func TestOtherNamespace(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link add a0 type veth peer name a1")
	index := ifindex(t, "a0")
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	c, err := tc.OpenAt(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Link(t.Context(), index); err != nil {
		t.Errorf("there: %v", err)
	}
	if _, err := open(t).Link(t.Context(), index); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("here: %v", err)
	}
}
