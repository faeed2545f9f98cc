// SPDX-License-Identifier: GPL-2.0
/*
 * LAG: a bond of the card's two ports becomes one uplink of the hardware.
 *
 * Follows mlx5/core lag/lag.c, lag/shared_fdb.c and lag/debugfs.c. The bond tells
 * its state to a netdevice notifier, which only writes it down and queues the work
 * that makes, changes or ends the LAG; so what was asked for is there some time
 * later. Everything is under RTNL, which the notifier runs under too, but for what
 * the packet path reads. A mode change ends the LAG at once and keeps the work away
 * until it is over.
 *
 * mlx5 forgets the state of a port's link at a mode change and hears it anew, as
 * the bond sees the link go and come. The change takes no time here, and a bond may
 * miss it, so the state is kept.
 */
#include <linux/debugfs.h>
#include <linux/jhash.h>
#include <linux/rtnetlink.h>
#include <net/bonding.h>

#include "packet.h"

static struct dentry *twin_lag_root;

static struct twin_lag *lag_of(const struct twin_port *port)
{
	return &port->card->lag;
}

static bool is_active(const struct twin_lag *lag)
{
	return lag->mode != TWIN_LAG_NONE;
}

static bool is_tx_port(const struct twin_lag *lag, unsigned int i)
{
	return lag->state[i].tx_enabled && lag->state[i].link_up;
}

/* The ports to send by; all, if none can (mlx5_infer_tx_enabled). */
static unsigned int tx_ports(const struct twin_lag *lag, u8 *ports)
{
	unsigned int i, n = 0;

	for (i = 0; i < TWIN_PORTS; i++)
		if (is_tx_port(lag, i))
			ports[n++] = i;
	for (i = 0; !is_tx_port(lag, 0) && !is_tx_port(lag, 1) && i < TWIN_PORTS; i++)
		ports[n++] = i;
	return n;
}

/* mlx5_infer_tx_affinity_mapping: a port that cannot send does so by the other one. */
static void infer_mapping(const struct twin_lag *lag, u8 *to)
{
	unsigned int i;

	for (i = 0; i < TWIN_PORTS; i++)
		to[i] = !is_tx_port(lag, i) && is_tx_port(lag, !i) ? !i : i;
}

static const char *port_sel_mode(const struct twin_lag *lag)
{
	return lag->hash ? "hash" : "queue_affinity";
}

static struct device *master(const struct twin_lag *lag)
{
	return &lag->func[0]->pdev->dev;
}

/* mlx5_lag_print_mapping */
static void print_mapping(const struct twin_lag *lag)
{
	u8 ports[TWIN_PORTS];

	if (!lag->hash)
		dev_info(master(lag), "lag map: port 1:%d port 2:%d\n", lag->to[0] + 1,
			 lag->to[1] + 1);
	else if (tx_ports(lag, ports) == 1)
		dev_info(master(lag), "lag map active ports: %d\n", ports[0] + 1);
	else
		dev_info(master(lag), "lag map active ports: 1, 2\n");
}

static void set_mapping(struct twin_lag *lag)
{
	u8 to[TWIN_PORTS];
	unsigned int i;

	infer_mapping(lag, to);
	for (i = 0; i < TWIN_PORTS; i++)
		WRITE_ONCE(lag->to[i], to[i]);
}

/*
 * mlx5_lag_drop_rule_setup: what comes in by the port that a bond does not use is
 * dropped before any rule sees it, as the bond would.
 */
static void set_drops(struct twin_lag *lag)
{
	bool on = lag->mode == TWIN_LAG_SRIOV && lag->has_inactive &&
		  lag->tx_type == NETDEV_LAG_TX_TYPE_ACTIVEBACKUP;
	unsigned int i;

	for (i = 0; i < TWIN_PORTS; i++)
		WRITE_ONCE(lag->drop[i], on && !is_tx_port(lag, i));
}

/* mlx5_lag_shared_fdb_supported: rules need the metadata of vports to be told apart */
static bool can_share_fdb(const struct twin_lag *lag)
{
	unsigned int i;

	for (i = 0; i < TWIN_PORTS; i++)
		if (!twin_switchdev(lag->func[i]->port) || !lag->func[i]->port->metadata)
			return false;
	return true;
}

