package sim

import (
	"cmp"
	"context"
	"fmt"
	"syscall"

	"sluice.dev/sluice/pkg/host"
)

type pairs struct{ hand }

func (s pairs) AddPair(ctx context.Context, kind host.PairKind, name, peer, path string) error {
	op := Op{Verb: AddPair, Arg: fmt.Sprintf("of %s with %s in %s", kind, peer, path), Object: cmp.Or(name, `""`)}
	return s.set(ctx, op, func() (func(), error) {
		to, err := s.netnsAt(path)
		switch {
		case err != nil:
			return nil, err
		case !validName(name), !validName(peer):
			return nil, refuse(syscall.EINVAL, "")
		case kind == host.Netkit && s.st.NoNetkit:
			return nil, refuse(syscall.EOPNOTSUPP, "Unknown device type") // rtnl_newlink
		case kind != host.Netkit && kind != host.Veth:
			return nil, refuse(syscall.EINVAL, "")
		case s.taken(hostNS, name), s.taken(to.ID, peer):
			return nil, refuse(syscall.EEXIST, "")
		}
		return func() {
			s.st.Pairs++
			for _, end := range []struct {
				ns   *netns
				name string
			}{{s.netns(hostNS), name}, {to, peer}} {
				end.ns.Last++
				s.st.Links = append(s.st.Links, &link{
					Netns: end.ns.ID, Ifindex: end.ns.Last, Name: end.name, Role: other, PF: -1, VF: -1, SF: -1,
					Kind: string(kind), MAC: s.randomMAC(), MTU: 1500, Pair: s.st.Pairs,
				})
				s.tell("netdev " + end.name)
			}
		}, nil
	}, nil)
}

func (s pairs) DelPair(ctx context.Context, name string) error {
	return s.set(ctx, Op{Verb: DelPair, Object: name}, func() (func(), error) {
		for _, l := range s.st.Links {
			switch {
			case l.Netns != hostNS || l.Name != name:
			case l.Pair == 0:
				return nil, &refusal{errno: syscall.EOPNOTSUPP, err: fmt.Errorf("it is of kind %q, not veth or netkit: %w", l.Kind, host.ErrNotSupported)}
			default:
				pair := l.Pair
				return func() { s.drop(func(l *link) bool { return l.Pair == pair }) }, nil
			}
		}
		return nil, nil
	}, nil)
}

// unpair ends pairs of which an end has gone with its namespace.
func (s *Sim) unpair() {
	ends := map[int]int{}
	for _, l := range s.st.Links {
		ends[l.Pair]++
	}
	s.drop(func(l *link) bool { return l.Pair != 0 && ends[l.Pair] < 2 })
}
