package offload_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

// strangers are Interface external_ids of a VF's representor as the projects write
// them that plug VFs of our pools themselves (ovn-kubernetes: go-controller/pkg/cni,
// ConfigureOVS; kube-ovn: pkg/daemon/ovs_linux.go, configureNic, which also renames
// the representor).
func strangers() map[string]ovsdb.Map {
	return map[string]ovsdb.Map{
		"pf0vf1": {
			"iface-id": "shop_web-0", "iface-id-ver": "0b5c", "attached_mac": "0a:58:0a:f4:00:05", "sandbox": "4d1f",
			"pod-if-name": "eth0", "ip_addresses": "10.244.0.5/24", "vf-netdev-name": "ens1f0v1", "ovn-installed": "true",
		},
		"4d1f9a8b7c_h": {
			"iface-id": "web-0.shop", "vendor": "kube-ovn", "pod_name": "web-0", "pod_namespace": "shop",
			"pod_netns": "/run/netns/x", "ip": "10.16.0.5",
		},
	}
}

// A hardware port that another CNI plugin has plugged is not ours: it is in no list of
// ours, so that no sweep meets it, and neither plug nor unplug touches it.
func TestStrangersHardwarePorts(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		o.AddBridge(t, "br-int")
		for rep, ids := range strangers() {
			o.AddNetdev(t, rep)
			o.AddPort(t, "br-int", rep, nil)
			o.Transact(t, ovsdb.Update("Interface", ovsdb.Is("name", rep), ovsdb.Row{"external_ids": ids}))
		}
		for rep, ids := range strangers() {
			p := offload.Port{Bridge: "br-int", Representor: rep, Owner: "container/net1"}
			if err := offload.Plug(t.Context(), c, p); !errors.Is(err, offload.ErrForeign) {
				t.Errorf("plug %s: %v", rep, err)
			}
			if err := offload.Unplug(t.Context(), c, rep, "container/net1"); !errors.Is(err, offload.ErrForeign) {
				t.Errorf("unplug %s: %v", rep, err)
			}
			have, err := offload.Lookup(t.Context(), c, rep)
			if err != nil || have.Owner != "" {
				t.Fatalf("%s: %+v, %v", rep, have, err)
			}
			if d := cmp.Diff(map[string]string(ids), have.ExternalIDs); d != "" {
				t.Errorf("%s is not as it was: %s", rep, d)
			}
		}
		if owned, err := offload.Owned(t.Context(), c); err != nil || len(owned) > 0 {
			t.Errorf("ours: %v, %v", owned, err)
		}
	})
}
