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

// Turn is whether a node whose plan waits may begin now.
type Turn struct {
	Wait string // why not; "" if it may
	Held bool   // what it waits for does not end by itself
}

// Turns says it of each such node. A node may if, of each policy that chooses it,
// fewer nodes are unavailable than may be; one that is unavailable anyway costs
// nothing more.
//
// Nodes are asked in the order of their names, so that the answer is the same
// whoever asks.
func Turns(policies []v1alpha1.NICPolicy, nodes []Node) map[string]Turn {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	of := map[string][]*pool{}
	for i := range policies {
		p := &policies[i]
		all := &pool{policy: p.Name}
		chosen, err := Chosen(p, nodes)
		if err != nil {
			continue // it chooses none
		}
		for _, n := range chosen {
			if n.unavailable() {
				all.add(n)
			}
			of[n.Name] = append(of[n.Name], all)
		}
		all.size = len(chosen)
		all.most = most(p.Spec.MaxUnavailable, all.size)
	}
	out := map[string]Turn{}
	for _, n := range nodes {
		if n.phase() != asks {
			continue
		}
		if n.unavailable() {
			out[n.Name] = Turn{}
			continue
		}
		turn := full(of[n.Name])
		out[n.Name] = turn
		if turn.Wait == "" {
			for _, p := range of[n.Name] {
				p.add(n)
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
	out    []string // that are, and why if that will not end by itself
	stuck  int      // how many of these
}

// add counts a node as unavailable. Those that stay so come first.
func (p *pool) add(n Node) {
	if why := n.Stuck(); why != "" {
		p.out = slices.Insert(p.out, p.stuck, fmt.Sprintf("%s (%s)", n.Name, why))
		p.stuck++
		return
	}
	p.out = append(p.out, n.Name)
}

// full is of the first policy that lets no more nodes begin, and of the first that
// is held up if there is one.
func full(pools []*pool) Turn {
	var out Turn
	for _, p := range pools {
		if len(p.out) < p.most || out.Wait != "" && p.stuck < len(p.out) {
			continue
		}
		out.Wait = fmt.Sprintf("policy %q: %d of %d nodes may be unavailable at one time (maxUnavailable), and are: %s",
			p.policy, p.most, p.size, some(p.out))
		if out.Held = p.stuck == len(p.out); out.Held {
			break
		}
	}
	return out
}

// Rollout is how far a policy's nodes are on their way.
type Rollout struct {
	Changing int    // nodes that change now
	Waiting  int    // nodes that wait for their turn
	Why      string // one of those waits
	Held     bool   // none changes, and that will not end by itself
}

// RolloutOf counts the nodes that a policy chooses.
func RolloutOf(chosen []Node, turns map[string]Turn) Rollout {
	var out Rollout
	for _, n := range chosen {
		turn, asks := turns[n.Name]
		switch {
		case asks && turn.Wait != "":
			out.Waiting++
			if out.Why == "" || turn.Held && !out.Held {
				out.Why, out.Held = turn.Wait, turn.Held
			}
		case n.phase() == goes && n.Stuck() == "":
			out.Changing++
		}
	}
	out.Held = out.Held && out.Changing == 0
	return out
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
