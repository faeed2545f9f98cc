/* SPDX-License-Identifier: GPL-2.0 */
/* Between the packet path and the work on a frame. */
#ifndef TWIN_PACKET_H
#define TWIN_PACKET_H

#include "twin.h"

struct twin_headers {
	int l2, l3, l4;	/* offsets from the frame's start; 0: not there */
	u8 l4_proto;
};

void twin_parse(const struct sk_buff *skb, struct twin_key *key, struct twin_headers *h);
int twin_rewrite(struct sk_buff *skb, const struct twin_act *act);
struct sk_buff *twin_push_vlan(struct sk_buff *skb, __be16 proto, u16 tci);
int twin_pop_vlan(struct sk_buff *skb);
int twin_set_vlan(struct sk_buff *skb, u16 vid);
bool twin_parse_tunnel(const struct twin_port *port, const struct sk_buff *skb,
		       const struct twin_key *outer, const struct twin_headers *h,
		       struct twin_key *key, struct twin_headers *inner);
struct sk_buff *twin_segment(struct sk_buff *skb);
struct sk_buff *twin_push_tunnel(struct sk_buff *skb, const struct twin_header *header);
int twin_pop_tunnel(struct sk_buff *skb);

static inline bool is_tag(__be16 proto)
{
	return proto == htons(ETH_P_8021Q) || proto == htons(ETH_P_8021AD);
}

#endif
