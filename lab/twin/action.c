// SPDX-License-Identifier: GPL-2.0
/* Which actions a ConnectX takes: mlx5/core en/tc/act/ and en_tc.c. */
#include <linux/netdevice.h>
#include <linux/tc_act/tc_csum.h>
#include <linux/tc_act/tc_ct.h>
#include <net/pkt_cls.h>

#include "flower.h"

static struct twin_act *new_act(struct twin_rule *p, enum twin_act_kind kind)
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

static int act_simple(struct twin_rule *p, const struct flow_action_entry *a)
{
	struct twin_act *act;

	act = new_act(p, a->id == FLOW_ACTION_DROP ? TWIN_ACT_DROP : TWIN_ACT_SLOW);
	if (!act)
		return -EOPNOTSUPP;
	return 0;
}

/* act/goto.c, on a device that can jump back (ignore_flow_level) */
static int act_goto(struct twin_rule *p, const struct flow_action_entry *a)
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
	return 0;
}

/* mlx5e_is_valid_eswitch_fwd_dev: between the ports of a card only from VF to VF, or in LAG */
static bool can_forward(const struct twin_rule *p, const struct twin_vport *to)
{
	if (twin_is_uplink(to) && !twin_switchdev(to->port))
		return false;
	return to->port == p->vport->port || twin_lag_is_sriov(to->port) ||
	       (!twin_is_uplink(p->vport) && !twin_is_uplink(to));
}

/* The vport behind a netdev: NULL if a bond has no member to send by, an error for strangers */
static struct twin_vport *output_of(const struct twin_rule *p, struct net_device *out)
{
	const struct twin_nic *nic = netdev_priv(out);

	if (netif_is_lag_master(out))
		return twin_lag_uplink(p->vport->port, out);
	if (!twin_netdev_is_ours(out) || nic->kind == TWIN_VF ||
	    !netdev_port_same_parent_id(p->port_dev, out))
		return ERR_PTR(-EOPNOTSUPP);
	return nic->vport;
}

/* act/mirred.c, parse_mirred_encap, and tc_tun_encap.c, mlx5e_attach_encap */
static int output_encap(struct twin_rule *p, struct net_device *dev)
{
	struct twin_encap *encap;
	struct twin_act *act;
	unsigned int i;

	encap = twin_encap_get(p, dev);
	if (IS_ERR(encap))
		return PTR_ERR(encap);
	for (i = 0; i < p->num_acts; i++) {
		if (p->acts[i].kind == TWIN_ACT_ENCAP && p->acts[i].encap == encap) {
			ERR(p->extack, "can't duplicate encap action");
			goto put;
		}
	}
	act = new_act(p, TWIN_ACT_ENCAP);
	if (!act)
		goto put;
	act->encap = encap;
	p->encap = NULL;
	p->outputs++;
	return 0;

put:
	twin_encap_put(encap);
	return -EOPNOTSUPP;
}

/* act/mirred.c: tc_act_can_offload_mirred, parse_mirred */
static int act_mirred(struct twin_rule *p, const struct flow_action_entry *a)
{
	struct twin_vport *to;
	struct twin_act *act;
	unsigned int i;

	if (!a->dev)
		return -EOPNOTSUPP;	/* replayed after the target was removed */
	if (p->outputs >= TWIN_MAX_OUTPUTS) {
		ERR(p->extack, "can't support more output ports, can't offload forwarding");
		return -EOPNOTSUPP;
	}
	if (p->encap)
		return output_encap(p, a->dev);
	to = output_of(p, a->dev);
	if (IS_ERR(to) && p->tun)
		return -EOPNOTSUPP;	/* every card is asked, so a stranger says nothing */
	if (IS_ERR(to))
		goto other;
	for (i = 0; i < p->num_ifindexes; i++) {
		if (p->ifindexes[i] == a->dev->ifindex) {
			ERR(p->extack, "can't duplicate output to same device");
			return -EOPNOTSUPP;
		}
	}
	p->ifindexes[p->num_ifindexes++] = a->dev->ifindex;
	if (!to)
		return -ENODEV;
	if (twin_is_uplink(p->vport) && twin_is_uplink(to) && twin_switchdev(to->port) &&
	    to != p->vport) {
		ERR(p->extack, "devices are not the same uplink, can't offload forwarding");
		return -EOPNOTSUPP;
	}
	if (!can_forward(p, to))
		goto other;
	if (to == p->vport && !twin_is_uplink(to)) {
		ERR(p->extack, "can't forward from a VF to itself");
		return -EOPNOTSUPP;
	}
	act = new_act(p, TWIN_ACT_OUTPUT);
	if (!act)
		return -EOPNOTSUPP;
	act->vport = to;
	p->outputs++;
	return 0;

other:
	ERR(p->extack, "devices are not on same switch HW, can't offload forwarding");
	return -EOPNOTSUPP;
}

