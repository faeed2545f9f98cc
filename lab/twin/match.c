// SPDX-License-Identifier: GPL-2.0
/* Which matches a ConnectX takes: mlx5/core en_tc.c, __parse_cls_flower. */
#include <linux/netdevice.h>
#include <net/inet_ecn.h>
#include <net/pkt_cls.h>

#include "flower.h"

#define SUPPORTED_KEYS (BIT_ULL(FLOW_DISSECTOR_KEY_META) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_CONTROL) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_BASIC) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_ETH_ADDRS) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_VLAN) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_CVLAN) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_IPV4_ADDRS) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_IPV6_ADDRS) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_PORTS) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_TCP) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_IP) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_ICMP) | \
			BIT_ULL(FLOW_DISSECTOR_KEY_CT))

/* Keys of tunnel devices: tunnel.c */
#define TUNNEL_KEYS (BIT_ULL(FLOW_DISSECTOR_KEY_ENC_KEYID) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_IPV4_ADDRS) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_IPV6_ADDRS) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_PORTS) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_CONTROL) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_IP) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_OPTS))

/* mlx5e_flower_parse_meta */
static int parse_meta(struct twin_rule *p)
{
	struct flow_match_meta match;
	int ifindex;

	if (!flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_META))
		return 0;
	flow_rule_match_meta(p->rule, &match);
	if (match.mask->l2_miss) {
		ERR(p->extack, "Can't match on \"l2_miss\"");
		return -EOPNOTSUPP;
	}
	if (!match.mask->ingress_ifindex)
		return 0;
	if (match.mask->ingress_ifindex != 0xffffffff) {
		ERR(p->extack, "Unsupported ingress ifindex mask");
		return -EOPNOTSUPP;
	}
	ifindex = match.key->ingress_ifindex;
	if (ifindex != p->dev->ifindex) {
		struct net_device *dev = dev_get_by_index(dev_net(p->dev), ifindex);

		if (!dev) {
			ERR(p->extack, "Can't find the ingress port to match on");
			return -ENOENT;
		}
		dev_put(dev);
		ERR(p->extack, "Can't match on the ingress filter port");
		return -EOPNOTSUPP;
	}
	return 0;
}

static void parse_tag(struct twin_rule *p, unsigned int i, const struct flow_match_vlan *match)
{
	if (!match->mask->vlan_id && !match->mask->vlan_priority && !match->mask->vlan_tpid)
		return;
	p->mask.tags |= 1 << i;
	p->key.tags |= 1 << i;
	p->mask.tpid[i] = htons(0xffff);
	p->key.tpid[i] = match->key->vlan_tpid == htons(ETH_P_8021AD) ?
			 htons(ETH_P_8021AD) : htons(ETH_P_8021Q);
	p->mask.tci[i] = htons(match->mask->vlan_priority << VLAN_PRIO_SHIFT | match->mask->vlan_id);
	p->key.tci[i] = htons(match->key->vlan_priority << VLAN_PRIO_SHIFT | match->key->vlan_id);
}

static void parse_l2(struct twin_rule *p)
{
	struct flow_match_basic basic;
	struct flow_match_vlan vlan;
	struct flow_match_eth_addrs eth;
	bool matches = false;

	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_BASIC)) {
		flow_rule_match_basic(p->rule, &basic);
		p->mask.proto = basic.mask->n_proto;
		p->key.proto = basic.key->n_proto;
		matches = basic.mask->n_proto;
	}
	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_VLAN)) {
		flow_rule_match_vlan(p->rule, &vlan);
		parse_tag(p, 0, &vlan);
		if (p->mask.tags && vlan.mask->vlan_eth_type &&
		    !flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_CVLAN))
			p->mask.tags |= 2;	/* and no second tag */
	} else if (matches) {
		p->mask.tags |= 1;		/* untagged only */
	}
	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_CVLAN)) {
		flow_rule_match_cvlan(p->rule, &vlan);
		parse_tag(p, 1, &vlan);
	}
	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_ETH_ADDRS)) {
		flow_rule_match_eth_addrs(p->rule, &eth);
		ether_addr_copy(p->mask.dst, eth.mask->dst);
		ether_addr_copy(p->key.dst, eth.key->dst);
		ether_addr_copy(p->mask.src, eth.mask->src);
		ether_addr_copy(p->key.src, eth.key->src);
	}
}

