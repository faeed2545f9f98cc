// SPDX-License-Identifier: GPL-2.0
/* What tc asks about rules: mlx5/core en/rep/tc.c and en_tc.c. */
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <net/pkt_cls.h>

#include "flower.h"

/* mlx5e_configure_flower */
static int flower_replace(struct net_device *dev, struct twin_vport *vport,
			  struct flow_cls_offload *f)
{
	struct twin_port *port = vport->port;
	struct twin_rule *p;
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
	p->tun = twin_tun_of(dev);
	p->vport = vport;
	p->rule = flow_cls_offload_flow_rule(f);
	p->extack = f->common.extack;
	p->chain = f->common.chain_index;
	p->prio = f->common.prio;

	/* a port's netdev stays while rules are offered for it */
	p->port_dev = p->tun ? rcu_dereference_raw(vport->rep) : dev;
	mutex_lock(&port->flow_lock);
	if (!p->port_dev) {
		err = -EOPNOTSUPP;
		goto unlock;
	}
	if (twin_flow_find(vport, f->cookie)) {
		ERR(p->extack, "flow cookie already exists, ignoring");
		err = -EEXIST;
		goto unlock;
	}
	if (!tc_can_offload_extack(p->port_dev, p->extack)) {
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
	err = twin_fault(port, TWIN_OP_FLOWER_ADD, p->extack);
	if (err)
		goto unlock;
	err = twin_rule_match(p);
	if (!err)
		err = twin_rule_actions(p);
	if (!err && p->tun)
		err = twin_decap_route(p);
	if (!err && port->num_flows >= READ_ONCE(port->capacity)) {
		/* the firmware has no room for another entry (fs_core.c) */
		ERR(p->extack, "Failed to add rule, flow table is full");
		err = -ENOSPC;
	}
	if (!err)
		err = twin_flow_add(p, f->cookie);
	if (err)
		twin_acts_put(p->acts, p->num_acts);
	if (err && p->mask.opt_found)
		twin_geneve_opt_put(port);
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
	flow = twin_flow_find(vport, f->cookie);
	if (!flow) {
		mutex_unlock(&port->flow_lock);
		return -EINVAL;
	}
	twin_flow_del(flow);
	mutex_unlock(&port->flow_lock);
	atomic64_dec(&port->users);
	return 0;
}

/* mlx5e_stats_flower: what came since the last time */
static int flower_stats(struct twin_vport *vport, struct flow_cls_offload *f)
{
	struct twin_port *port = vport->port;
	u64 packets, bytes;
	struct twin_flow *flow;

	mutex_lock(&port->flow_lock);
	flow = twin_flow_find(vport, f->cookie);
	if (!flow) {
		mutex_unlock(&port->flow_lock);
		return -EINVAL;
	}
	packets = atomic64_read(&flow->packets);
	bytes = atomic64_read(&flow->bytes);
	/* mlx5 reports no drops: packets that a rule drops count as its packets */
	flow_stats_update(&f->stats, bytes - flow->seen_bytes, packets - flow->seen_packets, 0,
			  READ_ONCE(flow->lastused), FLOW_ACTION_HW_STATS_DELAYED);
	flow->seen_packets = packets;
	flow->seen_bytes = bytes;
	mutex_unlock(&port->flow_lock);
	return 0;
}

/* A rule on DEV for packets that VPORT sends into the E-Switch. */
int twin_flower(struct net_device *dev, struct twin_vport *vport, struct flow_cls_offload *f)
{
	switch (f->command) {
	case FLOW_CLS_REPLACE:
		return flower_replace(dev, vport, f);
	case FLOW_CLS_DESTROY:
		return flower_destroy(vport, f);
	case FLOW_CLS_STATS:
		return flower_stats(vport, f);
	default:
		return -EOPNOTSUPP;
	}
}

static int block_cb(enum tc_setup_type type, void *data, void *priv)
{
	struct net_device *dev = priv;
	struct twin_nic *nic = netdev_priv(dev);

	if (type != TC_SETUP_CLSFLOWER || nic->kind == TWIN_VF)
		return -EOPNOTSUPP;
	return twin_flower(dev, nic->vport, data);
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
