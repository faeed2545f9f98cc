package linux

import (
	"context"
	"io/fs"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// What the seam has and this machine not yet.

func (p pciFunctions) Function(ctx context.Context, address string) (host.Function, error) {
	all, err := p.Functions(ctx)
	for _, f := range all {
		if f.Address == address {
			return f, nil
		}
	}
	if err != nil {
		return host.Function{}, err
	}
	return host.Function{}, host.Fail("read function", address, fs.ErrNotExist, "")
}

func (p pciFunctions) SFs(context.Context) ([]host.SFDevice, error) { return nil, nil }

func (e eswitches) Port(ctx context.Context, h nic.Handle, index uint32) (host.DevlinkPort, error) {
	all, err := e.Ports(ctx)
	for _, p := range all {
		if p.Handle == h && p.Index == index {
			return p, nil
		}
	}
	if err != nil {
		return host.DevlinkPort{}, err
	}
	return host.DevlinkPort{}, host.Fail("read port", h.String(), fs.ErrNotExist, "")
}

func (e eswitches) AddSF(_ context.Context, h nic.Handle, _ int) error {
	return host.Fail("add SF", h.String(), unix.EOPNOTSUPP, "")
}

func (e eswitches) DelSF(_ context.Context, h nic.Handle, _ uint32) error {
	return host.Fail("remove SF", h.String(), unix.EOPNOTSUPP, "")
}

func (e eswitches) SetSFActive(_ context.Context, h nic.Handle, _ uint32, _ bool) error {
	return host.Fail("activate SF", h.String(), unix.EOPNOTSUPP, "")
}

func (l *links) Uses(context.Context) ([]host.Use, error) { return nil, nil }

func (l *links) RouteTo(_ context.Context, a netip.Addr) (int, error) {
	return 0, host.Fail("look up route", a.String(), unix.EOPNOTSUPP, "")
}

func (r rdma) System(context.Context) (nic.RDMA, error) { return nic.RDMA{}, nil }

func (r rdma) SetMode(_ context.Context, m nic.RDMAMode) error {
	return host.Fail("set RDMA mode", string(m), unix.EOPNOTSUPP, "")
}

func (r rdma) SetModeAtBoot(_ context.Context, m nic.RDMAMode) error {
	return host.Fail("set RDMA mode at boot", string(m), unix.EOPNOTSUPP, "")
}
