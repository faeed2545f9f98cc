// SPDX-License-Identifier: GPL-2.0
/*
 * The packet path: what the silicon does with a frame. Everything here runs in
 * softirq or with bottom halves off, under rcu_read_lock, and takes whole frames:
 * skb->data at the Ethernet header, VLAN tags in the frame.
 */
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/dsfield.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "twin.h"

/* Counting */

/* Frames on the wire that an skb stands for: the hardware counts segments. */
u32 twin_skb_packets(const struct sk_buff *skb)
{
	return skb_is_gso(skb) ? max_t(u32, 1, skb_shinfo(skb)->gso_segs) : 1;
}

/* Their bytes, each with its headers, without FCS. */
u64 twin_skb_bytes(const struct sk_buff *skb)
{
	u32 packets = twin_skb_packets(skb), headers = 0;

	if (packets > 1 && skb_transport_header_was_set(skb)) {
		headers = skb_transport_offset(skb);
		if (skb_shinfo(skb)->gso_type & (SKB_GSO_TCPV4 | SKB_GSO_TCPV6))
			headers += tcp_hdrlen(skb);
		else
			headers += sizeof(struct udphdr);
	}
	return skb->len + (u64)headers * (packets - 1);
}

void twin_count(struct twin_vport *vport, enum twin_counter first, u64 packets, u64 bytes)
{
	this_cpu_add(vport->counters->c[first], packets);
	this_cpu_add(vport->counters->c[first + 1], bytes);
}

void twin_count_cast(struct twin_vport *vport, bool rx, const struct sk_buff *skb,
		     u64 packets, u64 bytes)
{
	const u8 *dst = eth_hdr(skb)->h_dest;
	enum twin_counter first = rx ? TWIN_RX_UC_PACKETS : TWIN_TX_UC_PACKETS;

	if (is_broadcast_ether_addr(dst))
		first += TWIN_RX_BC_PACKETS - TWIN_RX_UC_PACKETS;
	else if (is_multicast_ether_addr(dst))
		first += TWIN_RX_MC_PACKETS - TWIN_RX_UC_PACKETS;
	twin_count(vport, first, packets, bytes);
}

void twin_sum(const struct twin_vport *vport, u64 *c)
{
	unsigned int i;
	int cpu;

	memset(c, 0, TWIN_NUM_COUNTERS * sizeof(*c));
	for_each_possible_cpu(cpu)
		for (i = 0; i < TWIN_NUM_COUNTERS; i++)
			c[i] += READ_ONCE(per_cpu_ptr(vport->counters, cpu)->c[i]);
}

static void drop_tx(struct twin_vport *vport, struct sk_buff *skb)
{
	this_cpu_inc(vport->counters->c[TWIN_TX_DROPS]);
	kfree_skb(skb);
}

/*
 * Makes an skb the frame that is on the wire: tags in it, a checksum that no one
 * can trust after a rewrite forgotten, the network header where it is. NULL when
 * out of memory; the skb is gone then.
 */
struct sk_buff *twin_frame(struct sk_buff *skb)
{
	if (skb_vlan_tag_present(skb)) {
		skb = __vlan_hwaccel_push_inside(skb);
		if (!skb)
			return NULL;
	}
	skb_reset_mac_header(skb);
	skb_reset_mac_len(skb);
	skb->protocol = eth_hdr(skb)->h_proto;
	if (skb->ip_summed == CHECKSUM_COMPLETE)
		skb->ip_summed = CHECKSUM_NONE;
	return skb;
}

/* Parsing */

struct headers {
	int l3, l4;	/* offsets from the frame's start; 0: not there */
	u16 proto;	/* ETH_P_IP, ETH_P_IPV6 or whatever follows the tags */
	u8 l4_proto;
};

