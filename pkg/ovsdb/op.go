package ovsdb

import "encoding/json"

// Op is one operation of a transaction (RFC 7047, 5.2), as it goes over the
// wire. Make one with Select, Insert and so on.
type Op struct {
	kind, table string
	members     map[string]any
}

// Row is what an operation writes or compares: values by column. Values are
// strings, int, bool, UUID, Named, Set and Map.
type Row map[string]any

// Condition is one clause of a where. All of them must hold.
type Condition struct {
	Column   string
	Function string // == != < <= > >= includes excludes
	Value    any
}

// MarshalJSON writes [column, function, value].
func (c Condition) MarshalJSON() ([]byte, error) {
	return json.Marshal([3]any{c.Column, c.Function, c.Value})
}

// Where is a row's conditions.
type Where []Condition

// All matches every row.
func All() Where { return Where{} }

// Is matches rows whose column equals value.
func Is(column string, value any) Where { return Where{{column, "==", value}} }

// Includes matches rows whose column, a set or map, contains value.
func Includes(column string, value any) Where { return Where{{column, "includes", value}} }

// Mutation changes one column in place.
type Mutation struct {
	Column  string
	Mutator string // += -= *= /= %= insert delete
	Value   any
}

// MarshalJSON writes [column, mutator, value].
func (m Mutation) MarshalJSON() ([]byte, error) {
	return json.Marshal([3]any{m.Column, m.Mutator, m.Value})
}

// Select reads columns of the rows that match. Result.Decode gives the rows.
func Select(table string, where Where, columns ...string) Op {
	return op("select", table, map[string]any{"where": where, "columns": columns})
}

// Insert makes a row that the rest of the transaction knows as Named(name).
func Insert(table string, row Row, name string) Op {
	m := map[string]any{"row": row}
	if name != "" {
		m["uuid-name"] = name
	}
	return op("insert", table, m)
}

// Update overwrites the given columns of the rows that match.
func Update(table string, where Where, row Row) Op {
	return op("update", table, map[string]any{"where": where, "row": row})
}

// Mutate changes the rows that match. Inserting into a map leaves keys that are
// there as they are (RFC 7047, 5.1): delete them first.
func Mutate(table string, where Where, mutations ...Mutation) Op {
	return op("mutate", table, map[string]any{"where": where, "mutations": mutations})
}

// Delete removes the rows that match. Rows of tables that are not roots go by
// themselves with the last reference to them.
func Delete(table string, where Where) Op {
	return op("delete", table, map[string]any{"where": where})
}

// Wait holds the transaction until the rows that match, cut down to columns, are
// exactly rows, for at most timeout milliseconds; 0 asks once. When it does not
// come to pass the transaction fails with ErrTimedOut and changes nothing.
func Wait(table string, where Where, columns []string, rows []Row, timeout int) Op {
	if rows == nil {
		rows = []Row{}
	}
	return op("wait", table, map[string]any{
		"where": where, "columns": columns, "until": "==", "rows": rows, "timeout": timeout,
	})
}

// Comment is written into the database's log with the transaction, where
// `ovsdb-tool show-log` shows it.
func Comment(text string) Op {
	return op("comment", "", map[string]any{"comment": text})
}

func op(kind, table string, members map[string]any) Op {
	return Op{kind: kind, table: table, members: members}
}

// MarshalJSON writes the wire form; members are in alphabetical order.
func (o Op) MarshalJSON() ([]byte, error) {
	m := make(map[string]any, len(o.members)+2)
	for k, v := range o.members {
		m[k] = v
	}
	m["op"] = o.kind
	if o.table != "" {
		m["table"] = o.table
	}
	return json.Marshal(m)
}

// Kind is the operation's name on the wire.
func (o Op) Kind() string { return o.kind }

// String is the wire form: stable, made for logs and golden files.
func (o Op) String() string {
	b, err := json.Marshal(o)
	if err != nil {
		return o.kind + " " + o.table + ": " + err.Error()
	}
	return string(b)
}

// Result is what one operation answered.
type Result struct {
	Count int             `json:"count"` // rows changed
	UUID  UUID            `json:"uuid"`  // of the inserted row
	Rows  json.RawMessage `json:"rows"`
}

// Decode reads the rows of a select into a pointer to a slice of structs whose
// json tags are column names.
func (r Result) Decode(rows any) error { return json.Unmarshal(r.Rows, rows) }
