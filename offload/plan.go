package offload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/ovsdb"
)

// errStale says that what was read does not fit together: the rows changed
// between two reads.
var errStale = errors.New("stale")

// plugOps decides what to write so that the rows become p: nothing if they are
// that already. The transaction begins with waits that hold only while the rows
// are still those that were read; when another writer came in between it times
// out at once and is decided anew.
func plugOps(p Port, r rows) ([]ovsdb.Op, error) {
	bridge, err := findBridge(p.Bridge, r.bridges)
	if err != nil {
		return nil, err
	}
	for _, i := range r.sharers {
		if i.Name != p.Representor {
			return nil, fmt.Errorf("iface-id %q: interface %s %w already: want one at a time", p.ExternalIDs[idIface], i.Name, ErrSamePort)
		}
	}
	switch {
	case r.port == nil && r.iface == nil:
		return insertOps(p, bridge), nil
	case r.port == nil && r.holder == "": // whoever had the interface is gone by now
		return nil, errStale
	case r.port == nil:
		return nil, fmt.Errorf("interface %s is in port %s already, which is %w", p.Representor, r.holder, ErrForeign)
	}
	if err := ours(p.Owner, r); err != nil {
		return nil, err
	}
	return changeOps(p, r, bridge), nil
}

func findBridge(name string, bridges []ovsdb.Bridge) (ovsdb.Bridge, error) {
	var names []string
	for _, b := range bridges {
		if b.Name == name {
			return b, nil
		}
		names = append(names, b.Name)
	}
	slices.Sort(names)
	there := "there is none"
	if len(names) > 0 {
		there = "there are " + strings.Join(names, ", ")
	}
	return ovsdb.Bridge{}, fmt.Errorf("%w %q in Open vSwitch: %s", ErrNoBridge, name, there)
}

func ours(owner string, r rows) error {
	where := ""
	if r.bridge != nil {
		where = " in bridge " + r.bridge.Name
	}
	switch mark, ok := r.port.ExternalIDs[OwnerKey]; {
	case !ok:
		return fmt.Errorf("port %s%s is %w: it has no external_ids:%s", r.port.Name, where, ErrForeign, OwnerKey)
	case mark != owner:
		return fmt.Errorf("port %s%s is %w: it belongs to %q, we are %q", r.port.Name, where, ErrForeign, mark, owner)
	}
	return nil
}

func insertOps(p Port, bridge ovsdb.Bridge) []ovsdb.Op {
	port := ovsdb.Row{
		"name": p.Representor, "interfaces": ovsdb.Named("interface"),
		"external_ids": ovsdb.Map{OwnerKey: p.Owner},
	}
	if p.VLAN != 0 {
		port["tag"] = int(p.VLAN)
	}
	if p.Trunk != nil {
		maps.Copy(port, p.vlanRow())
	}
	ops := []ovsdb.Op{
		still(ovsdb.TableBridge, ovsdb.Is("_uuid", bridge.UUID), ovsdb.Row{"name": bridge.Name}),
		still(ovsdb.TablePort, ovsdb.Is("name", p.Representor), nil),
		still(ovsdb.TableInterface, ovsdb.Is("name", p.Representor), nil),
	}
	return append(append(ops, alone(p)...),
		ovsdb.Insert(ovsdb.TableInterface, ovsdb.Row{"name": p.Representor, "external_ids": ovsdb.Map(p.ExternalIDs)}, "interface"),
		ovsdb.Insert(ovsdb.TablePort, port, "port"),
		ovsdb.Mutate(ovsdb.TableBridge, ovsdb.Is("_uuid", bridge.UUID),
			ovsdb.Mutation{Column: "ports", Mutator: "insert", Value: ovsdb.Named("port")}),
	)
}

// alone holds while no other interface has p's iface-id: two plugs of one at once
// cannot both see that there is none.
func alone(p Port) []ovsdb.Op {
	id := p.ExternalIDs[idIface]
	if id == "" {
		return nil
	}
	others := append(withIface(id), ovsdb.Condition{Column: "name", Function: "!=", Value: p.Representor})
	return []ovsdb.Op{still(ovsdb.TableInterface, others, nil)}
}

