// SPDX-License-Identifier: GPL-2.0
/*
 * tc flower: which rules a ConnectX takes, and the tables they go into.
 * Follows mlx5/core en_tc.c, en/tc/act/ and en/rep/tc.c.
 *
 * Rules of a vport are kept in groups of one chain, priority and mask; inside a
 * group a rule is found by its masked key, so that a lookup costs as many hashes
 * as the chain has groups.
 */
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/tc_act/tc_csum.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/pkt_cls.h>

#include "twin.h"

#define ERR(extack, text) NL_SET_ERR_MSG(extack, TWIN_DRIVER ": " text)

/* Tables */

static const struct rhashtable_params flow_params = {
	.head_offset = offsetof(struct twin_flow, node),
	.key_offset = offsetof(struct twin_flow, id),
	.key_len = sizeof(struct twin_flow_key),
	.automatic_shrinking = true,
};

static const struct rhashtable_params match_params = {
	.head_offset = offsetof(struct twin_flow, match_node),
	.key_offset = offsetof(struct twin_flow, match),
	.key_len = sizeof(struct twin_match_key),
	.automatic_shrinking = true,
};

int twin_flows_init(struct twin_port *port)
{
	int err;

	mutex_init(&port->flow_lock);
	INIT_LIST_HEAD(&port->meters);
	err = rhashtable_init(&port->flows, &flow_params);
	if (err)
		return err;
	err = rhashtable_init(&port->matches, &match_params);
	if (err) {
		rhashtable_destroy(&port->flows);
		return err;
	}
	port->flows_ready = true;
	return 0;
}

/* All netdevs are gone, so tc has taken every rule back. */
void twin_flows_free(struct twin_port *port)
{
	if (!port->flows_ready)
		return;
	WARN_ON(port->num_flows || !list_empty(&port->meters));
	rhashtable_destroy(&port->matches);
	rhashtable_destroy(&port->flows);
	port->flows_ready = false;
}

static void mask_key(struct twin_key *to, const struct twin_key *key, const struct twin_key *mask)
{
	unsigned int i;

	for (i = 0; i < TWIN_KEY_WORDS; i++)
		((u64 *)to)[i] = ((const u64 *)key)[i] & ((const u64 *)mask)[i];
}

/* The first rule, by priority, of a vport's chain that matches. Under RCU. */
struct twin_flow *twin_flow_lookup(struct twin_vport *vport, u32 chain, const struct twin_key *key)
{
	struct twin_match_key match;
	struct twin_group *group;
	struct twin_flow *flow;

	list_for_each_entry_rcu(group, &vport->groups, list) {
		if (group->chain < chain)
			continue;
		if (group->chain > chain)
			break;
		match.group = (unsigned long)group;
		mask_key(&match.key, key, &group->mask);
		flow = rhashtable_lookup(&vport->port->matches, &match, match_params);
		if (flow)
			return flow;
	}
	return NULL;
}

static struct twin_group *get_group(struct twin_vport *vport, u32 chain, u32 prio,
				    const struct twin_key *mask)
{
	struct twin_group *group, *next = NULL;

	list_for_each_entry(group, &vport->groups, list) {
		if (group->chain == chain && group->prio == prio &&
		    !memcmp(&group->mask, mask, sizeof(*mask))) {
			group->refs++;
			return group;
		}
		if (group->chain > chain || (group->chain == chain && group->prio > prio)) {
			next = group;
			break;
		}
	}
	group = kzalloc(sizeof(*group), GFP_KERNEL);
	if (!group)
		return NULL;
	group->chain = chain;
	group->prio = prio;
	group->mask = *mask;
	group->refs = 1;
	list_add_tail_rcu(&group->list, next ? &next->list : &vport->groups);
	return group;
}

static void put_group(struct twin_group *group)
{
	if (--group->refs)
		return;
	list_del_rcu(&group->list);
	kfree_rcu(group, rcu);
}

/* A meter is shared by all rules of the port that name its police index. */
static struct twin_meter *get_meter(struct twin_port *port, const struct flow_action_entry *act)
{
	struct twin_meter *meter;
	bool fresh = false;

	list_for_each_entry(meter, &port->meters, list)
		if (meter->index == act->hw_index)
			goto found;
	meter = kzalloc(sizeof(*meter), GFP_KERNEL);
	if (!meter)
		return NULL;
	meter->index = act->hw_index;
	spin_lock_init(&meter->lock);
	list_add(&meter->list, &port->meters);
	fresh = true;
found:
	meter->refs++;
	spin_lock_bh(&meter->lock);
	meter->packets = !act->police.rate_bytes_ps;
	if (meter->packets) {
		meter->rate = act->police.rate_pkt_ps;
		meter->burst = max_t(u64, 1, act->police.burst_pkt);
	} else {
		meter->rate = act->police.rate_bytes_ps;
		meter->burst = act->police.burst;
	}
	if (fresh) {
		meter->tokens = meter->burst;
		meter->last = ktime_get_ns();
	}
	spin_unlock_bh(&meter->lock);
	return meter;
}