static void parse_l4(const struct sk_buff *skb, struct twin_key *key, struct headers *h)
{
	union {
		struct tcphdr tcp;
		struct udphdr udp;
		u8 icmp[4];
	} buf;
	const void *p;

	switch (key->ip_proto) {
	case IPPROTO_TCP:
		p = skb_header_pointer(skb, h->l4, sizeof(struct tcphdr), &buf);
		if (p) {
			const struct tcphdr *tcp = p;

			key->sport = tcp->source;
			key->dport = tcp->dest;
			key->tcp_flags = htons(ntohl(tcp_flag_word(tcp)) >> 16 & 0x0fff);
			return;
		}
		break;
	case IPPROTO_UDP:
		p = skb_header_pointer(skb, h->l4, sizeof(struct udphdr), &buf);
		if (p) {
			const struct udphdr *udp = p;

			key->sport = udp->source;
			key->dport = udp->dest;
			return;
		}
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		p = skb_header_pointer(skb, h->l4, sizeof(buf.icmp), &buf);
		if (p) {
			key->icmp_type = ((const u8 *)p)[0];
			key->icmp_code = ((const u8 *)p)[1];
			return;
		}
		break;
	}
	h->l4 = 0;
}

static void parse_ip(const struct sk_buff *skb, struct twin_key *key, struct headers *h)
{
	const struct iphdr *ip;
	struct iphdr buf;

	ip = skb_header_pointer(skb, h->l3, sizeof(buf), &buf);
	if (!ip || ip->version != 4 || ip->ihl < 5) {
		h->l3 = 0;
		return;
	}
	key->ip_proto = ip->protocol;
	key->tos = ip->tos;
	key->ttl = ip->ttl;
	key->saddr.s6_addr32[0] = ip->saddr;
	key->daddr.s6_addr32[0] = ip->daddr;
	key->frag = ip_is_fragment(ip);
	if (ip->frag_off & htons(IP_OFFSET))
		return;
	h->l4 = h->l3 + ip->ihl * 4;
	parse_l4(skb, key, h);
}

static void parse_ipv6(const struct sk_buff *skb, struct twin_key *key, struct headers *h)
{
	const struct ipv6hdr *ip;
	struct ipv6hdr buf;
	int at, i;
	u8 next;

	ip = skb_header_pointer(skb, h->l3, sizeof(buf), &buf);
	if (!ip || ip->version != 6) {
		h->l3 = 0;
		return;
	}
	key->tos = ipv6_get_dsfield(ip);
	key->ttl = ip->hop_limit;
	key->saddr = ip->saddr;
	key->daddr = ip->daddr;
	next = ip->nexthdr;
	at = h->l3 + sizeof(buf);
	for (i = 0; i < 8; i++) {
		u8 ext_buf[8];
		const u8 *ext;

		if (next != NEXTHDR_HOP && next != NEXTHDR_ROUTING && next != NEXTHDR_DEST &&
		    next != NEXTHDR_FRAGMENT)
			break;
		ext = skb_header_pointer(skb, at, sizeof(ext_buf), ext_buf);
		if (!ext)
			return;
		if (next == NEXTHDR_FRAGMENT) {
			key->frag = 1;
			key->ip_proto = ext[0];
			if ((ext[2] << 8 | ext[3]) & 0xfff8)
				return;
			at += 8;
		} else {
			at += (ext[1] + 1) * 8;
		}
		next = ext[0];
	}
	key->ip_proto = next;
	h->l4 = at;
	parse_l4(skb, key, h);
}

static bool is_tag(__be16 proto)
{
	return proto == htons(ETH_P_8021Q) || proto == htons(ETH_P_8021AD);
}

static void parse(const struct sk_buff *skb, struct twin_key *key, struct headers *h)
{
	const struct ethhdr *eth = (const struct ethhdr *)skb->data;
	int at = ETH_HLEN;
	unsigned int i;

	memset(key, 0, sizeof(*key));
	memset(h, 0, sizeof(*h));
	ether_addr_copy(key->dst, eth->h_dest);
	ether_addr_copy(key->src, eth->h_source);
	key->proto = eth->h_proto;
	for (i = 0; i < 2 && is_tag(key->proto); i++) {
		struct vlan_hdr buf;
		const struct vlan_hdr *tag = skb_header_pointer(skb, at, VLAN_HLEN, &buf);

		if (!tag)
			return;
		key->tags |= 1 << i;
		key->tpid[i] = key->proto;
		key->tci[i] = tag->h_vlan_TCI & htons(VLAN_PRIO_MASK | VLAN_VID_MASK);
		key->proto = tag->h_vlan_encapsulated_proto;
		at += VLAN_HLEN;
	}
	h->l3 = at;
	h->proto = ntohs(key->proto);
	if (key->proto == htons(ETH_P_IP))
		parse_ip(skb, key, h);
	else if (key->proto == htons(ETH_P_IPV6))
		parse_ipv6(skb, key, h);
	h->l4_proto = key->ip_proto;
}

