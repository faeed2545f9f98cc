package probe

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// ping sends one ICMP echo and waits for its answer, for as long as ctx lets it,
// or a second. It needs CAP_NET_RAW.
func ping(ctx context.Context, a netip.Addr) error {
	network, protocol := "ip4:icmp", 1
	var kind, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if a.Is6() {
		network, protocol = "ip6:ipv6-icmp", 58
		kind, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	c, err := icmp.ListenPacket(network, "")
	if err != nil {
		return fmt.Errorf("ping %s: %w", a, err)
	}
	defer c.Close()
	// The socket sees the answers to everybody's echoes; this one is told by what
	// it carries.
	mark := make([]byte, 16)
	if _, err := rand.Read(mark); err != nil {
		return fmt.Errorf("ping %s: %w", a, err)
	}
	raw, err := (&icmp.Message{Type: kind, Body: &icmp.Echo{ID: int(mark[0])<<8 | int(mark[1]), Seq: 1, Data: mark}}).Marshal(nil)
	if err != nil {
		return fmt.Errorf("ping %s: %w", a, err)
	}
	until := time.Now().Add(time.Second)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if err := c.SetDeadline(until); err != nil {
		return fmt.Errorf("ping %s: %w", a, err)
	}
	if _, err := c.WriteTo(raw, &net.IPAddr{IP: a.AsSlice(), Zone: a.Zone()}); err != nil {
		return fmt.Errorf("ping %s: %w", a, err)
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("ping %s: no answer: %w", a, err)
		}
		m, err := icmp.ParseMessage(protocol, buf[:n])
		if err != nil || m.Type != reply {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && string(e.Data) == string(mark) {
			return nil
		}
	}
}
