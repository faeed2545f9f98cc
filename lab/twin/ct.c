// SPDX-License-Identifier: GPL-2.0
/*
 * Connections in hardware: mlx5/core en/tc_ct.c of Linux 7.2, and en/tc/act/ct.c.
 *
 * A rule with a ct action makes the port listen to the flow table of the action's zone
 * (net/sched/act_ct.c). For each direction of an established connection that table then
 * has an entry made here. A packet that meets the action and has an entry goes on with
 * what the entry says of the connection in its registers; one that has none goes to
 * software, which goes on with this very action.
 *
 * As in mlx5 a zone is known by its number alone, whosever network namespace it is in.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <net/pkt_cls.h>

#include "flower.h"
#include "packet.h"

#if IS_ENABLED(CONFIG_NET_TC_SKB_EXT)

#include <net/netfilter/nf_conntrack.h>
#include <net/netfilter/nf_flow_table.h>
#include <net/tc_act/tc_ct.h>

/* The part of ct_state that the card's register has */
#define STATES (TCA_FLOWER_KEY_CT_FLAGS_TRACKED | TCA_FLOWER_KEY_CT_FLAGS_NEW | \
		TCA_FLOWER_KEY_CT_FLAGS_ESTABLISHED | TCA_FLOWER_KEY_CT_FLAGS_REPLY | \
		TCA_FLOWER_KEY_CT_FLAGS_RELATED | TCA_FLOWER_KEY_CT_FLAGS_INVALID)

struct twin_ct_zone {
	struct list_head list;
	struct list_head entries;	/* under ct.lock */
	struct twin_port *port;
	struct nf_flowtable *table;
	unsigned int refs;		/* rules; under port->flow_lock */
	u16 zone;
};

/* No holes: hashed as bytes. */
struct tuple {
	struct in6_addr saddr, daddr;	/* IPv4 in the first word */
	__be16 sport, dport, proto;
	u16 zone;
	u8 ip_proto;
	u8 nat;				/* in the table of those whose headers change */
	u8 pad[2];
};

struct twin_ct_entry {
	struct rhash_head node, tuple_node;
	struct list_head list;		/* of its zone */
	struct twin_ct_zone *zone;
	struct twin_port *port;
	struct rcu_head rcu;
	unsigned long cookie;
	struct tuple tuple;
	__be16 tcp_flags, tcp_flags_mask;
	atomic64_t packets, bytes;
	u64 lastused;			/* jiffies */
	u64 seen_packets, seen_bytes;	/* reported; under ct.lock, as is what follows */
	bool dead;
	unsigned long restore;		/* the connection and the packet's place in it */
	u32 mark, labels[4];
	u8 state;
	unsigned int num_nat;
	struct twin_act nat[];
};

static const struct rhashtable_params entry_params = {
	.head_offset = offsetof(struct twin_ct_entry, node),
	.key_offset = offsetof(struct twin_ct_entry, cookie),
	.key_len = sizeof(unsigned long),
	.automatic_shrinking = true,
};

static const struct rhashtable_params tuple_params = {
	.head_offset = offsetof(struct twin_ct_entry, tuple_node),
	.key_offset = offsetof(struct twin_ct_entry, tuple),
	.key_len = sizeof(struct tuple),
	.automatic_shrinking = true,
};

int twin_ct_init(struct twin_port *port)
{
	struct twin_ct *ct = &port->ct;
	int err;

	INIT_LIST_HEAD(&ct->zones);
	spin_lock_init(&ct->lock);
	err = rhashtable_init(&ct->entries, &entry_params);
	if (err)
		return err;
	err = rhashtable_init(&ct->tuples, &tuple_params);
	if (err) {
		rhashtable_destroy(&ct->entries);
		return err;
	}
	ct->ready = true;
	return 0;
}

/* All rules are gone, and with them the zones. */
void twin_ct_free(struct twin_port *port)
{
	struct twin_ct *ct = &port->ct;

	if (!ct->ready)
		return;
	WARN_ON(!list_empty(&ct->zones) || ct->num_entries);
	rhashtable_destroy(&ct->tuples);
	rhashtable_destroy(&ct->entries);
	ct->ready = false;
}

