package devlink

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

const flavourSF = 7 // DEVLINK_PORT_FLAVOUR_PCI_SF

// AddSF makes the port of a new subfunction of the PF whose number is pf (the PCI
// function's), inactive, and returns it. mlx5 wants switchdev mode and an SF
// number that is free, and its port's netdev comes a moment later.
func (c *Client) AddSF(h nic.Handle, pf uint16, sf uint32) (Port, error) {
	out, err := c.family.Set(nl.DEVLINK_CMD_PORT_NEW, of(h, []*nl.RtAttr{
		netlink.Attr(nl.DEVLINK_ATTR_PORT_FLAVOUR, nl.Uint16Attr(flavourSF)),
		netlink.Attr(unix.DEVLINK_ATTR_PORT_PCI_PF_NUMBER, nl.Uint16Attr(pf)),
		netlink.Attr(unix.DEVLINK_ATTR_PORT_PCI_SF_NUMBER, nl.Uint32Attr(sf)),
	})...)
	if err != nil {
		return Port{}, err
	}
	if len(out) != 1 { // before Linux 5.13 the kernel did not say which port it made
		return Port{}, fmt.Errorf("%d answers to a new port", len(out))
	}
	return parsePort(out[0]), nil
}

// DelPort removes a port that was added.
func (c *Client) DelPort(h nic.Handle, index uint32) error {
	return c.set(nl.DEVLINK_CMD_PORT_DEL, h, portIndex(index))
}
