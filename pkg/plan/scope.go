package plan

import (
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// Scopes parts spec into what stands and falls together, each a Spec of its own
// and named by Key: the PFs of one bond, each other PF, the node's RDMA subsystem.
// A failure in one is no matter of another.
func Scopes(spec nic.Spec) []nic.Spec {
	var out []nic.Spec
	if spec.RDMA != "" {
		out = append(out, nic.Spec{RDMA: spec.RDMA, RDMAAtBoot: spec.RDMAAtBoot})
	}
	place := map[string]int{} // of bonds
	for _, w := range spec.PFs {
		bond := bondFor(spec, w)
		i, known := place[bond]
		if !known || bond == "" {
			i = len(out)
			out = append(out, nic.Spec{})
			if bond != "" {
				place[bond] = i
			}
		}
		out[i].PFs = append(out[i].PFs, w)
	}
	for _, b := range spec.Bonds {
		i := slices.IndexFunc(out, func(s nic.Spec) bool {
			return slices.ContainsFunc(b.Members, func(h nic.Handle) bool { return s.PF(h) != nil })
		})
		if i >= 0 {
			out[i].Bonds = append(out[i].Bonds, b)
		}
	}
	return out
}

// bondFor is the name of the bond by which a PF hangs together with others: the
// one that it is to be in, or the one that it leaves and that is to go; "" none.
func bondFor(spec nic.Spec, w nic.PFSpec) string {
	if w.Bond != nil && *w.Bond != "" {
		return *w.Bond
	}
	for _, b := range spec.Bonds {
		if slices.Contains(b.Members, w.Handle) {
			return b.Name
		}
	}
	return ""
}

// Key names a scope: its first PF by handle, or NodeRDMA.
func Key(scope nic.Spec) nic.Handle {
	if len(scope.PFs) == 0 {
		return NodeRDMA()
	}
	return slices.MinFunc(scope.Handles(), nic.Handle.Compare)
}