/* Rewriting */

/* The L4 checksum of a TCP or UDP packet, if it has one to keep. */
static __sum16 *l4_check(struct sk_buff *skb, const struct headers *h)
{
	if (!h->l4)
		return NULL;
	if (h->l4_proto == IPPROTO_TCP)
		return &((struct tcphdr *)(skb->data + h->l4))->check;
	if (h->l4_proto == IPPROTO_UDP) {
		struct udphdr *udp = (struct udphdr *)(skb->data + h->l4);

		if (udp->check || skb->ip_summed == CHECKSUM_PARTIAL)
			return &udp->check;
	}
	if (h->l4_proto == IPPROTO_ICMPV6)
		return (__sum16 *)(skb->data + h->l4 + 2);
	return NULL;
}

/*
 * One 32-bit word of a header, at byte AT of it, was OLD and becomes NEW: keep the
 * checksums that cover it. The hardware does so with every rewrite, asked for by a
 * csum action or not.
 */
static void fix_checksums(struct sk_buff *skb, const struct headers *h,
			  enum flow_action_mangle_base base, u32 at, __be32 old, __be32 new)
{
	__sum16 *check = l4_check(skb, h);
	bool pseudo = false;

	switch (base) {
	case FLOW_ACT_MANGLE_HDR_TYPE_IP4:
		csum_replace4(&((struct iphdr *)(skb->data + h->l3))->check, old, new);
		pseudo = at >= offsetof(struct iphdr, saddr);
		break;
	case FLOW_ACT_MANGLE_HDR_TYPE_IP6:
		pseudo = at >= offsetof(struct ipv6hdr, saddr);
		break;
	case FLOW_ACT_MANGLE_HDR_TYPE_TCP:
	case FLOW_ACT_MANGLE_HDR_TYPE_UDP:
		if (check)
			inet_proto_csum_replace4(check, skb, old, new, false);
		break;
	default:
		break;
	}
	if (pseudo && check)
		inet_proto_csum_replace4(check, skb, old, new, true);
	if (h->l4_proto == IPPROTO_UDP && check && !*check)
		*check = CSUM_MANGLED_0;
}

/* net/sched/act_pedit.c, tcf_pedit_act: SET is (old & mask) ^ val, ADD is old + val */
static int rewrite(struct sk_buff *skb, const struct twin_act *act)
{
	struct twin_key key;
	struct headers h;
	u32 old, new, *word;
	int at;

	parse(skb, &key, &h);
	switch (act->set.base) {
	case FLOW_ACT_MANGLE_HDR_TYPE_ETH:
		at = 0;
		break;
	case FLOW_ACT_MANGLE_HDR_TYPE_IP4:
	case FLOW_ACT_MANGLE_HDR_TYPE_IP6:
		at = h.l3;
		break;
	default:
		at = h.l4;
		break;
	}
	if (!at && act->set.base != FLOW_ACT_MANGLE_HDR_TYPE_ETH)
		return 0;	/* no such header: nothing to set */
	/* all headers: their checksums change with the word */
	if (skb_ensure_writable(skb, min_t(unsigned int, skb->len,
					   max(at + (int)act->set.offset + 4,
					       h.l4 ? h.l4 + (int)sizeof(struct tcphdr) :
					       h.l3 + (int)sizeof(struct ipv6hdr)))))
		return -ENOMEM;
	if (at + act->set.offset + 4 > skb_headlen(skb))
		return -EINVAL;
	word = (u32 *)(skb->data + at + act->set.offset);
	old = get_unaligned(word);
	if (act->kind == TWIN_ACT_SET) {
		new = (old & act->set.mask) ^ act->set.val;
	} else {
		/* bytes of the field outside it keep: act_pedit adds within the mask */
		new = (old & act->set.mask) | ((old + act->set.val) & ~act->set.mask);
	}
	put_unaligned(new, word);
	fix_checksums(skb, &h, act->set.base, act->set.offset, (__force __be32)old,
		      (__force __be32)new);
	return 0;
}

