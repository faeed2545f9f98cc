package offload

import (
	"context"
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/ovsdb"
)

// rows is what the database holds about a representor and about the bridges.
type rows struct {
	bridges []ovsdb.Bridge
	port    *ovsdb.Port       // of the representor's name
	iface   *ovsdb.Interface  // of the representor's name
	bridge  *ovsdb.Bridge     // that has port
	holder  string            // name of the port that has iface, if that is another
	sharers []ovsdb.Interface // with the iface-id that was asked about
}

// idIface is the key in an Interface's external_ids that OVN finds its logical port by
// (ovn-controller(8)), idsInstalled those that ovn-controller writes when it has the
// port's flows in the switch.
const idIface = "iface-id"

func idsInstalled() []string { return []string{"ovn-installed", "ovn-installed-ts"} }

func withIface(id string) ovsdb.Where {
	return ovsdb.Includes("external_ids", ovsdb.Map{idIface: id})
}

// read takes two transactions at most: the second one follows references, so it
// is not needed when there is no such port yet.
func read(ctx context.Context, c *ovsdb.Client, representor string) (rows, error) {
	return readWith(ctx, c, representor, "")
}

// readWith also reads which interfaces have an iface-id, "" for none.
func readWith(ctx context.Context, c *ovsdb.Client, representor, ifaceID string) (rows, error) {
	var r rows
	ops := []ovsdb.Op{
		ovsdb.Select(ovsdb.TableBridge, ovsdb.All(), ovsdb.BridgeColumns()...),
		ovsdb.Select(ovsdb.TablePort, ovsdb.Is("name", representor), ovsdb.PortColumns()...),
		ovsdb.Select(ovsdb.TableInterface, ovsdb.Is("name", representor), ovsdb.InterfaceColumns()...),
	}
	if ifaceID != "" {
		ops = append(ops, ovsdb.Select(ovsdb.TableInterface, withIface(ifaceID), ovsdb.InterfaceColumns()...))
	}
	out, err := c.Transact(ctx, ops...)
	if err != nil {
		return r, err
	}
	if ifaceID != "" {
		if err := out[3].Decode(&r.sharers); err != nil {
			return r, fmt.Errorf("read table Interface: %w", err)
		}
	}
	if err := out[0].Decode(&r.bridges); err != nil {
		return r, fmt.Errorf("read table Bridge: %w", err)
	}
	if r.port, err = first[ovsdb.Port](out[1], ovsdb.TablePort); err != nil {
		return r, err
	}
	if r.iface, err = first[ovsdb.Interface](out[2], ovsdb.TableInterface); err != nil {
		return r, err
	}
	var follow []ovsdb.Op
	switch {
	case r.port != nil:
		follow = append(follow, ovsdb.Select(ovsdb.TableBridge, ovsdb.Includes("ports", r.port.UUID), ovsdb.BridgeColumns()...))
	case r.iface != nil:
		follow = append(follow, ovsdb.Select(ovsdb.TablePort, ovsdb.Includes("interfaces", r.iface.UUID), ovsdb.PortColumns()...))
	default:
		return r, nil
	}
	if out, err = c.Transact(ctx, follow...); err != nil {
		return r, err
	}
	if r.port != nil {
		r.bridge, err = first[ovsdb.Bridge](out[0], ovsdb.TableBridge)
		return r, err
	}
	holder, err := first[ovsdb.Port](out[0], ovsdb.TablePort)
	if holder != nil {
		r.holder = holder.Name
	}
	return r, err
}

func first[T any](r ovsdb.Result, table string) (*T, error) {
	var all []T
	if err := r.Decode(&all); err != nil {
		return nil, fmt.Errorf("read table %s: %w", table, err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return &all[0], nil
}

// asPort says what the rows are in our terms; port must be there.
func (r rows) asPort() Port {
	p := Port{Representor: r.port.Name, Owner: r.port.ExternalIDs[OwnerKey]}
	if r.bridge != nil {
		p.Bridge = r.bridge.Name
	}
	if tag, ok := r.port.Tag.One(); ok {
		p.VLAN = uint16(tag)
	}
	if mode, _ := r.port.VLANMode.One(); mode == vlanTrunk || mode == vlanNative {
		p.Trunk = []uint16{} // of a trunk of all VLANs, which we make none of
		for _, v := range r.port.Trunks {
			p.Trunk = append(p.Trunk, uint16(v))
		}
		slices.Sort(p.Trunk)
	}
	if r.iface != nil && len(r.iface.ExternalIDs) > 0 {
		p.ExternalIDs = r.iface.ExternalIDs
	}
	return p
}

// taken says that ovs-vswitchd uses the netdev.
func (r rows) taken() bool {
	if r.iface == nil {
		return false
	}
	n, ok := r.iface.Ofport.One()
	return ok && n > 0
}
