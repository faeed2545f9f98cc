package ovsdbtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// uid is a row's UUID as an atom, told apart from a string.
type uid string

// value is a column's content: atoms (string, int64, bool, uid) by themselves
// with nil, or the pairs of a map.
type value map[any]any

func (v value) equal(o value) bool { return maps.Equal(v, o) }

// row is a row's content by column.
type row map[string]value

// parse reads a value from the wire. names gives named-uuids of the transaction.
func (c column) parse(b json.RawMessage, names map[string]uid) (value, error) {
	var parts []json.RawMessage
	var tag string
	if json.Unmarshal(b, &parts) == nil && len(parts) == 2 && json.Unmarshal(parts[0], &tag) == nil {
		switch tag {
		case "map":
			return c.parseMap(parts[1])
		case "set":
			var atoms []json.RawMessage
			if err := json.Unmarshal(parts[1], &atoms); err != nil {
				return nil, err
			}
			return c.parseSet(atoms, names)
		}
	}
	return c.parseSet([]json.RawMessage{b}, names)
}

func (c column) parseMap(b json.RawMessage) (value, error) {
	var pairs [][2]string
	if err := json.Unmarshal(b, &pairs); err != nil {
		return nil, err
	}
	v := value{}
	for _, p := range pairs {
		v[p[0]] = p[1]
	}
	return v, nil
}

func (c column) parseSet(atoms []json.RawMessage, names map[string]uid) (value, error) {
	v := value{}
	for _, b := range atoms {
		a, err := c.parseAtom(b, names)
		if err != nil {
			return nil, err
		}
		v[a] = nil
	}
	return v, nil
}

func (c column) parseAtom(b json.RawMessage, names map[string]uid) (any, error) {
	switch c.atom {
	case "integer":
		var n int64
		if err := json.Unmarshal(b, &n); err != nil {
			return nil, fmt.Errorf("%s is no integer", b)
		}
		if c.limit != 0 && (n < 0 || n > c.limit) {
			return nil, &refusal{"constraint violation", fmt.Sprintf("%d is not in the valid range 0 to %d (inclusive)", n, c.limit)}
		}
		return n, nil
	case "boolean":
		var t bool
		if err := json.Unmarshal(b, &t); err != nil {
			return nil, fmt.Errorf("%s is no boolean", b)
		}
		return t, nil
	case "uuid":
		var p [2]string
		if err := json.Unmarshal(b, &p); err != nil {
			return nil, fmt.Errorf("%s is no uuid", b)
		}
		if p[0] != "named-uuid" {
			return uid(p[1]), nil
		}
		u, ok := names[p[1]]
		if !ok {
			return nil, fmt.Errorf("no row is named %q in this transaction", p[1])
		}
		return u, nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s is no string", b)
	}
	return s, nil
}

// check holds v to the number of atoms that the column allows.
func (c column) check(v value) error {
	if len(v) < c.min || c.max >= 0 && len(v) > c.max {
		return &refusal{"constraint violation", fmt.Sprintf("%d values in a column of %d to %d", len(v), c.min, c.max)}
	}
	return nil
}

// zero is what a column holds that an insert does not name.
func (c column) zero() value {
	if c.min == 0 || c.isMap || c.atom == "uuid" {
		return value{}
	}
	switch c.atom {
	case "integer":
		return value{int64(0): nil}
	case "boolean":
		return value{false: nil}
	}
	return value{"": nil}
}

// wire writes v as a server does.
func (c column) wire(v value) any {
	if c.isMap {
		pairs := [][2]any{}
		for _, k := range sorted(v) {
			pairs = append(pairs, [2]any{k, v[k]})
		}
		return [2]any{"map", pairs}
	}
	atoms := []any{}
	for _, k := range sorted(v) {
		if u, ok := k.(uid); ok {
			k = [2]string{"uuid", string(u)}
		}
		atoms = append(atoms, k)
	}
	if len(atoms) == 1 {
		return atoms[0]
	}
	return [2]any{"set", atoms}
}

func sorted(v value) []any {
	return slices.SortedFunc(maps.Keys(v), func(a, b any) int {
		x, isInt := a.(int64)
		y, alsoInt := b.(int64)
		if isInt && alsoInt {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}
