package ovn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/ovsdb"
)

// turns is how often what other writers were faster at is decided anew.
const turns = 8

// Read reads the rows of the tables that sluice writes, whosever they are, in one
// transaction.
func Read(ctx context.Context, c *ovsdb.Client) ([]Have, error) {
	tables := order()
	ops := make([]ovsdb.Op, len(tables))
	for i, name := range tables {
		ops[i] = ovsdb.Select(name, ovsdb.All(), schema()[name].columns()...)
	}
	out, err := c.TransactIn(ctx, Database, ops...)
	if err != nil {
		return nil, fmt.Errorf("read OVN's northbound: %w", err)
	}
	var all []Have
	for i, name := range tables {
		var rows []map[string]json.RawMessage
		if err := out[i].Decode(&rows); err != nil {
			return nil, fmt.Errorf("read table %s: %w", name, err)
		}
		for _, raw := range rows {
			h := Have{Table: name, Raw: raw}
			if err := errors.Join(json.Unmarshal(raw["_uuid"], &h.UUID), json.Unmarshal(raw["external_ids"], &h.IDs)); err != nil {
				return nil, fmt.Errorf("read table %s: %w", name, err)
			}
			all = append(all, h)
		}
	}
	return all, nil
}

// Apply brings the rows of ours to what is wanted, and answers the changes that it
// made. It writes nothing if they are that already. A name that is somebody else's is
// ErrForeign, and nothing is written. Networks named in keep stay as they are.
func Apply(ctx context.Context, c *ovsdb.Client, want []Row, keep ...string) ([]Change, error) {
	var done []Change
	for range turns {
		have, err := Read(ctx, c)
		if err != nil {
			return done, err
		}
		changes, err := Plan(want, have, keep...)
		if err != nil || len(changes) == 0 {
			return done, err
		}
		made, err := commit(ctx, c, changes, newState(have, keep))
		done = append(done, made...)
		if errors.Is(err, ovsdb.ErrTimedOut) || errors.Is(err, ovsdb.ErrConstraint) {
			continue // somebody else has written since
		}
		if err != nil {
			return done, err
		}
		if len(made) == len(changes) {
			return done, nil
		}
	}
	return done, fmt.Errorf("the rows changed each of the %d times that they were read", turns)
}

// commit writes the changes, group by group, in the order of the groups' names.
// Networks come before routers, whose ports they name by text.
func commit(ctx context.Context, c *ovsdb.Client, changes []Change, s *state) ([]Change, error) {
	groups := map[string][]Change{}
	var names []string
	for _, ch := range changes {
		if _, seen := groups[ch.Group]; !seen {
			names = append(names, ch.Group)
		}
		groups[ch.Group] = append(groups[ch.Group], ch)
	}
	slices.Sort(names)
	var done []Change
	for _, name := range names {
		ops := Ops(groups[name], s.rows, s.keep...)
		ops = append(ops, ovsdb.Comment("sluice: "+name))
		if _, err := c.TransactIn(ctx, Database, ops...); err != nil {
			return done, fmt.Errorf("write %s: %w", name, err)
		}
		done = append(done, groups[name]...)
	}
	return done, nil
}

// Ops is the transaction that makes the changes of one group. It begins with waits
// that hold only while the rows are still those that were read.
func Ops(changes []Change, have []Have, keep ...string) []ovsdb.Op {
	t := transaction{state: newState(have, keep), named: map[string]ovsdb.Named{}}
	for i, c := range changes {
		if c.Verb == "insert" {
			t.named[c.Table+" "+c.Key] = ovsdb.Named("r" + strconv.Itoa(i))
		}
	}
	for _, c := range changes {
		switch c.Verb {
		case "insert":
			t.insert(c)
		case "change":
			t.change(c)
		case "delete":
			t.remove(c)
		}
	}
	return append(t.waits, t.ops...)
}

type transaction struct {
	*state
	named map[string]ovsdb.Named // rows that it inserts
	waits []ovsdb.Op
	ops   []ovsdb.Op
}

