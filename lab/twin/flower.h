/* SPDX-License-Identifier: GPL-2.0 */
/* Between the files that turn a tc flower rule into a flow of the hardware. */
#ifndef TWIN_FLOWER_H
#define TWIN_FLOWER_H

#include "twin.h"

#define ERR(extack, text) NL_SET_ERR_MSG(extack, TWIN_DRIVER ": " text)

/* A rule on its way in. */
struct twin_rule {
	struct net_device *dev;		/* that the rule is on: a port's netdev or a tunnel's */
	struct net_device *port_dev;	/* the port's: the representor or the uplink */
	enum twin_tun tun;		/* kind of DEV */
	struct twin_vport *vport;
	struct flow_rule *rule;
	struct netlink_ext_ack *extack;
	u32 chain, prio;
	struct twin_key key, mask;
	unsigned int num_acts;
	struct twin_act acts[TWIN_MAX_ACTS];

	/* the state of mlx5e_tc_act_parse_state and mlx5_esw_flow_attr */
	const struct ip_tunnel_info *encap;	/* for the next output */
	bool drop_inner_ecn;	/* decapsulation makes it what the rule wants */
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

/* flower.c */
int twin_flower(struct net_device *dev, struct twin_vport *vport, struct flow_cls_offload *f);

/* tunnel.c */
enum twin_tun twin_tun_of(const struct net_device *dev);
int twin_rule_match_tunnel(struct twin_rule *p);
void twin_geneve_opt_put(struct twin_port *port);
void twin_tunnel_show(struct seq_file *m, const struct twin_key *key, const struct twin_key *mask);

/* encap.c; under port->flow_lock */
struct twin_encap *twin_encap_get(struct twin_rule *p, struct net_device *dev);
void twin_encap_put(struct twin_encap *encap);
int twin_decap_route(const struct twin_rule *p);
void twin_encap_show(struct seq_file *m, const struct twin_encap *encap);
void twin_key_mask(struct twin_key *to, const struct twin_key *key, const struct twin_key *mask);

#endif