static struct sk_buff *push_vlan(struct sk_buff *skb, __be16 proto, u16 tci)
{
	/* the tag is made in the skb's field and then moved into the frame */
	__vlan_hwaccel_put_tag(skb, proto, tci);
	return twin_frame(skb);
}

static int pop_vlan(struct sk_buff *skb)
{
	const struct ethhdr *eth = (const struct ethhdr *)skb->data;

	/* a second tag is moved out of the frame by it: the caller puts it back */
	return is_tag(eth->h_proto) ? skb_vlan_pop(skb) : 0;
}

static int set_vlan(struct sk_buff *skb, u16 vid)
{
	struct vlan_ethhdr *eth;

	if (skb_ensure_writable(skb, VLAN_ETH_HLEN))
		return -ENOMEM;
	eth = (struct vlan_ethhdr *)skb->data;
	if (is_tag(eth->h_vlan_proto))
		eth->h_vlan_TCI = (eth->h_vlan_TCI & ~htons(VLAN_VID_MASK)) |
				  htons(vid & VLAN_VID_MASK);
	return 0;
}

/* Metering: a token bucket; true when the packet conforms. */
static bool meter(struct twin_meter *m, u64 packets, u64 bytes)
{
	u64 now = ktime_get_ns(), need = m->packets ? packets : bytes, more;
	bool ok;

	spin_lock_bh(&m->lock);
	more = mul_u64_u64_div_u64(now - m->last, m->rate, NSEC_PER_SEC);
	if (more) {
		m->tokens = min(m->burst, m->tokens + more);
		m->last = now;
	}
	ok = m->tokens >= need;
	if (ok)
		m->tokens -= need;
	spin_unlock_bh(&m->lock);
	return ok;
}

/* Switchdev mode */

/* No rule took it: to the representor, to go on in software from chain on. */
static void miss(struct twin_vport *vport, struct sk_buff *skb, u32 chain)
{
	struct net_device *rep = rcu_dereference(vport->rep);

	if (!rep) {
		drop_tx(vport, skb);
		return;
	}
	twin_count(vport, TWIN_MISS_PACKETS, twin_skb_packets(skb), twin_skb_bytes(skb));
	twin_netdev_receive(skb, rep, chain);
}

/*
 * Does what a rule says. Returns the skb if a next table is to be looked at, with
 * its chain in *chain; else NULL, and the skb is gone.
 */
static struct sk_buff *run(struct twin_vport *vport, struct twin_flow *flow,
			   struct sk_buff *skb, u32 *chain, int depth)
{
	unsigned int i;