/* Connections, as the flow table of their zone tells of them */

/* mlx5_tc_ct_rule_to_tuple */
static int parse_tuple(struct twin_ct_entry *entry, struct flow_rule *rule)
{
	struct tuple *tuple = &entry->tuple;
	struct flow_match_control control;
	struct flow_match_ports ports;
	struct flow_match_basic basic;
	struct flow_match_tcp tcp;

	flow_rule_match_basic(rule, &basic);
	flow_rule_match_control(rule, &control);
	tuple->proto = basic.key->n_proto;
	tuple->ip_proto = basic.key->ip_proto;
	if (control.key->addr_type == FLOW_DISSECTOR_KEY_IPV4_ADDRS) {
		struct flow_match_ipv4_addrs addrs;

		flow_rule_match_ipv4_addrs(rule, &addrs);
		tuple->saddr.s6_addr32[0] = addrs.key->src;
		tuple->daddr.s6_addr32[0] = addrs.key->dst;
	} else if (control.key->addr_type == FLOW_DISSECTOR_KEY_IPV6_ADDRS) {
		struct flow_match_ipv6_addrs addrs;

		flow_rule_match_ipv6_addrs(rule, &addrs);
		tuple->saddr = addrs.key->src;
		tuple->daddr = addrs.key->dst;
	} else {
		return -EOPNOTSUPP;
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_PORTS)) {
		if (tuple->ip_proto != IPPROTO_TCP && tuple->ip_proto != IPPROTO_UDP)
			return -EOPNOTSUPP;
		flow_rule_match_ports(rule, &ports);
		tuple->sport = ports.key->src;
		tuple->dport = ports.key->dst;
	} else if (tuple->ip_proto != IPPROTO_GRE) {
		return -EOPNOTSUPP;
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_TCP)) {
		/* FIN and RST end a connection, so software has to see them */
		flow_rule_match_tcp(rule, &tcp);
		entry->tcp_flags_mask = tcp.mask->flags & htons(0x0fff);
		entry->tcp_flags = tcp.key->flags & entry->tcp_flags_mask;
	}
	return 0;
}

/*
 * mlx5_tc_ct_parse_mangle_to_mod_act. Values are in the host's order and begin at the
 * field itself, unlike those of tc's pedit.
 */