static void put_meters(struct twin_flow *flow)
{
	unsigned int i;

	for (i = 0; i < flow->num_acts; i++) {
		struct twin_meter *meter = flow->acts[i].meter.meter;

		if (flow->acts[i].kind != TWIN_ACT_METER || --meter->refs)
			continue;
		list_del(&meter->list);
		kfree_rcu(meter, rcu);
	}
}

/* Matches: en_tc.c, __parse_cls_flower */

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
			BIT_ULL(FLOW_DISSECTOR_KEY_ICMP))

/* Keys that mlx5 takes on other ports or with options that are not modelled */
#define TUNNEL_KEYS (BIT_ULL(FLOW_DISSECTOR_KEY_ENC_KEYID) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_IPV4_ADDRS) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_IPV6_ADDRS) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_PORTS) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_CONTROL) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_IP) | \
		     BIT_ULL(FLOW_DISSECTOR_KEY_ENC_OPTS))

struct parse {
	struct net_device *dev;
	struct twin_vport *vport;
	struct flow_rule *rule;
	struct netlink_ext_ack *extack;
	u32 chain, prio;
	struct twin_key key, mask;
	unsigned int num_acts;
	struct twin_act acts[TWIN_MAX_ACTS];

	/* the state of mlx5e_tc_act_parse_state and mlx5_esw_flow_attr */
	bool rewrites;
	bool rewrites_ip;	/* something else than TTL or hop limit */
	bool goes_to;
	bool terminal;
	bool popped;		/* and not yet pushed */
	bool ptype_host;
	unsigned int vlans;
	unsigned int outputs;
	unsigned int num_ifindexes;
	int ifindexes[TWIN_MAX_OUTPUTS];
	u8 set[FLOW_ACT_MANGLE_HDR_TYPE_UDP + 1][64];	/* bits written, by header and byte */
	u8 add[FLOW_ACT_MANGLE_HDR_TYPE_UDP + 1][64];
};

/* mlx5e_flower_parse_meta */
static int parse_meta(struct parse *p)
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

static void parse_tag(struct parse *p, unsigned int i, const struct flow_match_vlan *match)
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

static void parse_l2(struct parse *p)
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

static int parse_l3(struct parse *p)
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
		p->mask.tos = ip.mask->tos;
		p->key.tos = ip.key->tos;
		p->mask.ttl = ip.mask->ttl;
		p->key.ttl = ip.key->ttl;
	}
	return 0;
}

static int parse_l4(struct parse *p)
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

