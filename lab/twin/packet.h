/* SPDX-License-Identifier: GPL-2.0 */
/* Between the packet path and the work on a frame. */
#ifndef TWIN_PACKET_H
#define TWIN_PACKET_H

#include "twin.h"

struct twin_headers {
	int l3, l4;	/* offsets from the frame's start; 0: not there */
	u8 l4_proto;
};

void twin_parse(const struct sk_buff *skb, struct twin_key *key, struct twin_headers *h);
int twin_rewrite(struct sk_buff *skb, const struct twin_act *act);
struct sk_buff *twin_push_vlan(struct sk_buff *skb, __be16 proto, u16 tci);
int twin_pop_vlan(struct sk_buff *skb);
int twin_set_vlan(struct sk_buff *skb, u16 vid);

static inline bool is_tag(__be16 proto)
{
	return proto == htons(ETH_P_8021Q) || proto == htons(ETH_P_8021AD);
}

#endif
