package network

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"net/netip"
	"strconv"

	"sluice.dev/sluice/pkg/nic"
)

// Slot is one port of a network, counted from 0 through all blocks: slot S is
// place S % Ports of block S / Ports.
type Slot uint32

// Largest number of slots; a network of more addresses has the rest unused.
const slotBits = 24

// Blocks is how many blocks the network has: what the smallest subnet gives.
func (n Network) Blocks() int {
	most := slotBits
	for _, s := range n.Subnets {
		most = min(most, s.Prefix.Addr().BitLen()-s.Prefix.Bits())
	}
	return (1 << most) / n.Ports
}

// Block is the block that a slot is in.
func (n Network) Block(s Slot) int { return int(s) / n.Ports }

// Slots are those of a block that pods can have, in order.
func (n Network) Slots(block int) []Slot {
	var out []Slot
	for i := range n.Ports {
		if s := Slot(block*n.Ports + i); n.usable(s) {
			out = append(out, s)
		}
	}
	return out
}

// usable says that no address of the slot is a subnet's own (of IPv6 the first is
// the routers' anycast address, RFC 4291, 2.6.1), a gateway's, or excluded.
func (n Network) usable(s Slot) bool {
	for _, sub := range n.Subnets {
		a, own := sub.address(s), n.prefix(sub, n.Block(s))
		if a == own.Addr() || a.Is4() && a == last(own) || a == n.Gateway(sub, n.Block(s)) {
			return false
		}
		for _, e := range sub.Exclude {
			if e.Contains(a) {
				return false
			}
		}
	}
	return true
}

// Addresses are a slot's, in the order of the subnets, with the length of the prefix
// that is on the link.
func (n Network) Addresses(s Slot) []netip.Prefix {
	out := make([]netip.Prefix, len(n.Subnets))
	for i, sub := range n.Subnets {
		out[i] = netip.PrefixFrom(sub.address(s), n.prefix(sub, n.Block(s)).Bits())
	}
	return out
}

// Gateway is that of a block in a subnet; the zero Addr if there is none. With layer
// 3 it is the first host of the block.
func (n Network) Gateway(sub Subnet, block int) netip.Addr {
	if n.Layer == 3 {
		return sub.address(Slot(block*n.Ports + 1))
	}
	return sub.Gateway
}

// Gateways are those of a block, in the order of the subnets, without such as there
// are not.
func (n Network) Gateways(block int) []netip.Addr {
	var out []netip.Addr
	for _, sub := range n.Subnets {
		if g := n.Gateway(sub, block); g.IsValid() {
			out = append(out, g)
		}
	}
	return out
}

// prefix is what is on the link of a block in a subnet: all of it, with layer 3 the
// block's part.
func (n Network) prefix(sub Subnet, block int) netip.Prefix {
	if n.Layer != 3 {
		return sub.Prefix
	}
	long := sub.Prefix.Addr().BitLen() - (bits.Len(uint(n.Ports)) - 1)
	return netip.PrefixFrom(sub.address(Slot(block*n.Ports)), long)
}

// Links are the prefixes on the link of a block, in the order of the subnets.
func (n Network) Links(block int) []netip.Prefix {
	out := make([]netip.Prefix, len(n.Subnets))
	for i, sub := range n.Subnets {
		out[i] = n.prefix(sub, block)
	}
	return out
}

// MAC is a slot's: locally administered, of the network's name and the slot, so that
// networks which share a VLAN by mistake do not share addresses too.
func (n Network) MAC(s Slot) nic.MAC {
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.Name)) // never fails
	m := nic.MAC{0x0a, byte(h.Sum32() >> 8), byte(h.Sum32())}
	m[3], m[4], m[5] = byte(s>>16), byte(s>>8), byte(s)
	return m
}

// RouterMAC is that of the router's port to a block: where no slot's is.
func (n Network) RouterMAC(block int) nic.MAC {
	m := n.MAC(Slot(block))
	m[0] = 0x0e
	return m
}

// PortName is a slot's in OVN, and iface-id of who has it.
func (n Network) PortName(s Slot) string {
	return "sluice." + n.Name + "." + strconv.FormatUint(uint64(s), 10)
}

func (s Subnet) address(slot Slot) netip.Addr {
	b := s.Prefix.Addr().AsSlice()
	at := b[len(b)-4:]
	binary.BigEndian.PutUint32(at, binary.BigEndian.Uint32(at)+uint32(slot))
	a, _ := netip.AddrFromSlice(b)
	return a
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Claim is a block and the node that has it.
type Claim struct {
	Node  string `json:"node"`
	Block int    `json:"block"`
}

// Assign keeps the claims of nodes and gives each that has none a block of its own;
// those of other nodes end. It answers the claims in the order of the blocks, and the
// nodes for which there was no block. New blocks come after the highest that was
// claimed, round the end: one whose claim ends now is not given out at once.
func (n Network) Assign(claims []Claim, nodes []string) (out []Claim, without []string) {
	wanted := map[string]bool{}
	for _, name := range nodes {
		wanted[name] = true
	}
	taken := map[int]string{}
	next := 0
	for _, c := range claims {
		if c.Block < 0 || c.Block >= n.Blocks() {
			continue
		}
		next = max(next, c.Block+1)
		if _, twice := taken[c.Block]; wanted[c.Node] && !twice {
			taken[c.Block] = c.Node
			wanted[c.Node] = false // has its own
		}
	}
	for _, name := range nodes {
		if !wanted[name] {
			continue
		}
		wanted[name] = false
		block, ok := n.free(taken, next)
		if !ok {
			without = append(without, name)
			continue
		}
		taken[block] = name
		next = block + 1
	}
	for block := range n.Blocks() {
		if len(out) == len(taken) {
			break
		}
		if name, ok := taken[block]; ok {
			out = append(out, Claim{name, block})
		}
	}
	return out, without
}

// free is the first block from next on, round the end, that nobody has and that has
// slots to give.
func (n Network) free(taken map[int]string, next int) (int, bool) {
	all := n.Blocks()
	for i := range all {
		block := (next + i) % all
		if _, used := taken[block]; !used && len(n.Slots(block)) > 0 {
			return block, true
		}
	}
	return 0, false
}

func (c Claim) String() string { return fmt.Sprintf("block %d of node %s", c.Block, c.Node) }