static int parse_match(struct parse *p)
{
	u64 used = p->rule->match.dissector->used_keys;
	int err;

	if (used & BIT_ULL(FLOW_DISSECTOR_KEY_CT)) {
		/* en/tc_ct.h, of a driver without MLX5_TC_CT */
		ERR(p->extack, "mlx5 tc ct offload isn't enabled.");
		return -EOPNOTSUPP;
	}
	if (used & BIT_ULL(FLOW_DISSECTOR_KEY_MPLS)) {
		ERR(p->extack, "Matching on MPLS is supported only for MPLS over UDP");
		return -EOPNOTSUPP;
	}
	/* on a port that is no tunnel mlx5 ignores tunnel keys; they need a mask to count */
	if (used & ~(SUPPORTED_KEYS | TUNNEL_KEYS)) {
		ERR(p->extack, "Unsupported key");
		return -EOPNOTSUPP;
	}
	if (used & TUNNEL_KEYS) {
		ERR(p->extack, "Match on tunnel is not supported");
		return -EOPNOTSUPP;
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
	mask_key(&p->key, &p->key, &p->mask);
	return 0;
}

/* Actions: en/tc/act/ */

static struct twin_act *new_act(struct parse *p, enum twin_act_kind kind)
{
	struct twin_act *act;

	if (p->num_acts == TWIN_MAX_ACTS) {
		ERR(p->extack, "too many actions, can't offload");
		return NULL;
	}
	act = &p->acts[p->num_acts++];
	memset(act, 0, sizeof(*act));
	act->kind = kind;
	return act;
}

static int act_simple(struct parse *p, const struct flow_action_entry *a)
{
	struct twin_act *act;

	act = new_act(p, a->id == FLOW_ACTION_DROP ? TWIN_ACT_DROP : TWIN_ACT_SLOW);
	if (!act)
		return -EOPNOTSUPP;
	p->terminal = true;
	return 0;
}

/* act/goto.c, on a device that can jump back (ignore_flow_level) */
static int act_goto(struct parse *p, const struct flow_action_entry *a)
{
	struct twin_act *act;

	if (!IS_ENABLED(CONFIG_NET_TC_SKB_EXT)) {
		/* a miss in that chain could not be handed back to software */
		ERR(p->extack, "Goto action is not supported");
		return -EOPNOTSUPP;
	}
	if (a->chain_index > UINT_MAX - 1) {
		ERR(p->extack, "Requested destination chain is out of supported range");
		return -EOPNOTSUPP;
	}
	act = new_act(p, TWIN_ACT_GOTO);
	if (!act)
		return -EOPNOTSUPP;
	act->chain = a->chain_index;
	p->goes_to = true;
	p->terminal = true;
	return 0;
}

/* act/mirred.c: tc_act_can_offload_mirred, parse_mirred, mlx5e_is_valid_eswitch_fwd_dev */
static int act_mirred(struct parse *p, const struct flow_action_entry *a)
{
	struct net_device *out = a->dev;
	struct twin_nic *nic;
	struct twin_act *act;
	unsigned int i;

	if (!out)
		return -EOPNOTSUPP;	/* replayed after the target was removed */
	if (p->outputs >= TWIN_MAX_OUTPUTS) {
		ERR(p->extack, "can't support more output ports, can't offload forwarding");
		return -EOPNOTSUPP;
	}
	if (!twin_netdev_is_ours(out) || !netdev_port_same_parent_id(p->dev, out))
		goto other;
	for (i = 0; i < p->num_ifindexes; i++) {
		if (p->ifindexes[i] == out->ifindex) {
			ERR(p->extack, "can't duplicate output to same device");
			return -EOPNOTSUPP;
		}
	}
	p->ifindexes[p->num_ifindexes++] = out->ifindex;

	nic = netdev_priv(out);
	if (twin_netdev_is_uplink(p->dev) && twin_netdev_is_uplink(out) && out != p->dev) {
		ERR(p->extack, "devices are not the same uplink, can't offload forwarding");
		return -EOPNOTSUPP;
	}
	/* between the ports of a card only from VF to VF: merged_eswitch */
	if (!twin_netdev_is_rep(out) && !twin_netdev_is_uplink(out))
		goto other;
	if (nic->port != p->vport->port &&
	    !(twin_netdev_is_rep(p->dev) && twin_netdev_is_rep(out)))
		goto other;
	if (twin_netdev_is_rep(p->dev) && out == p->dev) {
		ERR(p->extack, "can't forward from a VF to itself");
		return -EOPNOTSUPP;
	}
	act = new_act(p, TWIN_ACT_OUTPUT);
	if (!act)
		return -EOPNOTSUPP;
	act->vport = nic->vport;
	p->outputs++;
	if (a->id == FLOW_ACTION_REDIRECT)
		p->terminal = true;
	return 0;

other:
	ERR(p->extack, "devices are not on same switch HW, can't offload forwarding");
	return -EOPNOTSUPP;
}

/* act/redirect_ingress.c; there are no OVS internal ports in the hardware model */
static int act_redirect_ingress(struct parse *p, const struct flow_action_entry *a)
{
	ERR(p->extack, "redirect to ingress is supported only for OVS internal ports");
	return -EOPNOTSUPP;
}

/* act/vlan_mangle.c, mlx5e_tc_act_vlan_add_rewrite_action */
static int rewrite_vlan(struct parse *p, u16 vid, u8 prio)
{
	u8 match_prio = ntohs(p->key.tci[0] & p->mask.tci[0]) >> VLAN_PRIO_SHIFT;
	struct twin_act *act;

	if (!(p->mask.tags & 1 && p->key.tags & 1)) {
		ERR(p->extack, "VLAN rewrite action must have VLAN protocol match");
		return -EOPNOTSUPP;
	}
	if (prio != match_prio) {
		ERR(p->extack, "Changing VLAN prio is not supported");
		return -EOPNOTSUPP;
	}
	act = new_act(p, TWIN_ACT_SET_VLAN);
	if (!act)
		return -EOPNOTSUPP;
	act->vlan.tci = vid;
	p->rewrites = true;
	p->num_ifindexes = 0;
	return 0;
}

/* act/vlan.c, tc_act_parse_vlan; two tags deep (MLX5_FS_VLAN_DEPTH) */
static int act_vlan(struct parse *p, const struct flow_action_entry *a)
{
	struct twin_act *act;

	if (a->id == FLOW_ACTION_VLAN_PUSH && p->popped) {
		/* pop and push are one change of the tag */
		p->popped = false;
		p->vlans--;
		p->num_acts--;
		return rewrite_vlan(p, a->vlan.vid, a->vlan.prio);
	}
	if (p->vlans >= 2) {
		ERR(p->extack, "Total vlans used is greater than supported");
		return -EOPNOTSUPP;
	}
	act = new_act(p, a->id == FLOW_ACTION_VLAN_PUSH ? TWIN_ACT_PUSH_VLAN : TWIN_ACT_POP_VLAN);
	if (!act)
		return -EOPNOTSUPP;
	if (a->id == FLOW_ACTION_VLAN_PUSH) {
		act->vlan.proto = a->vlan.proto ?: htons(ETH_P_8021Q);
		act->vlan.tci = a->vlan.prio << VLAN_PRIO_SHIFT | a->vlan.vid;
	}
	p->popped = a->id == FLOW_ACTION_VLAN_POP;
	p->vlans++;
	p->num_ifindexes = 0;
	return 0;
}

static int act_vlan_mangle(struct parse *p, const struct flow_action_entry *a)
{
	return rewrite_vlan(p, a->vlan.vid, a->vlan.prio);
}

/*
 * What a header rewrite can reach: the table "fields" of en_tc.c. In network
 * order, by byte; MASK are the bits of each byte.
 */
static const struct {
	enum flow_action_mangle_base base;
	u8 offset, len, mask;
} fields[] = {
	{ FLOW_ACT_MANGLE_HDR_TYPE_ETH, 0, 12, 0xff },		/* addresses */
	{ FLOW_ACT_MANGLE_HDR_TYPE_ETH, 12, 2, 0xff },		/* ethertype */
	{ FLOW_ACT_MANGLE_HDR_TYPE_IP4, 1, 1, 0xfc },		/* DSCP */
	{ FLOW_ACT_MANGLE_HDR_TYPE_IP4, 8, 1, 0xff },		/* TTL */
	{ FLOW_ACT_MANGLE_HDR_TYPE_IP4, 12, 8, 0xff },		/* addresses */
	{ FLOW_ACT_MANGLE_HDR_TYPE_IP6, 0, 1, 0x0f },		/* DSCP, upper part */
	{ FLOW_ACT_MANGLE_HDR_TYPE_IP6, 1, 1, 0xc0 },		/* DSCP, lower part */
	{ FLOW_ACT_MANGLE_HDR_TYPE_IP6, 7, 1, 0xff },		/* hop limit */
	{ FLOW_ACT_MANGLE_HDR_TYPE_IP6, 8, 32, 0xff },		/* addresses */
	{ FLOW_ACT_MANGLE_HDR_TYPE_TCP, 0, 4, 0xff },		/* ports */
	{ FLOW_ACT_MANGLE_HDR_TYPE_TCP, 13, 1, 0xff },		/* flags */
	{ FLOW_ACT_MANGLE_HDR_TYPE_UDP, 0, 4, 0xff },		/* ports */
};

static u8 reachable(enum flow_action_mangle_base base, unsigned int at)
{
	u8 mask = 0;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fields); i++)
		if (fields[i].base == base && at >= fields[i].offset &&
		    at < fields[i].offset + fields[i].len)
			mask |= fields[i].mask;
	return mask;
}

