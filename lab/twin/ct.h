/* SPDX-License-Identifier: GPL-2.0 */
/* Connection tracking in hardware: ct.c. */
#ifndef TWIN_CT_H
#define TWIN_CT_H

#include <linux/rhashtable.h>
#include <linux/spinlock.h>

struct flow_action_entry;
struct seq_file;
struct sk_buff;
struct twin_act;
struct twin_ct_entry;
struct twin_ct_zone;
struct twin_key;
struct twin_port;
struct twin_rule;

/* What the card knows of connections, by port as in mlx5 by uplink representor. */
struct twin_ct {
	struct list_head zones;		/* under port->flow_lock */
	unsigned int num_zones, zone_capacity;

	/* innermost; taken by the packet path, so with bottom halves off */
	spinlock_t lock;
	struct rhashtable entries;	/* by the cookie of a connection's direction */
	struct rhashtable tuples;	/* by zone and addresses */
	unsigned int num_entries, capacity;
	atomic_t offloaded, rx_dropped;
	bool ready;
};

/* The registers that a packet carries from table to table (en_tc.c, *_to_reg_ct). */
struct twin_ct_regs {
	struct twin_ct_entry *entry;	/* zone_restore: whose connection it is */
	u32 mark, labels[4];
	u16 zone;
	u8 state;
	bool nat;
};

/* What software is told of a packet that hardware could not finish (mlx5e_tc_restore_skb_tc_meta). */
struct twin_restore {
	struct twin_ct_entry *entry;
	u64 act;			/* miss cookie of the action to go on with */
	u32 chain;			/* or the chain */
};

enum twin_ct_result { TWIN_CT_HIT, TWIN_CT_MISS, TWIN_CT_ERROR };

int twin_ct_init(struct twin_port *port);
void twin_ct_free(struct twin_port *port);
int twin_ct_match(struct twin_rule *p);
int twin_ct_action(struct twin_rule *p, const struct flow_action_entry *a, struct twin_act *act);
void twin_ct_put(struct twin_ct_zone *zone);
void twin_ct_to_key(const struct twin_ct_regs *regs, struct twin_key *key);
enum twin_ct_result twin_ct_exec(struct twin_port *port, const struct twin_act *act,
				 struct sk_buff *skb, struct twin_ct_regs *regs);
bool twin_ct_restore(struct sk_buff *skb, const struct twin_restore *restore);
void twin_ct_show_match(struct seq_file *m, const struct twin_key *key,
			const struct twin_key *mask);
int twin_ct_show(struct seq_file *m, struct twin_port *port);

#endif
