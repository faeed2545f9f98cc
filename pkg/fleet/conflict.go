package fleet

import (
	"cmp"
	"fmt"
	"slices"
)

// Conflict is one thing of which two policies say different things, and neither
// has the higher priority.
type Conflict struct {
	A, B     string // the policies, A before B by name
	Priority int32  // of both
	Field    string // "pci/0000:03:00.0 numVfs"
	Says     string // what both say, and for VFs which
	Want     string // the way out
}

func (c Conflict) Error() string {
	return fmt.Sprintf("policies %q and %q, both of priority %d: %s: %s: want %s", c.A, c.B, c.Priority, c.Field, c.Says, c.Want)
}

// Other is the other one of the two.
func (c Conflict) Other(policy string) string {
	if policy == c.A {
		return c.B
	}
	return c.A
}

// Problem is what is wrong with what a node's policies want of it together.
type Problem struct {
	Policies []string
	Err      error
}

func (p Problem) Error() string { return p.Err.Error() }

// voice is a policy in what it says of a node.
type voice struct {
	policy   string
	priority int32
}

// loudest orders voices: who is heard first, comes first.
func loudest(a, b voice) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.policy, b.policy))
}

// conflicts collects them, each once.
type conflicts []Conflict

func (c *conflicts) add(a, b voice, field, says, want string) {
	if a.policy > b.policy {
		a, b = b, a
	}
	n := Conflict{A: a.policy, B: b.policy, Priority: a.priority, Field: field, Says: says, Want: want}
	if !slices.Contains(*c, n) {
		*c = append(*c, n)
	}
}