// changeOps brings a row of ours to p. Keys in the Interface's external_ids that
// p does not name stay: ovn-controller writes ovn-installed there. Of another logical
// port, or generation of it, that says nothing: it goes.
func changeOps(p Port, r rows, bridge ovsdb.Bridge) []ovsdb.Op {
	now := r.asPort()
	port := ovsdb.Is("_uuid", r.port.UUID)
	var ops []ovsdb.Op
	switch {
	case !slices.Equal(now.Trunk, p.Trunk) || (now.Trunk == nil) != (p.Trunk == nil) || p.Trunk != nil && now.VLAN != p.VLAN:
		ops = append(ops, ovsdb.Update(ovsdb.TablePort, port, p.vlanRow()))
	case now.VLAN != p.VLAN:
		ops = append(ops, ovsdb.Update(ovsdb.TablePort, port, ovsdb.Row{"tag": p.vlanRow()["tag"]}))
	}
	if now.Bridge != p.Bridge {
		ops = append(ops,
			ovsdb.Mutate(ovsdb.TableBridge, ovsdb.Includes("ports", r.port.UUID),
				ovsdb.Mutation{Column: "ports", Mutator: "delete", Value: r.port.UUID}),
			ovsdb.Mutate(ovsdb.TableBridge, ovsdb.Is("_uuid", bridge.UUID),
				ovsdb.Mutation{Column: "ports", Mutator: "insert", Value: r.port.UUID}))
	}
	var stale ovsdb.Set[string]
	fresh := ovsdb.Map{}
	for _, k := range slices.Sorted(maps.Keys(p.ExternalIDs)) {
		if v, ok := now.ExternalIDs[k]; !ok || v != p.ExternalIDs[k] {
			stale = append(stale, k)
			fresh[k] = p.ExternalIDs[k]
		}
	}
	if len(fresh) > 0 {
		if slices.Contains(stale, idIface) || slices.Contains(stale, idIface+"-ver") {
			stale = append(stale, idsInstalled()...)
		}
		ops = append(ops, ovsdb.Mutate(ovsdb.TableInterface, ovsdb.Is("name", p.Representor),
			ovsdb.Mutation{Column: "external_ids", Mutator: "delete", Value: stale},
			ovsdb.Mutation{Column: "external_ids", Mutator: "insert", Value: fresh}))
	}
	if len(ops) == 0 {
		return nil
	}
	return slices.Concat([]ovsdb.Op{
		still(ovsdb.TableBridge, ovsdb.Is("_uuid", bridge.UUID), ovsdb.Row{"name": bridge.Name}),
		unchanged(r.port),
	}, alone(p), ops)
}

// unplugOps takes the port out of its bridge; Port and Interface go with the
// last reference (RFC 7047, 3.2: tables that are not roots).
func unplugOps(r rows) []ovsdb.Op {
	return []ovsdb.Op{
		unchanged(r.port),
		ovsdb.Mutate(ovsdb.TableBridge, ovsdb.Includes("ports", r.port.UUID),
			ovsdb.Mutation{Column: "ports", Mutator: "delete", Value: r.port.UUID}),
	}
}

// unchanged holds while the port is the row that was read, with the owner that
// was read.
func unchanged(p *ovsdb.Port) ovsdb.Op {
	return still(ovsdb.TablePort, ovsdb.Is("_uuid", p.UUID), ovsdb.Row{"external_ids": p.ExternalIDs})
}

// still holds when exactly the row want matches, or with nil none, and otherwise
// fails the transaction at once.
func still(table string, where ovsdb.Where, want ovsdb.Row) ovsdb.Op {
	columns := []string{"name"}
	var rows []ovsdb.Row
	if want != nil {
		columns = slices.Sorted(maps.Keys(want))
		rows = []ovsdb.Row{want}
	}
	return ovsdb.Wait(table, where, columns, rows, 0)
}
