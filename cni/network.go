package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/network/slots"
)

// ownIPAM is the IPAM plugin of networks of our own. It is no program: addresses are
// this node's already.
const ownIPAM = "sluice"

// ovnBridge is where OVN has its ports (ovn-controller(8), ovn-bridge).
const ovnBridge = "br-int"

// join takes a slot of the Network that the configuration names, and makes what goes
// with it part of the configuration: MAC address, logical port, MTU, DNS. Without a
// Network it does nothing. What was taken is given back by leave.
func (c *Config) join(args *skel.CmdArgs) error {
	if c.Logical == "" {
		return nil
	}
	g, slot, err := slots.Open(c.StateDir).Take(c.Logical, slotOwner(args.ContainerID, args.IfName))
	switch {
	case errors.Is(err, slots.ErrFull):
		return coded(types.ErrTryAgainLater, "network = %q: %w", c.Logical, err)
	case errors.Is(err, fs.ErrNotExist):
		return coded(types.ErrInvalidNetworkConfig, "network = %q: %w", c.Logical, err)
	case err != nil:
		return coded(types.ErrIOFailure, "network = %q: %w", c.Logical, err)
	}
	n := g.Network
	c.MAC, c.IfaceID, c.MTU = n.MAC(slot), n.PortName(slot), cmp.Or(n.MTU, c.MTU)
	if c.With != "" {
		return nil // names are resolved as the first interface has it
	}
	for _, s := range n.DNS.Servers {
		c.DNS.Nameservers = append(c.DNS.Nameservers, s.String())
	}
	c.DNS.Search = append(c.DNS.Search, n.DNS.Search...)
	return nil
}

// leave gives back whatever an interface has of any network.
func leave(stateDir, container, ifname string) error {
	s := slots.Open(stateDir)
	names, err := s.Names()
	for _, name := range names {
		err = errors.Join(err, s.Give(name, slotOwner(container, ifname)))
	}
	return err
}

func slotOwner(container, ifname string) string { return container + "/" + ifname }

// ofNetwork reads what a call to our own IPAM is about.
func (c Call) ofNetwork() (s slots.Store, name, owner string, err error) {
	var in struct {
		Network  string `json:"network"`
		StateDir string `json:"stateDir"`
	}
	if err := json.Unmarshal(c.Config, &in); err != nil {
		return s, "", "", err
	}
	return slots.Open(cmp.Or(in.StateDir, DefaultStateDir)), in.Network, slotOwner(c.Container, c.IfName), nil
}

// lease answers addresses and routes of the slot that the interface has.
func (c Call) lease() (*current.Result, error) {
	s, name, owner, err := c.ofNetwork()
	if err != nil {
		return nil, err
	}
	g, slot, err := s.Take(name, owner)
	if err != nil {
		return nil, err
	}
	out := &current.Result{CNIVersion: current.ImplementedSpecVersion}
	for i, a := range g.Network.Addresses(slot) {
		ip := &current.IPConfig{Address: ipNet(a)}
		if gw := g.Network.Gateway(g.Network.Subnets[i], g.Block); gw.IsValid() {
			ip.Gateway = gw.AsSlice()
			all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			if gw.Is4() {
				all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			}
			out.Routes = append(out.Routes, &types.Route{Dst: ipNet(all), GW: gw.AsSlice()})
		}
		out.IPs = append(out.IPs, ip)
	}
	return out, nil
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// release gives back what the interface has of all networks: the configuration may
// have been edited since.
func (c Call) release() error {
	var in struct {
		StateDir string `json:"stateDir"`
	}
	if err := json.Unmarshal(c.Config, &in); err != nil {
		return err
	}
	return leave(cmp.Or(in.StateDir, DefaultStateDir), c.Container, c.IfName)
}

// held says whether the interface has its slot still.
func (c Call) held() error {
	s, name, owner, err := c.ofNetwork()
	if err != nil {
		return err
	}
	leases, err := s.Leases(name)
	if err == nil && !slices.ContainsFunc(leases, func(l slots.Lease) bool { return l.Owner == owner }) {
		err = fmt.Errorf("network %s: its address is not taken by it: %w", name, fs.ErrNotExist)
	}
	return err
}

// granted says whether the node has a part of the network.
func (c Call) granted() error {
	s, name, _, err := c.ofNetwork()
	if err != nil {
		return err
	}
	_, err = s.Get(name)
	return err
}

// takenAt is how old a slot is before a sweep may give it back: an ADD takes it before
// it writes its record, and ends by then.
const takenAt = 5 * time.Minute

// sweepSlots gives back slots of interfaces that are neither among the valid ones nor
// recorded: those of other configurations with the same Network are the latter.
func (c Call) sweepSlots() error {
	s, name, _, err := c.ofNetwork()
	if err != nil {
		return err
	}
	var in struct {
		StateDir string `json:"stateDir"`
	}
	if err := json.Unmarshal(c.Config, &in); err != nil {
		return err
	}
	records := record.In(cmp.Or(in.StateDir, DefaultStateDir))
	valid, err := validAttachments(name, c.Config)
	if err != nil {
		return err
	}
	leases, err := s.Leases(name)
	for _, l := range leases {
		container, ifname, _ := strings.Cut(l.Owner, "/")
		known, look := records.Find(container, ifname)
		if look != nil || len(known) > 0 || time.Since(l.Taken) < takenAt {
			err = errors.Join(err, look)
			continue
		}
		if !slices.ContainsFunc(valid, func(a types.GCAttachment) bool { return slotOwner(a.ContainerID, a.IfName) == l.Owner }) {
			err = errors.Join(err, s.Give(name, l.Owner))
		}
	}
	return err
}

// networkName checks that a Network's name can be one.
func networkName(s string) bool {
	_, err := slots.Open("/").Get(s)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// joinable refuses beside a Network what follows from it.
func (c *Config) joinable(where string) error {
	if c.Logical == "" {
		return nil
	}
	c.Bridge = cmp.Or(c.Bridge, ovnBridge)
	for _, x := range []struct {
		name  string
		given bool
	}{{"ipam", c.IPAM != ""}, {"vlan", c.VLAN != 0}, {"trunk", c.Trunk != nil}, {"mac", !c.MAC.IsZero()}, {"ifaceID", c.IfaceID != ""}} {
		if x.given {
			return coded(types.ErrInvalidNetworkConfig, "%s: %s beside network = %q: it follows from the Network, want it away", where, x.name, c.Logical)
		}
	}
	c.IPAM = ownIPAM
	return nil
}

// Installed waits for OVN to have the flows of a representor's port in the switch.
func (v vswitch) Installed(ctx context.Context, representor string) error {
	return offload.AwaitInstalled(ctx, v.c, representor)
}

// runOwn is a command to our own IPAM but ADD.
func (c Call) runOwn(command string) error {
	switch command {
	case "DEL":
		return c.release()
	case "CHECK":
		return c.held()
	case "GC":
		return c.sweepSlots()
	case "STATUS":
		return c.granted()
	}
	return fmt.Errorf("no command %q of our own IPAM", command)
}
