package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"sluice.dev/sluice/pkg/host"
)

// IPAM gives addresses to interfaces.
type IPAM interface {
	// Find says whether the plugin is there, before anything is begun.
	Find(c Call) error
	Add(ctx context.Context, c Call) (*current.Result, error)
	// Del gives back whatever the interface has; nothing is success.
	Del(ctx context.Context, c Call) error
	Check(ctx context.Context, c Call) error
	// GC and Status are of the whole network, and nothing of plugins that do not know
	// them.
	GC(ctx context.Context, c Call) error
	Status(ctx context.Context, c Call) error
}

// Call is what an IPAM plugin is called with.
type Call struct {
	Plugin    string
	Config    []byte // the whole network configuration
	Container string
	Netns     string
	IfName    string
	Args      string // CNI_ARGS
	Path      string // CNI_PATH
}

// Delegate runs IPAM plugins as the specification says: by name from CNI_PATH,
// with our own configuration and parameters.
type Delegate struct{}

// Find looks through CNI_PATH.
func (Delegate) Find(c Call) error {
	if c.Plugin == ownIPAM {
		return nil
	}
	_, err := c.find()
	return err
}

// Add is the plugin's ADD.
func (Delegate) Add(ctx context.Context, c Call) (*current.Result, error) {
	if c.Plugin == ownIPAM {
		return c.lease()
	}
	path, err := c.find()
	if err != nil {
		return nil, err
	}
	r, err := invoke.ExecPluginWithResult(ctx, path, c.Config, c.as("ADD"), nil)
	if err != nil {
		return nil, c.failed(err)
	}
	out, err := current.NewResultFromResult(r)
	if err != nil {
		return nil, c.failed(err)
	}
	return out, nil
}

// Del is the plugin's DEL.
func (Delegate) Del(ctx context.Context, c Call) error { return c.run(ctx, "DEL") }

// Check is the plugin's CHECK.
func (Delegate) Check(ctx context.Context, c Call) error { return c.run(ctx, "CHECK") }

// GC is the plugin's GC.
func (Delegate) GC(ctx context.Context, c Call) error { return c.runNew(ctx, "GC") }

// Status is the plugin's STATUS.
func (Delegate) Status(ctx context.Context, c Call) error { return c.runNew(ctx, "STATUS") }

// runNew runs a command that came with version 1.1. A plugin that is older says that
// it does not know it (pkg/skel of the reference library), and has nothing to do.
func (c Call) runNew(ctx context.Context, command string) error {
	err := c.run(ctx, command)
	if e := new(types.Error); errors.As(err, &e) && e.Code == types.ErrInvalidEnvironmentVariables {
		return nil
	}
	return err
}

func (c Call) run(ctx context.Context, command string) error {
	if c.Plugin == ownIPAM {
		return c.runOwn(command)
	}
	path, err := c.find()
	if err != nil {
		return err
	}
	if err := invoke.ExecPluginWithoutResult(ctx, path, c.Config, c.as(command), nil); err != nil {
		return c.failed(err)
	}
	return nil
}

func (c Call) find() (string, error) {
	path, err := invoke.FindInPath(c.Plugin, filepath.SplitList(c.Path))
	if err != nil {
		return "", coded(types.ErrInvalidNetworkConfig, "ipam.type = %q: no such plugin in CNI_PATH %q", c.Plugin, c.Path)
	}
	return path, nil
}

func (c Call) as(command string) *invoke.Args {
	return &invoke.Args{
		Command: command, ContainerID: c.Container, NetNS: c.Netns,
		IfName: c.IfName, Path: c.Path, PluginArgsStr: c.Args,
	}
}

func (c Call) failed(err error) error { return fmt.Errorf("IPAM plugin %s: %w", c.Plugin, err) }

// addressing reads an IPAM plugin's answer. A route without a gateway goes
// through that of the first address of its family that has one, as the
// reference plugins have it.
func addressing(plugin string, r *current.Result) (*Addressing, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("IPAM plugin %s: its result has "+format, append([]any{plugin}, args...)...)
	}
	if len(r.IPs) == 0 {
		return nil, bad("no address")
	}
	var out Addressing
	var gateway4, gateway6 netip.Addr
	for _, ip := range r.IPs {
		a, ok := prefix(ip.Address)
		if !ok {
			return nil, bad("address %s: want an address with prefix length", ip.Address.String())
		}
		out.Addresses = append(out.Addresses, a)
		g, ok := netip.AddrFromSlice(ip.Gateway)
		switch g = g.Unmap(); {
		case !ok:
		case g.Is4() && !gateway4.IsValid():
			gateway4 = g
		case g.Is6() && !gateway6.IsValid():
			gateway6 = g
		}
	}
	for _, r := range r.Routes {
		dst, ok := prefix(r.Dst)
		if !ok {
			return nil, bad("route to %s: want a network with prefix length", r.Dst.String())
		}
		if r.Scope != nil {
			return nil, bad("route to %s with scope %d: scopes are not supported", dst, *r.Scope)
		}
		route := host.Route{Dst: dst.Masked(), MTU: r.MTU, AdvMSS: r.AdvMSS, Priority: r.Priority}
		if r.Table != nil {
			route.Table = *r.Table
		}
		switch g, ok := netip.AddrFromSlice(r.GW); {
		case ok:
			route.Gateway = g.Unmap()
		case dst.Addr().Is4():
			route.Gateway = gateway4
		default:
			route.Gateway = gateway6
		}
		out.Routes = append(out.Routes, route)
	}
	return &out, nil
}

// prefix converts an address with its mask, unmasked.
func prefix(n net.IPNet) (netip.Prefix, bool) {
	a, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if !ok || size == 0 {
		return netip.Prefix{}, false
	}
	a = a.Unmap()
	if a.Is4() && size == 128 {
		bits -= 96
	}
	p := netip.PrefixFrom(a, bits)
	return p, p.IsValid()
}