/* act/pedit.c, mlx5e_tc_act_pedit_parse_action, and offload_pedit_fields of en_tc.c */
static int act_pedit(struct parse *p, const struct flow_action_entry *a)
{
	enum flow_action_mangle_base base = a->mangle.htype;
	u8 (*mine)[64] = a->id == FLOW_ACTION_MANGLE ? p->set : p->add;
	u8 (*other)[64] = a->id == FLOW_ACTION_MANGLE ? p->add : p->set;
	u32 bits = ~a->mangle.mask;
	struct twin_act *act;
	unsigned int i;

	if (base == FLOW_ACT_MANGLE_UNSPEC) {
		ERR(p->extack, "legacy pedit isn't offloaded");
		return -EOPNOTSUPP;
	}
	if (base > FLOW_ACT_MANGLE_HDR_TYPE_UDP || a->mangle.offset > 60) {
		ERR(p->extack, "attempt to offload an unsupported field");
		return -EOPNOTSUPP;
	}
	for (i = 0; i < 4; i++) {
		unsigned int at = a->mangle.offset + i;
		u8 byte = ((const u8 *)&bits)[i];

		if (mine[base][at] & byte) {
			ERR(p->extack, "curr_pmask and new mask same. Acting twice on same location");
			return -EOPNOTSUPP;
		}
		if (other[base][at] & byte) {
			ERR(p->extack, "can't set and add to the same HW field");
			return -EOPNOTSUPP;
		}
		if (byte & ~reachable(base, at)) {
			ERR(p->extack, "attempt to offload an unsupported field");
			return -EOPNOTSUPP;
		}
		mine[base][at] |= byte;
		/* is_flow_action_modify_ip_header: all but TTL and hop limit */
		if (byte && ((base == FLOW_ACT_MANGLE_HDR_TYPE_IP4 && at != 8) ||
			     (base == FLOW_ACT_MANGLE_HDR_TYPE_IP6 && at != 7)))
			p->rewrites_ip = true;
	}
	act = new_act(p, a->id == FLOW_ACTION_MANGLE ? TWIN_ACT_SET : TWIN_ACT_ADD);
	if (!act)
		return -EOPNOTSUPP;
	act->set.base = base;
	act->set.offset = a->mangle.offset;
	act->set.mask = a->mangle.mask;
	act->set.val = a->mangle.val & bits;
	p->rewrites = true;
	p->num_ifindexes = 0;
	return 0;
}

