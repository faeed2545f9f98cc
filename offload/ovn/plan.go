package ovn

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/ovsdb"
)

// ErrForeign: a row of a name that is wanted is somebody else's.
var ErrForeign = errors.New("not ours")

// Have is a row that was read.
type Have struct {
	Table string
	UUID  ovsdb.UUID
	IDs   ovsdb.Map
	Raw   map[string]json.RawMessage
}

func (h Have) key() string { return h.IDs[OwnerKey] }

// kept says that a row is of a network that stays as it is: its own, the port of a
// router to it, or a router that networks share, of which it may be one.
func (s *state) kept(h Have) bool {
	kind, rest, _ := strings.Cut(h.key(), "/")
	return slices.ContainsFunc(s.keep, func(name string) bool {
		return h.IDs[GroupKey] == "network/"+name || kind == "router" ||
			kind == "gateway" && (rest == name || strings.HasPrefix(rest, name+"/"))
	})
}

func (h Have) name() string { var s string; _ = json.Unmarshal(h.Raw["name"], &s); return s }

// Change is one row to be made, changed or removed.
type Change struct {
	Verb    string // insert, change, delete
	Table   string
	Key     string
	Name    string   // what people call it; the key if it has no name
	Columns []string // of a change, in order
	Group   string

	row  Row
	have Have
}

func (c Change) String() string {
	s := c.Verb + " " + c.Table + " " + c.Name
	if len(c.Columns) > 0 {
		s += ": " + strings.Join(c.Columns, ", ")
	}
	return s
}

// state is what was read, by what it is asked for.
type state struct {
	rows  []Have
	byKey map[string]*Have // table + key of ours
	keep  []string         // networks whose rows stay as they are
}

func newState(rows []Have, keep []string) *state {
	s := &state{rows: rows, byKey: map[string]*Have{}, keep: keep}
	for i := range rows {
		h := &rows[i]
		if _, twice := s.byKey[h.Table+" "+h.key()]; h.key() != "" && !twice {
			s.byKey[h.Table+" "+h.key()] = h
		}
	}
	return s
}

// Plan compares what is wanted with what was read, and answers the changes in the
// order of tables and keys. A row of ours that is not wanted goes; a second one of the
// same key, which two writers may have made, too. A name that somebody else's row has
// is ErrForeign, and nothing is to be done. Rows of the networks named in keep stay, though
// nothing is wanted of them.
func Plan(want []Row, have []Have, keep ...string) ([]Change, error) {
	s := newState(have, keep)
	var out []Change
	var bad []error
	wanted := map[string]bool{}
	for _, r := range want {
		wanted[r.Table+" "+r.Key] = true
		h := s.byKey[r.Table+" "+r.Key]
		if h == nil {
			if err := s.foreign(r); err != nil {
				bad = append(bad, err)
			}
			out = append(out, Change{Verb: "insert", Table: r.Table, Key: r.Key, Name: called(r.name(), r.Key), Group: r.Group, row: r})
			continue
		}
		if columns := s.differ(r, *h); len(columns) > 0 {
			out = append(out, Change{Verb: "change", Table: r.Table, Key: r.Key, Name: called(r.name(), r.Key), Group: r.Group, Columns: columns, row: r, have: *h})
		}
	}
	for i := range s.rows {
		h := s.rows[i]
		if h.key() != "" && (!wanted[h.Table+" "+h.key()] || s.byKey[h.Table+" "+h.key()] != &s.rows[i]) {
			if s.kept(h) {
				continue
			}
			out = append(out, Change{Verb: "delete", Table: h.Table, Key: h.key(), Name: called(h.name(), h.key()), Group: h.IDs[GroupKey], have: h})
		}
	}
	slices.SortStableFunc(out, func(a, b Change) int {
		if a.Table != b.Table {
			return slices.Index(order(), a.Table) - slices.Index(order(), b.Table)
		}
		return strings.Compare(a.Key, b.Key)
	})
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return out, nil
}

func called(name, key string) string {
	if name == "" {
		return key
	}
	return name
}

// foreign says that somebody else's row has the name. The database would take a second
// switch or router of a name, and people could not tell them apart.
func (s *state) foreign(r Row) error {
	if r.name() == "" {
		return nil
	}
	for _, h := range s.rows {
		if h.Table == r.Table && h.key() == "" && h.name() == r.name() {
			return fmt.Errorf("%s %s is there and is %w: it has no external_ids:%s", r.Table, r.name(), ErrForeign, OwnerKey)
		}
	}
	return nil
}

// differ lists the columns of a row of ours that are not as wanted.
func (s *state) differ(r Row, h Have) []string {
	var out []string
	for _, c := range slices.Sorted(maps.Keys(r.Columns)) {
		if !same(r.Columns[c], h.Raw[c]) {
			out = append(out, c)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(r.Refs)) {
		if in, gone := s.moved(r, h, c); len(in)+len(gone) > 0 {
			out = append(out, c)
		}
	}
	for k, v := range r.ids() {
		if h.IDs[k] != v {
			return append(out, "external_ids")
		}
	}
	return out
}

// same compares a value with what the database has, whatever order sets are in.
func same(want any, raw json.RawMessage) bool {
	switch w := want.(type) {
	case string:
		// The server writes characters that Go escapes, such as &, as they are.
		var h string
		return json.Unmarshal(raw, &h) == nil && w == h
	case ovsdb.Map:
		var h ovsdb.Map
		return json.Unmarshal(raw, &h) == nil && maps.Equal(w, h)
	case ovsdb.Set[string]:
		var h ovsdb.Set[string]
		return json.Unmarshal(raw, &h) == nil && slices.Equal(slices.Sorted(slices.Values(w)), slices.Sorted(slices.Values(h)))
	case ovsdb.Set[int]:
		var h ovsdb.Set[int]
		return json.Unmarshal(raw, &h) == nil && slices.Equal(w, h)
	}
	text, err := json.Marshal(want)
	return err == nil && string(text) == string(raw)
}

// moved says which rows of ours a column is to refer to and does not, by key, and
// which it refers to and is not to. Rows that are not ours stay where they are.
func (s *state) moved(r Row, h Have, column string) (in []string, gone []ovsdb.UUID) {
	var now ovsdb.Set[ovsdb.UUID]
	_ = json.Unmarshal(h.Raw[column], &now) // a column that was not read is empty
	target := schema()[r.Table].refs[column]
	keep := map[ovsdb.UUID]bool{}
	for _, key := range r.Refs[column] {
		t := s.byKey[target+" "+key]
		if t == nil || !slices.Contains(now, t.UUID) {
			in = append(in, key)
		}
		if t != nil {
			keep[t.UUID] = true
		}
	}
	for _, u := range now {
		if !keep[u] && slices.ContainsFunc(s.rows, func(t Have) bool { return t.Table == target && t.UUID == u && t.key() != "" && !s.kept(t) }) {
			gone = append(gone, u)
		}
	}
	return in, gone
}
