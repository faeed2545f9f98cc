package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/sluice/offload/ovn"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/policy"
)

// lookAgain is how often the northbound is read when nothing has happened: a stranger
// may have written to it, or it may have been made anew.
const lookAgain = time.Minute

// networks writes what all Networks come to into OVN's northbound.
type networks struct {
	*theFleet
	northbound string // endpoint

	// patience is how long the northbound may take to answer a turn's questions: one
	// that has hung, or a server that its cluster has lost, must not hold up the turns
	// after it.
	patience time.Duration
}

// add: all are looked at together, since routers and conntrack zones are
// shared, when one has changed or a node has come, gone or been labelled otherwise.
func (n *networks) add(m ctrl.Manager) error {
	relabelled := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}}
	return ctrl.NewControllerManagedBy(m).Named("networks").
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(one), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(one), builder.WithPredicates(relabelled)).
		Complete(n.meters.loop("networks", n.turn))
}

// verdict is what one Network has come to.
type verdict struct {
	object  *v1alpha1.Network
	wish    ovn.Wish
	problem error // it is left as it is
}

// turn brings all of them to OVN. Who has which block is on the objects before any row
// says so: a block that a row names is never given to another.
func (n *networks) turn(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	time.Sleep(calm)
	all, err := n.judge(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var wishes []ovn.Wish
	var keep []string
	for i := range all {
		v := &all[i]
		if v.problem != nil {
			keep = append(keep, v.object.Name)
			continue
		}
		if err := n.claim(ctx, v); err != nil {
			return reconcile.Result{}, err
		}
		wishes = append(wishes, v.wish)
	}
	nodes, err := n.abilities(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	warnings, failed := n.write(ctx, wishes, keep, nodes)
	for _, v := range all {
		if err := n.say(ctx, v, warnings[v.object.Name], failed); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: lookAgain}, failed
}

// judge reads every Network and gives nodes their blocks.
func (n *networks) judge(ctx context.Context) ([]verdict, error) {
	var list v1alpha1.NetworkList
	var nodes corev1.NodeList
	if err := errors.Join(n.List(ctx, &list), n.List(ctx, &nodes)); err != nil {
		return nil, err
	}
	var out []verdict
	var good []network.Network
	for i := range list.Items {
		o := &list.Items[i]
		if o.DeletionTimestamp != nil {
			continue
		}
		v := verdict{object: o}
		v.wish, v.problem = wishOf(o, nodes.Items)
		if v.problem == nil {
			good = append(good, v.wish.Network)
		}
		out = append(out, v)
	}
	conflicts := policy.NetworkConflicts(good)
	for i := range out {
		if what := conflicts[out[i].object.Name]; len(what) > 0 {
			out[i].problem = errors.New(strings.Join(what, "; "))
		}
	}
	return out, nil
}

// wishOf is a network with the nodes that have a block of it: those that it chooses,
// and those that have had one since they were chosen.
func wishOf(o *v1alpha1.Network, nodes []corev1.Node) (ovn.Wish, error) {
	w := ovn.Wish{}
	var err error
	if w.Network, err = policy.ResolveNetwork(o); err != nil {
		return w, err
	}
	chosen := labels.Everything()
	if s := o.Spec.NodeSelector; s != nil {
		if chosen, err = metav1.LabelSelectorAsSelector(s); err != nil {
			return w, fmt.Errorf("spec.nodeSelector: %w", err)
		}
	}
	var claims []network.Claim
	for _, b := range o.Status.Blocks {
		claims = append(claims, network.Claim{Node: b.Node, Block: b.Block})
	}
	var names []string
	for _, node := range nodes {
		has := slices.ContainsFunc(claims, func(c network.Claim) bool { return c.Node == node.Name })
		if has || chosen.Matches(labels.Set(node.Labels)) {
			names = append(names, node.Name)
		}
	}
	slices.Sort(names)
	claims, without := w.Network.Assign(claims, names)
	if len(without) > 0 {
		return w, fmt.Errorf("no block is left for %d nodes, %s first: there are %d of %d addresses", len(without), without[0], w.Network.Blocks(), w.Network.Ports)
	}
	for _, c := range claims {
		w.Members = append(w.Members, ovn.Member{Node: c.Node, Block: c.Block})
	}
	return w, nil
}

func blocksOf(w ovn.Wish) []v1alpha1.NetworkBlock {
	var out []v1alpha1.NetworkBlock
	for _, m := range w.Members {
		out = append(out, v1alpha1.NetworkBlock{Node: m.Node, Block: m.Block})
	}
	return out
}

// claim writes who has which block, if that has changed.
func (n *networks) claim(ctx context.Context, v *verdict) error {
	blocks := blocksOf(v.wish)
	if equality.Semantic.DeepEqual(blocks, v.object.Status.Blocks) {
		return nil
	}
	status := v.object.DeepCopy().Status
	status.Blocks = blocks
	return n.put(ctx, v.object, status)
}

// abilities are what agents say of their nodes.
func (n *networks) abilities(ctx context.Context) ([]ovn.Node, error) {
	var nics v1alpha1.NodeNICList
	if err := n.List(ctx, &nics, uncopied); err != nil {
		return nil, err
	}
	var out []ovn.Node
	for i := range nics.Items {
		out = append(out, ableOf(&nics.Items[i]))
	}
	slices.SortFunc(out, func(a, b ovn.Node) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// ableOf is a node as warnings know it. What it has not said of itself is not known.
func ableOf(o *v1alpha1.NodeNIC) ovn.Node {
	out := ovn.Node{Name: o.Name, Cannot: map[string]string{}}
	if o.Status.Inventory == nil {
		return out
	}
	for _, c := range o.Status.Inventory.Offload {
		if c.Answer == string(capability.No) {
			out.Cannot[c.Name] = c.Why
		}
	}
	return out
}

// write brings the rows to the northbound and answers the warnings of each network.
func (n *networks) write(ctx context.Context, wishes []ovn.Wish, keep []string, nodes []ovn.Node) (map[string][]string, error) {
	ctx, stop := context.WithTimeout(ctx, n.patience)
	defer stop()
	c, err := ovsdb.Connect(ctx, n.northbound)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_, failed := ovn.Apply(ctx, c, ovn.Rows(wishes), keep...)
	options, err := ovn.Options(ctx, c)
	return ovn.Warnings(wishes, nodes, options), errors.Join(failed, err)
}

// say writes what has become of a network, if it is news.
func (n *networks) say(ctx context.Context, v verdict, warnings []string, failed error) error {
	status := v.object.DeepCopy().Status
	status.ObservedGeneration = v.object.Generation
	ready := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsWanted}
	switch {
	case v.problem != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonRefused, clip(v.problem.Error())
	case failed != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NorthboundFailed", clip(failed.Error())
	}
	if v.problem == nil {
		status.Blocks = blocksOf(v.wish)
	}
	off := metav1.Condition{Type: v1alpha1.Offloadable, Status: metav1.ConditionTrue, Reason: "NoWarning"}
	if v.problem == nil && failed == nil {
		const most = 32 // of the schema
		status.Warnings = warnings[:min(len(warnings), most)]
	}
	if len(status.Warnings) > 0 {
		off.Status, off.Reason, off.Message = metav1.ConditionFalse, "Warnings", clip(strings.Join(status.Warnings, "; "))
	}
	for _, c := range []metav1.Condition{ready, off} {
		c.ObservedGeneration = v.object.Generation
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(status, v.object.Status) {
		return nil
	}
	if was := meta.FindStatusCondition(v.object.Status.Conditions, v1alpha1.Ready); was == nil || was.Status != ready.Status {
		kind := corev1.EventTypeNormal
		if ready.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		n.events.Eventf(v.object, nil, kind, ready.Reason, "Network", "%s", ready.Message)
	}
	return n.put(ctx, v.object, status)
}

// put writes a status over the one that was read, and over no other: what the cache
// has may be older than what this process wrote, and blocks must not be given by it.
func (n *networks) put(ctx context.Context, o *v1alpha1.Network, status v1alpha1.NetworkStatus) error {
	o.Status = status
	return n.Status().Update(ctx, o, client.FieldOwner(FieldManager))
}