/* act/csum.c; the work is done by every rewrite anyway (exec.c, fix_checksums) */
static int act_csum(struct parse *p, const struct flow_action_entry *a)
{
	if (!p->rewrites) {
		ERR(p->extack, "TC csum action is only offloaded with pedit");
		return -EOPNOTSUPP;
	}
	if (a->csum_flags & ~(TCA_CSUM_UPDATE_FLAG_IPV4HDR | TCA_CSUM_UPDATE_FLAG_TCP |
			      TCA_CSUM_UPDATE_FLAG_UDP)) {
		ERR(p->extack, "can't offload TC csum action for some header/s");
		return -EOPNOTSUPP;
	}
	return 0;
}

/* act/ptype.c */
static int act_ptype(struct parse *p, const struct flow_action_entry *a)
{
	if (a->ptype != PACKET_HOST) {
		ERR(p->extack, "skbedit ptype is only supported with type host");
		return -EOPNOTSUPP;
	}
	p->ptype_host = true;
	return 0;
}

/* act/police.c. Jump and MTU branches need more than the model has. */
static int police_verdict(struct parse *p, enum flow_action_id id, u8 *verdict)
{
	switch (id) {
	case FLOW_ACTION_PIPE:
		*verdict = TWIN_METER_PIPE;
		return 0;
	case FLOW_ACTION_ACCEPT:
		*verdict = TWIN_ACT_SLOW;
		return 0;
	case FLOW_ACTION_DROP:
		*verdict = TWIN_ACT_DROP;
		return 0;
	default:
		ERR(p->extack, "Offload not supported when conform-exceed action is not pipe, ok, jump or drop");
		return -EOPNOTSUPP;
	}
}

static int act_police(struct parse *p, const struct flow_action_entry *a)
{
	struct twin_act *act;
	u8 exceed, conform;

	if (a->police.exceed.act_id == FLOW_ACTION_JUMP ||
	    a->police.notexceed.act_id == FLOW_ACTION_JUMP)
		return -EOPNOTSUPP;
	if (police_verdict(p, a->police.exceed.act_id, &exceed) ||
	    police_verdict(p, a->police.notexceed.act_id, &conform))
		return -EOPNOTSUPP;
	if (a->police.peakrate_bytes_ps || a->police.avrate || a->police.overhead) {
		ERR(p->extack, "Offload not supported when peakrate/avrate/overhead is configured");
		return -EOPNOTSUPP;
	}
	if (!a->police.rate_bytes_ps && !a->police.rate_pkt_ps)
		return -EOPNOTSUPP;
	act = new_act(p, TWIN_ACT_METER);
	if (!act)
		return -EOPNOTSUPP;
	act->meter.exceed = exceed;
	act->meter.conform = conform;
	act->meter.meter = get_meter(p->vport->port, a);
	if (!act->meter.meter) {
		p->num_acts--;
		return -ENOMEM;
	}
	return 0;
}

/* en/tc_ct.h, of a driver without MLX5_TC_CT */
static int act_ct(struct parse *p, const struct flow_action_entry *a)
{
	ERR(p->extack, "mlx5 tc ct offload isn't enabled.");
	return -EOPNOTSUPP;
}

