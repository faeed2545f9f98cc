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
	"reflect"
	"strings"

	"go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// Decode reads one NodeNIC document in YAML or JSON. An unknown field, a field
// given twice, a value of another type, a wrong kind or version is an error that
// gives the path, and so is a second document: it would be passed over.
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
	var doc v1alpha1.NodeNIC
	strict, err := kjson.UnmarshalStrict(asJSON, &doc)
	if err != nil {
		return nil, typeError(err)
	}
	if len(strict) > 0 {
		return nil, errors.Join(strict...)
	}
	if doc.APIVersion != v1alpha1.APIVersion || doc.Kind != v1alpha1.KindNodeNIC {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want %s, %s", doc.APIVersion, doc.Kind, v1alpha1.APIVersion, v1alpha1.KindNodeNIC)
	}
	return &doc, nil
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

// typeError says in the document's terms what the decoder says in Go's.
func typeError(err error) error {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) || t.Field == "" {
		return err
	}
	want := t.Type.String()
	switch t.Type.Kind() {
	case reflect.Int:
		want = "a whole number"
	case reflect.Bool:
		want = "true or false"
	case reflect.String:
		want = "a text (in quotes, if it looks like a number)"
	case reflect.Slice:
		want = "a list"
	case reflect.Struct:
		want = "an object"
	}
	return fmt.Errorf("%s: it is of type %s: want %s", t.Field, t.Value, want)
}
