package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload/why"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nodeapi"
)

// What is said of pods' traffic changes with where it runs and why, not with each wave
// of it, and outlasts silence; it goes with the pod, and a pod of the same name is another.
func TestTraffic(t *testing.T) {
	records := func(uid string) []*record.Record {
		return []*record.Record{{Representor: "rep0", Pod: record.Pod{Namespace: "shop", Name: "web", UID: uid}, Config: json.RawMessage(`{"network": "blue"}`)}}
	}
	port := why.Port{Netdev: "rep0", Pod: "shop/web", Interface: "net1"}
	here := []why.Report{{Port: port}, {Port: why.Port{Netdev: "uplink"}}}
	bad := func(class why.Class) *why.Verdict {
		return &why.Verdict{Reasons: []why.Reason{{Class: class, What: "it is so", Change: "do that"}}}
	}
	var tr traffic
	for i, c := range []struct {
		reports  []why.Report
		standing why.Standing
		uid      string
		news     bool
		want     string
	}{
		{here, why.Standing{}, "u1", false, ""},
		{here, why.Standing{Port: port, Hardware: 5000}, "u1", true, "shop/web u1 net1 blue Hardware 100  "},
		{here, why.Standing{Port: port, Hardware: 9000}, "u1", false, "shop/web u1 net1 blue Hardware 100  "},
		{here, why.Standing{}, "u1", false, "shop/web u1 net1 blue Hardware 100  "},
		{here, why.Standing{Port: port, Hardware: 99000, Host: 1000, Worst: bad(why.Hash)}, "u1", true, "shop/web u1 net1 blue Partly 90 hash: it is so do that"},
		{here, why.Standing{Port: port, Hardware: 85000, Host: 15000, Worst: bad(why.Hash)}, "u1", false, "shop/web u1 net1 blue Partly 90 hash: it is so do that"},
		{here, why.Standing{Port: port, Hardware: 5000, Host: 5000, Worst: bad(why.Hash)}, "u1", true, "shop/web u1 net1 blue Partly 50 hash: it is so do that"},
		{here, why.Standing{Port: port, Hardware: 5000, Host: 5000, Worst: bad(why.Limit)}, "u1", true, "shop/web u1 net1 blue Partly 50 limit: it is so do that"},
		{here, why.Standing{Port: port, Host: 2000, Worst: bad(why.Limit)}, "u1", true, "shop/web u1 net1 blue Software 0 limit: it is so do that"},
		{here, why.Standing{}, "u2", true, ""},
		{here, why.Standing{Port: port, Hardware: 2000}, "u2", true, "shop/web u2 net1 blue Hardware 100  "},
		{here[1:], why.Standing{}, "u2", true, ""},
		{here[1:], why.Standing{Port: why.Port{Netdev: "uplink"}, Hardware: 4000}, "u2", false, ""},
	} {
		var standings []why.Standing
		if c.standing.Port.Netdev != "" {
			standings = append(standings, c.standing)
		}
		said, news := tr.see(c.reports, standings, records(c.uid))
		got := ""
		for _, p := range said {
			got += fmt.Sprintf("%s %s %s %s %s %d %s %s", p.Pod, p.UID, p.Interface, p.Network, p.Runs, p.Percent, p.Reason, p.Change)
		}
		if got != c.want || news != c.news {
			t.Errorf("look %d: %q, news %v: want %q, %v", i, got, news, c.want, c.news)
		}
	}
}

// The pod says whether its heavy flows run in the NIC and its Network how many do; an
// event tells when they fell out and when they are back. What an agent says of a pod that
// has gone is of no other of its name.
func TestTrafficIsToldOfPods(t *testing.T) {
	k := newKube(t)
	k.node("n1")
	k.do(k.Create(t.Context(), &v1alpha1.NodeNIC{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
	k.netOf("blue", "{layer: 2, subnets: [{cidr: 10.1.0.0/24}]}", nil)
	pod := func(name string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
		k.do(k.Create(t.Context(), p))
		return p
	}
	web, db := pod("web"), pod("db")
	agent, err := nodeapi.Dial(k.as("sluice-agent", "n1"), "n1")
	k.do(err)
	says := func(pods ...v1alpha1.PodOffload) {
		t.Helper()
		k.do(agent.Write(t.Context(), v1alpha1.NodeNICStatus{Version: "v", Inventory: &v1alpha1.Inventory{}, Pods: pods}))
	}
	k.controller()
	condition := func(p *corev1.Pod) string {
		k.do(k.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		for _, c := range p.Status.Conditions {
			if c.Type == v1alpha1.InHardware {
				return string(c.Status) + " " + c.Reason + ": " + c.Message
			}
		}
		return ""
	}
	traffic := func() string {
		o := &v1alpha1.Network{}
		k.do(k.Get(t.Context(), client.ObjectKey{Name: "blue"}, o))
		if o.Status.Traffic == nil {
			return ""
		}
		return fmt.Sprint(*o.Status.Traffic)
	}
	events := func() (out []string) {
		var list eventsv1.EventList
		k.do(k.List(t.Context(), &list))
		for _, e := range list.Items {
			if e.Regarding.Kind == "Pod" {
				out = append(out, e.Type+" "+e.Reason+" "+e.Regarding.Name)
			}
		}
		slices.Sort(out)
		return out
	}
	in := v1alpha1.PodOffload{Pod: "default/web", UID: string(web.UID), Interface: "net1", Network: "blue", Runs: v1alpha1.RunsHardware, Percent: 100}
	second := v1alpha1.PodOffload{Pod: "default/web", UID: string(web.UID), Interface: "net2", Runs: v1alpha1.RunsSoftware, Reason: "hash: dp_hash", Change: "no groups"}
	other := v1alpha1.PodOffload{Pod: "default/db", UID: "of-one-before", Interface: "net1", Network: "blue", Runs: v1alpha1.RunsPartly, Percent: 50, Reason: "limit: full"}
	for _, step := range []struct {
		says    []v1alpha1.PodOffload
		web     string
		traffic string
		events  []string
	}{
		{[]v1alpha1.PodOffload{in}, "True Hardware: net1: 100 % of the packets of heavy flows in the NIC", "{1 0 0}", nil},
		{[]v1alpha1.PodOffload{in, second, other}, "False Software: net1: 100 % of the packets of heavy flows in the NIC\nnet2: 0 % of the packets of heavy flows in the NIC; hash: dp_hash; no groups",
			"{1 1 0}", []string{"Warning OutOfHardware web"}},
		{[]v1alpha1.PodOffload{in}, "True Hardware: net1: 100 % of the packets of heavy flows in the NIC", "{1 0 0}", []string{"Normal InHardware web", "Warning OutOfHardware web"}},
		// An agent that was started anew has seen no heavy flow yet.
		{nil, "True Hardware: net1: 100 % of the packets of heavy flows in the NIC", "", []string{"Normal InHardware web", "Warning OutOfHardware web"}},
	} {
		says(step.says...)
		got := ""
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			got = fmt.Sprintf("%s | %s | %q", condition(web), traffic(), events())
			if want := fmt.Sprintf("%s | %s | %q", step.web, step.traffic, step.events); got == want {
				break
			} else if time.Now().After(end) {
				t.Fatalf("it does not become:\n%s\nbut is\n%s", want, got)
			}
		}
	}
	if c := condition(db); c != "" {
		t.Errorf("a pod that took the name of one that has gone: %q", c)
	}
}
