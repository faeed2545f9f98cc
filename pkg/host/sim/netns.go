package sim

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"sluice.dev/sluice/pkg/host"
)

type namespaces struct{ hand }

func (s namespaces) Open(ctx context.Context, path string) (host.NetnsLinks, error) {
	var out *links
	err := s.read(ctx, "open netns", func() error {
		op := Op{Verb: "open netns", Object: path}
		ns, err := s.netnsAt(path)
		switch {
		case path == "":
			return op.fail(syscall.ENOENT)
		case err != nil:
			return op.fail(err)
		}
		s.handles[ns.ID]++
		out = &links{s: s.hand, ns: ns.ID, opened: true}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Close gives the handle back; a namespace whose path is gone ends with its last
// one. Closing twice is fs.ErrClosed.
func (n *links) Close() error {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.closed || !n.opened {
		return fs.ErrClosed
	}
	n.closed = true
	s.handles[n.ns]--
	s.reap(n.ns)
	return nil
}

// ID is of the form that device and inode of a file in nsfs have.
func (n *links) ID() string { return fmt.Sprintf("4:%d", 0xf0000000+n.ns) }

func (s *Sim) netns(id int) *netns {
	for _, n := range s.st.Netns {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// netnsAt finds a namespace by path, "" being the host's.
func (s *Sim) netnsAt(path string) (*netns, error) {
	for _, n := range s.st.Netns {
		if n.Path == path && (path != "" || n.ID == hostNS) {
			return n, nil
		}
	}
	if slices.Contains(s.st.Files, path) {
		// setns on a descriptor of any other file is EINVAL.
		return nil, &refusal{errno: syscall.EINVAL, err: fmt.Errorf("%s is no network namespace", path)}
	}
	return nil, refuse(syscall.ENOENT, "")
}

// reap ends a namespace that has neither path nor open handle: hardware
// interfaces go back to the host's, under their name if it is free there, else
// devN (default_device_exit_net); software ones end with it. RDMA devices go back
// too (rdma_dev_exit_net).
func (s *Sim) reap(id int) {
	ns, host := s.netns(id), s.netns(hostNS)
	if ns == nil || id == hostNS || ns.Path != "" || s.handles[id] > 0 {
		return
	}
	for _, l := range s.st.Links {
		if l.Netns != id || l.PF < 0 {
			continue
		}
		if s.taken(hostNS, l.Name) {
			l.Name = fmt.Sprintf("dev%d", l.Ifindex)
			if s.taken(hostNS, l.Name) {
				l.Name = s.freeName("dev")
			}
		}
		l.AltNames = slices.DeleteFunc(l.AltNames, func(a string) bool { return s.taken(hostNS, a) })
		s.move(l, host)
	}
	for _, d := range s.st.RDMA {
		if d.Netns == id {
			d.Netns = hostNS
		}
	}
	s.drop(func(l *link) bool { return l.Netns == id })
	s.unpair()
	s.st.Netns = slices.DeleteFunc(s.st.Netns, func(n *netns) bool { return n.ID == id })
}