/* mlx5_lag_check_prereq */
static bool check_prereq(const struct twin_lag *lag)
{
	const struct twin_port *port[TWIN_PORTS];
	unsigned int i;

	for (i = 0; i < TWIN_PORTS; i++) {
		if (!lag->func[i])
			return false;
		port[i] = lag->func[i]->port;
		if (READ_ONCE(port[i]->num_vfs) && !twin_switchdev(port[i]))
			return false;
	}
	return twin_switchdev(port[0]) == twin_switchdev(port[1]) &&
	       lag->roce[0] == lag->roce[1];
}

/* mlx5_lag_is_ready */
static bool is_ready(const struct twin_lag *lag)
{
	return lag->dev[0] && lag->dev[1];
}

static bool has_bound_vfs(struct twin_port *port)
{
	bool bound = false;
	unsigned int i;

	mutex_lock(&port->info_lock);
	for (i = 0; i < port->num_vfs && !bound; i++)
		bound = port->vports[i].func;
	mutex_unlock(&port->info_lock);
	return bound;
}

/*
 * The firmware makes no LAG over VFs that run: the driver only guesses so from the
 * refusal ("Make sure all VFs are unbound"), and tries again when the bond says
 * something else. VFs bound later do no harm.
 */
static int create(struct twin_lag *lag)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < TWIN_PORTS && !err; i++) {
		err = twin_fault(lag->func[i]->port, TWIN_OP_LAG_CREATE, NULL);
		if (!err && has_bound_vfs(lag->func[i]->port))
			err = -EINVAL;
	}
	return err;
}

/* mlx5_activate_lag */
static void activate(struct twin_lag *lag)
{
	bool roce = !twin_switchdev(lag->func[0]->port), shared = can_share_fdb(lag);
	int err;

	/* 6.12 hashes where the bond does; 7.2 always, on a device that can */
	lag->hash = TWIN_7 || roce || lag->tx_type == NETDEV_LAG_TX_TYPE_HASH;
	set_mapping(lag);
	print_mapping(lag);
	dev_info(master(lag), "shared_fdb:%d mode:%s\n", shared, port_sel_mode(lag));
	err = create(lag);
	if (err) {
		dev_err(master(lag), "Failed to create LAG (%d)\n", err);
		if (roce)
			dev_err(master(lag), "Failed to activate RoCE LAG\n");
		else
			dev_err(master(lag), "Failed to activate VF LAG\n"
				"Make sure all VFs are unbound prior to VF LAG activation or deactivation\n");
		return;
	}
	if (shared)
		dev_info(master(lag), "Operation mode is single FDB\n");
	WRITE_ONCE(lag->shared_fdb, shared);
	WRITE_ONCE(lag->mode, roce ? TWIN_LAG_ROCE : TWIN_LAG_SRIOV);
	set_drops(lag);
}

/* mlx5_modify_lag */
static void modify(struct twin_lag *lag)
{
	u8 to[TWIN_PORTS];

	infer_mapping(lag, to);
	if (memcmp(to, lag->to, sizeof(to))) {
		set_mapping(lag);
		print_mapping(lag);
	}
	set_drops(lag);
}

/* mlx5_disable_lag */
static void deactivate(struct twin_lag *lag)
{
	WRITE_ONCE(lag->mode, TWIN_LAG_NONE);
	WRITE_ONCE(lag->shared_fdb, false);
	set_drops(lag);
}

static void queue_work_in(struct twin_lag *lag, unsigned long delay)
{
	queue_delayed_work(system_long_wq, &lag->work, delay);
}

/* A fault: the card takes its time. */
static bool still_late(struct twin_lag *lag)
{
	if (!lag->waiting)
		lag->since = jiffies;
	return time_before(jiffies, lag->since + msecs_to_jiffies(READ_ONCE(lag->late_ms)));
}

/* mlx5_do_bond */
static void do_bond(struct twin_lag *lag)
{
	bool wanted = is_ready(lag) && lag->bonded && check_prereq(lag);

	if (wanted && !is_active(lag) && still_late(lag)) {
		lag->waiting = true;
		queue_work_in(lag, HZ / 10);
		return;
	}
	lag->waiting = false;
	if (wanted && is_active(lag))
		modify(lag);
	else if (wanted)
		activate(lag);
	else if (is_active(lag))
		deactivate(lag);
}

