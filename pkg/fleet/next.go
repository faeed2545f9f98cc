package fleet

import (
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// Act is the one thing that is to be done about a node next.
type Act string

// The acts, in the order in which a change with a drain goes through them.
const (
	Nothing  Act = ""
	LetGo    Act = "let go"   // AnnotationGo: it may change, as far as no pod is hit
	Cordon   Act = "cordon"   // no pod comes to it any more
	Evict    Act = "evict"    // the pods that have what the plan takes
	Drained  Act = "drained"  // AnnotationDrained: they have gone
	Uncordon Act = "uncordon" // pods may come again
	Forget   Act = "forget"   // AnnotationDrained of what has ended
)

// Move is an act on a node.
type Move struct {
	Act  Act
	Pods []string // of Evict, as namespace/name
	Why  string   // for people: what is done or what is waited for
}

// Next answers what is to be done about the node, whose turn it is if turn is "".
// Whoever does it and asks again comes to an end, wherever the last one stopped:
// everything that is remembered is in the objects.
func Next(n Node, turn string) Move {
	switch {
	case n.NIC == nil:
		return n.release()
	case n.phase() == asks && turn == "":
		return Move{Act: LetGo, Why: fmt.Sprintf("may change to generation %s", n.generation())}
	case n.phase() == asks && n.Cordoned == "":
		return Move{Why: turn}
	case n.Drains():
		return n.drain()
	case n.phase() == goes:
		return Move{} // the agent is at work, or will see that it may
	case n.phase() == idle && !n.reached():
		return Move{} // the agent has yet to say what generation it would take
	}
	return n.release()
}

// drain frees the devices that the plan takes.
func (n Node) drain() Move {
	holders := n.NIC.Status.Plan.Holders
	switch leavers := n.leavers(); {
	case n.annotated(v1alpha1.AnnotationDrained):
		return Move{}
	case n.Cordoned != n.generation():
		return Move{Act: Cordon, Why: fmt.Sprintf("pods leave that hold what generation %s changes", n.generation())}
	case len(leavers) > 0:
		return Move{Act: Evict, Pods: leavers, Why: "waits for " + strings.Join(leavers, ", ") + " to go"}
	case n.strangers() != "":
		return Move{Why: n.strangers()}
	case len(holders) == 0:
		// The agent has yet to see that nobody holds anything, or has just seen it.
		return Move{Act: Drained, Why: "nobody holds what the plan takes"}
	}
	return Move{Act: Drained, Why: "the pods that held what the plan takes have gone"}
}

// strangers says of devices that nobody can be asked to give back.
func (n Node) strangers() string {
	var out []string
	for _, h := range n.NIC.Status.Plan.Holders {
		if h.Pod == "" {
			out = append(out, fmt.Sprintf("%s (%s)", h.Device, h.Why))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "waits for devices that no pod is known to have: " + some(out)
}

// release undoes what a change has left behind: the cordon that was made for it.
func (n Node) release() Move {
	switch {
	case n.Cordoned != "":
		return Move{Act: Uncordon, Why: "the change for which it was made has ended"}
	case n.NIC != nil && n.NIC.Annotations[v1alpha1.AnnotationDrained] != "":
		return Move{Act: Forget}
	}
	return Move{}
}