static int parse_nat(struct twin_act *act, const struct flow_action_entry *a)
{
	u32 at = a->mangle.offset;
	u8 mask[4], val[4] = {};

	act->kind = TWIN_ACT_SET;
	act->set.base = a->mangle.htype;
	memset(mask, 0xff, sizeof(mask));
	switch (a->mangle.htype) {
	case FLOW_ACT_MANGLE_HDR_TYPE_IP4:
		if (at != offsetof(struct iphdr, saddr) && at != offsetof(struct iphdr, daddr))
			return -EOPNOTSUPP;
		break;
	case FLOW_ACT_MANGLE_HDR_TYPE_IP6:
		if (at < offsetof(struct ipv6hdr, saddr) || at >= sizeof(struct ipv6hdr) || at % 4)
			return -EOPNOTSUPP;
		break;
	case FLOW_ACT_MANGLE_HDR_TYPE_TCP:
	case FLOW_ACT_MANGLE_HDR_TYPE_UDP:
		if (at != 0 && at != 2)
			return -EOPNOTSUPP;
		/* both ports are one word */
		act->set.offset = 0;
		memset(mask + at, 0, 2);
		val[at] = a->mangle.val >> 8;
		val[at + 1] = a->mangle.val;
		memcpy(&act->set.mask, mask, 4);
		memcpy(&act->set.val, val, 4);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
	act->set.offset = at;
	act->set.mask = 0;
	act->set.val = (__force u32)htonl(a->mangle.val);
	return 0;
}

static const struct flow_action_entry *metadata_of(struct flow_rule *rule)
{
	const struct flow_action_entry *a;
	int i;

	flow_action_for_each(i, a, &rule->action)
		if (a->id == FLOW_ACTION_CT_METADATA)
			return a;
	return NULL;
}

/* mlx5_tc_ct_entry_create_mod_hdr: what packets of this direction get in their registers */
static void set_metadata(struct twin_ct_entry *entry, const struct flow_action_entry *meta)
{
	entry->restore = meta->ct_metadata.cookie;
	entry->mark = meta->ct_metadata.mark;
	memcpy(entry->labels, meta->ct_metadata.labels, sizeof(entry->labels));
	entry->state = TCA_FLOWER_KEY_CT_FLAGS_TRACKED |
		       ((meta->ct_metadata.cookie & NFCT_INFOMASK) == IP_CT_NEW ?
			TCA_FLOWER_KEY_CT_FLAGS_NEW : TCA_FLOWER_KEY_CT_FLAGS_ESTABLISHED) |
		       (meta->ct_metadata.orig_dir ? 0 : TCA_FLOWER_KEY_CT_FLAGS_REPLY);
}

static struct twin_ct_entry *new_entry(struct twin_ct_zone *zone, struct flow_cls_offload *f,
				       const struct flow_action_entry *meta)
{
	struct flow_rule *rule = flow_cls_offload_flow_rule(f);
	const struct flow_action_entry *a;
	struct twin_ct_entry *entry;
	int i, err;

	entry = kzalloc(struct_size(entry, nat, rule->action.num_entries), GFP_KERNEL);
	if (!entry)
		return ERR_PTR(-ENOMEM);
	entry->zone = zone;
	entry->port = zone->port;
	entry->cookie = f->cookie;
	entry->tuple.zone = zone->zone;
	entry->lastused = jiffies;
	set_metadata(entry, meta);
	err = parse_tuple(entry, rule);
	if (err)
		goto free;
	flow_action_for_each(i, a, &rule->action) {
		if (a->id == FLOW_ACTION_CT_METADATA)
			continue;
		err = a->id == FLOW_ACTION_MANGLE ? parse_nat(&entry->nat[entry->num_nat++], a) :
		      -EOPNOTSUPP;
		if (err)
			goto free;
	}
	entry->tuple.nat = !!entry->num_nat;
	return entry;

free:
	kfree(entry);
	return ERR_PTR(err);
}

static int insert(struct twin_ct *ct, struct twin_ct_entry *entry)
{
	int err;

	if (ct->num_entries >= READ_ONCE(ct->capacity))
		return -ENOSPC;
	err = rhashtable_lookup_insert_fast(&ct->entries, &entry->node, entry_params);
	if (err)
		return err;
	err = rhashtable_lookup_insert_fast(&ct->tuples, &entry->tuple_node, tuple_params);
	if (err) {
		rhashtable_remove_fast(&ct->entries, &entry->node, entry_params);
		return err;
	}
	list_add(&entry->list, &entry->zone->entries);
	ct->num_entries++;
	atomic_inc(&ct->offloaded);
	return 0;
}

static void erase(struct twin_ct *ct, struct twin_ct_entry *entry)
{
	rhashtable_remove_fast(&ct->tuples, &entry->tuple_node, tuple_params);
	rhashtable_remove_fast(&ct->entries, &entry->node, entry_params);
	list_del(&entry->list);
	entry->dead = true;
	ct->num_entries--;
	atomic_dec(&ct->offloaded);
	kfree_rcu(entry, rcu);
}

/* netdev_warn on the uplink representor, as mlx5's is */
#define warn(port, ...) do {							\
	struct net_device *_dev;						\
										\
	rcu_read_lock();							\
	_dev = rcu_dereference((port)->uplink.rep);				\
	if (_dev)								\
		netdev_warn(_dev, __VA_ARGS__);					\
	rcu_read_unlock();							\
} while (0)

