// SPDX-License-Identifier: GPL-2.0
/*
 * Rates of what VFs and SFs send: mlx5/core esw/qos.c. Every vport is a leaf, nodes
 * limit several together. The silicon's scheduler holds a vport's queues back until
 * it may send again; here the netdev stops its queues for as long (netdev.c, pace).
 *
 * A leaf or node with a maximum has a token bucket that may go into debt by one
 * packet. A leaf or node with an assured rate (tx_share) has another one: as long as
 * that has tokens, the limits of what is above do not hold it back. The wire itself
 * has no limit, so without a node with tx_max an assured rate changes nothing.
 */
#include <linux/ethtool.h>
#include <linux/math64.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "twin.h"

#define ERR(extack, text) NL_SET_ERR_MSG(extack, TWIN_DRIVER ": " text)

#define BYTES_PER_MBIT	125000	/* qos.c, MLX5_LINKSPEED_UNIT */
#define BURST_MS	20	/* longer than the tick, which is what waits are rounded to */

/*
 * Levels of the tree, vports included; the root is the first. The real figure is a
 * capability of the device (log_esw_max_sched_depth), not looked up on one.
 */
#define MAX_DEPTH	4

static s64 burst(u32 mbps)
{
	return (u64)mbps * BYTES_PER_MBIT * BURST_MS / 1000;
}

/* Under rate->lock. Idle time is worth no more than a burst. */
static void refill(struct twin_rate *rate)
{
	u64 now = ktime_get_ns(), elapsed = min_t(u64, now - rate->last, NSEC_PER_SEC);

	if (elapsed < 10 * NSEC_PER_USEC)
		return;		/* or slow rates would lose what is rounded away */
	rate->last = now;
	rate->tokens = min_t(s64, burst(rate->max), rate->tokens + elapsed * rate->max / 8000);
	rate->assured = min_t(s64, burst(rate->min), rate->assured + elapsed * rate->min / 8000);
}

/* Nanoseconds until this element lets a packet through; *ASSURED: those above must too. */
static u64 wait_for(struct twin_rate *rate, bool *assured)
{
	u64 wait = 0;

	spin_lock_bh(&rate->lock);
	refill(rate);
	if (rate->max && rate->tokens <= 0)
		wait = div_u64((1 - rate->tokens) * 8000, rate->max);
	*assured = rate->min && rate->assured > 0;
	spin_unlock_bh(&rate->lock);
	return wait;
}

static void take(struct twin_rate *rate, u64 bytes)
{
	spin_lock_bh(&rate->lock);
	/* a node may be overdrawn by what is assured below it, by a second's worth */
	rate->tokens = max_t(s64, rate->tokens - bytes, -((s64)rate->max + 8) * BYTES_PER_MBIT);
	/* what was sent beyond the assured rate is no debt to it */
	rate->assured = max_t(s64, rate->assured - bytes, -max_t(s64, burst(rate->min), bytes));
	spin_unlock_bh(&rate->lock);
}

/*
 * May the vport send a packet of so many bytes? Zero: yes, and it counts as sent.
 * Else the nanoseconds to wait before asking again.
 */
u64 twin_rate_take(struct twin_vport *vport, u64 bytes)
{
	struct twin_rate *rate = &vport->rate;
	bool assured = false;
	u64 wait = 0;

	if (!READ_ONCE(rate->max) && !rcu_access_pointer(rate->parent))
		return 0;
	rcu_read_lock();
	for (; rate && !assured; rate = rcu_dereference(rate->parent))
		wait = max(wait, wait_for(rate, &assured));
	if (!wait)
		for (rate = &vport->rate; rate; rate = rcu_dereference(rate->parent))
			take(rate, bytes);
	rcu_read_unlock();
	return wait;
}

/* In Mbit/s; starts with a full bucket. */
void twin_rate_set(struct twin_rate *rate, u32 min, u32 max)
{
	spin_lock_bh(&rate->lock);
	if (rate->max != max)
		rate->tokens = burst(max);
	if (rate->min != min)
		rate->assured = burst(min);
	WRITE_ONCE(rate->min, min);
	WRITE_ONCE(rate->max, max);
	rate->last = ktime_get_ns();
	spin_unlock_bh(&rate->lock);
}

