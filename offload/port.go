package offload

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/ovsdb"
)

// OwnerKey is the key in Port external_ids under which a port's owner stands.
const OwnerKey = "sluice-owner"

// What a caller may want to tell apart, with errors.Is.
var (
	// ErrNoBridge: Open vSwitch has no bridge of that name.
	ErrNoBridge = errors.New("no such bridge")

	// ErrForeign: a port of that name is there and belongs to somebody else.
	ErrForeign = errors.New("not ours")

	// ErrSamePort: another interface has the logical port (iface-id). ovn-controller
	// would bind it to the one and the other in turn (ovn: controller/binding.c).
	ErrSamePort = errors.New("has that logical port")

	// ErrNotTaken: ovs-vswitchd did not or could not use the netdev.
	ErrNotTaken = errors.New("not taken by ovs-vswitchd")
)

// Port is a representor in a bridge.
type Port struct {
	Bridge      string `json:"bridge"`
	Representor string `json:"representor"`    // netdev name; also the name of Port and Interface
	VLAN        uint16 `json:"vlan,omitempty"` // access VLAN 1 to 4094; 0: none. With Trunk the native one
	Owner       string `json:"owner"`          // Port external_ids:sluice-owner; "" for a port of somebody else

	// Trunk are the VLANs, 1 to 4094 and in order, that pass with their tags; nil: it is
	// no trunk. Without VLAN no frame without a tag passes.
	Trunk []uint16 `json:"trunk,omitempty"`

	// ExternalIDs are those of the Interface, where OVN looks for iface-id and
	// its like.
	ExternalIDs map[string]string `json:"externalIDs,omitempty"`
}

func (p Port) String() string {
	s := fmt.Sprintf("%s in bridge %s", p.Representor, p.Bridge)
	if p.VLAN != 0 {
		s += fmt.Sprintf(" vlan %d", p.VLAN)
	}
	if p.Trunk != nil {
		s += " trunk " + Ranges(p.Trunk)
	}
	return s
}

// Ranges writes VLANs that are in order as people do: 10,20-29.
func Ranges(vlans []uint16) string {
	var out []string
	for i := 0; i < len(vlans); {
		j := i
		for j+1 < len(vlans) && vlans[j+1] == vlans[j]+1 {
			j++
		}
		if i == j {
			out = append(out, fmt.Sprint(vlans[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", vlans[i], vlans[j]))
		}
		i = j + 1
	}
	return strings.Join(out, ",")
}

// vlanRow is what of a Port's columns is about VLANs (ovs-vswitchd.conf.db(5)). A plain
// port has none of them, and an access port the tag alone: so they have been made since
// there is such a thing, and nothing is to be changed of those that there are.
func (p Port) vlanRow() ovsdb.Row {
	row := ovsdb.Row{"tag": ovsdb.Set[int]{}, "trunks": ovsdb.Set[int]{}, "vlan_mode": ovsdb.Set[string]{}}
	if p.VLAN != 0 {
		row["tag"] = ovsdb.Set[int]{int(p.VLAN)}
	}
	if p.Trunk == nil {
		return row
	}
	trunks := ovsdb.Set[int]{}
	for _, v := range p.Trunk {
		trunks = append(trunks, int(v))
	}
	row["trunks"], row["vlan_mode"] = trunks, ovsdb.Set[string]{vlanTrunk}
	if p.VLAN != 0 {
		row["vlan_mode"] = ovsdb.Set[string]{vlanNative}
	}
	return row
}

// Values of a Port's vlan_mode. What comes in without a tag at a native-untagged port is in
// the native VLAN, and leaves without one.
const (
	vlanTrunk  = "trunk"
	vlanNative = "native-untagged"
)

// check refuses what the database would take and the switch not, or what would
// make a row that cannot be found again.
func (p Port) check() error {
	switch {
	case p.Representor == "" || len(p.Representor) > 15 || strings.ContainsAny(p.Representor, "/ \t\n"):
		return fmt.Errorf("representor %q: want the name of a network interface, 1 to 15 bytes", p.Representor)
	case p.Bridge == "":
		return fmt.Errorf("port %s: no bridge is named", p.Representor)
	case p.Owner == "":
		return fmt.Errorf("port %s: no owner is named", p.Representor)
	case p.VLAN > 4094:
		return fmt.Errorf("port %s: vlan %d: want 1 to 4094, or 0 for none", p.Representor, p.VLAN)
	case p.Trunk != nil && (len(p.Trunk) == 0 || p.Trunk[0] < 1 || p.Trunk[len(p.Trunk)-1] > 4094 || !slices.IsSorted(p.Trunk)):
		return fmt.Errorf("port %s: trunk %v: want VLANs from 1 to 4094, in order", p.Representor, p.Trunk)
	}
	return nil
}
