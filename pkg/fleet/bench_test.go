package fleet

import (
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

func thousand(b *testing.B) ([]v1alpha1.NICPolicy, []Node) {
	b.Helper()
	var nodes []Node
	for i := range 1000 {
		n := asking(fmt.Sprintf("n%03d", i), "a", "b")
		n.NIC.Status.Inventory = inventory()
		nodes = append(nodes, n)
	}
	eight := 8
	p, q := of("p", "a", nil), of("q", "b", nil)
	p.Spec.PFs = []v1alpha1.PF{{Select: &v1alpha1.Select{Vendor: "15b3"}, Eswitch: "switchdev"}}
	q.Spec.PFs = []v1alpha1.PF{{PF: "ens1f0", NumVFs: &eight, VFGroups: []v1alpha1.VFGroup{{Range: "0-3", Driver: "vfio-pci"}}}}
	return []v1alpha1.NICPolicy{p, q}, nodes
}

// What a change of one policy costs for 1,000 nodes of two policies.
func BenchmarkResolveThousandNodes(b *testing.B) {
	policies, nodes := thousand(b)
	for b.Loop() {
		for _, n := range nodes {
			if w, err := Resolve(policies, n); err != nil || w.Err() != nil {
				b.Fatal(err, w.Err())
			}
		}
	}
}

// What each round of turns costs.
func BenchmarkTurnsOfThousandNodes(b *testing.B) {
	policies, nodes := thousand(b)
	for b.Loop() {
		if turns := Turns(policies, nodes); len(turns) != 1000 {
			b.Fatal(len(turns))
		}
	}
}
