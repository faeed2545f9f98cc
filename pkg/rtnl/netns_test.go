package rtnl

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
)

func inNew(t *testing.T) (Conn, *os.File) {
	t.Helper()
	ns := netnstest.New(t)
	return New(netnstest.Dial(t, ns, unix.NETLINK_ROUTE)), ns
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c Conn, ifindex int) Link {
	t.Helper()
	l, err := c.Get(ifindex)
	must(t, err)
	return l
}

func TestReadAndDelete(t *testing.T) {
	c, ns := inNew(t)
	a, b := netnstest.Veth(t, ns, "a", "b")
	must(t, c.SetUp(a, true))
	list, err := c.List(t.Context())
	must(t, err)
	i := slices.IndexFunc(list, func(l Link) bool { return l.Ifindex == a })
	if i < 0 || list[i].Name != "a" || !list[i].Up || list[i].Kind != "veth" || list[i].Parent != "" {
		t.Fatalf("%+v", list)
	}
	if l, err := c.ByName("b"); err != nil || l.Ifindex != b {
		t.Errorf("%+v, %v", l, err)
	}
	for what, err := range map[string]error{
		"no ifindex": func() error { _, err := c.Get(0); return err }(),
		"nowhere":    func() error { _, err := c.GetWithVFs(1 << 30); return err }(),
		"no name":    func() error { _, err := c.ByName("c"); return err }(),
		"set":        c.SetUp(1<<30, true),
		"delete":     c.Delete(1 << 30),
		"enslave":    c.Enslave(1<<30, a),
	} {
		if !errors.Is(err, unix.ENODEV) {
			t.Errorf("%s: %v, want ENODEV", what, err)
		}
	}
	must(t, c.Delete(a))
	if _, err := c.Get(b); !errors.Is(err, unix.ENODEV) {
		t.Errorf("the other end is still there: %v", err)
	}
	if err := c.Delete(1); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("lo deleted: %v", err)
	}
	if err := c.SetVF(1, 0, VFChange{Trust: is(true)}); !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "trust true") {
		t.Errorf("a VF of lo: %v", err)
	}
}

// Case B55: interfaces come and go while they are listed. A list that the kernel
// marks as interrupted is read again, so each has all that was there for the whole
// time, once.
func TestB55ListsUnderChurn(t *testing.T) {
	c, ns := inNew(t)
	var stay []int
	for i := range 20 {
		a, b := netnstest.Veth(t, ns, fmt.Sprint("s", i), fmt.Sprint("t", i))
		stay = append(stay, a, b)
	}
	churn := New(netnstest.Dial(t, ns, unix.NETLINK_ROUTE))
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			name := fmt.Sprint("c", i%7)
			err := churn.Do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0, netlink.Text(unix.IFLA_IFNAME, name),
				netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, "veth")))
			var made Link
			if err == nil {
				made, err = churn.ByName(name)
			}
			if err == nil {
				err = churn.Delete(made.Ifindex)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	for range 200 {
		list, err := c.List(t.Context())
		if err != nil {
			t.Error(err)
			break
		}
		seen := map[int]int{}
		for _, l := range list {
			seen[l.Ifindex]++
		}
		for _, ifindex := range stay {
			if seen[ifindex] != 1 {
				t.Fatalf("interface %d is in the list %d times", ifindex, seen[ifindex])
			}
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("interfaces do not come and go: %v", err)
	}
}

// Case B57: IPv6's size before IPv4's, whatever the size, and never over what the
// device takes.
func TestB57SizesInOrder(t *testing.T) {
	c, ns := inNew(t)
	a, _ := netnstest.Veth(t, ns, "a", "b")
	was := get(t, c, a).Sizes
	if was.TSO == 0 || was.GSOIPv4 == 0 {
		t.Skipf("a kernel before Linux 6.3: %+v", was)
	}
	for _, want := range []Sizes{
		{GSO: 32768, GSOIPv4: 50000, GRO: 30000, GROIPv4: 40000},
		{GSO: was.TSO, GSOIPv4: was.TSO, GRO: 200000, GROIPv4: 100000},
		{GSO: 65536, GSOIPv4: 100000, GRO: 65536, GROIPv4: 65536},
	} {
		must(t, c.SetSizes(a, want))
		want.TSO = was.TSO
		if got := get(t, c, a).Sizes; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	before := get(t, c, a).Sizes
	err := c.SetSizes(a, Sizes{GRO: 70000, GSO: was.TSO + 1})
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "too big gso_max_size") {
		t.Errorf("over the device's limit: %v", err)
	}
	if got := get(t, c, a).Sizes; got != before {
		t.Errorf("a refusal left %+v of %+v", got, before)
	}
	must(t, c.SetSizes(a, Sizes{}))
	if got := get(t, c, a).Sizes; got != before {
		t.Errorf("no size left %+v of %+v", got, before)
	}
}

func TestMonitor(t *testing.T) {
	c, ns := inNew(t)
	var m *Monitor
	netnstest.In(t, ns, func() (err error) {
		m, err = Listen()
		return err
	})
	defer m.Close()
	hear := func(want Event) {
		t.Helper()
		netnstest.Hear(t, fmt.Sprintf("%+v", want), m.Next, func(e Event) bool { return e == want })
	}
	a, b := netnstest.Veth(t, ns, "a", "b")
	hear(Event{Subject: OfLink, Ifindex: a, Name: "a"})
	must(t, c.SetUp(a, true))
	must(t, c.SetUp(b, true))
	hear(Event{Subject: OfLink, Ifindex: b, Name: "b"})

	address := func(kind, flags int) error {
		_, err := netnstest.Dial(t, ns, unix.NETLINK_ROUTE).Do(kind, unix.NLM_F_ACK|flags,
			netlink.Bytes{unix.AF_INET, 24, 0, 0, byte(a), byte(a >> 8), 0, 0}, netlink.Attr(unix.IFA_LOCAL, []byte{192, 0, 2, 1}))
		return err
	}
	must(t, address(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL))
	hear(Event{Subject: OfAddress, Ifindex: a})
	hear(Event{Subject: OfRoute, Ifindex: a}) // the kernel's own, of the prefix
	must(t, address(unix.RTM_DELADDR, 0))
	hear(Event{Subject: OfAddress, Ifindex: a, Gone: true})
	must(t, c.Delete(a))
	hear(Event{Subject: OfLink, Ifindex: a, Name: "a", Gone: true})
}

// A port that leaves a bridge is not gone.
func TestMonitorOfBridge(t *testing.T) {
	h := nl.NewIfInfomsg(unix.AF_BRIDGE)
	h.Index = 7
	b := (&nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Type: unix.RTM_DELLINK}, Data: []nl.NetlinkRequestData{h, name("a")}}).Serialize()
	if got := parseEvents(b); !slices.Equal(got, []Event{{Subject: OfLink, Ifindex: 7, Name: "a"}}) {
		t.Errorf("%+v", got)
	}
}

// eventually polls for what the kernel does by itself, for a bounded time.
func eventually(t *testing.T, not string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute: %s", not)
		}
	}
}
