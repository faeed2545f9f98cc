package ovsdbtest

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// database holds the rows. Rows and values are never changed in place, so a copy
// of the tables is a snapshot.
type database struct {
	name   string
	schema map[string]table

	mu      sync.Mutex
	tables  tables
	changed chan struct{} // closed at the next commit
}

type tables map[string]map[uid]row

func (t tables) clone() tables {
	out := make(tables, len(t))
	for name, rows := range t {
		out[name] = maps.Clone(rows)
	}
	return out
}

func newDatabase(name string, schema map[string]table) *database {
	d := &database{name: name, schema: schema, tables: tables{}, changed: make(chan struct{})}
	for name := range d.schema {
		d.tables[name] = map[uid]row{}
	}
	return d
}

// refusal is an error in the words of RFC 7047.
type refusal struct{ name, details string }

func (r *refusal) Error() string { return r.name + ": " + r.details }

func asRefusal(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return &refusal{"syntax error", err.Error()}
}

func syntax(format string, args ...any) error {
	return &refusal{"syntax error", fmt.Sprintf(format, args...)}
}

// operation is any operation as it comes from the wire.
type operation struct {
	Op        string                       `json:"op"`
	Table     string                       `json:"table"`
	Where     *[][3]json.RawMessage        `json:"where"`
	Columns   []string                     `json:"columns"`
	Row       map[string]json.RawMessage   `json:"row"`
	Rows      []map[string]json.RawMessage `json:"rows"`
	Mutations [][3]json.RawMessage         `json:"mutations"`
	UUIDName  string                       `json:"uuid-name"`
	Until     string                       `json:"until"`
	Timeout   *int                         `json:"timeout"`
}

// errWait says that a wait has not come to pass and has time left.
var errWait = errors.New("wait")

// transact runs a transaction until it is through or cancel is closed. Like the
// real server it starts over from the first operation when a wait has to wait.
func (d *database) transact(raw []json.RawMessage, cancel <-chan struct{}) []any {
	ops := make([]operation, len(raw))
	for i, b := range raw {
		if err := json.Unmarshal(b, &ops[i]); err != nil {
			return []any{failure(syntax("operation %d: %v", i, err))}
		}
	}
	start := time.Now()
	for {
		d.mu.Lock()
		changed := d.changed
		out, left, err := d.try(ops, time.Since(start))
		d.mu.Unlock()
		if !errors.Is(err, errWait) {
			return out
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-cancel:
			timer.Stop()
			return []any{failure(&refusal{"canceled", ""})}
		}
		timer.Stop()
	}
}

func failure(err error) any {
	r := asRefusal(err)
	return map[string]string{"error": r.name, "details": r.details}
}

// try runs the transaction once; d.mu is held. With errWait it gives the time
// that is left to wait.
func (d *database) try(ops []operation, waited time.Duration) (out []any, left time.Duration, err error) {
	t := &transaction{schema: d.schema, tables: d.tables.clone(), names: map[string]uid{}}
	for _, o := range ops {
		if o.Op == "insert" && o.UUIDName != "" {
			t.names[o.UUIDName] = newUID()
		}
	}
	for i, o := range ops {
		result, err := t.do(o)
		if errors.Is(err, errWait) {
			if o.Timeout == nil {
				return nil, time.Hour, errWait
			}
			if left := time.Duration(*o.Timeout)*time.Millisecond - waited; left > 0 {
				return nil, left, errWait
			}
			err = &refusal{"timed out", `"where" clause test failed`}
		}
		if err != nil {
			out = append(out, failure(err))
			for range ops[i+1:] {
				out = append(out, nil)
			}
			return out, 0, nil
		}
		out = append(out, result)
	}
	if err := t.commit(); err != nil {
		return append(out, failure(err)), 0, nil
	}
	if t.wrote {
		d.tables = t.tables
		close(d.changed)
		d.changed = make(chan struct{})
	}
	return out, 0, nil
}

// transaction works on its own copy of the tables.
type transaction struct {
	schema map[string]table
	tables tables
	names  map[string]uid
	wrote  bool
}

