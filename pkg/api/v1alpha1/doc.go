// Package v1alpha1 is the documents that people write for sluice (group
// sluice.dev), which are Kubernetes objects too. It holds types and no logic:
// pkg/policy reads and resolves them.
//
// A field that is left out leaves the thing as it is, unless its comment says
// otherwise. Where 0 or false means something, the field is a pointer.
//
// Lines that begin with +kubebuilder are for controller-gen, which makes
// deepcopy.go and deploy/crds of them (make generate). They say what any API
// server can judge: words, bounds, what excludes what. What needs a node to judge
// is for pkg/policy.
//
// +kubebuilder:object:generate=true
// +groupName=sluice.dev
package v1alpha1
