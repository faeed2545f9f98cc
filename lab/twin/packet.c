// SPDX-License-Identifier: GPL-2.0
/*
 * Work on one frame: counting, parsing, rewriting. Frames are whole: skb->data at
 * the Ethernet header, VLAN tags in the frame.
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

#include "packet.h"

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

static void parse_l4(const struct sk_buff *skb, struct twin_key *key, struct twin_headers *h)
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

static void parse_ip(const struct sk_buff *skb, struct twin_key *key, struct twin_headers *h)
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

static void parse_ipv6(const struct sk_buff *skb, struct twin_key *key, struct twin_headers *h)
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

void twin_parse(const struct sk_buff *skb, struct twin_key *key, struct twin_headers *h)
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
	if (key->proto == htons(ETH_P_IP))
		parse_ip(skb, key, h);
	else if (key->proto == htons(ETH_P_IPV6))
		parse_ipv6(skb, key, h);
	h->l4_proto = key->ip_proto;
}

/* Rewriting */

/* The L4 checksum of a TCP or UDP packet, if it has one to keep. */
static __sum16 *l4_check(struct sk_buff *skb, const struct twin_headers *h)
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
static void fix_checksums(struct sk_buff *skb, const struct twin_headers *h,
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
int twin_rewrite(struct sk_buff *skb, const struct twin_act *act)
{
	struct twin_key key;
	struct twin_headers h;
	u32 old, new, *word;
	int at;

	twin_parse(skb, &key, &h);
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

struct sk_buff *twin_push_vlan(struct sk_buff *skb, __be16 proto, u16 tci)
{
	/* the tag is made in the skb's field and then moved into the frame */
	__vlan_hwaccel_put_tag(skb, proto, tci);
	return twin_frame(skb);
}

int twin_pop_vlan(struct sk_buff *skb)
{
	const struct ethhdr *eth = (const struct ethhdr *)skb->data;

	/* a second tag is moved out of the frame by it: the caller puts it back */
	return is_tag(eth->h_proto) ? skb_vlan_pop(skb) : 0;
}

int twin_set_vlan(struct sk_buff *skb, u16 vid)
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
