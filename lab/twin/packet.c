// SPDX-License-Identifier: GPL-2.0
/*
 * Work on one frame: counting, parsing, rewriting. Frames are whole: skb->data at
 * the Ethernet header, VLAN tags in the frame.
 */
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jhash.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/dsfield.h>
#include <net/geneve.h>
#include <net/gso.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/vxlan.h>

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

/* The frame that begins at byte AT of the skb. */
static void parse_frame(const struct sk_buff *skb, int at, struct twin_key *key,
			struct twin_headers *h)
{
	const struct ethhdr *eth;
	struct ethhdr eth_buf;
	unsigned int i;

	memset(key, 0, sizeof(*key));
	memset(h, 0, sizeof(*h));
	h->l2 = at;
	eth = skb_header_pointer(skb, at, ETH_HLEN, &eth_buf);
	if (!eth)
		return;
	at += ETH_HLEN;
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

void twin_parse(const struct sk_buff *skb, struct twin_key *key, struct twin_headers *h)
{
	parse_frame(skb, 0, key, h);
}

/* Tunnels */

/*
 * Geneve's options, of LEN bytes at AT: the flex parser looks for the one that a rule
 * has named.
 */
static void parse_options(const struct twin_port *port, const struct sk_buff *skb, int at, int len,
			  struct twin_key *key)
{
	u32 wanted = READ_ONCE(port->geneve_type);
	const int end = at + len;

	key->opt_words = len / 4;
	while (at + (int)sizeof(struct geneve_opt) <= end) {
		struct geneve_opt buf;
		const struct geneve_opt *opt = skb_header_pointer(skb, at, sizeof(buf), &buf);
		__be32 *data = &key->opt_data;

		if (!opt)
			return;
		at += sizeof(buf);
		if (wanted && wanted == (ntohs(opt->opt_class) << 8 | opt->type)) {
			if (opt->length && skb_copy_bits(skb, at, data, sizeof(*data)))
				return;
			key->opt_found = 1;
			return;
		}
		at += opt->length * 4;
	}
}

/*
 * Is this a frame of a tunnel that the parser knows, and what is in it? By the
 * destination port: those that are registered for VXLAN, and Geneve's own. Fragments
 * and Geneve's control packets are left to software (en/tc_tun.c, tc_tun_geneve.c).
 */
bool twin_parse_tunnel(const struct twin_port *port, const struct sk_buff *skb,
		       const struct twin_key *outer, const struct twin_headers *h,
		       struct twin_key *key, struct twin_headers *inner)
{
	union {
		struct vxlanhdr vxlan;
		struct genevehdr geneve;
	} buf;
	enum twin_tun tun = TWIN_TUN_NONE;
	int at = h->l4 + sizeof(struct udphdr), options = 0;
	__be32 id;

	if (!h->l4 || outer->ip_proto != IPPROTO_UDP || outer->frag)
		return false;
	if (outer->dport == htons(GENEVE_UDP_PORT)) {
		const struct genevehdr *geneve;

		geneve = skb_header_pointer(skb, at, sizeof(buf.geneve), &buf);
		if (!geneve || geneve->ver || geneve->oam ||
		    geneve->proto_type != htons(ETH_P_TEB))
			return false;
		tun = TWIN_TUN_GENEVE;
		id = htonl(geneve->vni[0] << 16 | geneve->vni[1] << 8 | geneve->vni[2]);
		options = geneve->opt_len * 4;
		at += sizeof(buf.geneve);
	} else if (twin_vxlan_port(port, outer->dport)) {
		const struct vxlanhdr *vxlan;

		vxlan = skb_header_pointer(skb, at, sizeof(buf.vxlan), &buf);
		if (!vxlan || !(vxlan->vx_flags & VXLAN_HF_VNI))
			return false;
		tun = TWIN_TUN_VXLAN;
		id = htonl(ntohl(vxlan->vx_vni) >> 8);
		at += sizeof(buf.vxlan);
	} else {
		return false;
	}
	parse_frame(skb, at + options, key, inner);
	if (!inner->l3)
		return false;
	key->tun = tun;
	key->enc_proto = outer->proto;
	key->enc_saddr = outer->saddr;
	key->enc_daddr = outer->daddr;
	key->enc_sport = outer->sport;
	key->enc_dport = outer->dport;
	key->enc_tos = outer->tos;
	key->enc_ttl = outer->ttl;
	key->enc_id = id;
	if (options)
		parse_options(port, skb, at, options, key);
	return true;
}

/*
 * Cuts a packet of several segments into frames, chained by next, each with its
 * checksums. NULL, and the skb is gone, if there is no memory or it cannot be cut.
 */
struct sk_buff *twin_segment(struct sk_buff *skb)
{
	struct sk_buff *segments;

