// SPDX-License-Identifier: GPL-2.0
/*
 * The packet path: what the silicon does with a frame. Everything here runs in
 * softirq or with bottom halves off, under rcu_read_lock, and takes whole frames:
 * skb->data at the Ethernet header, VLAN tags in the frame.
 */
#include <linux/math64.h>

#include "packet.h"

static void drop_tx(struct twin_vport *vport, struct sk_buff *skb)
{
	this_cpu_inc(vport->counters->c[TWIN_TX_DROPS]);
	kfree_skb(skb);
}

/* Metering: a token bucket; true when the packet conforms. */
static bool meter(struct twin_meter *m, u64 packets, u64 bytes)
{
	u64 now = ktime_get_ns(), need = m->packets ? packets : bytes, more;
	bool ok;

	spin_lock_bh(&m->lock);
	more = mul_u64_u64_div_u64(now - m->last, m->rate, NSEC_PER_SEC);
	if (more) {
		m->tokens = min(m->burst, m->tokens + more);
		m->last = now;
	}
	ok = m->tokens >= need;
	if (ok)
		m->tokens -= need;
	spin_unlock_bh(&m->lock);
	return ok;
}

/* Switchdev mode */

/* To the representor, to go on in software where RESTORE says. */
static void miss(struct twin_vport *vport, struct sk_buff *skb, const struct twin_restore *restore)
{
	struct net_device *rep = rcu_dereference(vport->rep);

	if (!rep) {
		drop_tx(vport, skb);
		return;
	}
	twin_count(vport, TWIN_MISS_PACKETS, twin_skb_packets(skb), twin_skb_bytes(skb));
	twin_netdev_receive(skb, rep, restore);
}

/* Into a tunnel, and out by the uplink; segment by segment, as on a real card. */
static void encap(struct twin_vport *vport, struct twin_encap *encap, struct sk_buff *skb,
		  int depth)
{
	const struct twin_header *header = rcu_dereference(encap->header);
	struct sk_buff *next;

	if (!header) {
		drop_tx(vport, skb);	/* gone since the rule was found */
		return;
	}
	if (!READ_ONCE(encap->used))
		WRITE_ONCE(encap->used, true);
	for (skb = twin_segment(skb); skb; skb = next) {
		next = skb->next;
		skb_mark_not_on_list(skb);
		skb = twin_push_tunnel(skb, header);
		if (skb)
			twin_to_vport(twin_lag_out(vport, header->out, skb), skb, depth);
	}
}

/*
 * mlx5e_tc_offload_to_slow_path: a rule with a tunnel that has no outer header now
 * sends to the representor, and counts nothing.
 */
static bool is_slow(const struct twin_flow *flow)
{
	unsigned int i;

	for (i = 0; i < flow->num_acts; i++)
		if (flow->acts[i].kind == TWIN_ACT_ENCAP &&
		    !rcu_access_pointer(flow->acts[i].encap->header))
			return true;
	return false;
}

/* The way of one packet from table to table. */
struct way {
	struct twin_ct_regs ct;
	u32 chain;
	u64 packets, bytes;	/* as it came to the present table */
	bool counted;		/* as one that a rule dealt with */
};

static void count(struct twin_vport *vport, struct twin_flow *flow, struct way *way)
{
	atomic64_add(way->packets, &flow->packets);
	atomic64_add(way->bytes, &flow->bytes);
	WRITE_ONCE(flow->lastused, jiffies);
	if (!way->counted)
		twin_count(vport, TWIN_HW_PACKETS, way->packets, way->bytes);
	way->counted = true;
}

/*
 * Does what a rule says. Returns the skb if a next table is to be looked at, that of
 * way->chain; else NULL, and the skb is gone. A rule that can hand a packet back counts
 * it when it does not: software counts it then, from the action that it goes on with.
 */
static struct sk_buff *run(struct twin_vport *vport, struct twin_flow *flow,
			   struct sk_buff *skb, struct way *way, int depth)
{
	struct twin_restore restore = {};
	bool tracked = false;
	unsigned int i;

	if (!flow->conntrack)
		count(vport, flow, way);