/* mlx5_do_bond_work */
static void bond_work(struct work_struct *work)
{
	struct twin_lag *lag = container_of(to_delayed_work(work), struct twin_lag, work);

	rtnl_lock();
	if (lag->changes)
		queue_work_in(lag, HZ);
	else
		do_bond(lag);
	rtnl_unlock();
}

/* What bonds tell */

static int index_of(const struct twin_lag *lag, const struct net_device *dev)
{
	unsigned int i;

	for (i = 0; i < TWIN_PORTS; i++)
		if (lag->dev[i] == dev)
			return i;
	return -ENOENT;
}

static bool slave_inactive(const struct net_device *dev)
{
	struct slave *slave = bond_slave_get_rcu(dev);

	return slave && bond_is_slave_inactive(slave);
}

/* How many members has the bond, and how many of them are ours? */
static void count_members(struct twin_lag *lag, struct net_device *bond, unsigned int *all,
			  unsigned int *ours, bool *inactive)
{
	struct net_device *dev;

	*all = *ours = 0;
	*inactive = false;
	rcu_read_lock();
	for_each_netdev_in_bond_rcu(bond, dev) {
		++*all;
		if (index_of(lag, dev) < 0)
			continue;
		++*ours;
		if (netif_is_bond_master(bond))
			*inactive |= slave_inactive(dev);
	}
	rcu_read_unlock();
}

/* Would this bond be taken? mlx5 lets it be made anyway, and says why it is none of its. */
static bool bond_ok(struct twin_card *card, struct netlink_ext_ack *extack)
{
	struct twin_lag *lag = &card->lag;

	if (!is_ready(lag) || twin_fault(&card->ports[0], TWIN_OP_LAG_BOND, extack)) {
		/* no driver of 6.12 or 7.2 counts VFs: it says so when a netdev is missing */
		if (!extack || !extack->_msg)
			NL_SET_ERR_MSG(extack, TWIN_DRIVER ": Can't activate LAG offload, PF is configured with more than 64 VFs");
		return false;
	}
	if (lag->tx_type != NETDEV_LAG_TX_TYPE_ACTIVEBACKUP &&
	    lag->tx_type != NETDEV_LAG_TX_TYPE_HASH) {
		NL_SET_ERR_MSG(extack, TWIN_DRIVER ": Can't activate LAG offload, TX type isn't supported");
		return false;
	}
	return true;
}

/* mlx5_handle_changeupper_event: exactly the card's ports, and nothing else */
static bool change_upper(struct twin_card *card, struct netdev_notifier_changeupper_info *info)
{
	const struct netdev_lag_upper_info *upper = info->linking ? info->upper_info : NULL;
	struct twin_lag *lag = &card->lag;
	unsigned int all, ours;
	bool was = lag->bonded, inactive;

	if (!netif_is_lag_master(info->upper_dev))
		return false;
	count_members(lag, info->upper_dev, &all, &ours, &inactive);
	if (!ours)
		return false;
	if (upper) {
		lag->tx_type = upper->tx_type;
		lag->hash_type = upper->hash_type;
	}
	lag->has_inactive = inactive;
	lag->bonded = all == TWIN_PORTS && ours == TWIN_PORTS && bond_ok(card, info->info.extack);
	return lag->bonded != was;
}

/* mlx5_handle_changelowerstate_event */
static bool change_lower_state(struct twin_lag *lag, struct net_device *dev,
			       struct netdev_notifier_changelowerstate_info *info)
{
	const struct netdev_lag_lower_state_info *state = info->lower_state_info;
	int i = index_of(lag, dev);

	if (i < 0 || !state || !netif_is_lag_port(dev))
		return false;
	lag->state[i] = *state;
	return true;
}

/* mlx5_handle_changeinfodata_event */
static bool change_info(struct twin_lag *lag, struct net_device *bond)
{
	unsigned int all, ours;
	bool was = lag->has_inactive, inactive;

	if (!netif_is_bond_master(bond))
		return false;
	count_members(lag, bond, &all, &ours, &inactive);
	lag->has_inactive = inactive;
	return inactive != was;
}

