package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

// split reads the documents of a file: YAML with "---" between them, or JSON. A
// member that is there twice is an error, and so is text that is neither.
func split(text []byte) ([]any, error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		v, err := parseJSON(text)
		if err != nil {
			return nil, err
		}
		return []any{v}, nil
	}
	var out []any
	for _, chunk := range chunks(string(text)) {
		asJSON, err := kyaml.YAMLToJSONStrict([]byte(chunk))
		if err != nil {
			return nil, fmt.Errorf("no valid YAML: %w", err)
		}
		v, err := decode(asJSON)
		if err != nil {
			return nil, err
		}
		if v != nil { // what stands between two separators, or comments alone
			out = append(out, v)
		}
	}
	return out, nil
}

// chunks cuts YAML at its separators. Each chunk has as many empty lines before it
// as the text has lines, so that an error gives the right line.
func chunks(text string) []string {
	var out []string
	var chunk strings.Builder
	n := 0
	for line := range strings.Lines(text) {
		n++
		rest, cut := strings.CutPrefix(line, "---")
		if cut && (strings.TrimSpace(rest) == "" || rest[0] == ' ' || rest[0] == '\t') {
			out = append(out, chunk.String())
			chunk.Reset()
			chunk.WriteString(strings.Repeat("\n", n-1))
			line = rest
		}
		chunk.WriteString(line)
	}
	return append(out, chunk.String())
}

// parseJSON reads one JSON value and says where it goes wrong.
func parseJSON(text []byte) (any, error) {
	var v any
	strict, err := kjson.UnmarshalStrict(text, &v)
	if err != nil {
		if ok, at := kjson.SyntaxErrorOffset(err); ok {
			return nil, fmt.Errorf("no valid JSON: %s: %w%s", place(text, at), err, hint(text, at))
		}
		return nil, fmt.Errorf("no valid JSON: %w", err)
	}
	if err := errors.Join(strict...); err != nil {
		return nil, err
	}
	return decode(text)
}

// decode reads JSON with numbers as they are written.
func decode(text []byte) (any, error) {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	var v any
	err := in.Decode(&v)
	return v, err
}

// place is the line and column of the byte before offset at, where the decoder
// stopped.
func place(text []byte, at int64) string {
	before := text[:min(max(int(at)-1, 0), len(text))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf("line %d, column %d", line, column)
}

// hint names the commonest mistake, which the decoder's words do not.
func hint(text []byte, at int64) string {
	i := int(at) - 1
	if i < 0 || i >= len(text) || text[i] != '}' && text[i] != ']' {
		return ""
	}
	if before := bytes.TrimSpace(text[:i]); bytes.HasSuffix(before, []byte(",")) {
		return "; there is a comma before it: JSON has none after the last"
	}
	return ""
}
