package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

const (
	tapName     = "node0"
	toolsImage  = "sluice.dev/lab/tools:1"
	pauseImage  = "sluice.dev/lab/pause:1"
	sluiceImage = "sluice.dev/sluice:dev"  // of make image, and of the manifest
	nextImage   = "sluice.dev/sluice:next" // another build of it
)

// world is a cluster of one node.
type world struct {
	plane *plane
	node  *node
	kube  *kubernetes.Clientset
	api   client.Client // of all kinds, sluice's too

	held *held    // a pod with one VF; nil: there is none now
	kept *service // one with a VF; nil before the drain
}

// begin makes the world: a tap in this network namespace, at whose other end the
// node is; a control plane; the node's guest.
func begin(ctx context.Context, t *testing.T) *world {
	t.Helper()
	tree, kube, root := os.Getenv("SLUICE_E2E"), os.Getenv("SLUICE_E2E_KUBE"), os.Getenv("SLUICE_E2E_ROOT")
	if tree == "" {
		t.Skip("SKIPPED: needs Kubernetes, a guest and a network namespace of its own; make e2e runs it")
	}
	if err := makeTap(); err != nil {
		t.Fatalf("make a tap for the node: %v", err)
	}
	dir, err := os.MkdirTemp(filepath.Join(tree, "build/e2e"), "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("logs are in %s", dir)
	w := &world{}
	at := time.Now()
	took := func(what string) {
		t.Logf("%s after %.1f s", what, time.Since(at).Seconds())
		at = time.Now()
	}

	planeDir := filepath.Join(dir, "plane")
	if err := os.Mkdir(planeDir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if w.node != nil {
			if err := w.node.off(); err != nil {
				t.Error(err)
			}
			os.Remove(w.node.disk)
		}
		if w.plane != nil {
			w.plane.stop()
		}
	})
	if w.plane, err = startPlane(ctx, kube, planeDir); err != nil {
		t.Fatalf("start the control plane: %v", err)
	}
	took("the API server is ready")
	w.node, err = newNode(ctx, tree, root, kube, filepath.Join(dir, "node"), "twin:cards=2:vfs=8:numa=1+0", map[string]string{
		"kubelet":    w.plane.kubeconfig("system:node:" + nodeName),
		"kube-proxy": w.plane.kubeconfig("system:kube-proxy"),
	})
	if err != nil {
		t.Fatalf("make the node: %v", err)
	}
	took("the node's disk is made")
	if err := w.node.on(ctx); err != nil {
		t.Fatal(err)
	}
	took("the node's guest is up")
	if w.kube, err = kubernetes.NewForConfig(w.plane.config); err != nil {
		t.Fatal(err)
	}
	log.SetLogger(logr.Discard()) // of controller-runtime, which else complains that there is none
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if w.api, err = client.New(w.plane.config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return w
}

// makeTap makes the tap that QEMU opens by its name. In a namespace that has more
// than its own loopback nothing is done: these tests want one to themselves.
func makeTap() error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	if len(links) != 1 {
		return fmt.Errorf("this network namespace has %d interfaces: want an empty one, which lab/e2e/run makes", len(links))
	}
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: tapName}, Mode: netlink.TUNTAP_MODE_TAP}
	addr, err := netlink.ParseAddr(planeIP + "/24")
	if err != nil {
		return err
	}
	return errors.Join(
		netlink.LinkSetUp(links[0]),
		netlink.LinkAdd(tap),
		netlink.AddrAdd(tap, addr),
		netlink.LinkSetUp(tap),
	)
}

// sh runs a script on the node.
func (w *world) sh(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := w.node.sh(ctx, script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// tell says how things stand when a story has failed.
func (w *world) tell(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pods, err := w.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Log(err)
		pods = &corev1.PodList{}
	}
	for i := range pods.Items {
		t.Logf("%s/%s: %s", pods.Items[i].Namespace, pods.Items[i].Name, w.about(ctx, &pods.Items[i]))
	}
	out, err := w.node.sh(ctx, "for log in /var/log/pods/sluice-system_*/*/*.log /node/log/kubelet; do echo \"== $log\"; tail -n 40 \"$log\"; done")
	t.Logf("of the node (%v):\n%s", err, out)
}

// eventually asks again and again until done, at most for limit; what it was told
// last is what the test fails with.
func eventually(t *testing.T, limit time.Duration, what string, ask func(context.Context) (done bool, seen string, err error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	for {
		done, seen, err := ask(ctx)
		if err == nil && done {
			t.Logf("%s (%.1f s)", what, time.Since(begin).Seconds())
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s; last seen: %s (error: %v)", limit, what, seen, err)
		case <-time.After(300 * time.Millisecond):
		}
	}
}
