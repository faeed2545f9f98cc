package cni

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// allocate is the kubelet's word of which pods have which devices: by pod UID, by
// container, in an order that means nothing.
func (w *world) allocate(resource string, pods map[string]map[string][]string) {
	w.t.Helper()
	var entries []map[string]any
	for uid, containers := range pods {
		for name, ids := range containers {
			ids = slices.Clone(ids)
			rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			half := len(ids) / 2
			entries = append(entries, map[string]any{
				"PodUID": uid, "ContainerName": name, "ResourceName": resource,
				"DeviceIDs": map[string][]string{"0": ids[:half], "1": ids[half:]},
			})
		}
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": entries}, "Checksum": 1})
	if err == nil {
		err = errors.Join(os.MkdirAll(w.kubelet(), 0o700), os.WriteFile(filepath.Join(w.kubelet(), "kubelet_internal_checkpoint"), text, 0o600))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// kubelet is its folder of device plugins.
func (w *world) kubelet() string { return filepath.Join(w.dir, "kubelet") }

// uid makes p the pod of that UID, attached by what the kubelet gave it of a resource.
func (p pod) uid(uid string) pod {
	p.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + p.container + ";K8S_POD_UID=" + uid
	return p.with("deviceID", nil).with("resourceName", "sluice.dev/fast")
}

// attached is the PCI address of the VF that is in a pod under its interface's name.
func (w *world) attached(p pod) string {
	w.t.Helper()
	ns, err := w.sim.Machine().Netns.Open(w.t.Context(), p.netns)
	if err != nil {
		w.t.Fatal(err)
	}
	defer ns.Close()
	all, err := ns.Links(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range all {
		if l.Name == p.ifname {
			return l.Parent
		}
	}
	return ""
}

// TestResourceName gives a pod the VF that the kubelet gave it, with no meta plugin
// between.
func TestResourceName(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	a, b := w.vf(0, 1), w.vf(1, 2)
	w.allocate("sluice.dev/fast", map[string]map[string][]string{"u1": {"web": {a}}, "u2": {"db": {b}}})
	one, two := w.pod("c1", "").uid("u1"), w.pod("c2", "").uid("u2")
	result := w.mustAdd(two)
	w.mustAdd(one)
	if w.attached(one) != a || w.attached(two) != b {
		t.Errorf("attached %s and %s, want %s and %s", w.attached(one), w.attached(two), a, b)
	}
	if err := w.check(two, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := w.status(one); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	// The kubelet has forgotten the pods by the time of their DEL.
	w.allocate("sluice.dev/fast", nil)
	w.mustDel(one)
	w.mustDel(two)
	w.mustBe(before, "after DEL")
}

// TestNextSandbox gives a pod its VF again when its sandbox is made anew, and the
// earlier one's DEL comes late.
func TestNextSandbox(t *testing.T) {
	w := newWorld(t)
	w.allocate("sluice.dev/fast", map[string]map[string][]string{"u1": {"web": {w.vf(0, 1)}}})
	first, second := w.pod("c1", "").uid("u1"), w.pod("c2", "").uid("u1")
	w.mustAdd(first)
	var e *types.Error
	if err := w.add(second); !errors.As(err, &e) || e.Code != types.ErrTryAgainLater {
		t.Errorf("ADD while the first sandbox is there: %v", err)
	}
	w.mustDeleteNetns(first)
	w.mustAdd(second)
	w.mustDel(first)
	if w.attached(second) != w.vf(0, 1) {
		t.Error("the late DEL took the VF away")
	}
	w.mustDel(second)
}

// Case B31: a pod with three attachments of one resource, in several containers, and
// the lists in another order at each look. Each interface keeps the VF that its ADD
// gave it, and each DEL takes that one down.
func TestB31InterfacesKeepTheirVFs(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		before := w.snap()
		devices := map[string][]string{"a": {w.vf(0, 0), w.vf(1, 1)}, "b": {w.vf(0, 3)}}
		base := w.pod("c1", "").uid("u1").with("ipam", nil)
		var pods []pod
		var had []string
		for _, ifname := range []string{"eth0", "net1", "net2"} {
			w.allocate("sluice.dev/fast", map[string]map[string][]string{"u1": devices})
			p := base
			p.ifname = ifname
			result := w.mustAdd(p)
			pods, had = append(pods, p), append(had, w.attached(p))
			if err := w.check(p, result); err != nil {
				t.Fatal(err)
			}
		}
		if slices.Sort(had); len(slices.Compact(had)) != 3 {
			t.Fatalf("VFs %v", had)
		}
		more := base
		more.ifname = "net3"
		if err := w.add(more); err == nil || !strings.Contains(err.Error(), "other interfaces of pod shop/c1 have all of its devices") {
			t.Fatalf("a fourth: %v", err)
		}
		rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		for i, p := range pods {
			w.allocate("sluice.dev/fast", map[string]map[string][]string{"u1": devices})
			w.mustDel(p)
			for _, rest := range pods[i+1:] {
				if w.attached(rest) == "" {
					t.Fatalf("DEL of %s took %s", p.ifname, rest.ifname)
				}
			}
		}
		w.mustBe(before, "after DELs")
	}
}

// Case B59: a device that somebody else was given, that the pod was given for another
// network, or that is a PF, is not for whoever names it.
func TestB59OnlyWhatThePodWasGiven(t *testing.T) {
	w := newWorld(t)
	mine, others := w.vf(0, 1), w.vf(0, 2)
	w.allocate("sluice.dev/fast", map[string]map[string][]string{"u1": {"web": {mine}}, "u2": {"db": {others}}})
	before := w.snap()
	pf := w.state().PFs[0].Handle.Name
	p := w.pod("c1", "").uid("u1")
	for name, c := range map[string]struct {
		p    pod
		want string
	}{
		"another pod's":         {p.with("deviceID", others), `it is not among the pod's devices of resource sluice.dev/fast, ["` + mine + `"]: want one of these`},
		"nobody's":              {p.with("deviceID", w.vf(0, 3)), "it is not among the pod's devices"},
		"another network's":     {p.with("deviceID", mine).with("resourceName", "sluice.dev/slow"), "the kubelet has given pod shop/c1 no device of it"},
		"another pod's, named":  {p.with("deviceID", others).with("resourceName", nil), "the kubelet has given it to another pod: want one of this pod's"},
		"a PF":                  {p.with("deviceID", pf).with("resourceName", nil), "it is a PF: want one of its 4 VFs"},
		"a PF, by the resource": {p.with("deviceID", pf), "it is not among the pod's devices"},
		"by runtimeConfig":      {p.with("runtimeConfig", map[string]any{"deviceID": others}), "it is not among the pod's devices"},
		"no pod":                {func() pod { q := p; q.args = ""; return q }(), "CNI_ARGS: K8S_POD_UID is missing"},
		"no kubelet":            {p.with("kubeletDir", "/nowhere"), "what the kubelet has allocated: open /nowhere/kubelet_internal_checkpoint: no such file"},
	} {
		if err := w.add(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	w.mustBe(before, "after ADDs that were refused")
	w.mustAdd(p.with("deviceID", mine))
	w.mustDel(p)
	w.mustAdd(p.with("deviceID", mine).with("resourceName", nil))
}
