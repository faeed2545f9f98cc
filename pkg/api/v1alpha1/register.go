package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What a document of this package says of itself.
const (
	Group         = "sluice.dev"
	Version       = "v1alpha1"
	APIVersion    = Group + "/" + Version
	KindNodeNIC   = "NodeNIC"
	KindNICPolicy = "NICPolicy"
	KindNetwork   = "Network"
)

// AddToScheme makes the kinds of this package known to a client of Kubernetes.
func AddToScheme(s *runtime.Scheme) error {
	gv := schema.GroupVersion{Group: Group, Version: Version}
	s.AddKnownTypes(gv, &NodeNIC{}, &NodeNICList{}, &NICPolicy{}, &NICPolicyList{}, &Network{}, &NetworkList{})
	metav1.AddToGroupVersion(s, gv)
	return nil
}