/* mlx5_lag_netdev_event */
static int lag_event(struct notifier_block *nb, unsigned long event, void *data)
{
	struct net_device *dev = netdev_notifier_info_to_dev(data);
	unsigned int i;

	for (i = 0; i < twin_num_cards; i++) {
		struct twin_lag *lag = &twin_cards[i].lag;
		bool changed = false;

		if (event == NETDEV_CHANGEUPPER)
			changed = change_upper(&twin_cards[i], data);
		else if (event == NETDEV_CHANGELOWERSTATE)
			changed = change_lower_state(lag, dev, data);
		else if (event == NETDEV_CHANGEINFODATA)
			changed = change_info(lag, dev);
		if (changed)
			queue_work_in(lag, 0);
	}
	return NOTIFY_DONE;
}

static struct notifier_block lag_nb = { .notifier_call = lag_event };

/* For the rest of the driver */

bool twin_lag_is_active(const struct twin_port *port)
{
	return READ_ONCE(lag_of(port)->mode) != TWIN_LAG_NONE;
}

/* mlx5_lag_is_sriov */
bool twin_lag_is_sriov(const struct twin_port *port)
{
	return READ_ONCE(lag_of(port)->mode) == TWIN_LAG_SRIOV;
}

/* mlx5_lag_disable_change: around what changes a port's mode */
void twin_lag_begin_change(struct twin_port *port)
{
	struct twin_lag *lag = lag_of(port);

	rtnl_lock();
	lag->changes++;
	if (is_active(lag))
		deactivate(lag);
	rtnl_unlock();
}

/* mlx5_lag_enable_change */
void twin_lag_end_change(struct twin_port *port)
{
	struct twin_lag *lag = lag_of(port);

	rtnl_lock();
	lag->changes--;
	/* E-Switches part: rules of one lose their twins in the other (twin_lag_pairing) */
	if (!twin_switchdev(port))
		WRITE_ONCE(lag->pairing, lag->pairing + 1);
	queue_work_in(lag, 0);
	rtnl_unlock();
}

void twin_lag_add_netdev(struct twin_func *pf, struct net_device *dev)
{
	struct twin_lag *lag = lag_of(pf->port);

	rtnl_lock();
	lag->dev[pf->port->num] = dev;
	memset(&lag->state[pf->port->num], 0, sizeof(lag->state[0]));
	queue_work_in(lag, 0);
	rtnl_unlock();
}

void twin_lag_remove_netdev(struct twin_func *pf)
{
	struct twin_lag *lag = lag_of(pf->port);

	rtnl_lock();
	lag->dev[pf->port->num] = NULL;
	if (is_active(lag))
		queue_work_in(lag, 0);
	rtnl_unlock();
}

/* The packet path */

/* What comes in from this vport is dropped unseen. */
bool twin_lag_drops(const struct twin_vport *vport)
{
	return twin_is_uplink(vport) && READ_ONCE(lag_of(vport->port)->drop[vport->port->num]);
}

/*
 * mlx5_eswitch_offloads_single_fdb_add_one: port 1's E-Switch hands all it gets to
 * the tables of port 0's, where both uplinks are one (eswitch_offloads.c,
 * mlx5_esw_match_metadata_reserved). So the rules of port 0's uplink are for both
 * wires; what misses comes out at the representor of the port it came by.
 */
struct twin_vport *twin_lag_fdb(struct twin_vport *vport)
{
	if (twin_is_uplink(vport) && READ_ONCE(lag_of(vport->port)->shared_fdb))
		return &vport->port->card->ports[0].uplink;
	return vport;
}

/*
 * Rules of port 1's VFs are held in port 0's tables too, if LAG is there when they
 * come (en_tc.c, is_peer_flow_needed); nothing adds them later. Zero: not there.
 */
u32 twin_lag_pairing(const struct twin_vport *vport)
{
	return twin_lag_is_sriov(vport->port) ? READ_ONCE(lag_of(vport->port)->pairing) : 0;
}

/* Is a rule that came under this pairing found by what this vport sends? */
bool twin_lag_finds(const struct twin_vport *vport, u32 pairing)
{
	const struct twin_lag *lag = lag_of(vport->port);

	return !vport->port->num || !READ_ONCE(lag->shared_fdb) ||
	       pairing == READ_ONCE(lag->pairing);
}

