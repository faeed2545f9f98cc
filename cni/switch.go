package cni

import (
	"context"
	"io"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
)

// Switch is the Open vSwitch that representors are plugged into.
type Switch interface {
	// CheckBridge is offload.ErrNoBridge when there is none of this name.
	CheckBridge(ctx context.Context, name string) error

	// Lookup finds the port of a representor, whosever it is; fs.ErrNotExist
	// when it is in no bridge.
	Lookup(ctx context.Context, representor string) (offload.Port, error)

	Plug(ctx context.Context, p offload.Port) error
	// Unplug takes a port of this owner away; none is success.
	Unplug(ctx context.Context, representor, owner string) error

	// Holders lists the ports with this iface-id, whosever they are.
	Holders(ctx context.Context, ifaceID string) ([]offload.Port, error)

	// Owned lists the ports with our mark.
	Owned(ctx context.Context) ([]offload.Port, error)
	Settings(ctx context.Context) (offload.Settings, error)

	// Installed returns when OVN has the flows of a representor's port in the switch.
	Installed(ctx context.Context, representor string) error

	io.Closer
}

// OpenSwitch connects with the Open vSwitch whose database is at endpoint.
func OpenSwitch(ctx context.Context, endpoint string) (Switch, error) {
	c, err := ovsdb.Connect(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	return vswitch{c}, nil
}

type vswitch struct{ c *ovsdb.Client }

func (v vswitch) CheckBridge(ctx context.Context, name string) error {
	return offload.CheckBridge(ctx, v.c, name)
}

func (v vswitch) Lookup(ctx context.Context, representor string) (offload.Port, error) {
	return offload.Lookup(ctx, v.c, representor)
}

func (v vswitch) Plug(ctx context.Context, p offload.Port) error { return offload.Plug(ctx, v.c, p) }

func (v vswitch) Unplug(ctx context.Context, representor, owner string) error {
	return offload.Unplug(ctx, v.c, representor, owner)
}

func (v vswitch) Holders(ctx context.Context, ifaceID string) ([]offload.Port, error) {
	return offload.Holders(ctx, v.c, ifaceID)
}

func (v vswitch) Owned(ctx context.Context) ([]offload.Port, error) { return offload.Owned(ctx, v.c) }

func (v vswitch) Settings(ctx context.Context) (offload.Settings, error) {
	return offload.ReadSettings(ctx, v.c)
}

func (v vswitch) Close() error { return v.c.Close() }

// External ids of the Interface row, as ovn-kubernetes writes them for a
// hardware port (go-controller/pkg/cni/helper_linux.go, ConfigureOVS):
// ovn-controller binds by iface-id and takes iface-id-ver for the pod's
// generation.
const (
	idAddresses = "ip_addresses"
	idIface     = "iface-id"
	idIfaceVer  = "iface-id-ver"
	idMAC       = "attached_mac"
	idSandbox   = "sandbox"
	idPodIf     = "pod-if-name"
	idVFNetdev  = "vf-netdev-name"
)

// port is the wanted port of an attachment, its addresses not known yet. have is
// the MAC of the VF's netdev where the configuration does not want one.
func port(c Config, r *record.Record, have nic.MAC) offload.Port {
	mac := c.MAC
	if mac.IsZero() {
		mac = have
	}
	ids := map[string]string{idSandbox: r.Container, idPodIf: r.IfName}
	if !mac.IsZero() {
		ids[idMAC] = mac.String()
	}
	if r.Before.Name != "" {
		ids[idVFNetdev] = r.Before.Name
	}
	if c.IfaceID != "" {
		ids[idIface] = c.IfaceID
	}
	if c.Pod.UID != "" {
		ids[idIfaceVer] = c.Pod.UID
	}
	return offload.Port{
		Bridge: c.Bridge, Representor: r.Representor, VLAN: c.VLAN, Trunk: c.Trunk, Owner: r.Token(), ExternalIDs: ids,
	}
}
