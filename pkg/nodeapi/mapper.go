package nodeapi

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// fixedMapper knows the kinds that the agent asks for. Who discovers kinds needs
// the API server to be there before anything can begin.
func fixedMapper() meta.RESTMapper {
	gv := schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{gv})
	m.AddSpecific(gv.WithKind(v1alpha1.KindNodeNIC), gv.WithResource("nodenics"), gv.WithResource("nodenic"), meta.RESTScopeRoot)
	m.AddSpecific(gv.WithKind(v1alpha1.KindNetwork), gv.WithResource("networks"), gv.WithResource("network"), meta.RESTScopeRoot)
	return m
}
