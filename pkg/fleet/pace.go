package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// Turns says of each node whose plan waits whether it may begin now: "" if it may,
// else why not. A node may if, of each policy that chooses it, fewer nodes are
// unavailable than may be; one that is unavailable anyway costs nothing more.
//
// Nodes are asked in the order of their names, so that the answer is the same
// whoever asks.
func Turns(policies []v1alpha1.NICPolicy, nodes []Node) map[string]string {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	pools := map[string]*pool{}
	of := map[string][]*pool{}
	for i := range policies {
		p := &policies[i]
		all := &pool{policy: p.Name}
		for _, n := range nodes {
			if yes, err := Chooses(p, n.Labels); err != nil || !yes {
				continue
			}
			all.size++
			if n.unavailable() {
				all.out = append(all.out, n.Name)
			}
			of[n.Name] = append(of[n.Name], all)
		}
		all.most = most(p.Spec.MaxUnavailable, all.size)
		pools[p.Name] = all
	}
	out := map[string]string{}
	for _, n := range nodes {
		if n.phase() != asks {
			continue
		}
		why := ""
		if !n.unavailable() {
			why = full(of[n.Name])
		}
		out[n.Name] = why
		if why == "" && !n.unavailable() {
			for _, p := range of[n.Name] {
				p.out = append(p.out, n.Name)
			}
		}
	}
	return out
}

// pool is the nodes of one policy.
type pool struct {
	policy string
	size   int
	most   int      // that may be unavailable
	out    []string // that are
}

func full(pools []*pool) string {
	for _, p := range pools {
		if len(p.out) >= p.most {
			return fmt.Sprintf("policy %q: %d of %d nodes may be unavailable at one time (maxUnavailable), and are: %s",
				p.policy, p.most, p.size, some(p.out))
		}
	}
	return ""
}

// some are the first few of names.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// most is how many of size nodes may be unavailable, at least one: a policy by
// which no node may change would be none.
func most(limit *intstr.IntOrString, size int) int {
	switch {
	case limit == nil:
		return 1
	case limit.Type == intstr.Int:
		return max(1, limit.IntValue())
	}
	share, err := strconv.Atoi(strings.TrimSuffix(limit.StrVal, "%"))
	if err != nil {
		return 1
	}
	return max(1, (size*share+99)/100)
}