/* act/act.c, tc_acts_fdb; the ones that are missing here mlx5 has and the model has not */
static int (*const parsers[NUM_FLOW_ACTIONS])(struct parse *, const struct flow_action_entry *) = {
	[FLOW_ACTION_ACCEPT] = act_simple,
	[FLOW_ACTION_DROP] = act_simple,
	[FLOW_ACTION_TRAP] = act_simple,
	[FLOW_ACTION_GOTO] = act_goto,
	[FLOW_ACTION_REDIRECT] = act_mirred,
	[FLOW_ACTION_MIRRED] = act_mirred,
	[FLOW_ACTION_REDIRECT_INGRESS] = act_redirect_ingress,
	[FLOW_ACTION_VLAN_PUSH] = act_vlan,
	[FLOW_ACTION_VLAN_POP] = act_vlan,
	[FLOW_ACTION_VLAN_MANGLE] = act_vlan_mangle,
	[FLOW_ACTION_MANGLE] = act_pedit,
	[FLOW_ACTION_ADD] = act_pedit,
	[FLOW_ACTION_CSUM] = act_csum,
	[FLOW_ACTION_PTYPE] = act_ptype,
	[FLOW_ACTION_POLICE] = act_police,
	[FLOW_ACTION_CT] = act_ct,
};

/* en_tc.c, parse_tc_fdb_actions and actions_match_supported */
static int parse_actions(struct parse *p)
{
	const struct flow_action_entry *a;
	int i, err;

	if (!flow_action_has_entries(&p->rule->action)) {
		ERR(p->extack, "Flow action doesn't have any entries");
		return -EINVAL;
	}
	if (!flow_action_hw_stats_check(&p->rule->action, p->extack,
					FLOW_ACTION_HW_STATS_DELAYED_BIT)) {
		ERR(p->extack, "Flow action HW stats type is not supported");
		return -EOPNOTSUPP;
	}
	flow_action_for_each(i, a, &p->rule->action) {
		if (a->id >= NUM_FLOW_ACTIONS || !parsers[a->id]) {
			ERR(p->extack, "Not implemented offload action");
			return -EOPNOTSUPP;
		}
		err = parsers[a->id](p, a);
		if (err)
			return err;
	}
	/* modify_header_match_supported */
	if (p->rewrites_ip &&
	    (p->key.proto == htons(ETH_P_IP) || p->key.proto == htons(ETH_P_IPV6)) &&
	    p->key.ip_proto != IPPROTO_TCP && p->key.ip_proto != IPPROTO_UDP &&
	    p->key.ip_proto != IPPROTO_ICMP) {
		ERR(p->extack, "can't offload re-write of non TCP/UDP");
		return -EOPNOTSUPP;
	}
	/* an output that nothing follows keeps the packet */
	if (p->num_acts && p->acts[p->num_acts - 1].kind == TWIN_ACT_OUTPUT)
		p->acts[p->num_acts - 1].last = true;
	return 0;
}

/* Adding, deleting, reading */

static int add_flow(struct parse *p, unsigned long cookie)
{
	struct twin_port *port = p->vport->port;
	struct twin_flow *flow;
	int err;

	flow = kzalloc(struct_size(flow, acts, p->num_acts), GFP_KERNEL);
	if (!flow)
		return -ENOMEM;
	flow->id.cookie = cookie;
	flow->id.vport = p->vport->num;
	flow->vport = p->vport;
	flow->lastused = jiffies;
	flow->num_acts = p->num_acts;
	memcpy(flow->acts, p->acts, p->num_acts * sizeof(*p->acts));
	flow->group = get_group(p->vport, p->chain, p->prio, &p->mask);
	if (!flow->group) {
		err = -ENOMEM;
		goto err_flow;
	}
	flow->match.group = (unsigned long)flow->group;
	flow->match.key = p->key;
	err = rhashtable_lookup_insert_fast(&port->flows, &flow->node, flow_params);
	if (err)
		goto err_group;
	/* the same match may come twice: tc adds the new rule of a change first */
	err = rhashtable_insert_fast(&port->matches, &flow->match_node, match_params);
	if (err)
		goto err_node;
	WRITE_ONCE(port->num_flows, port->num_flows + 1);
	return 0;

err_node:
	rhashtable_remove_fast(&port->flows, &flow->node, flow_params);
err_group:
	put_group(flow->group);
err_flow:
	kfree(flow);
	return err;
}

/* parse_tc_fdb_actions took meters for a rule that is not to be */
static void put_parsed(struct parse *p)
{
	unsigned int i;

	for (i = 0; i < p->num_acts; i++) {
		struct twin_meter *meter = p->acts[i].meter.meter;

		if (p->acts[i].kind != TWIN_ACT_METER || --meter->refs)
			continue;
		list_del(&meter->list);
		kfree_rcu(meter, rcu);
	}
}

