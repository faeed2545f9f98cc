package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	// kubelet is away, or hangs: who starts meanwhile knows what it said last, and is
	// not made to wait again and again.
	k.until("kubelet's word in the state folder", func() bool {
		raw, err := os.ReadFile(filepath.Join(k.dir, "pods.json"))
		return err == nil && strings.Contains(string(raw), "default/p")
	})
	for what, away := range map[string]string{"away": filepath.Join(dir, "nowhere"), "hanging": hanging(t, dir)} {
		later := k.node()
		later.podResources = away
		begun := time.Now()
		if _, err := later.runner(nil).Run(t.Context(), w.spec); !errors.As(err, &refused) {
			t.Errorf("kubelet is %s: %v, want refused for the pod's", what, err)
		}
		for range 20 {
			if _, err := later.observe(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took > 30*time.Second { // 2 s each would be 40
			t.Errorf("kubelet is %s: it took %v", what, took)
		}
	}

	k.write(k.document(2, "a"))
	k.until("refused for the pod", func() bool { return strings.Contains(k.said(), "pod default/p") })
	if got := k.vfs(); got != 4 {
		t.Errorf("%d VFs, want those that there were", got)
	}

	k.k.SetPods()
	k.untilVFs(2)
}

// hanging is a socket where nobody answers.
func hanging(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "hangs.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path
}

// What kubelet said before a boot holds nothing after it: nor does a torn file.
func TestKubeletsWordOfAnotherBoot(t *testing.T) {
	k := newKept(t)
	n := k.node()
	n.podResources = filepath.Join(k.dir, "nowhere")
	for text, want := range map[string]string{
		`{"boot": "` + n.machine.Boot + `", "pods": {"0000:03:00.2": "pod a/b"}}`: "pod a/b",
		`{"boot": "another", "pods": {"0000:03:00.2": "pod a/b"}}`:                "",
		`{"boot": "` + n.machine.Boot:                                             "",
		"null":                                                                    "",
	} {
		if err := os.WriteFile(filepath.Join(k.dir, "pods.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		later := k.node()
		later.podResources = n.podResources
		later.askKubelet(t.Context())
		if got := later.holder("0000:03:00.2", ""); got != want {
			t.Errorf("%s: held by %q, want %q", text, got, want)
		}
	}
}
