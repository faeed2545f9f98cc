package offload

import (
	"errors"
	"fmt"
	"strings"
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
	VLAN        uint16 `json:"vlan,omitempty"` // access VLAN 1 to 4094; 0: none
	Owner       string `json:"owner"`          // Port external_ids:sluice-owner; "" for a port of somebody else

	// ExternalIDs are those of the Interface, where OVN looks for iface-id and
	// its like.
	ExternalIDs map[string]string `json:"externalIDs,omitempty"`
}

func (p Port) String() string {
	s := fmt.Sprintf("%s in bridge %s", p.Representor, p.Bridge)
	if p.VLAN != 0 {
		s += fmt.Sprintf(" vlan %d", p.VLAN)
	}
	return s
}

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
	}
	return nil
}
