package policy

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// The policies for addresses and GUIDs.
const (
	stable = "stable"
	driver = "driver"
)

// StableMAC derives VF i's address from what does not change with slot, boot or
// mode: the card's serial number (its uplink's address where it has none), the
// PCI function and the index. It is a locally administered unicast address.
func StableMAC(pf nic.PF, i int) nic.MAC { return nic.MAC(derive("vf mac", pf, i, len(nic.MAC{}))) }

// StableSFMAC is StableMAC for the SF of that number.
func StableSFMAC(pf nic.PF, num int) nic.MAC {
	return nic.MAC(derive("sf mac", pf, num, len(nic.MAC{})))
}

// StableGUID derives VF i's GUID in the same way: a local EUI-64, as
// nic.NodeGUID and nic.PortGUID have it. It is never zero.
func StableGUID(pf nic.PF, i int) string {
	return strings.ReplaceAll(fmt.Sprintf("% x", derive("vf guid", pf, i, 8)), " ", ":")
}

// derive makes size octets of what the function is, of a local individual address.
func derive(what string, pf nic.PF, i, size int) []byte {
	function := pf.Handle.Name[strings.LastIndexByte(pf.Handle.Name, '.')+1:]
	sum := sha256.Sum256(fmt.Appendf(nil, "sluice %s/%s/%s/%d", what, cardOf(pf), function, i))
	sum[0] = sum[0]&^1 | 2
	return sum[:size]
}

// cardOf is what tells the card from others, "" if the PF tells nothing.
func cardOf(pf nic.PF) string {
	if pf.Serial != "" || pf.Uplink.MAC.IsZero() {
		return pf.Serial
	}
	return pf.Uplink.MAC.String()
}