/* lag/port_sel.c: by the fields that the bond hashes */
static u32 hash(const struct twin_lag *lag, const struct sk_buff *skb)
{
	enum netdev_lag_hash type = READ_ONCE(lag->hash_type);
	struct twin_headers h;
	struct twin_key key;
	u32 v = 0;

	twin_parse(skb, &key, &h);
	if (type != NETDEV_LAG_HASH_L34 && type != NETDEV_LAG_HASH_E34)
		v = jhash(&key, 2 * ETH_ALEN, v);
	if (type != NETDEV_LAG_HASH_L2 && type != NETDEV_LAG_HASH_VLAN_SRCMAC)
		v = jhash(&key.saddr, 2 * sizeof(key.saddr), v);
	if (type == NETDEV_LAG_HASH_L34 || type == NETDEV_LAG_HASH_E34)
		v = jhash_2words((__force u32)key.sport << 16 | (__force u32)key.dport,
				 key.ip_proto, v);
	return v;
}

/*
 * Where a frame from FROM that a rule sends to TO really leaves. In LAG that is by
 * the port that the hash chooses, or that stands in for the sender's.
 */
struct twin_vport *twin_lag_out(struct twin_vport *from, struct twin_vport *to,
				const struct sk_buff *skb)
{
	const struct twin_lag *lag = lag_of(to->port);
	unsigned int i;

	if (!twin_is_uplink(to) || !twin_lag_is_sriov(to->port))
		return to;
	i = READ_ONCE(lag->hash) ? hash(lag, skb) % TWIN_PORTS : from->port->num;
	return &to->port->card->ports[READ_ONCE(lag->to[i])].uplink;
}

/* Rules */

static struct twin_port *port_of_uplink(const struct net_device *dev)
{
	const struct twin_nic *nic = netdev_priv(dev);

	return twin_netdev_is_ours(dev) && nic->kind == TWIN_PF ? nic->port : NULL;
}

/*
 * The uplink that a rule of PORT means by a bond: its own, if that is a member,
 * else the active member (en/tc/act/mirred.c, get_fdb_out_dev). Whether LAG is
 * active is not asked: without it the rule sends by its own wire. NULL if there is
 * none; an error unless all members are ports of this card.
 */
struct twin_vport *twin_lag_uplink(struct twin_port *port, struct net_device *bond)
{
	struct twin_vport *found = ERR_PTR(-EOPNOTSUPP);
	struct net_device *dev, *active = NULL;
	struct twin_port *member;

	rcu_read_lock();
	if (netif_is_bond_master(bond))
		active = bond_option_active_slave_get_rcu(netdev_priv(bond));
	for_each_netdev_in_bond_rcu(bond, dev) {
		member = port_of_uplink(dev);
		if (!member || member->card != port->card) {
			found = ERR_PTR(-EOPNOTSUPP);
			break;
		}
		if (member == port)
			found = &port->uplink;
		else if (IS_ERR_OR_NULL(found))
			found = dev == active && twin_switchdev(member) ? &member->uplink : NULL;
	}
	rcu_read_unlock();
	return found;
}

/* /sys/kernel/debug/mlx5/PF/lag/: lag/debugfs.c */