	for (i = 0; i < flow->num_acts; i++) {
		const struct twin_act *act = &flow->acts[i];
		struct sk_buff *out;
		u8 verdict;
		int err = 0;

		switch (act->kind) {
		case TWIN_ACT_OUTPUT:
			out = act->last ? skb : skb_clone(skb, GFP_ATOMIC);
			if (out)
				twin_to_vport(act->vport, out, depth);
			if (act->last)
				return NULL;
			break;
		case TWIN_ACT_DROP:
			atomic64_add(twin_skb_packets(skb), &flow->drops);
			consume_skb(skb);
			return NULL;
		case TWIN_ACT_SLOW:
			miss(vport, skb, 0);
			return NULL;
		case TWIN_ACT_GOTO:
			*chain = act->chain;
			return skb;
		case TWIN_ACT_PUSH_VLAN:
			skb = push_vlan(skb, act->vlan.proto, act->vlan.tci);
			if (!skb)
				return NULL;
			break;
		case TWIN_ACT_POP_VLAN:
			err = pop_vlan(skb);
			if (!err) {
				skb = twin_frame(skb);
				if (!skb)
					return NULL;
			}
			break;
		case TWIN_ACT_SET_VLAN:
			err = set_vlan(skb, act->vlan.tci);
			break;
		case TWIN_ACT_SET:
		case TWIN_ACT_ADD:
			err = rewrite(skb, act);
			break;
		case TWIN_ACT_METER:
			verdict = meter(act->meter.meter, twin_skb_packets(skb),
					twin_skb_bytes(skb)) ?
				  act->meter.conform : act->meter.exceed;
			if (verdict == TWIN_ACT_DROP) {
				atomic64_add(twin_skb_packets(skb), &flow->drops);
				consume_skb(skb);
				return NULL;
			}
			if (verdict == TWIN_ACT_SLOW) {
				miss(vport, skb, 0);
				return NULL;
			}
			break;
		}
		if (err) {
			drop_tx(vport, skb);
			return NULL;
		}
	}
	consume_skb(skb);	/* all copies are out */
	return NULL;
}

static void from_vport_switchdev(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	u32 chain = 0, next;
	bool counted = false;
	unsigned int hops;

	for (hops = 0; hops < TWIN_MAX_HOPS; hops++) {
		u64 packets, bytes;
		struct twin_flow *flow;
		struct twin_key key;
		struct headers h;

		parse(skb, &key, &h);
		flow = twin_flow_lookup(vport, chain, &key);
		if (!flow) {
			miss(vport, skb, chain);
			return;
		}
		packets = twin_skb_packets(skb);
		bytes = twin_skb_bytes(skb);
		atomic64_add(packets, &flow->packets);
		atomic64_add(bytes, &flow->bytes);
		WRITE_ONCE(flow->lastused, jiffies);
		if (!counted) {
			twin_count(vport, TWIN_HW_PACKETS, packets, bytes);
			counted = true;
		}
		next = chain;
		skb = run(vport, flow, skb, &next, depth);
		if (!skb)
			return;
		chain = next;
	}
	drop_tx(vport, skb);	/* goto in a circle */
}

/* Legacy mode: a VEB with the VFs, the PF and the wire for ports */

static void to_pf(struct twin_port *port, struct sk_buff *skb)
{
	struct net_device *dev = rcu_dereference(port->uplink.rep);

	if (dev)
		twin_netdev_receive(skb, dev, 0);
	else
		kfree_skb(skb);
}

/* Does the VF's forwarding entry cover this address? Promiscuous needs trust. */
static bool vf_wants(const struct twin_vport *vport, const u8 *dst)
{
	struct net_device *dev = rcu_dereference(vport->dev);
	const struct twin_macs *macs;
	unsigned int i;

	if (!dev || !netif_running(dev))
		return false;
	if (is_multicast_ether_addr(dst) || ether_addr_equal(dst, dev->dev_addr))
		return true;
	macs = rcu_dereference(vport->macs);
	for (i = 0; macs && i < macs->n; i++)
		if (ether_addr_equal(dst, macs->addr[i]))
			return true;
	return READ_ONCE(dev->flags) & IFF_PROMISC && READ_ONCE(vport->info.trusted);
}

/* To a VF by its VLAN: esw/acl/egress_lgcy.c: other tags are dropped, its own is taken off */
static void to_vf_legacy(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	u16 vlan = READ_ONCE(vport->info.vlan);

	if (vlan) {
		const struct vlan_ethhdr *eth = (const struct vlan_ethhdr *)skb->data;

		if (!is_tag(eth->h_vlan_proto) || skb_headlen(skb) < VLAN_ETH_HLEN ||
		    (ntohs(eth->h_vlan_TCI) & VLAN_VID_MASK) != vlan) {
			this_cpu_inc(vport->counters->c[TWIN_RX_DROPS]);
			kfree_skb(skb);
			return;
		}
		if (pop_vlan(skb)) {
			kfree_skb(skb);
			return;
		}
		skb = twin_frame(skb);
		if (!skb)
			return;
	}
	twin_to_vport(vport, skb, depth);
}