// refs are references to rows of ours, to those that the transaction makes by name.
func (t *transaction) refs(table string, keys []string) ovsdb.Set[any] {
	out := ovsdb.Set[any]{}
	for _, key := range keys {
		if h := t.byKey[table+" "+key]; h != nil {
			out = append(out, h.UUID)
		} else if n, ok := t.named[table+" "+key]; ok {
			out = append(out, n)
		}
	}
	return out
}

func (t *transaction) insert(c Change) {
	row := ovsdb.Row{"external_ids": c.row.ids()}
	for column, v := range c.row.Columns {
		row[column] = v
	}
	for column, keys := range c.row.Refs {
		row[column] = t.refs(schema()[c.Table].refs[column], keys)
	}
	if name := c.row.name(); name != "" {
		t.waits = append(t.waits, ovsdb.Wait(c.Table, ovsdb.Is("name", name), []string{"name"}, nil, 0))
	}
	t.ops = append(t.ops, ovsdb.Insert(c.Table, row, string(t.named[c.Table+" "+c.Key])))
}

func (t *transaction) still(h Have) {
	t.waits = append(t.waits, ovsdb.Wait(h.Table, ovsdb.Is("_uuid", h.UUID), []string{"external_ids"}, []ovsdb.Row{{"external_ids": h.IDs}}, 0))
}

func (t *transaction) change(c Change) {
	t.still(c.have)
	where, row := ovsdb.Is("_uuid", c.have.UUID), ovsdb.Row{}
	for _, column := range c.Columns {
		target, isRef := schema()[c.Table].refs[column]
		switch {
		case column == "external_ids":
			var keys ovsdb.Set[string]
			for k := range c.row.ids() {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			t.ops = append(t.ops, ovsdb.Mutate(c.Table, where,
				ovsdb.Mutation{Column: column, Mutator: "delete", Value: keys},
				ovsdb.Mutation{Column: column, Mutator: "insert", Value: c.row.ids()}))
		case isRef && schema()[c.Table].single[column]:
			row[column] = t.refs(target, c.row.Refs[column])
		case isRef:
			t.move(c, column, target)
		default:
			row[column] = c.row.Columns[column]
		}
	}
	if len(row) > 0 {
		t.ops = append(t.ops, ovsdb.Update(c.Table, where, row))
	}
}

func (t *transaction) move(c Change, column, target string) {
	in, gone := t.moved(c.row, c.have, column)
	var how []ovsdb.Mutation
	if len(gone) > 0 {
		how = append(how, ovsdb.Mutation{Column: column, Mutator: "delete", Value: ovsdb.Set[ovsdb.UUID](gone)})
	}
	if refs := t.refs(target, in); len(refs) > 0 {
		how = append(how, ovsdb.Mutation{Column: column, Mutator: "insert", Value: refs})
	}
	if len(how) > 0 {
		t.ops = append(t.ops, ovsdb.Mutate(c.Table, ovsdb.Is("_uuid", c.have.UUID), how...))
	}
}

// remove takes away a row that stays by itself. One of another table goes with the
// last reference to it (RFC 7047, 3.2): those in rows of ours that stay are changes of
// their own, and a stranger's keeps it.
func (t *transaction) remove(c Change) {
	if schema()[c.Table].root {
		t.still(c.have)
		t.ops = append(t.ops, ovsdb.Delete(c.Table, ovsdb.Is("_uuid", c.have.UUID)))
	}
}

// Claims are the blocks that nodes have of a network, as its ports in the northbound
// say: what was read is a record of who has which address, where there is no other.
func Claims(n network.Network, have []Have) []network.Claim {
	blocks := map[int]string{}
	for _, h := range have {
		number, ours := strings.CutPrefix(h.key(), "port/"+n.Name+"/")
		slot, err := strconv.Atoi(number)
		if h.Table == tablePort && ours && err == nil && h.IDs[NodeKey] != "" {
			blocks[n.Block(network.Slot(slot))] = h.IDs[NodeKey]
		}
	}
	var out []network.Claim
	for _, b := range slices.Sorted(maps.Keys(blocks)) {
		out = append(out, network.Claim{Node: blocks[b], Block: b})
	}
	return out
}
