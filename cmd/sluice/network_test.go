package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/pkg/api/v1alpha1"
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