static struct twin_flow *find_flow(struct twin_vport *vport, unsigned long cookie)
{
	struct twin_flow_key id = { .cookie = cookie, .vport = vport->num };

	return rhashtable_lookup_fast(&vport->port->flows, &id, flow_params);
}

/* mlx5e_configure_flower */
static int flower_replace(struct net_device *dev, struct twin_vport *vport,
			  struct flow_cls_offload *f)
{
	struct twin_port *port = vport->port;
	struct parse *p;
	int err;

	err = twin_eswitch_hold(port);
	if (err)
		return err;
	atomic64_inc(&port->users);
	p = kzalloc(sizeof(*p), GFP_KERNEL);
	if (!p) {
		err = -ENOMEM;
		goto out;
	}
	p->dev = dev;
	p->vport = vport;
	p->rule = flow_cls_offload_flow_rule(f);
	p->extack = f->common.extack;
	p->chain = f->common.chain_index;
	p->prio = f->common.prio;

	mutex_lock(&port->flow_lock);
	if (find_flow(vport, f->cookie)) {
		ERR(p->extack, "flow cookie already exists, ignoring");
		err = -EEXIST;
		goto unlock;
	}
	if (!tc_can_offload_extack(dev, p->extack)) {
		err = -EOPNOTSUPP;
		goto unlock;
	}
	if (!twin_switchdev(port)) {
		/* rules of a NIC that is no switch (mlx5e_add_nic_flow) are not modelled */
		err = -EOPNOTSUPP;
		goto unlock;
	}
	if (p->chain && !IS_ENABLED(CONFIG_NET_TC_SKB_EXT)) {
		ERR(p->extack, "Requested chain is out of supported range");
		err = -EOPNOTSUPP;
		goto unlock;
	}
	err = twin_fault(port, TWIN_OP_FLOWER_ADD);
	if (err)
		goto unlock;
	err = parse_match(p);
	if (!err)
		err = parse_actions(p);
	if (!err && port->num_flows >= READ_ONCE(port->capacity)) {
		/* the firmware has no room for another entry (fs_core.c) */
		ERR(p->extack, "Failed to add rule, flow table is full");
		err = -ENOSPC;
	}
	if (!err)
		err = add_flow(p, f->cookie);
	if (err)
		put_parsed(p);
unlock:
	mutex_unlock(&port->flow_lock);
	kfree(p);
out:
	if (err)
		atomic64_dec(&port->users);
	twin_eswitch_release(port);
	return err;
}

/* mlx5e_delete_flower: whatever the E-Switch is doing */
static int flower_destroy(struct twin_vport *vport, struct flow_cls_offload *f)
{
	struct twin_port *port = vport->port;
	struct twin_flow *flow;

	mutex_lock(&port->flow_lock);
	flow = find_flow(vport, f->cookie);
	if (!flow) {
		mutex_unlock(&port->flow_lock);
		return -EINVAL;
	}
	rhashtable_remove_fast(&port->matches, &flow->match_node, match_params);
	rhashtable_remove_fast(&port->flows, &flow->node, flow_params);
	put_group(flow->group);
	put_meters(flow);
	WRITE_ONCE(port->num_flows, port->num_flows - 1);
	mutex_unlock(&port->flow_lock);
	kfree_rcu(flow, rcu);
	atomic64_dec(&port->users);
	return 0;
}

/* mlx5e_stats_flower: what came since the last time */
static int flower_stats(struct twin_vport *vport, struct flow_cls_offload *f)
{
	struct twin_port *port = vport->port;
	u64 packets, bytes, drops;
	struct twin_flow *flow;

	mutex_lock(&port->flow_lock);
	flow = find_flow(vport, f->cookie);
	if (!flow) {
		mutex_unlock(&port->flow_lock);
		return -EINVAL;
	}
	packets = atomic64_read(&flow->packets);
	bytes = atomic64_read(&flow->bytes);
	drops = atomic64_read(&flow->drops);
	/* mlx5 reports no drops: packets that a rule drops count as its packets */
	flow_stats_update(&f->stats, bytes - flow->seen_bytes, packets - flow->seen_packets, 0,
			  READ_ONCE(flow->lastused), FLOW_ACTION_HW_STATS_DELAYED);
	flow->seen_packets = packets;
	flow->seen_bytes = bytes;
	flow->seen_drops = drops;
	mutex_unlock(&port->flow_lock);
	return 0;
}