/* mlx5_tc_ct_block_flow_offload_add */
static int entry_add(struct twin_ct_zone *zone, struct flow_cls_offload *f)
{
	const struct flow_action_entry *meta = metadata_of(flow_cls_offload_flow_rule(f));
	struct twin_ct *ct = &zone->port->ct;
	struct twin_ct_entry *entry;
	int err;

	if (!meta)
		return -EOPNOTSUPP;
	spin_lock_bh(&ct->lock);
	entry = rhashtable_lookup_fast(&ct->entries, &f->cookie, entry_params);
	if (entry) {
		/* one that was new may be established by now */
		err = entry->restore == meta->ct_metadata.cookie ? -EEXIST : 0;
		set_metadata(entry, meta);
		spin_unlock_bh(&ct->lock);
		return err;
	}
	spin_unlock_bh(&ct->lock);
	entry = new_entry(zone, f, meta);
	err = PTR_ERR_OR_ZERO(entry);
	if (!err) {
		spin_lock_bh(&ct->lock);
		err = insert(ct, entry);
		spin_unlock_bh(&ct->lock);
		if (err)
			kfree(entry);
	}
	if (err && err != -EEXIST)
		warn(zone->port, "Failed to offload ct entry, err: %d\n", err);
	return err;
}

static int entry_del(struct twin_ct_zone *zone, struct flow_cls_offload *f)
{
	struct twin_ct *ct = &zone->port->ct;
	struct twin_ct_entry *entry;

	spin_lock_bh(&ct->lock);
	entry = rhashtable_lookup_fast(&ct->entries, &f->cookie, entry_params);
	if (entry)
		erase(ct, entry);
	spin_unlock_bh(&ct->lock);
	return entry ? 0 : -ENOENT;
}

/*
 * What came since the last time, and when the last packet did: that keeps the
 * connection from timing out. (mlx5 lets both directions share a counter while
 * nf_conntrack_acct is off; here each has its own.)
 */
static int entry_stats(struct twin_ct_zone *zone, struct flow_cls_offload *f)
{
	struct twin_ct *ct = &zone->port->ct;
	struct twin_ct_entry *entry;

	spin_lock_bh(&ct->lock);
	entry = rhashtable_lookup_fast(&ct->entries, &f->cookie, entry_params);
	if (entry) {
		u64 packets = atomic64_read(&entry->packets), bytes = atomic64_read(&entry->bytes);

		flow_stats_update(&f->stats, bytes - entry->seen_bytes,
				  packets - entry->seen_packets, 0, READ_ONCE(entry->lastused),
				  FLOW_ACTION_HW_STATS_DELAYED);
		entry->seen_packets = packets;
		entry->seen_bytes = bytes;
	}
	spin_unlock_bh(&ct->lock);
	return entry ? 0 : -ENOENT;
}

/* mlx5_tc_ct_block_flow_offload. Must not take flow_lock: zones come and go under it. */
static int zone_cb(enum tc_setup_type type, void *data, void *priv)
{
	struct flow_cls_offload *f = data;

	if (type != TC_SETUP_CLSFLOWER)
		return -EOPNOTSUPP;
	switch (f->command) {
	case FLOW_CLS_REPLACE:
		return entry_add(priv, f);
	case FLOW_CLS_DESTROY:
		return entry_del(priv, f);
	case FLOW_CLS_STATS:
		return entry_stats(priv, f);
	default:
		return -EOPNOTSUPP;
	}
}

/* Zones */

/* mlx5_tc_ct_add_ft_cb */
static struct twin_ct_zone *zone_get(struct twin_port *port, u16 num, struct nf_flowtable *table)
{
	struct twin_ct *ct = &port->ct;
	struct twin_ct_zone *zone;
	int err;