	for (i = 0; i < flow->num_acts; i++) {
		const struct twin_act *act = &flow->acts[i];
		struct sk_buff *out;
		u8 verdict;
		int err = 0;

		switch (act->kind) {
		case TWIN_ACT_OUTPUT:
		case TWIN_ACT_ENCAP:
			out = act->last ? skb : skb_clone(skb, GFP_ATOMIC);
			if (out && act->kind == TWIN_ACT_ENCAP)
				encap(vport, act->encap, out, depth);
			else if (out)
				twin_to_vport(twin_lag_out(vport, act->vport, out), out, depth);
			if (act->last)
				return NULL;
			break;
		case TWIN_ACT_DECAP:
			err = twin_pop_tunnel(skb);
			break;
		case TWIN_ACT_DROP:
			consume_skb(skb);
			return NULL;
		case TWIN_ACT_SLOW:
			miss(vport, skb, NULL);
			return NULL;
		case TWIN_ACT_GOTO:
			way->chain = act->chain;
			return skb;
		case TWIN_ACT_PUSH_VLAN:
			skb = twin_push_vlan(skb, act->vlan.proto, act->vlan.tci);
			if (!skb)
				return NULL;
			break;
		case TWIN_ACT_POP_VLAN:
			err = twin_pop_vlan(skb);
			if (!err) {
				skb = twin_frame(skb);
				if (!skb)
					return NULL;
			}
			break;
		case TWIN_ACT_SET_VLAN:
			err = twin_set_vlan(skb, act->vlan.tci);
			break;
		case TWIN_ACT_SET:
		case TWIN_ACT_ADD:
			err = twin_rewrite(skb, act);
			break;
		case TWIN_ACT_METER:
			verdict = meter(act->meter.meter, twin_skb_packets(skb),
					twin_skb_bytes(skb)) ?
				  act->meter.conform : act->meter.exceed;
			if (verdict == TWIN_ACT_DROP) {
				consume_skb(skb);
				return NULL;
			}
			if (verdict == TWIN_ACT_SLOW) {
				miss(vport, skb, NULL);
				return NULL;
			}
			break;
		case TWIN_ACT_CT:
			switch (twin_ct_exec(flow->vport->port, act, skb, &way->ct)) {
			case TWIN_CT_HIT:
				if (!tracked)
					count(vport, flow, way);
				tracked = true;
				break;
			case TWIN_CT_MISS:
				restore.entry = way->ct.entry;
				restore.act = act->ct.miss;
				miss(vport, skb, &restore);
				return NULL;
			case TWIN_CT_ERROR:
				err = -EINVAL;
				break;
			}
			break;
		case TWIN_ACT_CT_CLEAR:
			memset(&way->ct, 0, sizeof(way->ct));
			break;
		}
		if (err) {
			drop_tx(vport, skb);
			return NULL;
		}
	}
	consume_skb(skb);	/* all copies are out */
	return NULL;
}

static void from_vport_switchdev(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	struct twin_restore restore = {};
	struct way way = {};
	struct sk_buff *rest;
	unsigned int hops;

	if (skb_is_gso(skb) &&
	    skb_shinfo(skb)->gso_type & (SKB_GSO_UDP_TUNNEL | SKB_GSO_UDP_TUNNEL_CSUM)) {
		/* frames that the wire's netdev put together, which no cable does */
		for (skb = twin_segment(skb); skb; skb = rest) {
			rest = skb->next;
			skb_mark_not_on_list(skb);
			skb_reset_mac_header(skb);
			from_vport_switchdev(vport, skb, depth);
		}
		return;
	}
	for (hops = 0; hops < TWIN_MAX_HOPS; hops++) {
		struct twin_flow *flow;
		struct twin_key key, inner;
		struct twin_headers h, inner_h;
		bool tunnel;

		twin_parse(skb, &key, &h);
		twin_ct_to_key(&way.ct, &key);
		tunnel = twin_is_uplink(vport) &&
			 twin_parse_tunnel(vport->port, skb, &key, &h, &inner, &inner_h);
		flow = twin_flow_lookup(twin_lag_fdb(vport), way.chain, &key,
					tunnel ? &inner : NULL);
		if (!flow || is_slow(flow)) {
			restore.entry = way.ct.entry;
			restore.chain = way.chain;
			miss(vport, skb, &restore);
			return;
		}
		way.packets = twin_skb_packets(skb);
		way.bytes = twin_skb_bytes(skb);
		skb = run(vport, flow, skb, &way, depth);
		if (!skb)
			return;
	}
	drop_tx(vport, skb);	/* goto in a circle */
}

/* Legacy mode: a VEB with the VFs, the PF and the wire for ports */

static void to_pf(struct twin_port *port, struct sk_buff *skb)
{
	struct net_device *dev = rcu_dereference(port->uplink.rep);

	if (dev)
		twin_netdev_receive(skb, dev, NULL);
	else
		kfree_skb(skb);
}

/* Does the VF's forwarding entry cover this address? Promiscuous needs trust. */
static bool vf_wants(const struct twin_vport *vport, const u8 *dst)
{
	struct net_device *dev = rcu_dereference(vport->dev);
	const struct twin_macs *macs;
	unsigned int i;

	if (!dev || !netif_running(dev))
		return false;
	if (is_multicast_ether_addr(dst) || ether_addr_equal(dst, dev->dev_addr))
		return true;
	macs = rcu_dereference(vport->macs);
	for (i = 0; macs && i < macs->n; i++)
		if (ether_addr_equal(dst, macs->addr[i]))
			return true;
	return READ_ONCE(dev->flags) & IFF_PROMISC && READ_ONCE(vport->info.trusted);
}

