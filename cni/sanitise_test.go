package cni

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

// TestSanitised gives a VF back as it was whatever its pod has done to it.
func TestSanitised(t *testing.T) {
	for name, gone := range map[string]bool{"DEL": false, "DEL after the namespace's end": true} {
		w := newWorld(t)
		before, settings := w.snap(), w.settings()
		p := full(w.pod("c1", w.vf(0, 1)))
		w.mustAdd(p)
		l, ns := w.inPod(p.netns)
		ctx := t.Context()
		if err := errors.Join(
			ns.SetUp(ctx, l.Ifindex, false),
			ns.SetName(ctx, l.Ifindex, "mine"), ns.SetMAC(ctx, l.Ifindex, nic.MAC{2, 0, 0, 0, 0, 9}), ns.SetMTU(ctx, l.Ifindex, 1300),
			ns.SetAltName(ctx, l.Ifindex, "mine-too", true), ns.SetPromisc(ctx, l.Ifindex, true),
		); err != nil {
			t.Fatal(err)
		}
		if gone {
			if err := ns.Close(); err != nil {
				t.Fatal(err)
			}
			w.mustDeleteNetns(p)
			// Queues and sizes can be seen again now: somebody has turned them.
			pf := w.pf(0)
			for name, value := range map[nic.Setting]string{nic.Channels: "2", nic.RxRing: "512", nic.TxRing: "2048", nic.GSOMax: "100000"} {
				if err := w.sim.Machine().Settings.SetVF(ctx, *pf, 1, name, value); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.mustDel(p)
		w.mustBe(before, "after "+name)
		if d := cmp.Diff(settings, w.settings()); d != "" {
			t.Errorf("%s: settings (-before +after):\n%s", name, d)
		}
	}
}

// Case B33: alternative names, of the VF or of others, that are the name that the VF
// is to have in the pod or on the host, are in nobody's way, at no step.
func TestB33AlternativeNames(t *testing.T) {
	for name, spoil := range map[string]func(*world, pod) error{
		"the VF's own, as in the pod": func(w *world, p pod) error {
			return w.sim.AddAltName("", w.vfAt(p.vf).Netdev.Ifindex, p.ifname)
		},
		"the VF's own, several": func(w *world, p pod) error {
			i := w.vfAt(p.vf).Netdev.Ifindex
			return errors.Join(w.sim.AddAltName("", i, "enp9s9v1"), w.sim.AddAltName("", i, "eth0"))
		},
		"the VF's own, and in the pod": func(w *world, p pod) error {
			i, err := w.sim.AddLink(p.netns, "other", "veth")
			return errors.Join(err, w.sim.AddAltName(p.netns, i, "there"), w.sim.AddAltName("", w.vfAt(p.vf).Netdev.Ifindex, "there"))
		},
		"another's on the host": func(w *world, p pod) error {
			i, err := w.sim.AddLink("", "other0", "veth")
			return errors.Join(err, w.sim.AddAltName("", i, p.ifname))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ { // killed after n pieces of work; 0 not at all
				w := newWorld(t)
				p := w.pod("c1", w.vf(0, 1))
				if err := spoil(w, p); err != nil {
					t.Fatal(err)
				}
				before := w.snap()
				crashed := false
				if n == 0 {
					w.mustAdd(p)
					if l, _ := w.inPod(p.netns); l.Name != "net1" || len(l.AltNames) != 0 {
						t.Fatalf("in the pod: %+v", l)
					}
				} else if crashed, _ = w.crash(n, func() error { return w.add(p) }); !crashed {
					break
				}
				w.mustDel(p)
				w.mustBe(before, fmt.Sprintf("after an ADD killed at %d, and DEL", n))
			}
		})
	}
}

// TestAltNameTaken gives up a name that another interface has by now.
func TestAltNameTaken(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	i := w.vfAt(p.vf).Netdev.Ifindex
	if err := errors.Join(w.sim.AddAltName("", i, "one"), w.sim.AddAltName("", i, "two")); err != nil {
		t.Fatal(err)
	}
	w.mustAdd(p)
	if _, err := w.sim.AddLink("", "one", "veth"); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	l, err := w.sim.Machine().Links.Link(t.Context(), w.vfAt(p.vf).Netdev.Ifindex)
	if err != nil || !slices.Equal(l.AltNames, []string{"two"}) {
		t.Errorf("%+v, %v", l, err)
	}
}