/* SRC is a VF, the uplink, or NULL for the PF. */
static void forward_legacy(struct twin_port *port, struct twin_vport *src, struct sk_buff *skb,
			   int depth)
{
	bool from_wire = src && twin_is_uplink(src);
	struct net_device *pf = rcu_dereference(port->uplink.rep);
	bool multicast, to_wire, pf_wants;
	u8 dst[ETH_ALEN];
	unsigned int i;

	ether_addr_copy(dst, eth_hdr(skb)->h_dest);
	multicast = is_multicast_ether_addr(dst);
	to_wire = !from_wire;
	pf_wants = src && pf && (multicast || READ_ONCE(pf->flags) & IFF_PROMISC ||
				 ether_addr_equal(dst, pf->dev_addr));
	for (i = 0; i < port->total_vfs; i++) {
		struct twin_vport *vport = &port->vports[i];
		struct sk_buff *copy;

		if (vport == src || !READ_ONCE(vport->enabled) || !vf_wants(vport, dst))
			continue;
		copy = skb_clone(skb, GFP_ATOMIC);
		if (copy)
			to_vf_legacy(vport, copy, depth);
		if (!multicast)
			to_wire = false;
	}
	if (!multicast && pf && ether_addr_equal(dst, pf->dev_addr))
		to_wire = false;
	if (pf_wants) {
		struct sk_buff *copy = skb_clone(skb, GFP_ATOMIC);

		if (copy)
			to_pf(port, copy);
	}
	if (to_wire)
		twin_to_vport(&port->uplink, skb, depth);
	else
		consume_skb(skb);
}

static void from_vport_legacy(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	struct twin_port *port = vport->port;
	u16 vlan;

	if (!twin_is_uplink(vport)) {
		/* esw/acl/ingress_lgcy.c: spoof check against the administrator's address */
		if (READ_ONCE(vport->info.spoofchk) &&
		    !ether_addr_equal(eth_hdr(skb)->h_source, vport->info.mac)) {
			drop_tx(vport, skb);
			return;
		}
		vlan = READ_ONCE(vport->info.vlan);
		if (vlan) {
			if (is_tag(eth_hdr(skb)->h_proto)) {
				drop_tx(vport, skb);
				return;
			}
			skb = push_vlan(skb, htons(ETH_P_8021Q),
					vlan | READ_ONCE(vport->info.qos) << VLAN_PRIO_SHIFT);
			if (!skb)
				return;
		}
	}
	forward_legacy(port, vport, skb, depth);
}

/* Doors */

/* A frame from a VF, or from the wire, into the E-Switch. */
void twin_from_vport(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	bool link = twin_is_uplink(vport) ? twin_port_link(vport->port) : twin_vport_link(vport);

	if (!link || depth > TWIN_MAX_DEPTH || !pskb_may_pull(skb, ETH_HLEN)) {
		drop_tx(vport, skb);
		return;
	}
	skb_reset_mac_header(skb);
	twin_count_cast(vport, false, skb, twin_skb_packets(skb), twin_skb_bytes(skb));
	if (twin_switchdev(vport->port))
		from_vport_switchdev(vport, skb, depth);
	else
		from_vport_legacy(vport, skb, depth);
}

/* A frame out of the E-Switch: to the VF, or out on the wire. */
void twin_to_vport(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	struct net_device *dev;

	skb_reset_mac_header(skb);
	twin_count_cast(vport, true, skb, twin_skb_packets(skb), twin_skb_bytes(skb));
	if (twin_is_uplink(vport)) {
		twin_wire_xmit(vport->port, skb, depth);
		return;
	}
	dev = rcu_dereference(vport->dev);
	if (!dev) {
		this_cpu_inc(vport->counters->c[TWIN_RX_DROPS]);
		kfree_skb(skb);
		return;
	}
	twin_netdev_receive(skb, dev, 0);
}

/* A frame from the PF's netdev in legacy mode. */
void twin_from_pf(struct twin_port *port, struct sk_buff *skb)
{
	forward_legacy(port, NULL, skb, 0);
}
