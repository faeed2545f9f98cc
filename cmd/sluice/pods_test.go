package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/apply"
)

// A pod that has a VF by kubelet alone, as one on vfio-pci has, is in the way of who
// would take it, by agent and by hand, and a VF that goes does not take it along.
func TestPodsKubeletKnowsKeepTheirVFs(t *testing.T) {
	k := newKept(t)
	dir := k.kdir
	k.k.Stop()
	k.kdir = filepath.Join(dir, "device-plugins")
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	var err error
	if k.k, err = kubelettest.Start(kubelettest.Options{Dir: k.kdir, PodResources: socket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.k.Stop)
	k.write(k.document(4, "a"))
	defer k.agent()()
	k.until("devices", func() bool { return k.healthy("sluice.dev/a") == 4 })
	ids, _, err := k.k.Allocate(t.Context(), "sluice.dev/a", 1)
	if err != nil {
		t.Fatal(err)
	}
	k.k.SetPods(kubelettest.Pod{Namespace: "default", Name: "p", Devices: map[string][]string{"sluice.dev/a": ids}})

	n := k.node()
	n.podResources = socket
	w, err := n.wishOf(t.Context(), "other.yaml", []byte(k.document(2, "none")))
	if err != nil {
		t.Fatal(err)
	}
	var refused *apply.RefusedError
	if _, err := n.runner(nil).Run(t.Context(), w.spec); !errors.As(err, &refused) || len(refused.Problems) != 1 || refused.Problems[0].Object != "pci/0000:03:00.0 vf 0" {
		t.Errorf("fewer VFs by hand: %v, want refused for the pod's", err)
	}
	k.write(k.document(2, "a"))
	k.until("refused for the pod", func() bool { return strings.Contains(k.said(), "pod default/p") })
	if got := k.vfs(); got != 4 {
		t.Errorf("%d VFs, want those that there were", got)
	}

	k.k.SetPods()
	k.untilVFs(2)
}
