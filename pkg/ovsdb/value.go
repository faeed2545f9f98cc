package ovsdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// UUID names a row. On the wire it is ["uuid", "..."] (RFC 7047, 5.1).
type UUID string

// MarshalJSON writes ["uuid", u].
func (u UUID) MarshalJSON() ([]byte, error) { return json.Marshal([2]string{"uuid", string(u)}) }

// UnmarshalJSON reads ["uuid", u].
func (u *UUID) UnmarshalJSON(b []byte) error {
	s, err := pair(b, "uuid")
	*u = UUID(s)
	return err
}

// Named refers to the row that an insert of the same transaction makes under
// that uuid-name. On the wire it is ["named-uuid", "..."].
type Named string

// MarshalJSON writes ["named-uuid", n].
func (n Named) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]string{"named-uuid", string(n)})
}

// UnmarshalJSON reads ["named-uuid", n].
func (n *Named) UnmarshalJSON(b []byte) error {
	s, err := pair(b, "named-uuid")
	*n = Named(s)
	return err
}

func pair(b []byte, tag string) (string, error) {
	var p []string
	if err := json.Unmarshal(b, &p); err != nil || len(p) != 2 || p[0] != tag {
		return "", fmt.Errorf("%.80s is no [%q, ...]", b, tag)
	}
	return p[1], nil
}

// Set is a column that holds any number of values; one that is optional holds
// none or one. On the wire a set of one value is that value, any other is
// ["set", [...]].
type Set[T any] []T

// One returns the value of an optional column, and whether there is one.
func (s Set[T]) One() (T, bool) {
	if len(s) == 0 {
		var none T
		return none, false
	}
	return s[0], true
}

// MarshalJSON always writes the long form, which the server takes everywhere.
func (s Set[T]) MarshalJSON() ([]byte, error) {
	if s == nil {
		s = Set[T]{}
	}
	return json.Marshal([2]any{"set", []T(s)})
}

// UnmarshalJSON reads both forms.
func (s *Set[T]) UnmarshalJSON(b []byte) error {
	if values, ok := tagged(b, "set"); ok {
		*s = nil
		return json.Unmarshal(values, (*[]T)(s))
	}
	var one T
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*s = Set[T]{one}
	return nil
}

// Map is a column of strings by strings: external_ids, other_config and their
// like. On the wire it is ["map", [[key, value], ...]].
type Map map[string]string

// MarshalJSON writes the pairs in the order of their keys.
func (m Map) MarshalJSON() ([]byte, error) {
	pairs := make([][2]string, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, [2]string{k, v})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int {
		return bytes.Compare([]byte(a[0]), []byte(b[0]))
	})
	return json.Marshal([2]any{"map", pairs})
}

// UnmarshalJSON reads the pairs.
func (m *Map) UnmarshalJSON(b []byte) error {
	values, ok := tagged(b, "map")
	if !ok {
		return fmt.Errorf(`%.80s is no ["map", ...]`, b)
	}
	var pairs [][]string
	if err := json.Unmarshal(values, &pairs); err != nil {
		return err
	}
	*m = make(Map, len(pairs))
	for _, p := range pairs {
		if len(p) != 2 {
			return errors.New("a map has an entry that is no pair")
		}
		(*m)[p[0]] = p[1]
	}
	return nil
}

// tagged opens [tag, content].
func tagged(b []byte, tag string) (json.RawMessage, bool) {
	var parts []json.RawMessage
	if json.Unmarshal(b, &parts) != nil || len(parts) != 2 {
		return nil, false
	}
	var got string
	if json.Unmarshal(parts[0], &got) != nil || got != tag {
		return nil, false
	}
	return parts[1], true
}
