package host

import "context"

// PairKind is the kind of both ends of a pair, as rtnetlink calls it (Link.Kind).
type PairKind string

// The kinds of pairs.
const (
	Veth   PairKind = "veth"
	Netkit PairKind = "netkit" // since Linux 6.7, with CONFIG_NETKIT (drivers/net/netkit.c)
)

// Pairs is pairs of software interfaces of which one end is in the host's network
// namespace and the other in another.
type Pairs interface {
	// AddPair makes a pair of a kind: the end called name in the host's namespace, that called
	// peer in the namespace at path, both down. A name in use in either is
	// fs.ErrExist, no such path fs.ErrNotExist, a kind that the kernel does not
	// have ErrNotSupported; then there is neither end. Netkit is in layer 2 mode, the
	// end in the host's namespace the primary one.
	AddPair(ctx context.Context, kind PairKind, name, peer, path string) error

	// DelPair removes the end of that name in the host's namespace, and the other with
	// it. None is success, an interface that is no such end ErrNotSupported. A
	// namespace that ends takes both away (drivers/net/veth.c, veth_dellink; netkit.c,
	// netkit_del_link).
	DelPair(ctx context.Context, name string) error
}
