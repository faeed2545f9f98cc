// SPDX-License-Identifier: GPL-2.0
/*
 * The flow tables. Rules of a vport are kept in groups of one chain, priority and
 * mask; inside a group a rule is found by its masked key, so that a lookup costs
 * as many hashes as the chain has groups.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "flower.h"

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
	INIT_LIST_HEAD(&port->encaps);
	INIT_LIST_HEAD(&port->tunnels);
	err = rhashtable_init(&port->flows, &flow_params);
	if (err)
		return err;
	err = rhashtable_init(&port->matches, &match_params);
	if (err) {
		rhashtable_destroy(&port->flows);
		return err;
	}
	port->flows_ready = true;
	return twin_ct_init(port);
}

/* All netdevs are gone, so tc has taken every rule back. */
void twin_flows_free(struct twin_port *port)
{
	if (!port->flows_ready)
		return;
	twin_ct_free(port);
	WARN_ON(port->num_flows || !list_empty(&port->meters) || !list_empty(&port->encaps));
	rhashtable_destroy(&port->matches);
	rhashtable_destroy(&port->flows);
	port->flows_ready = false;
}

void twin_key_mask(struct twin_key *to, const struct twin_key *key, const struct twin_key *mask)
{
	unsigned int i;

	for (i = 0; i < TWIN_KEY_WORDS; i++)
		((u64 *)to)[i] = ((const u64 *)key)[i] & ((const u64 *)mask)[i];
}

/*
 * The first rule, by priority, of a vport's chain that matches. Rules of tunnel devices
 * match INNER, NULL if the frame is of no tunnel, all others KEY. Under RCU.
 */
struct twin_flow *twin_flow_lookup(struct twin_vport *vport, u32 chain, const struct twin_key *key,
				   const struct twin_key *inner)
{
	struct twin_match_key match;
	struct twin_group *group;
	struct twin_flow *flow;

	list_for_each_entry_rcu(group, &vport->groups, list) {
		if (group->chain < chain)
			continue;
		if (group->chain > chain)
			break;
		if (group->mask.tun && !inner)
			continue;
		match.group = (unsigned long)group;
		twin_key_mask(&match.key, group->mask.tun ? inner : key, &group->mask);
		flow = rhashtable_lookup(&vport->port->matches, &match, match_params);
		if (flow && twin_lag_finds(vport, flow->pairing))
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
struct twin_meter *twin_meter_get(struct twin_port *port, const struct flow_action_entry *act)
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

static void put_meter(struct twin_meter *meter)
{
	if (--meter->refs)
		return;
	list_del(&meter->list);
	kfree_rcu(meter, rcu);
}

/* What acts share with those of other rules. */
void twin_acts_put(const struct twin_act *acts, unsigned int num)
{
	unsigned int i;

	for (i = 0; i < num; i++) {
		if (acts[i].kind == TWIN_ACT_METER)
			put_meter(acts[i].meter.meter);
		else if (acts[i].kind == TWIN_ACT_ENCAP)
			twin_encap_put(acts[i].encap);
		else if (acts[i].kind == TWIN_ACT_CT)
			twin_ct_put(acts[i].ct.zone);
	}
}

int twin_flow_add(struct twin_rule *p, unsigned long cookie)
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
	flow->pairing = twin_lag_pairing(p->vport);
	flow->lastused = jiffies;
	flow->conntrack = p->conntrack;
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

struct twin_flow *twin_flow_find(struct twin_vport *vport, unsigned long cookie)
{
	struct twin_flow_key id = { .cookie = cookie, .vport = vport->num };

	return rhashtable_lookup_fast(&vport->port->flows, &id, flow_params);
}

void twin_flow_del(struct twin_flow *flow)
{
	struct twin_port *port = flow->vport->port;

	rhashtable_remove_fast(&port->matches, &flow->match_node, match_params);
	rhashtable_remove_fast(&port->flows, &flow->node, flow_params);
	if (flow->group->mask.opt_found)
		twin_geneve_opt_put(port);
	put_group(flow->group);
	twin_acts_put(flow->acts, flow->num_acts);
	WRITE_ONCE(port->num_flows, port->num_flows - 1);
	kfree_rcu(flow, rcu);
}

/* For debugfs */

static void show_act(struct seq_file *m, const struct twin_act *act)
{
	char name[24];

	switch (act->kind) {
	case TWIN_ACT_OUTPUT:
		twin_vport_name(act->vport, name, sizeof(name));
		seq_printf(m, " output:%s", name);
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
	case TWIN_ACT_ENCAP:
		twin_encap_show(m, act->encap);
		break;
	case TWIN_ACT_DECAP:
		seq_puts(m, " decap");
		break;
	case TWIN_ACT_CT:
		seq_printf(m, " ct:%u%s", act->ct.num, act->ct.nat ? "/nat" : "");
		break;
	case TWIN_ACT_CT_CLEAR:
		seq_puts(m, " ct_clear");
		break;
	}
}

static void show_flow(struct seq_file *m, const struct twin_flow *flow)
{
	const struct twin_key *key = &flow->match.key, *mask = &flow->group->mask;
	unsigned int i;
	char name[24];

	twin_vport_name(flow->vport, name, sizeof(name));
	seq_printf(m, "in:%s", name);
	seq_printf(m, " chain:%u prio:%u", flow->group->chain, flow->group->prio);
	if (mask->tun)
		twin_tunnel_show(m, key, mask);
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
	twin_ct_show_match(m, key, mask);
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
