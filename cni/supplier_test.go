package cni

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
)

// A VF that another CNI plugin has put into a pod of its own, with the representor
// renamed and in a bridge under rows without our mark, is that plugin's: it is in use for
// whoever looks, no ADD takes it, and neither GC nor a sweep touches VF, representor or
// rows, also when the pod has gone and the VF has come home. The next ADD has it.
func TestSupplierLeavesOthersAlone(t *testing.T) {
	w := newWorld(t)
	ours, theirs := w.pod("c1", w.vf(0, 0)), w.pod("c2", w.vf(0, 1))
	w.mustAdd(ours)
	ctx := context.Background()
	v := w.state().PFs[0].VFs[1]
	const renamed = "4d1f9a8b7c_h"
	var err error
	if stranger := w.sim.Stranger(func(m host.Machine) error {
		err = errors.Join(
			m.Links.SetName(ctx, v.Rep.Netdev.Ifindex, renamed),
			m.Links.Move(ctx, v.Netdev.Ifindex, theirs.netns),
		)
		return err
	}); stranger != nil || err != nil {
		t.Fatal(stranger, err)
	}
	w.sw.ports[renamed] = offload.Port{Bridge: "br-int", Representor: renamed, ExternalIDs: map[string]string{
		"iface-id": "web-0.shop", "vendor": "kube-ovn", "pod_name": "web-0", "pod_namespace": "shop", "pod_netns": theirs.netns,
	}}
	if use := w.state().PFs[0].VFs[1].InUse(); use != "its netdev is in another network namespace" {
		t.Fatalf("in use: %q", use)
	}
	held := w.snap()
	for what, do := range map[string]func() error{
		"GC":    func() error { return w.gc(ours, ours) },
		"sweep": func() error { w.sweep(); return nil },
		"DEL":   func() error { return w.del(w.pod("c3", theirs.vf)) },
		"ADD": func() error {
			if err := w.add(w.pod("c4", theirs.vf)); err == nil || !strings.Contains(err.Error(), "has its netdev in another network namespace, and sluice has no record of it: want it back") {
				t.Errorf("ADD of their VF: %v", err)
			}
			return nil
		},
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		w.mustBe(held, "after "+what)
	}

	w.mustDeleteNetns(theirs)
	home := w.snap()
	if err := w.gc(ours, ours); err != nil {
		t.Error(err)
	}
	w.sweep()
	w.mustBe(home, "after GC and a sweep when their pod has gone")
	if err := w.add(w.pod("c5", theirs.vf)); err == nil || !strings.Contains(err.Error(), renamed) {
		t.Errorf("ADD while their rows are there: %v", err)
	}
	w.mustBe(home, "after an ADD that met their rows")
	delete(w.sw.ports, renamed)
	w.mustAdd(w.pod("c6", theirs.vf))
}
