package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/offload/ovn"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/controller"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

// What a Network cannot be is refused by the API server, and what would move the
// addresses of pods that run.
func TestNetworkSchema(t *testing.T) {
	s := newSchema(t)
	const subnet = "subnets: [{cidr: 10.1.0.0/16}]"
	for text, want := range map[string]string{
		"{layer: 2}":                 "spec.subnets: Required value",
		"{layer: 4, " + subnet + "}": "spec.layer",
		"{layer: 2, subnets: [{cidr: 10.1.0.0/16}, {cidr: 10.2.0.0/16}]}":                               "at most one subnet of each family",
		"{layer: 2, subnets: [{cidr: 'fd00::/64'}, {cidr: 'fd01::/64'}]}":                               "at most one subnet of each family",
		"{layer: 2, vlan: {physicalNetwork: p}, overlay: {}, " + subnet + "}":                           "want vlan or overlay, not both",
		"{layer: 3, vlan: {physicalNetwork: p}, " + subnet + "}":                                        "want layer 2",
		"{layer: 3, overlay: {vni: 5}, " + subnet + "}":                                                 "want no vni",
		"{layer: 2, overlay: {vni: 4096, encapsulation: vxlan}, " + subnet + "}":                        "want a vni up to 4095",
		"{layer: 2, overlay: {vni: 16711681}, " + subnet + "}":                                          "spec.overlay.vni",
		"{layer: 3, subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.1}]}":                                 "want no gateway",
		"{layer: 2, router: r, " + subnet + "}":                                                         "want a gateway in each subnet",
		"{layer: 2, router: r, vlan: {physicalNetwork: p}, " + subnet + "}":                             "want no router",
		"{layer: 2, portsPerNode: 12, " + subnet + "}":                                                  "spec.portsPerNode",
		"{layer: 2, mtu: 100, " + subnet + "}":                                                          "spec.mtu",
		"{layer: 2, " + subnet + ", firewall: {rules: [{direction: in, action: allow, ports: ['1']}]}}": "want ports with protocol",
		"{layer: 2, " + subnet + ", colour: x}":                                                         `unknown field "spec.colour"`,
	} {
		if err := s.judge(v1alpha1.KindNetwork, said(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %s", text, err, want)
		}
	}
	for _, text := range []string{
		"{layer: 2, " + subnet + "}",
		"{layer: 2, vlan: {physicalNetwork: phys, id: 100}, mtu: 9000, subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.1, exclude: [10.1.0.9, 10.1.2.0/24]}, {cidr: 'fd00::/64'}]}",
		"{layer: 3, router: r, isolated: true, overlay: {encapsulation: vxlan}, subnets: [{cidr: 'fd00::/48'}], dhcp: {}, dns: {servers: ['fd00::53'], records: [{name: a.b, addresses: ['fd00::1']}]}, firewall: {stateful: true, rules: [{direction: in, action: allow, protocol: tcp, ports: ['80', '8000-8080']}]}}",
	} {
		if err := s.judge(v1alpha1.KindNetwork, said(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	s.networkStays(t)
}

func (s *schema) networkStays(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": said(t, "{layer: 2, overlay: {vni: 5}, subnets: [{cidr: 10.1.0.0/16}]}")}}
	o.SetAPIVersion(v1alpha1.APIVersion)
	o.SetKind(v1alpha1.KindNetwork)
	o.SetName("blue")
	if err := s.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{layer: 3, subnets: [{cidr: 10.1.0.0/16}]}":                                             "a network stays what it is",
		"{layer: 2, subnets: [{cidr: 10.2.0.0/16}]}":                                             "addresses of pods follow from the subnets",
		"{layer: 2, subnets: [{cidr: 10.1.0.0/16}], portsPerNode: 64}":                           "addresses of pods follow from it",
		"{layer: 2, subnets: [{cidr: 10.1.0.0/16}], vlan: {physicalNetwork: p}}":                 "stays so",
		"{layer: 2, subnets: [{cidr: 10.1.0.0/16, gateway: 10.1.0.9}], mtu: 9000, router: here}": "",
	} {
		changed := o.DeepCopy()
		changed.Object["spec"] = said(t, text)
		err := s.Update(t.Context(), changed, client.DryRunAll, client.FieldValidation("Strict"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("change to %s: got %v\nwant %q", text, err, want)
		}
	}
	long := o.DeepCopy()
	long.SetResourceVersion("")
	long.SetName(strings.Repeat("x", 41))
	if err := s.Create(t.Context(), long, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "at most 40 characters") {
		t.Errorf("long name: %v", err)
	}
}

// The controller brings Networks into OVN, says on each what has become of it, and
// keeps a node's block for as long as there is the node.
func TestControllerOfNetworks(t *testing.T) {
	k := newKube(t)
	north := ovsdbtest.Northbound(t)
	c, err := ovsdb.Connect(t.Context(), north)
	k.do(err)
	t.Cleanup(func() { _ = c.Close() })
	k.node("n1")
	k.node("n2")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- controller.Run(ctx, controller.Options{
			Config: k.as("sluice-controller", ""), Namespace: "sluice-system", Health: "0", Northbound: north, Log: slog.New(slog.DiscardHandler),
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("controller: %v", err)
		}
	}()
	add := func(name, spec string) {
		o := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: name}}
		k.do(yaml.UnmarshalStrict([]byte(spec), &o.Spec))
		k.do(k.Create(t.Context(), o))
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited 2 min for %s", what)
			}
		}
	}
	network := func(name string) *v1alpha1.Network {
		o := &v1alpha1.Network{}
		k.do(k.Get(t.Context(), client.ObjectKey{Name: name}, o))
		return o
	}
	is := func(name, condition, reason string) func() bool {
		return func() bool {
			c := meta.FindStatusCondition(network(name).Status.Conditions, condition)
			return c != nil && c.Reason == reason
		}
	}
	names := func() string {
		rows, err := ovn.Read(t.Context(), c)
		k.do(err)
		var out []string
		for _, r := range rows {
			if r.Table == "Logical_Switch" || r.Table == "Logical_Switch_Port" && strings.HasSuffix(string(r.Raw["name"]), `.8"`) {
				out = append(out, strings.Trim(string(r.Raw["name"]), `"`))
			}
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}

	add("blue", "{layer: 2, portsPerNode: 8, subnets: [{cidr: 10.1.0.0/24}], firewall: {rules: [{direction: in, action: allow, log: true}]}}")
	until("blue", is("blue", v1alpha1.Ready, v1alpha1.ReasonAsWanted))
	if o := network("blue"); len(o.Status.Blocks) != 2 || !is("blue", v1alpha1.Offloadable, "Warnings")() || len(o.Status.Warnings) != 1 {
		t.Errorf("blue: %+v", o.Status)
	}
	if got := names(); got != "sluice.blue sluice.blue.8" {
		t.Errorf("rows: %s", got)
	}

	// What an agent says of its node comes to the networks there.
	o := &v1alpha1.NodeNIC{}
	until("n1's NodeNIC", func() bool { return k.Get(t.Context(), client.ObjectKey{Name: "n1"}, o) == nil })
	o.Status.Inventory = &v1alpha1.Inventory{Offload: []v1alpha1.Capability{{Name: "flows", Answer: "no", Why: "in legacy mode: pci/0000:03:00.0"}}}
	k.do(k.Status().Update(t.Context(), o))
	blue := network("blue")
	mtu := 1400
	blue.Spec.MTU = &mtu // a turn, before the minute is over
	k.do(k.Update(t.Context(), blue))
	until("the node's warning", func() bool {
		return slices.Contains(network("blue").Status.Warnings, "node n1: no flows run in the NIC: in legacy mode: pci/0000:03:00.0")
	})

	// Two that cannot both be are told so, and change nothing of what there is.
	add("c", "{layer: 2, overlay: {vni: 7}, subnets: [{cidr: 10.1.0.0/24}]}")
	until("c", is("c", v1alpha1.Ready, v1alpha1.ReasonAsWanted))
	add("d", "{layer: 2, overlay: {vni: 7}, subnets: [{cidr: 10.1.0.0/24}]}")
	until("the conflict", is("d", v1alpha1.Ready, v1alpha1.ReasonRefused))
	until("the conflict at the other", is("c", v1alpha1.Ready, v1alpha1.ReasonRefused))
	if got := names(); got != "sluice.blue sluice.blue.8 sluice.c sluice.c.8" {
		t.Errorf("rows: %s", got)
	}
	k.do(k.Delete(t.Context(), network("d")))
	until("its end", is("c", v1alpha1.Ready, v1alpha1.ReasonAsWanted))

	// A node's block goes with it, and its ports.
	k.do(k.Delete(t.Context(), k.nodeNow("n2")))
	until("the block's end", func() bool { return len(network("blue").Status.Blocks) == 1 })
	until("the ports' end", func() bool { return !strings.Contains(names(), "sluice.blue.8") })
	k.do(k.Delete(t.Context(), network("c")))
	until("the network's end", func() bool { return names() == "sluice.blue" })
}