/* act/redirect_ingress.c; there are no OVS internal ports in the hardware model */
static int act_redirect_ingress(struct twin_rule *p, const struct flow_action_entry *a)
{
	ERR(p->extack, "redirect to ingress is supported only for OVS internal ports");
	return -EOPNOTSUPP;
}

/* act/vlan_mangle.c, mlx5e_tc_act_vlan_add_rewrite_action */
static int rewrite_vlan(struct twin_rule *p, u16 vid, u8 prio)
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
static int act_vlan(struct twin_rule *p, const struct flow_action_entry *a)
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

static int act_vlan_mangle(struct twin_rule *p, const struct flow_action_entry *a)
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
static int act_pedit(struct twin_rule *p, const struct flow_action_entry *a)
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
static int act_csum(struct twin_rule *p, const struct flow_action_entry *a)
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
static int act_ptype(struct twin_rule *p, const struct flow_action_entry *a)
{
	if (a->ptype != PACKET_HOST) {
		ERR(p->extack, "skbedit ptype is only supported with type host");
		return -EOPNOTSUPP;
	}
	return 0;	/* of use before a redirect to ingress only, which is refused */
}

/* act/police.c. Jump and MTU branches need more than the model has. */
static int police_verdict(struct twin_rule *p, enum flow_action_id id, u8 *verdict)
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

static int act_police(struct twin_rule *p, const struct flow_action_entry *a)
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
	if (p->tun && (exceed == TWIN_ACT_SLOW || conform == TWIN_ACT_SLOW))
		return -EOPNOTSUPP;	/* not modelled: the outer header is off by then */
	act = new_act(p, TWIN_ACT_METER);
	if (!act)
		return -EOPNOTSUPP;
	act->meter.exceed = exceed;
	act->meter.conform = conform;
	act->meter.meter = twin_meter_get(p->vport->port, a);
	if (!act->meter.meter) {
		p->num_acts--;
		return -ENOMEM;
	}
	return 0;
}

/* act/tun.c */
static int act_tunnel_set(struct twin_rule *p, const struct flow_action_entry *a)
{
	if (!a->tunnel) {
		ERR(p->extack, "Zero tunnel attributes is not supported");
		return -EOPNOTSUPP;
	}
	p->encap = a->tunnel;
	return 0;
}

/* A rule on a tunnel device takes the outer header off, asked to or not; others do nothing. */
static int act_tunnel_unset(struct twin_rule *p, const struct flow_action_entry *a)
{
	return 0;
}

/* act/ct.c */
static int act_ct(struct twin_rule *p, const struct flow_action_entry *a)
{
	struct twin_act *act;
	int err;

	if (a->ct.action & TCA_CT_ACT_COMMIT && flow_action_is_last_entry(&p->rule->action, a))
		return -EOPNOTSUPP;
	act = new_act(p, TWIN_ACT_CT);
	if (!act)
		return -EOPNOTSUPP;
	err = twin_ct_action(p, a, act);
	if (err)
		p->num_acts--;
	p->num_ifindexes = 0;
	return err;
}

/* act/act.c, tc_acts_fdb; the ones that are missing here mlx5 has and the model has not */
static int (*const parsers[NUM_FLOW_ACTIONS])(struct twin_rule *, const struct flow_action_entry *) = {
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
	[FLOW_ACTION_TUNNEL_ENCAP] = act_tunnel_set,
	[FLOW_ACTION_TUNNEL_DECAP] = act_tunnel_unset,
};

/* Does the rule hand packets to software? Those of a tunnel go as they came. */
static bool ends_slow(const struct twin_rule *p)
{
	const struct flow_action_entry *a;
	int i;

	flow_action_for_each(i, a, &p->rule->action)
		if (a->id == FLOW_ACTION_ACCEPT || a->id == FLOW_ACTION_TRAP)
			return true;
	return false;
}

/* en_tc.c, parse_tc_fdb_actions and actions_match_supported */
int twin_rule_actions(struct twin_rule *p)
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
	if (p->tun && !ends_slow(p) && !new_act(p, TWIN_ACT_DECAP))
		return -EOPNOTSUPP;
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
	if (p->num_acts && (p->acts[p->num_acts - 1].kind == TWIN_ACT_OUTPUT ||
			    p->acts[p->num_acts - 1].kind == TWIN_ACT_ENCAP))
		p->acts[p->num_acts - 1].last = true;
	return 0;
}