static int block_cb(enum tc_setup_type type, void *data, void *priv)
{
	struct net_device *dev = priv;
	struct twin_nic *nic = netdev_priv(dev);
	struct flow_cls_offload *f = data;

	if (type != TC_SETUP_CLSFLOWER || nic->kind == TWIN_VF)
		return -EOPNOTSUPP;
	switch (f->command) {
	case FLOW_CLS_REPLACE:
		return flower_replace(dev, nic->vport, f);
	case FLOW_CLS_DESTROY:
		return flower_destroy(nic->vport, f);
	case FLOW_CLS_STATS:
		return flower_stats(nic->vport, f);
	default:
		return -EOPNOTSUPP;
	}
}

static LIST_HEAD(block_cbs);

/* en/rep/tc.c, mlx5e_rep_setup_tc */
int twin_setup_tc(struct net_device *dev, enum tc_setup_type type, void *data)
{
	struct flow_block_offload *f = data;

	if (type != TC_SETUP_BLOCK)
		return -EOPNOTSUPP;
	f->unlocked_driver_cb = true;
	return flow_block_cb_setup_simple(f, &block_cbs, block_cb, dev, dev, true);
}

/* For debugfs */

static void show_act(struct seq_file *m, const struct twin_act *act)
{
	switch (act->kind) {
	case TWIN_ACT_OUTPUT:
		if (twin_is_uplink(act->vport))
			seq_printf(m, " output:p%u", act->vport->port->num);
		else
			seq_printf(m, " output:pf%uvf%u", act->vport->port->num,
				   act->vport->num - 1);
		break;
	case TWIN_ACT_DROP:
		seq_puts(m, " drop");
		break;
	case TWIN_ACT_SLOW:
		seq_puts(m, " slow");
		break;
	case TWIN_ACT_GOTO:
		seq_printf(m, " goto:%u", act->chain);
		break;
	case TWIN_ACT_PUSH_VLAN:
		seq_printf(m, " push_vlan:%u", act->vlan.tci & VLAN_VID_MASK);
		break;
	case TWIN_ACT_POP_VLAN:
		seq_puts(m, " pop_vlan");
		break;
	case TWIN_ACT_SET_VLAN:
		seq_printf(m, " set_vlan:%u", act->vlan.tci & VLAN_VID_MASK);
		break;
	case TWIN_ACT_SET:
		seq_printf(m, " set:%u+%u/%08x", act->set.base, act->set.offset, ~act->set.mask);
		break;
	case TWIN_ACT_ADD:
		seq_printf(m, " add:%u+%u/%08x", act->set.base, act->set.offset, ~act->set.mask);
		break;
	case TWIN_ACT_METER:
		seq_printf(m, " meter:%u", act->meter.meter->index);
		break;
	}
}

static void show_flow(struct seq_file *m, const struct twin_flow *flow)
{
	const struct twin_key *key = &flow->match.key, *mask = &flow->group->mask;
	unsigned int i;

	if (twin_is_uplink(flow->vport))
		seq_printf(m, "in:p%u", flow->vport->port->num);
	else
		seq_printf(m, "in:pf%uvf%u", flow->vport->port->num, flow->vport->num - 1);
	seq_printf(m, " chain:%u prio:%u", flow->group->chain, flow->group->prio);
	if (!is_zero_ether_addr(mask->dst))
		seq_printf(m, " dst:%pM/%pM", key->dst, mask->dst);
	if (!is_zero_ether_addr(mask->src))
		seq_printf(m, " src:%pM/%pM", key->src, mask->src);
	if (mask->tags & 1)
		seq_printf(m, " vlan:%d", key->tags & 1 ?
			   ntohs(key->tci[0]) & VLAN_VID_MASK : -1);
	if (mask->proto)
		seq_printf(m, " proto:%04x", ntohs(key->proto));
	if (mask->ip_proto)
		seq_printf(m, " ip_proto:%u", key->ip_proto);
	seq_printf(m, " packets:%lld bytes:%lld acts:", atomic64_read(&flow->packets),
		   atomic64_read(&flow->bytes));
	for (i = 0; i < flow->num_acts; i++)
		show_act(m, &flow->acts[i]);
	seq_puts(m, "\n");
}

/* A line for each rule, in no order. */
int twin_flows_show(struct seq_file *m, struct twin_port *port)
{
	struct rhashtable_iter iter;
	struct twin_flow *flow;

	mutex_lock(&port->flow_lock);
	rhashtable_walk_enter(&port->flows, &iter);
	rhashtable_walk_start(&iter);
	while ((flow = rhashtable_walk_next(&iter))) {
		if (IS_ERR(flow))
			continue;	/* resized: goes on */
		show_flow(m, flow);
	}
	rhashtable_walk_stop(&iter);
	rhashtable_walk_exit(&iter);
	mutex_unlock(&port->flow_lock);
	return 0;
}
