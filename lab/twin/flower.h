/* SPDX-License-Identifier: GPL-2.0 */
/* Between the files that turn a tc flower rule into a flow of the hardware. */
#ifndef TWIN_FLOWER_H
#define TWIN_FLOWER_H

#include "twin.h"

#define ERR(extack, text) NL_SET_ERR_MSG(extack, TWIN_DRIVER ": " text)

/* A rule on its way in. */
struct twin_rule {
	struct net_device *dev;
	struct twin_vport *vport;
	struct flow_rule *rule;
	struct netlink_ext_ack *extack;
	u32 chain, prio;
	struct twin_key key, mask;
	unsigned int num_acts;
	struct twin_act acts[TWIN_MAX_ACTS];

	/* the state of mlx5e_tc_act_parse_state and mlx5_esw_flow_attr */
	bool conntrack;		/* has a ct action */
	bool rewrites;
	bool rewrites_ip;	/* something else than TTL or hop limit */
	bool popped;		/* and not yet pushed */
	unsigned int vlans;
	unsigned int outputs;
	unsigned int num_ifindexes;
	int ifindexes[TWIN_MAX_OUTPUTS];
	u8 set[FLOW_ACT_MANGLE_HDR_TYPE_UDP + 1][64];	/* bits written, by header and byte */
	u8 add[FLOW_ACT_MANGLE_HDR_TYPE_UDP + 1][64];
};

/* match.c */
int twin_rule_match(struct twin_rule *p);

/* action.c */
int twin_rule_actions(struct twin_rule *p);

/* table.c; all under port->flow_lock */
int twin_flow_add(struct twin_rule *p, unsigned long cookie);
void twin_flow_del(struct twin_flow *flow);
struct twin_flow *twin_flow_find(struct twin_vport *vport, unsigned long cookie);
struct twin_meter *twin_meter_get(struct twin_port *port, const struct flow_action_entry *act);
void twin_acts_put(const struct twin_act *acts, unsigned int num);
void twin_key_mask(struct twin_key *to, const struct twin_key *key, const struct twin_key *mask);

#endif