static int parse_l3(struct twin_rule *p)
{
	struct flow_match_control control;
	struct flow_match_basic basic;
	struct flow_match_ip ip;
	u16 addr_type = 0;

	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_CONTROL)) {
		flow_rule_match_control(p->rule, &control);
		addr_type = control.key->addr_type;
		if (control.mask->flags & FLOW_DIS_IS_FRAGMENT) {
			p->mask.frag = 1;
			p->key.frag = !!(control.key->flags & FLOW_DIS_IS_FRAGMENT);
		}
		if (!flow_rule_is_supp_control_flags(FLOW_DIS_IS_FRAGMENT, control.mask->flags,
						     p->extack))
			return -EOPNOTSUPP;
	}
	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_BASIC)) {
		flow_rule_match_basic(p->rule, &basic);
		p->mask.ip_proto = basic.mask->ip_proto;
		p->key.ip_proto = basic.key->ip_proto;
	}
	if (addr_type == FLOW_DISSECTOR_KEY_IPV4_ADDRS) {
		struct flow_match_ipv4_addrs addrs;

		flow_rule_match_ipv4_addrs(p->rule, &addrs);
		p->mask.saddr.s6_addr32[0] = addrs.mask->src;
		p->key.saddr.s6_addr32[0] = addrs.key->src;
		p->mask.daddr.s6_addr32[0] = addrs.mask->dst;
		p->key.daddr.s6_addr32[0] = addrs.key->dst;
	} else if (addr_type == FLOW_DISSECTOR_KEY_IPV6_ADDRS) {
		struct flow_match_ipv6_addrs addrs;

		flow_rule_match_ipv6_addrs(p->rule, &addrs);
		p->mask.saddr = addrs.mask->src;
		p->key.saddr = addrs.key->src;
		p->mask.daddr = addrs.mask->dst;
		p->key.daddr = addrs.key->dst;
	}
	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_IP)) {
		flow_rule_match_ip(p->rule, &ip);
		p->mask.tos = p->drop_inner_ecn ? ip.mask->tos & ~INET_ECN_MASK : ip.mask->tos;
		p->key.tos = ip.key->tos;
		p->mask.ttl = ip.mask->ttl;
		p->key.ttl = ip.key->ttl;
	}
	return 0;
}

static int parse_l4(struct twin_rule *p)
{
	struct flow_match_ports ports;
	struct flow_match_tcp tcp;
	struct flow_match_icmp icmp;

	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_PORTS)) {
		if (p->key.ip_proto != IPPROTO_TCP && p->key.ip_proto != IPPROTO_UDP) {
			ERR(p->extack, "Only UDP and TCP transports are supported for L4 matching");
			return -EINVAL;
		}
		flow_rule_match_ports(p->rule, &ports);
		p->mask.sport = ports.mask->src;
		p->key.sport = ports.key->src;
		p->mask.dport = ports.mask->dst;
		p->key.dport = ports.key->dst;
	}
	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_TCP)) {
		flow_rule_match_tcp(p->rule, &tcp);
		p->mask.tcp_flags = tcp.mask->flags & htons(0x0fff);
		p->key.tcp_flags = tcp.key->flags & htons(0x0fff);
	}
	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_ICMP)) {
		if (p->key.ip_proto != IPPROTO_ICMP && p->key.ip_proto != IPPROTO_ICMPV6) {
			ERR(p->extack, "Code and type matching only with ICMP and ICMPv6");
			return -EINVAL;
		}
		flow_rule_match_icmp(p->rule, &icmp);
		p->mask.icmp_type = icmp.mask->type;
		p->key.icmp_type = icmp.key->type;
		p->mask.icmp_code = icmp.mask->code;
		p->key.icmp_code = icmp.key->code;
	}
	return 0;
}

int twin_rule_match(struct twin_rule *p)
{
	u64 used = p->rule->match.dissector->used_keys;
	int err;

	if (used & BIT_ULL(FLOW_DISSECTOR_KEY_MPLS)) {
		ERR(p->extack, "Matching on MPLS is supported only for MPLS over UDP");
		return -EOPNOTSUPP;
	}
	/* on a port that is no tunnel mlx5 ignores tunnel keys; they need a mask to count */
	if (used & ~(SUPPORTED_KEYS | TUNNEL_KEYS)) {
		ERR(p->extack, "Unsupported key");
		return -EOPNOTSUPP;
	}
	if (used & TUNNEL_KEYS && !p->tun) {
		ERR(p->extack, "Match on tunnel is not supported");
		return -EOPNOTSUPP;
	}
	if (p->tun) {
		err = twin_rule_match_tunnel(p);
		if (err)
			return err;
	}
	err = parse_meta(p);
	if (err)
		return err;
	parse_l2(p);
	err = parse_l3(p);
	if (err)
		return err;
	err = parse_l4(p);
	if (err)
		return err;
	err = twin_ct_match(p);
	if (err)
		return err;
	twin_key_mask(&p->key, &p->key, &p->mask);
	return 0;
}