	list_for_each_entry(zone, &ct->zones, list) {
		if (zone->zone == num) {
			zone->refs++;
			return zone;
		}
	}
	/*
	 * mlx5 carries a zone in eight bits and does not look whether it fits
	 * (zone_restore_id); here the zones simply come to an end.
	 */
	if (ct->num_zones >= READ_ONCE(ct->zone_capacity))
		return ERR_PTR(-ENOSPC);
	zone = kzalloc(sizeof(*zone), GFP_KERNEL);
	if (!zone)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&zone->entries);
	zone->port = port;
	zone->table = table;
	zone->zone = num;
	zone->refs = 1;
	err = nf_flow_table_offload_add_cb(table, zone_cb, zone);
	if (err) {
		kfree(zone);
		return ERR_PTR(err);
	}
	list_add(&zone->list, &ct->zones);
	ct->num_zones++;
	return zone;
}

/* mlx5_tc_ct_del_ft_cb: the table takes nothing back then. Under port->flow_lock. */
void twin_ct_put(struct twin_ct_zone *zone)
{
	struct twin_ct *ct = &zone->port->ct;
	struct twin_ct_entry *entry, *next;

	if (--zone->refs)
		return;
	nf_flow_table_offload_del_cb(zone->table, zone_cb, zone);
	spin_lock_bh(&ct->lock);
	list_for_each_entry_safe(entry, next, &zone->entries, list)
		erase(ct, entry);
	spin_unlock_bh(&ct->lock);
	list_del(&zone->list);
	ct->num_zones--;
	kfree(zone);
}

/* Rules */

/* mlx5_tc_ct_match_add */
int twin_ct_match(struct twin_rule *p)
{
	struct flow_match_ct match;
	u16 on, mask;
	unsigned int i;

	if (!flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_CT))
		return 0;
	flow_rule_match_ct(p->rule, &match);
	mask = match.mask->ct_state;
	on = match.key->ct_state & mask;
	if (mask & ~STATES) {
		ERR(p->extack, "only ct_state trk, est, new and rpl are supported for offload");
		return -EOPNOTSUPP;
	}
	if (on & TCA_FLOWER_KEY_CT_FLAGS_RELATED) {
		ERR(p->extack, "matching on ct_state +rel isn't supported");
		return -EOPNOTSUPP;
	}
	if (on & TCA_FLOWER_KEY_CT_FLAGS_INVALID) {
		ERR(p->extack, "matching on ct_state +inv isn't supported");
		return -EOPNOTSUPP;
	}
	p->mask.ct_state = mask;
	p->key.ct_state = on;
	if (match.mask->ct_zone) {
		p->mask.ct_zone = 0xffff;
		p->key.ct_zone = match.key->ct_zone;
	}
	p->mask.ct_mark = match.mask->ct_mark;
	p->key.ct_mark = match.key->ct_mark;
	/* a number stands for the whole label: who wants a part of it gets labels that have no more */
	if (memchr_inv(match.mask->ct_labels, 0, sizeof(match.mask->ct_labels))) {
		memset(p->mask.ct_labels, 0xff, sizeof(p->mask.ct_labels));
		for (i = 0; i < ARRAY_SIZE(p->key.ct_labels); i++)
			p->key.ct_labels[i] = match.key->ct_labels[i] & match.mask->ct_labels[i];
	}
	return 0;
}

/* act/ct.c and mlx5_tc_ct_flow_offload */
int twin_ct_action(struct twin_rule *p, const struct flow_action_entry *a, struct twin_act *act)
{
	struct twin_ct_zone *zone;

	if (a->ct.action & TCA_CT_ACT_CLEAR) {
		act->kind = TWIN_ACT_CT_CLEAR;
		return 0;
	}
	zone = zone_get(p->vport->port, a->ct.zone, a->ct.flow_table);
	if (IS_ERR(zone)) {
		warn(p->vport->port, "Failed to offload ct flow, err %ld\n", PTR_ERR(zone));
		return PTR_ERR(zone);
	}
	act->ct.zone = zone;
	act->ct.num = a->ct.zone;
	act->ct.nat = a->ct.action & TCA_CT_ACT_NAT;
	act->ct.miss = a->miss_cookie;
	p->conntrack = true;
	return 0;
}

/* The packet path */

