// Package policy turns what people write into what the planner takes: it decodes
// documents strictly and resolves names, ranges and policies against an observed
// node. It is pure.
package policy

import (
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// Decode reads one NodeNIC document in YAML or JSON. An unknown field, a field
// given twice, a wrong kind or version is an error that gives the path.
func Decode(raw []byte) (*v1alpha1.NodeNIC, error) {
	if strings.TrimSpace(string(raw)) == "" {
		return nil, errors.New("the document is empty: want a NodeNIC (apiVersion sluice.dev/v1alpha1)")
	}
	asJSON, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("no valid YAML: %w", err)
	}
	var doc v1alpha1.NodeNIC
	strict, err := kjson.UnmarshalStrict(asJSON, &doc)
	if err != nil {
		return nil, err
	}
	if len(strict) > 0 {
		return nil, errors.Join(strict...)
	}
	if doc.APIVersion != v1alpha1.APIVersion || doc.Kind != v1alpha1.KindNodeNIC {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want %s, %s", doc.APIVersion, doc.Kind, v1alpha1.APIVersion, v1alpha1.KindNodeNIC)
	}
	return &doc, nil
}