/* To a VF by its VLAN: esw/acl/egress_lgcy.c: other tags are dropped, its own is taken off */
static void to_vf_legacy(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	u16 vlan = READ_ONCE(vport->info.vlan);

	if (vlan) {
		const struct vlan_ethhdr *eth = (const struct vlan_ethhdr *)skb->data;

		if (!is_tag(eth->h_vlan_proto) || skb_headlen(skb) < VLAN_ETH_HLEN ||
		    (ntohs(eth->h_vlan_TCI) & VLAN_VID_MASK) != vlan) {
			this_cpu_inc(vport->counters->c[TWIN_RX_DROPS]);
			kfree_skb(skb);
			return;
		}
		if (twin_pop_vlan(skb)) {
			kfree_skb(skb);
			return;
		}
		skb = twin_frame(skb);
		if (!skb)
			return;
	}
	twin_to_vport(vport, skb, depth);
}

/* SRC is a VF, the uplink, or NULL for the PF. */
static void forward_legacy(struct twin_port *port, struct twin_vport *src, struct sk_buff *skb,
			   int depth)
{
	bool from_wire = src && twin_is_uplink(src);
	struct net_device *pf = rcu_dereference(port->uplink.rep);
	bool multicast, to_wire, pf_wants;
	u8 dst[ETH_ALEN];
	unsigned int i;

	ether_addr_copy(dst, eth_hdr(skb)->h_dest);
	multicast = is_multicast_ether_addr(dst);
	to_wire = !from_wire;
	pf_wants = src && pf && (multicast || READ_ONCE(pf->flags) & IFF_PROMISC ||
				 ether_addr_equal(dst, pf->dev_addr));
	for (i = 0; i < port->total_vfs; i++) {
		struct twin_vport *vport = &port->vports[i];
		struct sk_buff *copy;

		if (vport == src || !READ_ONCE(vport->enabled) || !vf_wants(vport, dst))
			continue;
		copy = skb_clone(skb, GFP_ATOMIC);
		if (copy)
			to_vf_legacy(vport, copy, depth);
		if (!multicast)
			to_wire = false;
	}
	if (!multicast && pf && ether_addr_equal(dst, pf->dev_addr))
		to_wire = false;
	if (pf_wants) {
		struct sk_buff *copy = skb_clone(skb, GFP_ATOMIC);

		if (copy)
			to_pf(port, copy);
	}
	if (to_wire)
		twin_to_vport(&port->uplink, skb, depth);
	else
		consume_skb(skb);
}

static void from_vport_legacy(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	struct twin_port *port = vport->port;
	u16 vlan;

	if (!twin_is_uplink(vport)) {
		/* esw/acl/ingress_lgcy.c: spoof check against the administrator's address */
		if (READ_ONCE(vport->info.spoofchk) &&
		    !ether_addr_equal(eth_hdr(skb)->h_source, vport->info.mac)) {
			drop_tx(vport, skb);
			return;
		}
		vlan = READ_ONCE(vport->info.vlan);
		if (vlan) {
			if (is_tag(eth_hdr(skb)->h_proto)) {
				drop_tx(vport, skb);
				return;
			}
			skb = twin_push_vlan(skb, htons(ETH_P_8021Q),
					vlan | READ_ONCE(vport->info.qos) << VLAN_PRIO_SHIFT);
			if (!skb)
				return;
		}
	}
	forward_legacy(port, vport, skb, depth);
}

/* Doors */

/* A frame from a VF, or from the wire, into the E-Switch. */
void twin_from_vport(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	bool link = twin_is_uplink(vport) ? twin_port_link(vport->port) : twin_vport_link(vport);

	if (!link || twin_lag_drops(vport) || depth > TWIN_MAX_DEPTH ||
	    !pskb_may_pull(skb, ETH_HLEN)) {
		drop_tx(vport, skb);
		return;
	}
	skb_reset_mac_header(skb);
	twin_count_cast(vport, false, skb, twin_skb_packets(skb), twin_skb_bytes(skb));
	if (twin_switchdev(vport->port))
		from_vport_switchdev(vport, skb, depth);
	else
		from_vport_legacy(vport, skb, depth);
}

/* A frame out of the E-Switch: to the VF, or out on the wire. */
void twin_to_vport(struct twin_vport *vport, struct sk_buff *skb, int depth)
{
	struct net_device *dev;

	skb_reset_mac_header(skb);
	twin_count_cast(vport, true, skb, twin_skb_packets(skb), twin_skb_bytes(skb));
	if (twin_is_uplink(vport)) {
		twin_wire_xmit(vport->port, skb, depth);
		return;
	}
	dev = rcu_dereference(vport->dev);
	if (!dev) {
		this_cpu_inc(vport->counters->c[TWIN_RX_DROPS]);
		kfree_skb(skb);
		return;
	}
	twin_netdev_receive(skb, dev, NULL);
}

/* A frame from the PF's netdev in legacy mode. */
void twin_from_pf(struct twin_port *port, struct sk_buff *skb)
{
	forward_legacy(port, NULL, skb, 0);
}
