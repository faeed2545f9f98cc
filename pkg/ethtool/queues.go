package ethtool

import (
	"context"

	"golang.org/x/sys/unix"
)

// Count is a number that can be set, and the most that it can be.
type Count struct{ N, Max uint32 }

// Channels is how many queues with interrupts an interface has. Drivers have
// either combined ones (mlx5) or separate ones.
type Channels struct{ RX, TX, Combined Count }

// Channels reads those of all interfaces that have any, by ifindex.
func (c *Client) Channels(ctx context.Context) (map[int]Channels, error) {
	return list(ctx, c, unix.ETHTOOL_MSG_CHANNELS_GET, parseChannels)
}

// ChannelsOf reads those of one interface; EOPNOTSUPP when its driver has none.
func (c *Client) ChannelsOf(ifindex int) (Channels, error) {
	return one(c, unix.ETHTOOL_MSG_CHANNELS_GET, ifindex, parseChannels)
}

// ChannelsChange is what to change of channels; nil is left as it is.
type ChannelsChange struct{ RX, TX, Combined *uint32 }

// SetChannels changes channels; most drivers take the interface down for it for a
// moment. More than the most is EINVAL.
func (c *Client) SetChannels(ifindex int, ch ChannelsChange) error {
	return c.set(unix.ETHTOOL_MSG_CHANNELS_SET, ifindex, map[int]*uint32{
		unix.ETHTOOL_A_CHANNELS_RX_COUNT: ch.RX, unix.ETHTOOL_A_CHANNELS_TX_COUNT: ch.TX,
		unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT: ch.Combined,
	})
}

func parseChannels(m []byte) (ifindex int, ch Channels) {
	ifindex = parseNumbers(m, map[int]*uint32{
		unix.ETHTOOL_A_CHANNELS_RX_MAX: &ch.RX.Max, unix.ETHTOOL_A_CHANNELS_RX_COUNT: &ch.RX.N,
		unix.ETHTOOL_A_CHANNELS_TX_MAX: &ch.TX.Max, unix.ETHTOOL_A_CHANNELS_TX_COUNT: &ch.TX.N,
		unix.ETHTOOL_A_CHANNELS_COMBINED_MAX: &ch.Combined.Max, unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT: &ch.Combined.N,
	})
	return ifindex, ch
}

// Rings is how many packets each queue of an interface holds.
type Rings struct{ RX, TX Count }

// Rings reads those of all interfaces that have any, by ifindex.
func (c *Client) Rings(ctx context.Context) (map[int]Rings, error) {
	return list(ctx, c, unix.ETHTOOL_MSG_RINGS_GET, parseRings)
}

// RingsOf reads those of one interface; EOPNOTSUPP when its driver has none.
func (c *Client) RingsOf(ifindex int) (Rings, error) {
	return one(c, unix.ETHTOOL_MSG_RINGS_GET, ifindex, parseRings)
}

// RingsChange is what to change of rings; nil is left as it is.
type RingsChange struct{ RX, TX *uint32 }

// SetRings changes rings; most drivers take the interface down for it for a
// moment, and many round up to a power of two. More than the most is EINVAL.
func (c *Client) SetRings(ifindex int, r RingsChange) error {
	return c.set(unix.ETHTOOL_MSG_RINGS_SET, ifindex, map[int]*uint32{
		unix.ETHTOOL_A_RINGS_RX: r.RX, unix.ETHTOOL_A_RINGS_TX: r.TX,
	})
}

func parseRings(m []byte) (ifindex int, r Rings) {
	ifindex = parseNumbers(m, map[int]*uint32{
		unix.ETHTOOL_A_RINGS_RX_MAX: &r.RX.Max, unix.ETHTOOL_A_RINGS_RX: &r.RX.N,
		unix.ETHTOOL_A_RINGS_TX_MAX: &r.TX.Max, unix.ETHTOOL_A_RINGS_TX: &r.TX.N,
	})
	return ifindex, r
}
