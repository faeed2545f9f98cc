package host

import "context"

// Pairs is pairs of software interfaces (veth) of which one end is in the host's
// network namespace and the other in another.
type Pairs interface {
	// AddPair makes a pair: the end called name in the host's namespace, that called
	// peer in the namespace at path, both down. A name in use in either is
	// fs.ErrExist, no such path fs.ErrNotExist; then there is neither end.
	AddPair(ctx context.Context, name, peer, path string) error

	// DelPair removes the end of that name in the host's namespace, and the other with
	// it. None is success, an interface that is no such end ErrNotSupported. A
	// namespace that ends takes both away (drivers/net/veth.c, veth_dellink).
	DelPair(ctx context.Context, name string) error
}
