package cni

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
)

var someSysctls = map[string]string{"net.ipv4.conf.IFNAME.rp_filter": "2", "net.ipv6.conf.IFNAME.accept_ra": "0"}

// TestSysctls sets what was asked for of the pod's interface, before it goes up, whatever
// it is, and of nothing else.
func TestSysctls(t *testing.T) {
	for name, ask := range map[string]func(pod) pod{
		"device":      func(p pod) pod { return p },
		"veth":        func(p pod) pod { return p.with("deviceID", nil).with("attach", "veth") },
		"representor": asRep,
	} {
		w := newWorldOf(t, freeReps)
		before := w.snap()
		p := ask(w.pod("c1", w.vf(0, 1))).with("sysctls", someSysctls)
		result := w.mustAdd(p)
		l := w.linkIn(p.netns, "net1")
		_, ns := w.inPod(p.netns)
		for key, want := range someSysctls {
			if got, err := ns.Sysctl(t.Context(), l.Ifindex, key); got != want || err != nil {
				t.Errorf("%s: %s is %s, want %s: %v", name, key, got, want, err)
			}
			if got, err := ns.Sysctl(t.Context(), host.DefaultSysctl, key); got == want || err != nil {
				t.Errorf("%s: %s of new interfaces is %s: %v", name, key, got, err)
			}
		}
		if name == "device" {
			steps := w.steps(p.vf)
			set, up := strings.Index(steps, "set net.ipv4.conf.IFNAME.rp_filter 2 of VF netdev net1 in the pod"), strings.Index(steps, "set VF netdev net1 in the pod up")
			if set < 0 || up < set {
				t.Errorf("not set before it goes up:\n%s", steps)
			}
		}
		if err := w.check(p, result); err != nil {
			t.Errorf("%s: CHECK: %v", name, err)
		}
		if err := ns.SetSysctl(t.Context(), l.Ifindex, "net.ipv4.conf.IFNAME.rp_filter", "0"); err != nil {
			t.Fatal(err)
		}
		var e *types.Error
		if err := w.check(p, result); !errors.As(err, &e) || e.Code != ErrDamage || !strings.Contains(e.Msg, "its net.ipv4.conf.IFNAME.rp_filter is 0, want 2") {
			t.Errorf("%s: CHECK: %v", name, err)
		}
		w.mustDel(p)
		w.mustBe(before, name+": after DEL")
	}
}

// TestSysctlsRefused are none of the pod's interface, none that the kernel has, or no
// numbers; nothing is changed for them.
func TestSysctlsRefused(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"net.ipv4.ip_forward", "1", `sysctls: "net.ipv4.ip_forward": want net.ipv4 or net.ipv6, conf or neigh, IFNAME and a setting`},
		{"net.ipv4.conf.all.rp_filter", "1", `"net.ipv4.conf.all.rp_filter": want`},
		{"net.ipv4.conf.eth0.rp_filter", "1", `"net.ipv4.conf.eth0.rp_filter": want`},
		{"net.ipv4.conf.IFNAME.../../x", "1", "want net.ipv4"},
		{"kernel.conf.IFNAME.x.y", "1", "want net.ipv4"},
		{"net.ipv4.conf.IFNAME.rp_filter", "on", `net.ipv4.conf.IFNAME.rp_filter = "on": want a number`},
		{"net.ipv4.conf.IFNAME.rp_filter", "01", `want a number`},
		{"net.ipv4.conf.IFNAME.rpfilter", "1", "sysctls: the kernel has no net.ipv4.conf.IFNAME.rpfilter: want it away"},
	} {
		w := newWorld(t)
		before, writes := w.snap(), w.sim.Writes()
		err := w.add(w.pod("c1", w.vf(0, 1)).with("sysctls", map[string]string{c.key: c.value}))
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Msg, c.want) {
			t.Errorf("%s = %s: %v, want %s", c.key, c.value, err, c.want)
		}
		if w.sim.Writes() != writes {
			t.Errorf("%s: something was changed", c.key)
		}
		w.mustBe(before, c.key)
	}
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1)).with("sysctls", someSysctls)
	w.bind(p.vf, "vfio-pci")
	if err := w.add(p); err == nil || !strings.Contains(err.Error(), "a program drives VF 0000:03:00.3") {
		t.Errorf("vfio: %v", err)
	}
}

// TestFamilies has addresses of one family and of both, each announced in its own way, and
// CHECK that knows them.
func TestFamilies(t *testing.T) {
	for only, want := range map[int]string{4: "announce 10.56.0.1 from", 6: "announce fd56::1 from", 0: "announce 10.56.0.1, fd56::1 from"} {
		w := newWorld(t)
		w.ipam.only = only
		before := w.snap()
		p := w.pod("c1", w.vf(0, 1))
		var told []string
		w.sim.Inject(sim.Fault{Times: -1, Match: func(o sim.Op) bool {
			if o.Verb == sim.Announce {
				told = append(told, o.Arg)
			}
			return false
		}})
		result := w.mustAdd(p)
		if steps := w.steps(p.vf); !strings.Contains(steps, want) {
			t.Errorf("only %d: want %s:\n%s", only, want, steps)
		}
		l, ns := w.inPod(p.netns)
		got, err := ns.Addresses(t.Context(), l.Ifindex)
		if err != nil || len(got) != len(told) || only != 0 && len(got) != 1 || only == 6 && !got[0].Addr().Is6() {
			t.Errorf("only %d: addresses %v, announced %v, %v", only, got, told, err)
		}
		if err := w.check(p, result); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		w.mustDel(p)
		w.mustBe(before, "after DEL")
	}
}
