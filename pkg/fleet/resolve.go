package fleet

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// ErrNoInventory is of a node whose agent has not said yet what there is.
var ErrNoInventory = errors.New("the node's agent has not said what there is")

// Wish is what all policies that choose a node want of it.
type Wish struct {
	Policies []string // that choose it, who is heard first first

	// Spec is for the node's NodeNIC. It counts only if there are neither conflicts
	// nor problems: else the node stays as it is.
	Spec v1alpha1.NodeNICSpec

	Conflicts []Conflict
	Problems  []Problem
}

// Err is everything that keeps the wish from being done, nil if nothing does.
func (w Wish) Err() error {
	var all []error
	for _, c := range w.Conflicts {
		all = append(all, c)
	}
	for _, p := range w.Problems {
		all = append(all, p)
	}
	return errors.Join(all...)
}

// Resolve puts the policies that choose the node together. PFs get an entry each, by
// handle: one that a policy names is named, others are selected, so that a PF over
// which the host runs is still touched only by who names it.
//
// It is ErrNoInventory if policies choose the node and its NodeNIC has no
// inventory, without which names and selectors mean nothing.
func Resolve(policies []v1alpha1.NICPolicy, node Node) (Wish, error) {
	w := wishing{entryOf: map[int]entry{}}
	for i := range policies {
		p := &policies[i]
		chosen, err := Chooses(p, node.Labels)
		switch {
		case err != nil:
			w.fail(fmt.Errorf("policy %q: %w", p.Name, err), p.Name)
		case chosen:
			w.policies = append(w.policies, said[*v1alpha1.NICPolicy]{voice{p.Name, p.Spec.Priority}, p})
		}
	}
	slices.SortFunc(w.policies, func(a, b said[*v1alpha1.NICPolicy]) int { return loudest(a.voice, b.voice) })
	if len(w.policies) == 0 {
		return w.wish(), nil
	}
	if node.NIC == nil || node.NIC.Status.Inventory == nil {
		return w.wish(), ErrNoInventory
	}
	var err error
	if w.state, err = StateOf(node.NIC.Status.Inventory); err != nil {
		return w.wish(), err
	}
	w.pfs()
	w.bonds()
	w.pools()
	w.conduct()
	w.judge()
	return w.wish(), nil
}

// wishing is a wish in the making.
type wishing struct {
	policies  []said[*v1alpha1.NICPolicy]
	state     nic.State
	spec      v1alpha1.NodeNICSpec
	conflicts conflicts
	problems  []Problem

	entryOf map[int]entry // what spec.pfs[i] is made of
}

type entry struct {
	handle   nic.Handle
	policies []string
}

func (w *wishing) fail(err error, policies ...string) {
	w.problems = append(w.problems, Problem{policies, err})
}

func (w *wishing) names() []string {
	var out []string
	for _, p := range w.policies {
		out = append(out, p.policy)
	}
	return out
}

func (w *wishing) wish() Wish {
	return Wish{Policies: w.names(), Spec: w.spec, Conflicts: w.conflicts, Problems: w.problems}
}

// claim is one policy's entry for a PF.
type claim = said[v1alpha1.PF]

func (w *wishing) pfs() {
	claims := map[nic.Handle][]claim{}
	isNamed := map[nic.Handle]bool{}
	for _, p := range w.policies {
		entries := p.value.Spec.PFs
		named, selected, err := policy.Entries(entries, w.state)
		if err != nil {
			w.fail(fmt.Errorf("policy %q: %w", p.policy, err), p.policy)
		}
		for h, i := range named {
			isNamed[h] = true
			claims[h] = append(claims[h], claim{p.voice, entries[i]})
		}
		for h, i := range selected {
			claims[h] = append(claims[h], claim{p.voice, entries[i]})
		}
	}
	for _, h := range slices.SortedFunc(maps.Keys(claims), nic.Handle.Compare) {
		pf := w.pf(h, claims[h])
		if isNamed[h] {
			pf.PF = h.String()
		} else {
			pf.Select = &v1alpha1.Select{Handles: []string{h.String()}}
		}
		var by []string
		for _, c := range claims[h] {
			by = append(by, c.policy)
		}
		w.entryOf[len(w.spec.PFs)] = entry{h, by}
		w.spec.PFs = append(w.spec.PFs, pf)
	}
}

// pf is what all claims want of a PF.
func (w *wishing) pf(h nic.Handle, claims []claim) v1alpha1.PF {
	out := merge(&w.conflicts, h.String(), claims, "pf", "select", "optional", "vfGroups")
	count := len(w.state.PF(h).VFs)
	if out.NumVFs != nil {
		count = *out.NumVFs
	}
	out.VFGroups = w.groups(h, claims, count)
	return out
}

// judge asks what a document is judged by, of the whole.
func (w *wishing) judge() {
	if len(w.conflicts) > 0 || len(w.problems) > 0 {
		return // of what is only half put together nothing can be said
	}
	_, err := policy.Resolve(&v1alpha1.NodeNIC{Spec: w.spec}, w.state)
	for _, err := range split(err) {
		w.blame(err)
	}
}

// split undoes errors.Join.
func split(err error) []error {
	var all interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &all):
		return all.Unwrap()
	}
	return []error{err}
}

// blame says of an error of the whole, which begins with a path, whose it is: the
// path is of a document that nobody has written.
func (w *wishing) blame(err error) {
	m := regexp.MustCompile(`^spec\.pfs\[(\d+)\]\.?`).FindStringSubmatch(err.Error())
	if m == nil {
		w.fail(err, w.names()...)
		return
	}
	i, _ := strconv.Atoi(m[1]) // what the expression takes for a number is one
	e := w.entryOf[i]
	rest := strings.TrimPrefix(err.Error(), m[0])
	w.fail(fmt.Errorf("%s, as %s: %s", e.handle, quoted(e.policies), rest), e.policies...)
}

func quoted(policies []string) string {
	if len(policies) == 1 {
		return fmt.Sprintf("policy %q has it", policies[0])
	}
	return fmt.Sprintf("policies %q have it together", policies)
}
