// Package policy turns what people write into what the planner takes: it decodes
// documents strictly and resolves names, ranges and policies against an observed
// node. It is pure.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// Decode reads one NodeNIC document in YAML or JSON. An unknown field, a field
// given twice, a value of another type, a wrong kind or version is an error that
// gives the path, and so is a second document: it would be passed over. What does
// not fit the types comes all at once.
func Decode(raw []byte) (*v1alpha1.NodeNIC, error) {
	if strings.TrimSpace(string(raw)) == "" {
		return nil, errors.New("the document is empty: want a NodeNIC (apiVersion sluice.dev/v1alpha1)")
	}
	asJSON, err := kyaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("no valid YAML: %w", err)
	}
	if err := single(raw); err != nil {
		return nil, err
	}
	if err := kind(asJSON); err != nil {
		return nil, err
	}
	var doc v1alpha1.NodeNIC
	if err := misshapen(asJSON, doc); err != nil {
		return nil, err
	}
	strict, err := kjson.UnmarshalStrict(asJSON, &doc)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	return &doc, nil
}

// kind refuses what is no NodeNIC before its fields are: they are another kind's. What
// is no object at all misshapen says.
func kind(asJSON []byte) error {
	var doc struct{ APIVersion, Kind any }
	if json.Unmarshal(asJSON, &doc) != nil {
		return nil
	}
	text := func(v any) string {
		if v == nil {
			return ""
		}
		return fmt.Sprint(v)
	}
	version, is := text(doc.APIVersion), text(doc.Kind)
	switch {
	case version == v1alpha1.APIVersion && is == v1alpha1.KindNodeNIC:
		return nil
	case version == v1alpha1.APIVersion && is == v1alpha1.KindNICPolicy:
		return fmt.Errorf("kind %q: want %s; a %[1]s is a cluster's, and goes there with kubectl apply", is, v1alpha1.KindNodeNIC)
	}
	return fmt.Errorf("apiVersion %q, kind %q: want %s, %s", version, is, v1alpha1.APIVersion, v1alpha1.KindNodeNIC)
}

// single refuses a second document. An empty one is what a "---" at the end makes.
func single(raw []byte) error {
	in := yaml.NewDecoder(bytes.NewReader(raw))
	for n := 1; ; n++ {
		var v any
		switch err := in.Decode(&v); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("no valid YAML: document %d: %w", n, err)
		case n > 1 && v != nil:
			return fmt.Errorf("there is a document %d: want one NodeNIC in a file", n)
		}
	}
}