void twin_ct_to_key(const struct twin_ct_regs *regs, struct twin_key *key)
{
	key->ct_state = regs->state;
	key->ct_zone = regs->zone;
	key->ct_mark = regs->mark;
	memcpy(key->ct_labels, regs->labels, sizeof(key->ct_labels));
}

/* The entry of a packet, its words copied into the registers. */
static struct twin_ct_entry *find(struct twin_ct *ct, const struct twin_act *act,
				  const struct twin_key *key, struct twin_ct_regs *regs)
{
	struct twin_ct_entry *entry = NULL;
	struct tuple tuple = {
		.saddr = key->saddr, .daddr = key->daddr, .sport = key->sport,
		.dport = key->dport, .proto = key->proto, .ip_proto = key->ip_proto,
		.zone = act->ct.num,
	};

	if (key->frag)
		return NULL;
	spin_lock_bh(&ct->lock);
	if (act->ct.nat) {
		tuple.nat = true;
		entry = rhashtable_lookup_fast(&ct->tuples, &tuple, tuple_params);
		tuple.nat = false;
	}
	if (!entry)
		entry = rhashtable_lookup_fast(&ct->tuples, &tuple, tuple_params);
	if (entry && (key->tcp_flags & entry->tcp_flags_mask) != entry->tcp_flags)
		entry = NULL;
	if (entry) {
		regs->entry = entry;
		regs->mark = entry->mark;
		memcpy(regs->labels, entry->labels, sizeof(regs->labels));
		regs->state = entry->state;
		regs->nat = act->ct.nat && entry->num_nat;
	}
	spin_unlock_bh(&ct->lock);
	return entry;
}

/* A ct action on a packet; under RCU. */
enum twin_ct_result twin_ct_exec(struct twin_port *port, const struct twin_act *act,
				 struct sk_buff *skb, struct twin_ct_regs *regs)
{
	struct twin_ct_entry *entry;
	struct twin_headers h;
	struct twin_key key;
	unsigned int i;

	/* tc_ct_pre_ct_add_rules: tracked in this zone already */
	if (regs->zone == act->ct.num && regs->state & TCA_FLOWER_KEY_CT_FLAGS_TRACKED &&
	    (!act->ct.nat || regs->nat))
		return TWIN_CT_HIT;
	regs->zone = act->ct.num;
	twin_parse(skb, &key, &h);
	entry = find(&port->ct, act, &key, regs);
	if (!entry)
		return TWIN_CT_MISS;
	atomic64_add(twin_skb_packets(skb), &entry->packets);
	atomic64_add(twin_skb_bytes(skb), &entry->bytes);
	WRITE_ONCE(entry->lastused, jiffies);
	for (i = 0; i < entry->num_nat; i++)
		if (twin_rewrite(skb, &entry->nat[i]))
			return TWIN_CT_ERROR;
	return TWIN_CT_HIT;
}

/*
 * mlx5e_tc_restore_skb_tc_meta: where software goes on, and the connection that hardware
 * has found. False: to be dropped, as its connection has gone meanwhile.
 */
bool twin_ct_restore(struct sk_buff *skb, const struct twin_restore *restore)
{
	struct twin_ct_entry *entry = restore->entry;
	struct tc_skb_ext *ext;

	if (!restore->chain && !restore->act)
		return true;
	if (entry) {
		struct twin_ct *ct = &entry->port->ct;
		bool dead;

		/* while the entry is there its flow table holds the connection */
		spin_lock_bh(&ct->lock);
		dead = entry->dead;
		if (!dead)
			tcf_ct_flow_table_restore_skb(skb, entry->restore);
		spin_unlock_bh(&ct->lock);
		if (dead) {
			atomic_inc(&ct->rx_dropped);
			return false;
		}
	}
	ext = tc_skb_ext_alloc(skb);
	if (!ext)
		return false;
	if (restore->act) {
		ext->act_miss_cookie = restore->act;
		ext->act_miss = 1;
	} else {
		ext->chain = restore->chain;
	}
	return true;
}