func (t *transaction) do(o operation) (any, error) {
	if o.Op == "comment" {
		return struct{}{}, nil
	}
	tab, ok := t.schema[o.Table]
	if !ok {
		return nil, syntax("no table named %s", o.Table)
	}
	if o.Op == "insert" {
		return t.insert(tab, o)
	}
	if o.Where == nil {
		return nil, syntax(`required "where" member is missing`)
	}
	var hits []uid
	for u := range t.tables[o.Table] {
		ok, err := t.matches(tab, u, t.tables[o.Table][u], *o.Where)
		if err != nil {
			return nil, err
		}
		if ok {
			hits = append(hits, u)
		}
	}
	slices.Sort(hits)
	switch o.Op {
	case "select":
		rows := []map[string]any{}
		for _, u := range hits {
			r, err := t.cut(tab, u, t.tables[o.Table][u], o.Columns)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
		return map[string]any{"rows": rows}, nil
	case "wait":
		return struct{}{}, t.wait(tab, o, hits)
	case "update":
		return t.each(o, hits, func(r row) error { return t.set(tab, r, o.Row, false) })
	case "mutate":
		return t.each(o, hits, func(r row) error { return t.mutate(tab, r, o.Mutations) })
	case "delete":
		t.wrote = t.wrote || len(hits) > 0
		for _, u := range hits {
			delete(t.tables[o.Table], u)
		}
		return map[string]int{"count": len(hits)}, nil
	}
	return nil, syntax("no operation %q", o.Op)
}

func (t *transaction) insert(tab table, o operation) (any, error) {
	u, ok := t.names[o.UUIDName]
	if !ok {
		u = newUID()
	}
	r := row{}
	for name, c := range tab.columns {
		r[name] = c.zero()
	}
	if err := t.set(tab, r, o.Row, true); err != nil {
		return nil, err
	}
	t.tables[o.Table][u] = r
	t.wrote = true
	return map[string]any{"uuid": [2]string{"uuid", string(u)}}, nil
}

func (t *transaction) each(o operation, hits []uid, change func(row) error) (any, error) {
	for _, u := range hits {
		r := maps.Clone(t.tables[o.Table][u])
		if err := change(r); err != nil {
			return nil, err
		}
		t.tables[o.Table][u] = r
		t.wrote = true
	}
	return map[string]int{"count": len(hits)}, nil
}

func (t *transaction) set(tab table, r row, to map[string]json.RawMessage, fresh bool) error {
	for name, raw := range to {
		c, ok := tab.columns[name]
		if !ok {
			return &refusal{"unknown column", "no column " + name}
		}
		if !c.mutable && !fresh {
			return &refusal{"constraint violation", "cannot update immutable column " + name}
		}
		v, err := c.parse(raw, t.names)
		if err != nil {
			return err
		}
		if err := c.check(v); err != nil {
			return err
		}
		r[name] = v
	}
	return nil
}

func (t *transaction) mutate(tab table, r row, mutations [][3]json.RawMessage) error {
	for _, m := range mutations {
		var name, how string
		if json.Unmarshal(m[0], &name) != nil || json.Unmarshal(m[1], &how) != nil {
			return syntax("mutation %s", m)
		}
		c, ok := tab.columns[name]
		if !ok {
			return &refusal{"unknown column", "no column " + name}
		}
		arg := c
		if c.isMap && how == "delete" && !isMapValue(m[2]) {
			arg.isMap = false // a set of keys
		}
		v, err := arg.parse(m[2], t.names)
		if err != nil {
			return err
		}
		now := maps.Clone(r[name])
		switch how {
		case "+=":
			for a := range v {
				for b := range r[name] {
					x, _ := a.(int64)
					y, _ := b.(int64)
					now = value{x + y: nil}
				}
			}
		case "insert":
			for k, x := range v {
				if _, there := now[k]; !there {
					now[k] = x
				}
			}
		case "delete":
			for k, x := range v {
				if !arg.isMap || now[k] == x {
					delete(now, k)
				}
			}
		default:
			return syntax("no mutator %q", how)
		}
		if err := c.check(now); err != nil {
			return err
		}
		r[name] = now
	}
	return nil
}

func isMapValue(b json.RawMessage) bool {
	var parts []json.RawMessage
	return json.Unmarshal(b, &parts) == nil && len(parts) == 2 && string(parts[0]) == `"map"`
}

func (t *transaction) matches(tab table, u uid, r row, where [][3]json.RawMessage) (bool, error) {
	for _, w := range where {
		var name, how string
		if json.Unmarshal(w[0], &name) != nil || json.Unmarshal(w[1], &how) != nil {
			return false, syntax("condition %s", w)
		}
		c, have, err := t.column(tab, u, r, name)
		if err != nil {
			return false, err
		}
		want, err := c.parse(w[2], t.names)
		if err != nil {
			return false, err
		}
		ok, err := compare(how, have, want)
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func (t *transaction) column(tab table, u uid, r row, name string) (column, value, error) {
	if name == "_uuid" {
		return column{atom: "uuid", min: 1, max: 1}, value{u: nil}, nil
	}
	c, ok := tab.columns[name]
	if !ok {
		return column{}, nil, &refusal{"unknown column", "no column " + name}
	}
	return c, r[name], nil
}

func compare(how string, have, want value) (bool, error) {
	switch how {
	case "==":
		return have.equal(want), nil
	case "!=":
		return !have.equal(want), nil
	case "includes":
		for k, v := range want {
			if x, ok := have[k]; !ok || x != v {
				return false, nil
			}
		}
		return true, nil
	case "excludes":
		for k, v := range want {
			if x, ok := have[k]; ok && x == v {
				return false, nil
			}
		}
		return true, nil
	}
	for a := range have {
		for b := range want {
			x, xok := a.(int64)
			y, yok := b.(int64)
			if !xok || !yok {
				return false, syntax("%s wants integers", how)
			}
			switch how {
			case "<":
				return x < y, nil
			case "<=":
				return x <= y, nil
			case ">":
				return x > y, nil
			case ">=":
				return x >= y, nil
			}
		}
	}
	return false, syntax("no function %q", how)
}

// cut writes columns of a row for the wire; all of them if none are named.
func (t *transaction) cut(tab table, u uid, r row, columns []string) (map[string]any, error) {
	if columns == nil {
		columns = append(slices.Collect(maps.Keys(tab.columns)), "_uuid")
	}
	out := map[string]any{}
	for _, name := range columns {
		c, v, err := t.column(tab, u, r, name)
		if err != nil {
			return nil, err
		}
		out[name] = c.wire(v)
	}
	return out, nil
}

// wait compares the rows that match, as a set, with those that are given.
func (t *transaction) wait(tab table, o operation, hits []uid) error {
	if o.Rows == nil {
		return syntax(`required "rows" member is missing`)
	}
	have, want := map[string]bool{}, map[string]bool{}
	for _, u := range hits {
		r, err := t.cut(tab, u, t.tables[o.Table][u], o.Columns)
		if err != nil {
			return err
		}
		have[key(r)] = true
	}
	for _, given := range o.Rows {
		r := map[string]any{}
		for _, name := range o.Columns {
			c, _, err := t.column(tab, "", nil, name)
			if err != nil {
				return err
			}
			v := c.zero()
			if raw, ok := given[name]; ok {
				if v, err = c.parse(raw, t.names); err != nil {
					return err
				}
			}
			r[name] = c.wire(v)
		}
		want[key(r)] = true
	}
	if maps.Equal(have, want) != (o.Until == "==") {
		return errWait
	}
	return nil
}

func key(r map[string]any) string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// commit drops rows that nobody refers to, then checks references and indexes.
func (t *transaction) commit() error {
	for t.collect() {
	}
	t.forget()
	for name, rows := range t.tables {
		tab := t.schema[name]
		seen := map[any]uid{}
		for u, r := range rows {
			for cname, c := range tab.columns {
				for a := range r[cname] {
					ref, ok := a.(uid)
					if !ok || c.ref == "" {
						continue
					}
					if _, there := t.tables[c.ref][ref]; !there {
						return &refusal{"referential integrity violation", fmt.Sprintf("table %s column %s row %s references nonexistent row %s in table %s", name, cname, u, ref, c.ref)}
					}
				}
			}
			for a := range r[tab.index] {
				if _, twice := seen[a]; twice {
					return &refusal{"constraint violation", fmt.Sprintf("Transaction causes multiple rows in %q table to have identical values (%v) for index on column %q.", name, a, tab.index)}
				}
				seen[a] = u
			}
		}
	}
	return nil
}

func (t *transaction) collect() (dropped bool) {
	held := map[uid]bool{}
	for name, rows := range t.tables {
		for _, r := range rows {
			for cname, c := range t.schema[name].columns {
				if c.ref == "" || c.weak {
					continue
				}
				for a := range r[cname] {
					if u, ok := a.(uid); ok {
						held[u] = true
					}
				}
			}
		}
	}
	for name, rows := range t.tables {
		if t.schema[name].root {
			continue
		}
		for u := range rows {
			if !held[u] {
				delete(rows, u)
				dropped, t.wrote = true, true
			}
		}
	}
	return dropped
}

// forget takes weak references to rows that are gone out of their columns.
func (t *transaction) forget() {
	for name, rows := range t.tables {
		for cname, c := range t.schema[name].columns {
			if !c.weak {
				continue
			}
			for u, r := range rows {
				left := maps.Clone(r[cname])
				maps.DeleteFunc(left, func(a, _ any) bool {
					ref, ok := a.(uid)
					_, there := t.tables[c.ref][ref]
					return ok && !there
				})
				if len(left) < len(r[cname]) {
					r = maps.Clone(r)
					r[cname] = left
					rows[u] = r
				}
			}
		}
	}
}

func newUID() uid {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand since Go 1.24
	return uid(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}
