package sim

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sluice.dev/sluice/pkg/host"
)

type pci struct{ hand }

func (s pci) Functions(ctx context.Context) ([]host.Function, error) {
	var out []host.Function
	err := s.read(ctx, "list PCI functions", func() error {
		out = s.functions()
		return nil
	})
	return out, err
}

// functionID names a function: a PF, or its VF of an index, or its SF of a number.
type functionID struct{ pf, vf, sf int }

func pfID(f int) functionID      { return functionID{f, -1, -1} }
func vfID(f, v int) functionID   { return functionID{f, v, -1} }
func sfID(f, num int) functionID { return functionID{f, -1, num} }

// away are the functions whose netdev is in another namespace.
func (s *Sim) away() map[functionID]bool {
	out := map[functionID]bool{}
	for _, l := range s.st.Links {
		if l.Netns != hostNS && !l.isRep() && l.PF >= 0 && s.there(l) {
			out[l.id()] = true
		}
	}
	return out
}

func (s *Sim) functions() []host.Function {
	away := s.away()
	var out []host.Function
	for i, p := range s.st.PFs {
		card := s.profile(i)
		f := host.Function{
			Address: p.Address, Vendor: card.vendor, Device: card.device, Product: card.product,
			Driver: p.Driver, NUMA: p.NUMA, VFIndex: -1,
			VFDevice: card.vfDevice, TotalVFs: p.TotalVFs, NumVFs: len(p.VFs), Autoprobe: p.Autoprobe,
			Away: away[pfID(i)], IOMMUGroup: s.group(i, -1),
		}
		if !card.devlinkInfo {
			f.Serial = p.Serial
		}
		out = append(out, f)
		for j, v := range p.VFs {
			if v.Gone {
				continue
			}
			out = append(out, host.Function{
				Address: s.vfAddress(i, j), Vendor: card.vendor, Device: card.vfDevice,
				Driver: v.Driver, NUMA: p.NUMA, PF: p.Address, VFIndex: j,
				Away: away[vfID(i, j)], IOMMUGroup: s.group(i, j),
			})
		}
	}
	slices.SortFunc(out, func(a, b host.Function) int { return strings.Compare(a.Address, b.Address) })
	return out
}

// group is the IOMMU group: one for each function, as on a server with ACS.
func (s *Sim) group(f, v int) int {
	if !s.st.IOMMU {
		return -1
	}
	return 16 + f*(1+maxVFsOfAny) + v + 1
}

// maxVFsOfAny is the most VFs that any profile has.
const maxVFsOfAny = 128

// ofPF picks the netdevs of a PF's VFs and SFs, and representors.
func (s *Sim) ofPF(address string) func(*link) bool {
	return func(l *link) bool {
		return l.PF >= 0 && (l.VF >= 0 || l.SF >= 0) && s.st.PFs[l.PF].Address == address
	}
}

// sriov finds the PF that an SR-IOV attribute is written of.
func (s *Sim) sriov(address string) (int, error) {
	f, v, ok := s.find(address)
	switch {
	case !ok:
		return 0, refuse(syscall.ENOENT, "")
	case v >= 0:
		return 0, &refusal{errno: syscall.ENOENT, err: host.ErrNotSupported} // a VF has no such file
	}
	return f, nil
}

func (s pci) Function(ctx context.Context, address string) (host.Function, error) {
	var out host.Function
	err := s.read(ctx, "read function", func() error {
		for _, f := range s.functions() {
			if f.Address == address {
				out = f
				out.Netdevs = s.netdevs(address)
				return nil
			}
		}
		return Op{Verb: "read function", Object: address}.fail(syscall.ENOENT)
	})
	return out, err
}

// netdevs lists the netdevs of a function that are in the host's namespace. The PF
// is the parent of its representors too.
func (s pci) netdevs(address string) []int {
	f, v, ok := s.find(address)
	var out []int
	for _, l := range s.st.Links {
		own := v < 0 && (l.Role == uplink || l.Role == representor) || v >= 0 && l.Role == vfNetdev && l.VF == v
		if ok && own && l.PF == f && l.Netns == hostNS && s.there(l) {
			out = append(out, l.Ifindex)
		}
	}
	slices.Sort(out)
	return out
}

func (s pci) SetVFs(ctx context.Context, address string, n int) error {
	op := Op{Verb: SetVFs, Arg: strconv.Itoa(n), Object: address}
	return s.set(ctx, op, func() (func(), error) {
		f, err := s.sriov(address)
		if err != nil {
			return nil, err
		}
		p := s.st.PFs[f]
		// In the order of sriov_numvfs_store.
		switch {
		case n < 0:
			return nil, refuse(syscall.EINVAL, "")
		case n > p.TotalVFs:
			return nil, refuse(syscall.ERANGE, "")
		case n == len(p.VFs):
			return nil, nil
		case !s.driven(f):
			return nil, refuse(syscall.ENOENT, "")
		case n == 0:
			return func() { s.dropVFs(f) }, nil
		case len(p.VFs) > 0:
			return nil, refuse(syscall.EBUSY, "")
		}
		return func() { s.makeVFs(f, n) }, nil
	}, s.ofPF(address))
}

func (s pci) SetAutoprobe(ctx context.Context, address string, on bool) error {
	op := Op{Verb: SetAutoprobe, Arg: strconv.FormatBool(on), Object: address}
	return s.set(ctx, op, func() (func(), error) {
		f, err := s.sriov(address)
		if err != nil {
			return nil, err
		}
		if s.st.PFs[f].Autoprobe == on {
			return nil, nil
		}
		return func() { s.st.PFs[f].Autoprobe = on }, nil
	}, nil)
}

func (s pci) Bind(ctx context.Context, address, driver string) error {
	op := Op{Verb: Bind, Arg: driver, Object: address}
	f, v := -1, -1 // the function, once it is found
	own := func(l *link) bool { return l.id() == vfID(f, v) && l.Role != representor }
	return s.set(ctx, op, func() (func(), error) {
		var ok bool
		if f, v, ok = s.find(address); !ok {
			return nil, refuse(syscall.ENOENT, "")
		}
		card := s.profile(f)
		bound, native := s.st.PFs[f].Driver, card.driver
		if v >= 0 {
			bound, native = s.st.PFs[f].VFs[v].Driver, card.vfDriver
		}
		want := driver
		if want == "" {
			want = native
		}
		switch {
		case bound == want:
			return nil, nil
		case bound != "":
			return nil, refuse(syscall.EBUSY, "")
		case !knownDriver(want):
			return nil, refuse(syscall.ENOENT, "")
		case want == vfioDriver && !s.st.IOMMU:
			return nil, refuse(syscall.EINVAL, "") // vfio_group_find_or_alloc: no IOMMU group
		case want != vfioDriver && want != native:
			return nil, refuse(syscall.ENODEV, "") // the driver's probe does not know the device
		}
		return func() {
			switch {
			case v >= 0:
				s.probeVF(f, v, want)
			case want == native:
				s.probePF(f)
			default:
				s.st.PFs[f].Driver = want
			}
		}, nil
	}, own)
}

func (s pci) Unbind(ctx context.Context, address string) error {
	op := Op{Verb: Unbind, Object: address}
	return s.set(ctx, op, func() (func(), error) {
		f, v, ok := s.find(address)
		switch {
		case !ok:
			return nil, refuse(syscall.ENOENT, "")
		case v < 0:
			return nil, &refusal{err: host.ErrNotSupported, ext: "a PF is never unbound"}
		case s.st.PFs[f].VFs[v].Driver == "":
			return nil, nil
		}
		return func() { s.removeVF(f, v) }, nil
	}, nil)
}