	if (!skb_is_gso(skb))
		return skb;
	segments = skb_gso_segment(skb, NETIF_F_SG);
	if (IS_ERR_OR_NULL(segments)) {
		kfree_skb(skb);
		return NULL;
	}
	consume_skb(skb);
	return segments;
}

/* The source port of the outer header says which flow is inside. */
static __be16 entropy(const struct sk_buff *skb)
{
	struct twin_headers h;
	struct twin_key key;
	u32 hash;

	twin_parse(skb, &key, &h);
	hash = jhash(&key.saddr, 2 * sizeof(key.saddr), jhash(&key, 2 * ETH_ALEN, key.ip_proto));
	hash = jhash_2words((__force u16)key.sport, (__force u16)key.dport, hash);
	return htons(0xc000 | (hash & 0x3fff));
}

/* Puts an outer header before a frame that is no packet of several. NULL: the skb is gone. */
struct sk_buff *twin_push_tunnel(struct sk_buff *skb, const struct twin_header *header)
{
	unsigned int l4 = header->l3 + (header->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	__be16 sport = entropy(skb);
	struct udphdr *udp;

	if ((skb->ip_summed == CHECKSUM_PARTIAL && skb_checksum_help(skb)) ||
	    skb_cow_head(skb, header->len)) {
		kfree_skb(skb);
		return NULL;
	}
	memcpy(skb_push(skb, header->len), header->data, header->len);
	if (header->v6) {
		struct ipv6hdr *ip = (struct ipv6hdr *)(skb->data + header->l3);

		ip->payload_len = htons(skb->len - l4);
	} else {
		struct iphdr *ip = (struct iphdr *)(skb->data + header->l3);

		ip->tot_len = htons(skb->len - header->l3);
		ip_send_check(ip);
	}
	udp = (struct udphdr *)(skb->data + l4);
	udp->source = sport;
	udp->len = htons(skb->len - l4);
	skb->ip_summed = CHECKSUM_NONE;
	skb->encapsulation = 0;
	skb_clear_hash(skb);
	skb_set_network_header(skb, header->l3);
	skb_set_transport_header(skb, l4);
	return twin_frame(skb);
}

/* The inner frame's congestion mark follows the outer one's: RFC 6040. */
static int fix_ecn(struct sk_buff *skb, u8 outer)
{
	u8 inner;

	if (skb->protocol == htons(ETH_P_IP)) {
		if (skb_ensure_writable(skb, ETH_HLEN + sizeof(struct iphdr)))
			return -ENOMEM;
		inner = ip_hdr(skb)->tos;
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		if (skb_ensure_writable(skb, ETH_HLEN + sizeof(struct ipv6hdr)))
			return -ENOMEM;
		inner = ipv6_get_dsfield(ipv6_hdr(skb));
	} else {
		return 0;
	}
	return INET_ECN_decapsulate(skb, outer, inner) > 1 ? -EINVAL : 0;
}

/* Takes off what is around the inner frame. The skb stays the caller's. */
int twin_pop_tunnel(struct sk_buff *skb)
{
	/* only what a rule has matched comes here, so it is of port->vxlan_ports or Geneve */
	struct twin_headers h;
	struct twin_key outer;
	int at;

	twin_parse(skb, &outer, &h);
	at = h.l4 + sizeof(struct udphdr);
	if (outer.dport == htons(GENEVE_UDP_PORT)) {
		struct genevehdr buf;
		const struct genevehdr *geneve = skb_header_pointer(skb, at, sizeof(buf), &buf);

		if (!geneve)
			return -EINVAL;
		at += sizeof(buf) + geneve->opt_len * 4;
	} else {
		at += sizeof(struct vxlanhdr);
	}
	if (!pskb_may_pull(skb, at + ETH_HLEN))
		return -EINVAL;
	/* a checksum of the outer packet says nothing of the inner one */
	if (skb->ip_summed != CHECKSUM_PARTIAL || skb_checksum_start_offset(skb) < at)
		skb->ip_summed = CHECKSUM_NONE;
	skb_pull(skb, at);
	skb->encapsulation = 0;
	skb_clear_hash(skb);
	skb_reset_mac_header(skb);
	skb_reset_mac_len(skb);
	skb_set_network_header(skb, ETH_HLEN);
	skb->protocol = eth_hdr(skb)->h_proto;
	return fix_ecn(skb, outer.tos);
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