/* Under the PF's devlink lock, as everything that changes the tree. */
static void set_parent(struct twin_rate *rate, struct twin_rate *parent)
{
	struct twin_rate *old = rcu_dereference_protected(rate->parent, true);

	if (old)
		old->children--;
	if (parent)
		parent->children++;
	rcu_assign_pointer(rate->parent, parent);
}

/* qos.c, mlx5_esw_qos_vport_disable */
void twin_rate_clear(struct twin_vport *vport)
{
	set_parent(&vport->rate, NULL);
	twin_rate_set(&vport->rate, 0, 0);
}

int twin_rate_leaf_add(struct twin_vport *vport)
{
	return devl_rate_leaf_create(&vport->dl_port, vport, NULL);
}

/* mlx5 esw/devlink_port.c, mlx5_esw_offloads_devlink_port_unregister */
void twin_rate_leaf_del(struct twin_vport *vport)
{
	twin_rate_clear(vport);
	devl_rate_leaf_destroy(&vport->dl_port);
}

static struct twin_port *port_of(struct devlink_rate *rate)
{
	struct twin_func *pf = devlink_priv(rate->devlink);

	return pf->port;
}

/* qos.c, mlx5_esw_qos_max_link_speed_get: with LAG the bond's speed, if it has one */
static u32 link_speed(struct twin_port *port)
{
	struct ethtool_link_ksettings ks;
	struct net_device *dev, *bond;
	u32 speed = SPEED_UNKNOWN;

	if (!twin_lag_is_active(port))
		return twin_speed;
	rtnl_lock();
	dev = rtnl_dereference(port->uplink.rep);
	bond = dev ? netdev_master_upper_dev_get(dev) : NULL;
	if (bond && !__ethtool_get_link_ksettings(bond, &ks))
		speed = ks.base.speed;
	rtnl_unlock();
	return speed == (u32)SPEED_UNKNOWN ? twin_speed : speed;
}

/* qos.c, esw_qos_devlink_rate_to_mbps: bytes per second to Mbit per second */
static int to_mbps(struct devlink_rate *dl, const char *name, u64 *rate,
		   struct netlink_ext_ack *extack)
{
	u32 rest, speed;
	u64 mbps;

	mbps = div_u64_rem(*rate, BYTES_PER_MBIT, &rest);
	if (rest) {
		pr_err(TWIN_DRIVER ": %s rate value %lluBps not in link speed units of 1Mbps.\n",
		       name, *rate);
		ERR(extack, "TX rate value not in link speed units of 1Mbps");
		return -EINVAL;
	}
	speed = link_speed(port_of(dl));
	if (mbps > speed) {
		pr_err(TWIN_DRIVER ": %s rate value %lluMbps exceed link maximum speed %u.\n",
		       name, mbps, speed);
		ERR(extack, "TX rate value exceed link maximum speed");
		return -EINVAL;
	}
	*rate = mbps;
	return 0;
}

static int set_share(struct devlink_rate *dl, struct twin_rate *rate, u64 share,
		     struct netlink_ext_ack *extack)
{
	int err;

	err = to_mbps(dl, "tx_share", &share, extack);
	if (!err)
		err = twin_fault(port_of(dl), TWIN_OP_RATE_SET, extack);
	if (!err)
		twin_rate_set(rate, share, rate->max);
	return err;
}

static int set_max(struct devlink_rate *dl, struct twin_rate *rate, u64 max,
		   struct netlink_ext_ack *extack)
{
	int err;

	err = to_mbps(dl, "tx_max", &max, extack);
	if (!err)
		err = twin_fault(port_of(dl), TWIN_OP_RATE_SET, extack);
	if (!err)
		twin_rate_set(rate, rate->min, max);
	return err;
}