/* For debugfs */

static void show_state(struct seq_file *m, u16 state, u16 mask)
{
	static const char names[][4] = { "new", "est", "rel", "trk", "inv", "rpl" };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (mask & BIT(i))
			seq_printf(m, "%c%s", state & BIT(i) ? '+' : '-', names[i]);
}

void twin_ct_show_match(struct seq_file *m, const struct twin_key *key,
			const struct twin_key *mask)
{
	if (mask->ct_state) {
		seq_puts(m, " ct_state:");
		show_state(m, key->ct_state, mask->ct_state);
	}
	if (mask->ct_zone)
		seq_printf(m, " ct_zone:%u", key->ct_zone);
	if (mask->ct_mark)
		seq_printf(m, " ct_mark:%x/%x", key->ct_mark, mask->ct_mark);
	if (mask->ct_labels[0])
		seq_printf(m, " ct_label:%08x%08x%08x%08x", key->ct_labels[3], key->ct_labels[2],
			   key->ct_labels[1], key->ct_labels[0]);
}

static void show_entry(struct seq_file *m, const struct twin_ct_entry *entry)
{
	const struct tuple *t = &entry->tuple;

	seq_printf(m, "zone:%u ip_proto:%u", t->zone, t->ip_proto);
	if (t->proto == htons(ETH_P_IP))
		seq_printf(m, " src:%pI4 dst:%pI4", &t->saddr, &t->daddr);
	else
		seq_printf(m, " src:%pI6c dst:%pI6c", &t->saddr, &t->daddr);
	seq_printf(m, " sport:%u dport:%u state:", ntohs(t->sport), ntohs(t->dport));
	show_state(m, entry->state, entry->state);
	seq_printf(m, " mark:%x packets:%lld bytes:%lld%s\n", entry->mark,
		   atomic64_read(&entry->packets), atomic64_read(&entry->bytes),
		   t->nat ? " nat" : "");
}

/* A line for each direction of each connection. */
int twin_ct_show(struct seq_file *m, struct twin_port *port)
{
	struct twin_ct_entry *entry;
	struct twin_ct_zone *zone;

	mutex_lock(&port->flow_lock);
	list_for_each_entry(zone, &port->ct.zones, list) {
		spin_lock_bh(&port->ct.lock);
		list_for_each_entry(entry, &zone->entries, list)
			show_entry(m, entry);
		spin_unlock_bh(&port->ct.lock);
	}
	mutex_unlock(&port->flow_lock);
	return 0;
}

#else /* mlx5's own option for it, MLX5_TC_CT, depends on NET_TC_SKB_EXT: en/tc_ct.h */

int twin_ct_init(struct twin_port *port)
{
	INIT_LIST_HEAD(&port->ct.zones);
	return 0;
}

void twin_ct_free(struct twin_port *port)
{
}

int twin_ct_match(struct twin_rule *p)
{
	if (!flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_CT))
		return 0;
	ERR(p->extack, "mlx5 tc ct offload isn't enabled.");
	return -EOPNOTSUPP;
}

int twin_ct_action(struct twin_rule *p, const struct flow_action_entry *a, struct twin_act *act)
{
	ERR(p->extack, "mlx5 tc ct offload isn't enabled.");
	return -EOPNOTSUPP;
}

void twin_ct_put(struct twin_ct_zone *zone)
{
}

void twin_ct_to_key(const struct twin_ct_regs *regs, struct twin_key *key)
{
}

enum twin_ct_result twin_ct_exec(struct twin_port *port, const struct twin_act *act,
				 struct sk_buff *skb, struct twin_ct_regs *regs)
{
	return TWIN_CT_ERROR;
}

bool twin_ct_restore(struct sk_buff *skb, const struct twin_restore *restore)
{
	return true;
}

void twin_ct_show_match(struct seq_file *m, const struct twin_key *key,
			const struct twin_key *mask)
{
}

int twin_ct_show(struct seq_file *m, struct twin_port *port)
{
	return 0;
}

#endif
