package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/fleet"
)

var errNotSynced = errors.New("what there is has not been heard of yet")

// theFleet is what the loops share.
type theFleet struct {
	client.Client
	live   client.Reader // the API server, past the cache
	events events.EventRecorder
	meters *meters

	// pokes ask the two loops that are over all nodes to run.
	paceAgain  chan event.TypedGenericEvent[string]
	tallyAgain chan event.TypedGenericEvent[string]

	mu     sync.Mutex
	wishes map[string]wish  // by node, as resolved last
	let    map[string]int64 // generation for which a node was let go, until the cache shows it
	drains map[string]look  // at nodes that are drained, the last one

	heir    bool      // of pace alone, which runs once at a time: it knows what was let go before
	tallied time.Time // of tally alone
}

// wish is what resolving a node has come to.
type wish struct {
	fleet.Wish
	err error
}

func newFleet(m ctrl.Manager) *theFleet {
	return &theFleet{
		Client: m.GetClient(), live: m.GetAPIReader(), events: m.GetEventRecorder("sluice-controller"), meters: newMeters(),
		paceAgain:  make(chan event.TypedGenericEvent[string], 1),
		tallyAgain: make(chan event.TypedGenericEvent[string], 1),
		wishes:     map[string]wish{}, let: map[string]int64{}, drains: map[string]look{},
	}
}

// poke asks for a run, if none is asked for already.
func poke(c chan event.TypedGenericEvent[string]) {
	select {
	case c <- event.TypedGenericEvent[string]{Object: "all"}:
	default:
	}
}

// uncopied lists give the cache's own objects, which nobody changes: copies of all
// nodes, made for each round of the loops, would be most of what the controller does.
const uncopied = client.UnsafeDisableDeepCopy

// policies are all that are not on their way out. They are not to be changed.
func (f *theFleet) policies(ctx context.Context) ([]v1alpha1.NICPolicy, error) {
	var list v1alpha1.NICPolicyList
	if err := f.List(ctx, &list, uncopied); err != nil {
		return nil, err
	}
	var out []v1alpha1.NICPolicy
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out, nil
}

// nodes is all of them with their NodeNICs, none of which is to be changed.
func (f *theFleet) nodes(ctx context.Context) ([]fleet.Node, map[string]*corev1.Node, error) {
	var nodes corev1.NodeList
	if err := f.List(ctx, &nodes, uncopied); err != nil {
		return nil, nil, err
	}
	var nics v1alpha1.NodeNICList
	if err := f.List(ctx, &nics, uncopied); err != nil {
		return nil, nil, err
	}
	byName := map[string]*v1alpha1.NodeNIC{}
	for i := range nics.Items {
		byName[nics.Items[i].Name] = &nics.Items[i]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out, objects := make([]fleet.Node, 0, len(nodes.Items)), map[string]*corev1.Node{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		objects[n.Name] = n
		out = append(out, nodeOf(n, f.caughtUp(n.Name, byName[n.Name])))
	}
	return out, objects, nil
}

// inherit learns which nodes another controller has let go: of what it did last the
// cache may have yet to hear, above all where there are several API servers.
func (f *theFleet) inherit(ctx context.Context) error {
	if f.heir {
		return nil
	}
	var nics v1alpha1.NodeNICList
	if err := f.live.List(ctx, &nics); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range nics.Items {
		if o := &nics.Items[i]; o.Annotations[v1alpha1.AnnotationGo] == decimal(o.Generation) {
			f.let[o.Name] = o.Generation
		}
	}
	f.heir = true
	return nil
}

// caughtUp is what the cache has, with what has been let go since.
func (f *theFleet) caughtUp(name string, o *v1alpha1.NodeNIC) *v1alpha1.NodeNIC {
	generation, let := f.let[name]
	switch {
	case !let:
		return o
	case o == nil || o.Generation > generation || o.Generation == generation && o.Annotations[v1alpha1.AnnotationGo] == decimal(generation):
		delete(f.let, name)
		return o
	}
	o = o.DeepCopy()
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[v1alpha1.AnnotationGo] = decimal(o.Generation)
	return o
}

// found ends the annotation of a Node that was unschedulable before the controller
// would have made it so, and stays so after.
const found = "/found"

func nodeOf(n *corev1.Node, o *v1alpha1.NodeNIC) fleet.Node {
	out := fleet.Node{Name: n.Name, Labels: n.Labels, NIC: o, Cordoned: strings.TrimSuffix(n.Annotations[v1alpha1.AnnotationCordoned], found)}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		out.Ready, out.Lost = c.Status == corev1.ConditionTrue, c.Status == corev1.ConditionUnknown
		if !out.Ready {
			out.Away = fmt.Sprintf("%s since %s: %s", c.Reason, c.LastTransitionTime.UTC().Format(time.RFC3339), c.Message)
		}
	}
	return out
}

// node is one with its NodeNIC; nil if there is no such node.
func (f *theFleet) node(ctx context.Context, name string) (*fleet.Node, *corev1.Node, error) {
	var n corev1.Node
	if err := f.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	o := &v1alpha1.NodeNIC{}
	if err := f.Get(ctx, types.NamespacedName{Name: name}, o); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, nil, err
		}
		o = nil
	}
	out := nodeOf(&n, o)
	return &out, &n, nil
}