int twin_rate_leaf_share_set(struct devlink_rate *leaf, void *priv, u64 share,
			     struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = priv;

	return set_share(leaf, &vport->rate, share, extack);
}

int twin_rate_leaf_max_set(struct devlink_rate *leaf, void *priv, u64 max,
			   struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = priv;

	return set_max(leaf, &vport->rate, max, extack);
}

/* NODE is NULL when the leaf is to have no parent, which no fault hinders. */
int twin_rate_leaf_parent_set(struct devlink_rate *leaf, struct devlink_rate *node, void *priv,
			      void *node_priv, struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = priv;
	int err = 0;

	if (node)
		err = twin_fault(vport->port, TWIN_OP_RATE_SET, extack);
	if (!err)
		set_parent(&vport->rate, node ? node_priv : NULL);
	return err;
}

int twin_rate_node_share_set(struct devlink_rate *node, void *priv, u64 share,
			     struct netlink_ext_ack *extack)
{
	return set_share(node, priv, share, extack);
}

int twin_rate_node_max_set(struct devlink_rate *node, void *priv, u64 max,
			   struct netlink_ext_ack *extack)
{
	return set_max(node, priv, max, extack);
}

/* qos.c, mlx5_esw_devlink_rate_node_new */
int twin_rate_node_new(struct devlink_rate *node, void **priv, struct netlink_ext_ack *extack)
{
	struct twin_func *func = devlink_priv(node->devlink);
	struct twin_rate *rate;
	int err;

	if (!twin_func_is_pf(func))
		return -EPERM;	/* eswitch.c, mlx5_devlink_eswitch_get */
	if (!twin_switchdev(func->port)) {
		ERR(extack, "Rate node creation supported only in switchdev mode");
		return -EOPNOTSUPP;
	}
	err = twin_fault(func->port, TWIN_OP_RATE_SET, extack);
	if (err)
		return err;
	rate = kzalloc(sizeof(*rate), GFP_KERNEL);
	if (!rate)
		return -ENOMEM;
	spin_lock_init(&rate->lock);
	*priv = rate;
	return 0;
}

/* devlink has seen to it that it has no children. */
int twin_rate_node_del(struct devlink_rate *node, void *priv, struct netlink_ext_ack *extack)
{
	struct twin_rate *rate = priv;

	set_parent(rate, NULL);
	kfree_rcu(rate, rcu);
	return 0;
}

#if TWIN_7
/* The root is level 1, what hangs on it level 2. */
static unsigned int level(struct twin_rate *rate)
{
	unsigned int n = 2;

	while ((rate = rcu_dereference_protected(rate->parent, true)))
		n++;
	return n;
}

/* qos.c, mlx5_esw_qos_node_validate_set_parent; nodes in nodes came after 6.12 */
int twin_rate_node_parent_set(struct devlink_rate *node, struct devlink_rate *parent, void *priv,
			      void *parent_priv, struct netlink_ext_ack *extack)
{
	struct twin_rate *rate = priv;
	unsigned int depth = parent ? level(parent_priv) + 1 : 2;

	if (rate->children) {
		ERR(extack, "Cannot reassign a node that contains rate objects");
		return -EOPNOTSUPP;
	}
	if (depth > MAX_DEPTH) {
		NL_SET_ERR_MSG_FMT(extack, TWIN_DRIVER ": Node hierarchy depth %d exceeds the maximum supported level %d",
				   depth, MAX_DEPTH);
		return -EOPNOTSUPP;
	}
	set_parent(rate, parent ? parent_priv : NULL);
	return 0;
}

/* qos.c, esw_qos_create_tc_arbiter_sched_elem, on a device that has no such element */
int twin_rate_tc_bw_set(struct devlink_rate *rate, void *priv, u32 *tc_bw,
			struct netlink_ext_ack *extack)
{
	if (!memchr_inv(tc_bw, 0, DEVLINK_RATE_TCS_MAX * sizeof(*tc_bw)))
		return 0;
	ERR(extack, "E-Switch TC Arbiter scheduling element is not supported");
	return -EOPNOTSUPP;
}
#endif
