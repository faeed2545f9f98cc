package controller

import (
	"context"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// part is an object with some of its fields, to be applied.
func part(kind, name string, fields map[string]any) (*unstructured.Unstructured, error) {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range fields {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		var plain any
		if err := json.Unmarshal(raw, &plain); err != nil {
			return nil, err
		}
		out.Object[key] = plain
	}
	out.SetAPIVersion(v1alpha1.APIVersion)
	out.SetKind(kind)
	out.SetName(name)
	return out, nil
}

// applySpec makes spec that of the node's NodeNIC, which is made if there is none,
// and goes when the node does.
func (f *theFleet) applySpec(ctx context.Context, n *corev1.Node, spec v1alpha1.NodeNICSpec) error {
	if equality.Semantic.DeepEqual(spec, v1alpha1.NodeNICSpec{}) {
		return f.emptySpec(ctx, n)
	}
	return f.applyWhole(ctx, n, spec)
}

// emptySpec is applySpec of what wants nothing. An apply that takes all fields of spec
// away makes it null, which its schema refuses (structured-merge-diff, merge/update.go:
// what was owned and is not applied is removed, and a map that is left empty with it).
func (f *theFleet) emptySpec(ctx context.Context, n *corev1.Node) error {
	o := &v1alpha1.NodeNIC{}
	o.Name = n.Name
	err := f.Patch(ctx, o, client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec", "value": {}}]`)), client.FieldOwner(FieldManager))
	if apierrors.IsNotFound(err) {
		return f.applyWhole(ctx, n, v1alpha1.NodeNICSpec{})
	}
	return err
}

func (f *theFleet) applyWhole(ctx context.Context, n *corev1.Node, spec v1alpha1.NodeNICSpec) error {
	o, err := part(v1alpha1.KindNodeNIC, n.Name, map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}})
	return f.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(FieldManager), client.ForceOwnership)
}

// applyCondition sets a condition of a NodeNIC, if it is not as it is already.
func (f *theFleet) applyCondition(ctx context.Context, o *v1alpha1.NodeNIC, c metav1.Condition, manager string) error {
	conditions := o.DeepCopy().Status.Conditions
	if c.Type != v1alpha1.Resolved { // which is about policies, and is not written for each spec
		c.ObservedGeneration = o.Generation
	}
	if !meta.SetStatusCondition(&conditions, c) {
		return nil
	}
	is := meta.FindStatusCondition(conditions, c.Type)
	return f.applyStatus(ctx, v1alpha1.KindNodeNIC, o.Name, map[string]any{"conditions": []metav1.Condition{*is}}, manager)
}

func (f *theFleet) applyStatus(ctx context.Context, kind, name string, status any, manager string) error {
	o, err := part(kind, name, map[string]any{"status": status})
	if err != nil {
		return err
	}
	return f.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership)
}

// annotate sets an annotation, or takes it away: "".
func (f *theFleet) annotate(ctx context.Context, o client.Object, key, value string) error {
	return f.merge(ctx, o, map[string]any{"metadata": annotation(key, value)})
}

func annotation(key, value string) map[string]any {
	var v any
	if value != "" {
		v = value
	}
	return map[string]any{"annotations": map[string]any{key: v}}
}

func (f *theFleet) merge(ctx context.Context, o client.Object, patch map[string]any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	// What the server answers goes into a copy: o may be the cache's.
	into, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		into = o
	}
	return f.Patch(ctx, into, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(FieldManager))
}