static int state_show(struct seq_file *m, void *v)
{
	const struct twin_func *pf = m->private;

	seq_printf(m, "%s\n", twin_lag_is_active(pf->port) ? "active" : "disabled");
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(state);

static int type_show(struct seq_file *m, void *v)
{
	static const char *const types[] = { NULL, "roce", "switchdev" };
	const struct twin_func *pf = m->private;
	const char *type = types[READ_ONCE(lag_of(pf->port)->mode)];

	if (!type)
		return -EINVAL;
	seq_printf(m, "%s\n", type);
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(type);

static int port_sel_mode_show(struct seq_file *m, void *v)
{
	const struct twin_func *pf = m->private;

	if (!twin_lag_is_active(pf->port))
		return -EINVAL;
	seq_printf(m, "%s\n", port_sel_mode(lag_of(pf->port)));
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(port_sel_mode);

static int flags_show(struct seq_file *m, void *v)
{
	const struct twin_func *pf = m->private;
	bool shared = READ_ONCE(lag_of(pf->port)->shared_fdb);

	if (!twin_lag_is_active(pf->port))
		return -EINVAL;
	seq_printf(m, "shared_fdb:%s\nfdb_selection_mode:%s\n", shared ? "on" : "off",
		   shared ? "native" : "affinity");
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(flags);

static int mapping_show(struct seq_file *m, void *v)
{
	const struct twin_func *pf = m->private;
	const struct twin_lag *lag = lag_of(pf->port);
	unsigned int i, n = 0;
	u8 ports[TWIN_PORTS];
	int err = 0;

	rtnl_lock();
	if (!is_active(lag))
		err = -EINVAL;
	else if (lag->hash)
		n = tx_ports(lag, ports);
	else
		seq_printf(m, "1:%d\n2:%d\n", lag->to[0] + 1, lag->to[1] + 1);
	rtnl_unlock();
	for (i = 0; i < n; i++)
		seq_printf(m, "%d\n", ports[i] + 1);
	return err;
}

DEFINE_SHOW_ATTRIBUTE(mapping);

/* The functions that could be: bonded or not. */
static int members_show(struct seq_file *m, void *v)
{
	const struct twin_func *pf = m->private;
	const struct twin_lag *lag = lag_of(pf->port);
	unsigned int i;

	rtnl_lock();
	for (i = 0; i < TWIN_PORTS; i++)
		if (lag->func[i])
			seq_printf(m, "%s\n", pci_name(lag->func[i]->pdev));
	rtnl_unlock();
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(members);

/* mlx5_lag_add_mdev. With the devlink lock, at load; ROCE is the param in effect. */
void twin_lag_add(struct twin_func *pf)
{
	struct twin_lag *lag = lag_of(pf->port);
	union devlink_param_value roce = { .vbool = true };
	struct dentry *dir;

	devl_param_driverinit_value_get(pf->devlink, DEVLINK_PARAM_GENERIC_ID_ENABLE_ROCE, &roce);
	rtnl_lock();
	lag->func[pf->port->num] = pf;
	lag->roce[pf->port->num] = roce.vbool;
	rtnl_unlock();

	pf->lag_debugfs = debugfs_create_dir(pci_name(pf->pdev), twin_lag_root);
	dir = debugfs_create_dir("lag", pf->lag_debugfs);
	debugfs_create_file("type", 0444, dir, pf, &type_fops);
	debugfs_create_file("port_sel_mode", 0444, dir, pf, &port_sel_mode_fops);
	debugfs_create_file("state", 0444, dir, pf, &state_fops);
	debugfs_create_file("flags", 0444, dir, pf, &flags_fops);
	debugfs_create_file("mapping", 0444, dir, pf, &mapping_fops);
	debugfs_create_file("members", 0444, dir, pf, &members_fops);

	/* en/tc_ct.c, mlx5_ct_tc_create_dbgfs */
	if (IS_ENABLED(CONFIG_NET_TC_SKB_EXT)) {
		dir = debugfs_create_dir("ct", pf->lag_debugfs);
		debugfs_create_atomic_t("offloaded", 0400, dir, &pf->port->ct.offloaded);
		debugfs_create_atomic_t("rx_dropped", 0400, dir, &pf->port->ct.rx_dropped);
	}
}

/* mlx5_lag_remove_mdev. Not under RTNL: readers of the files, who take it, are waited for. */
void twin_lag_remove(struct twin_func *pf)
{
	struct twin_lag *lag = lag_of(pf->port);

	debugfs_remove_recursive(pf->lag_debugfs);
	rtnl_lock();
	if (is_active(lag))
		deactivate(lag);
	lag->func[pf->port->num] = NULL;
	rtnl_unlock();
}

int twin_lag_init(void)
{
	unsigned int i;
	int err;

	for (i = 0; i < twin_num_cards; i++) {
		INIT_DELAYED_WORK(&twin_cards[i].lag.work, bond_work);
		twin_cards[i].lag.pairing = 1;
	}
	twin_lag_root = debugfs_create_dir("mlx5", NULL);
	err = register_netdevice_notifier(&lag_nb);
	if (err)
		debugfs_remove_recursive(twin_lag_root);
	return err;
}

/* The functions are gone. */
void twin_lag_exit(void)
{
	unsigned int i;

	unregister_netdevice_notifier(&lag_nb);
	for (i = 0; i < twin_num_cards; i++)
		cancel_delayed_work_sync(&twin_cards[i].lag.work);
	debugfs_remove_recursive(twin_lag_root);
}
