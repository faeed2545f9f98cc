// SPDX-License-Identifier: GPL-2.0
/*
 * Netdevs: PF (in switchdev mode the uplink representor), VF or SF, representor.
 * Follows mlx5/core en_main.c, en_rep.c and esw/legacy.c.
 */
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/pkt_cls.h>
#include <net/udp_tunnel.h>

#include "twin.h"

static const struct net_device_ops twin_nic_ops;
static const struct net_device_ops twin_rep_ops;

bool twin_netdev_is_ours(const struct net_device *dev)
{
	return dev->netdev_ops == &twin_nic_ops || dev->netdev_ops == &twin_rep_ops;
}

/* mlx5 en_rep.c, mlx5e_eswitch_vf_rep */
bool twin_netdev_is_rep(const struct net_device *dev)
{
	return dev->netdev_ops == &twin_rep_ops;
}

/* mlx5 en_rep.c, mlx5e_eswitch_uplink_rep */
bool twin_netdev_is_uplink(const struct net_device *dev)
{
	const struct twin_nic *nic = netdev_priv(dev);

	return dev->netdev_ops == &twin_nic_ops && nic->kind == TWIN_PF &&
	       twin_switchdev(nic->port);
}

/* The packet path */

/* Would the VF's, or the PF's, receive filter take a frame to this address? */
static bool takes_address(const struct net_device *dev, const u8 *addr)
{
	const struct twin_nic *nic = netdev_priv(dev);
	const struct twin_macs *macs;
	unsigned int i;

	if (nic->kind == TWIN_REP || twin_netdev_is_uplink(dev))
		return true;	/* all that missed */
	if (is_multicast_ether_addr(addr) || READ_ONCE(dev->flags) & IFF_PROMISC ||
	    ether_addr_equal(addr, dev->dev_addr))
		return true;
	macs = rcu_dereference(nic->vport->macs);
	for (i = 0; macs && i < macs->n; i++)
		if (ether_addr_equal(addr, macs->addr[i]))
			return true;
	return false;
}

static void count_rx(struct net_device *dev, u64 packets, u64 bytes)
{
	struct pcpu_sw_netstats *stats = this_cpu_ptr(dev->tstats);

	u64_stats_update_begin(&stats->syncp);
	u64_stats_add(&stats->rx_packets, packets);
	u64_stats_add(&stats->rx_bytes, bytes);
	u64_stats_update_end(&stats->syncp);
}

/*
 * Gives DEV a whole frame, skb->data at its Ethernet header. CHAIN is where tc
 * goes on with a packet that left the hardware tables in the middle (mlx5
 * en_tc.c, mlx5e_tc_restore_skb_chain). Consumes the skb.
 */
void twin_netdev_receive(struct sk_buff *skb, struct net_device *dev,
			 const struct twin_restore *restore)
{
	struct twin_nic *nic = netdev_priv(dev);
	u64 packets = twin_skb_packets(skb), bytes = twin_skb_bytes(skb);
	bool link = nic->kind == TWIN_VF ? twin_vport_link(nic->vport) : netif_carrier_ok(dev);

	/* is_skb_forwardable: up, and no longer than the MTU or made of such pieces */
	if (!link || !netif_device_present(dev) || !is_skb_forwardable(dev, skb) ||
	    !takes_address(dev, eth_hdr(skb)->h_dest))
		goto drop;
	if (skb_orphan_frags_rx(skb, GFP_ATOMIC))
		goto drop;
	skb_orphan(skb);
	skb_scrub_packet(skb, true);
	if (restore && !twin_ct_restore(skb, restore))
		goto drop;
	skb->protocol = eth_type_trans(skb, dev);
	count_rx(dev, packets, bytes);
	netif_rx(skb);
	return;

drop:
	dev_core_stats_rx_dropped_inc(dev);
	if (nic->kind == TWIN_VF)
		this_cpu_inc(nic->vport->counters->c[TWIN_RX_DROPS]);
	kfree_skb(skb);
}

static void pace_end(struct timer_list *timer)
{
	struct twin_nic *nic = container_of(timer, struct twin_nic, pace);

	netif_tx_wake_all_queues(nic->dev);
}

/*
 * Over its rate: the E-Switch takes nothing more from the function's send queues,
 * which fill up. The wait is cut in pieces, as the limit may change meanwhile.
 */
static netdev_tx_t pace(struct twin_nic *nic, u64 wait)
{
	unsigned long ticks = nsecs_to_jiffies(min_t(u64, wait, 20 * NSEC_PER_MSEC));

	netif_tx_stop_all_queues(nic->dev);
	mod_timer(&nic->pace, jiffies + max(1UL, ticks));
	return NETDEV_TX_BUSY;
}

static netdev_tx_t nic_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct twin_nic *nic = netdev_priv(dev);
	u64 wait;

	if (skb->len < ETH_HLEN)
		goto drop;
	if (nic->kind == TWIN_VF) {
		wait = twin_rate_take(nic->vport, twin_skb_bytes(skb));
		if (wait)
			return pace(nic, wait);
	}
	skb_reset_mac_header(skb);
	skb_tx_timestamp(skb);
	skb = twin_frame(skb);
	if (!skb) {
		dev_core_stats_tx_dropped_inc(dev);
		return NETDEV_TX_OK;
	}
	dev_sw_netstats_tx_add(dev, twin_skb_packets(skb), twin_skb_bytes(skb));
	rcu_read_lock();
	if (nic->kind == TWIN_VF) {
		twin_from_vport(nic->vport, skb, 0);
	} else if (nic->kind == TWIN_REP || twin_switchdev(nic->port)) {
		twin_count(nic->vport, TWIN_REP_PACKETS, twin_skb_packets(skb),
			   twin_skb_bytes(skb));
		twin_to_vport(nic->vport, skb, 0);
	} else {
		twin_from_pf(nic->port, skb);
	}
	rcu_read_unlock();
	return NETDEV_TX_OK;

drop:
	dev_core_stats_tx_dropped_inc(dev);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

/* State */

static int nic_open(struct net_device *dev)
{
	struct twin_nic *nic = netdev_priv(dev);
	int err;

	err = twin_fault(nic->port, TWIN_OP_OPEN, NULL);
	if (err)
		return err;
	twin_vport_update_link(nic->vport);
	netif_tx_start_all_queues(dev);
	return 0;
}

static int nic_stop(struct net_device *dev)
{
	struct twin_nic *nic = netdev_priv(dev);

	timer_delete_sync(&nic->pace);
	netif_tx_stop_all_queues(dev);
	return 0;
}

/* mlx5 en_rep.c, mlx5e_rep_open and _close: the representor is the VF's cable. */
static void rep_set_state(struct net_device *dev, bool up)
{
	struct twin_nic *nic = netdev_priv(dev);

	WRITE_ONCE(nic->vport->rep_up, up);
	if (up)
		netif_carrier_on(dev);
	else
		netif_carrier_off(dev);
	twin_vport_update_link(nic->vport);
}

static int rep_open(struct net_device *dev)
{
	struct twin_nic *nic = netdev_priv(dev);
	int err;

	err = twin_fault(nic->port, TWIN_OP_OPEN, NULL);
	if (err)
		return err;
	rep_set_state(dev, true);
	netif_tx_start_all_queues(dev);
	return 0;
}

static int rep_stop(struct net_device *dev)
{
	netif_tx_stop_all_queues(dev);
	rep_set_state(dev, false);
	return 0;
}

static int rep_change_carrier(struct net_device *dev, bool on)
{
	rep_set_state(dev, on);
	return 0;
}

/* mlx5 en_main.c, mlx5e_set_mac: up or down, unlike eth_mac_addr */
static int nic_set_address(struct net_device *dev, void *address)
{
	const struct sockaddr *sa = address;

	if (!is_valid_ether_addr(sa->sa_data))
		return -EADDRNOTAVAIL;
	netif_addr_lock_bh(dev);
	eth_hw_addr_set(dev, sa->sa_data);
	netif_addr_unlock_bh(dev);
	return 0;
}

static int change_mtu(struct net_device *dev, int mtu)
{
	struct twin_nic *nic = netdev_priv(dev);
	int err;

	err = twin_fault(nic->port, TWIN_OP_MTU, NULL);
	if (err)
		return err;
	WRITE_ONCE(dev->mtu, mtu);
	return 0;
}

/* Called with the address list locked and bottom halves off. */
static void nic_set_rx_mode(struct net_device *dev)
{
	struct twin_nic *nic = netdev_priv(dev);
	struct netdev_hw_addr *ha;
	struct twin_macs *macs = NULL, *old;
	unsigned int n = netdev_uc_count(dev);

	if (n) {
		macs = kmalloc(struct_size(macs, addr, n), GFP_ATOMIC);
		if (!macs)
			return;
		macs->n = 0;
		netdev_for_each_uc_addr(ha, dev)
			ether_addr_copy(macs->addr[macs->n++], ha->addr);
	}
	old = rcu_replace_pointer(nic->vport->macs, macs, true);
	if (old)
		kfree_rcu(old, rcu);
}

/* Statistics */

static void nic_get_stats64(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	struct twin_nic *nic = netdev_priv(dev);
	u64 c[TWIN_NUM_COUNTERS];

	if (!twin_netdev_is_uplink(dev)) {
		dev_fetch_sw_netstats(stats, dev->tstats);
		return;
	}
	/* mlx5e_get_stats: the uplink representor shows the physical port */
	twin_sum(nic->vport, c);
	stats->rx_packets = c[TWIN_TX_UC_PACKETS] + c[TWIN_TX_MC_PACKETS] + c[TWIN_TX_BC_PACKETS];
	stats->rx_bytes = c[TWIN_TX_UC_BYTES] + c[TWIN_TX_MC_BYTES] + c[TWIN_TX_BC_BYTES];
	stats->tx_packets = c[TWIN_RX_UC_PACKETS] + c[TWIN_RX_MC_PACKETS] + c[TWIN_RX_BC_PACKETS];
	stats->tx_bytes = c[TWIN_RX_UC_BYTES] + c[TWIN_RX_MC_BYTES] + c[TWIN_RX_BC_BYTES];
	stats->multicast = c[TWIN_TX_MC_PACKETS];
}

/*
 * mlx5e_rep_get_stats: a representor's counters are those of the vport seen from
 * the switch, so they count what the hardware forwarded by itself, too. What the
 * host really saw is the CPU hit part (ip stats show dev REP group offload
 * subgroup cpu_hit) and rx_packets of ethtool -S.
 */
static void rep_get_stats64(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	struct twin_nic *nic = netdev_priv(dev);
	u64 c[TWIN_NUM_COUNTERS];

	twin_sum(nic->vport, c);
	stats->rx_packets = c[TWIN_TX_UC_PACKETS] + c[TWIN_TX_MC_PACKETS] + c[TWIN_TX_BC_PACKETS];
	stats->rx_bytes = c[TWIN_TX_UC_BYTES] + c[TWIN_TX_MC_BYTES] + c[TWIN_TX_BC_BYTES];
	stats->tx_packets = c[TWIN_RX_UC_PACKETS] + c[TWIN_RX_MC_PACKETS] + c[TWIN_RX_BC_PACKETS];
	stats->tx_bytes = c[TWIN_RX_UC_BYTES] + c[TWIN_RX_MC_BYTES] + c[TWIN_RX_BC_BYTES];
}

static bool has_offload_stats(const struct net_device *dev, int id)
{
	return id == IFLA_OFFLOAD_XSTATS_CPU_HIT &&
	       (twin_netdev_is_rep(dev) || twin_netdev_is_uplink(dev));
}

static int get_offload_stats(int id, const struct net_device *dev, void *to)
{
	struct rtnl_link_stats64 *stats = to;

	if (!has_offload_stats(dev, id))
		return -EINVAL;
	memset(stats, 0, sizeof(*stats));
	dev_fetch_sw_netstats(stats, dev->tstats);
	return 0;
}

/* What the PF's administrator sets of a VF */

static struct twin_vport *admin_vport(struct net_device *dev, int vf)
{
	struct twin_nic *nic = netdev_priv(dev);

	if (nic->kind != TWIN_PF)
		return ERR_PTR(-EPERM);
	/* mlx5 has a vport for every VF that could be, enabled or not */
	if (vf < 0 || vf >= nic->port->total_vfs)
		return ERR_PTR(-EINVAL);
	return &nic->port->vports[vf];
}

/* mlx5 eswitch.c, mlx5_esw_set_vport_mac_locked; a bound VF keeps what it has */
int twin_netdev_set_mac(struct twin_vport *vport, const u8 *mac)
{
	if (is_multicast_ether_addr(mac))
		return -EINVAL;
	mutex_lock(&vport->port->info_lock);
	ether_addr_copy(vport->info.mac, mac);
	mutex_unlock(&vport->port->info_lock);
	return 0;
}

static int set_vf_mac(struct net_device *dev, int vf, u8 *mac)
{
	struct twin_vport *vport = admin_vport(dev, vf);
	int err;

	if (IS_ERR(vport))
		return PTR_ERR(vport);
	err = twin_fault(vport->port, TWIN_OP_VF_SET, NULL);
	if (err)
		return err;
	return twin_netdev_set_mac(vport, mac);
}

/* mlx5 esw/legacy.c, mlx5_eswitch_set_vport_vlan: in switchdev the VLAN is OVS's */
static int set_vf_vlan(struct net_device *dev, int vf, u16 vlan, u8 qos, __be16 proto)
{
	struct twin_vport *vport = admin_vport(dev, vf);
	int err;

	if (proto != htons(ETH_P_8021Q))
		return -EPROTONOSUPPORT;
	if (IS_ERR(vport))
		return PTR_ERR(vport);
	err = twin_fault(vport->port, TWIN_OP_VF_SET, NULL);
	if (err)
		return err;
	if (twin_switchdev(vport->port))
		return vlan ? -EOPNOTSUPP : 0;
	if (vlan > 4095 || qos > 7)
		return -EINVAL;
	mutex_lock(&vport->port->info_lock);
	WRITE_ONCE(vport->info.vlan, vlan);
	WRITE_ONCE(vport->info.qos, qos);
	mutex_unlock(&vport->port->info_lock);
	return 0;
}

/* The three that legacy mode has and switchdev refuses: esw/legacy.c, eswitch.c */
static struct twin_vport *legacy_vport(struct net_device *dev, int vf)
{
	struct twin_vport *vport = admin_vport(dev, vf);
	int err;

	if (IS_ERR(vport))
		return vport;
	if (twin_switchdev(vport->port))
		return ERR_PTR(-EOPNOTSUPP);
	err = twin_fault(vport->port, TWIN_OP_VF_SET, NULL);
	return err ? ERR_PTR(err) : vport;
}

static int set_vf_spoofchk(struct net_device *dev, int vf, bool on)
{
	struct twin_vport *vport = legacy_vport(dev, vf);

	if (IS_ERR(vport))
		return PTR_ERR(vport);
	mutex_lock(&vport->port->info_lock);
	WRITE_ONCE(vport->info.spoofchk, on);
	mutex_unlock(&vport->port->info_lock);
	return 0;
}

static int set_vf_trust(struct net_device *dev, int vf, bool on)
{
	struct twin_vport *vport = legacy_vport(dev, vf);

	if (IS_ERR(vport))
		return PTR_ERR(vport);
	mutex_lock(&vport->port->info_lock);
	WRITE_ONCE(vport->info.trusted, on);
	mutex_unlock(&vport->port->info_lock);
	return 0;
}

static int set_vf_link_state(struct net_device *dev, int vf, int state)
{
	struct twin_vport *vport = legacy_vport(dev, vf);

	if (IS_ERR(vport))
		return PTR_ERR(vport);
	mutex_lock(&vport->port->info_lock);
	WRITE_ONCE(vport->info.link_state, state);
	mutex_unlock(&vport->port->info_lock);
	twin_vport_update_link(vport);
	return 0;
}

/* mlx5 esw/qos.c, mlx5_esw_qos_set_vport_rate: in both modes, and no check of the speed */
static int set_vf_rate(struct net_device *dev, int vf, int min, int max)
{
	struct twin_vport *vport = admin_vport(dev, vf);
	int err;

	if (IS_ERR(vport))
		return PTR_ERR(vport);
	err = twin_fault(vport->port, TWIN_OP_VF_SET, NULL);
	if (err)
		return err;
	twin_rate_set(&vport->rate, min, max);
	return 0;
}

static int get_vf_config(struct net_device *dev, int vf, struct ifla_vf_info *ivi)
{
	struct twin_vport *vport = admin_vport(dev, vf);

	if (IS_ERR(vport))
		return PTR_ERR(vport);
	if (!netif_device_present(dev))
		return -EOPNOTSUPP;
	memset(ivi, 0, sizeof(*ivi));
	ivi->vf = vf;
	mutex_lock(&vport->port->info_lock);
	ether_addr_copy(ivi->mac, vport->info.mac);
	ivi->linkstate = vport->info.link_state;
	ivi->vlan = vport->info.vlan;
	ivi->qos = vport->info.qos;
	ivi->spoofchk = vport->info.spoofchk;
	ivi->trusted = vport->info.trusted;
	mutex_unlock(&vport->port->info_lock);
	ivi->min_tx_rate = READ_ONCE(vport->rate.min);
	ivi->max_tx_rate = READ_ONCE(vport->rate.max);
	return 0;
}

/* mlx5 eswitch.c, mlx5_eswitch_get_vport_stats */
static int get_vf_stats(struct net_device *dev, int vf, struct ifla_vf_stats *stats)
{
	struct twin_vport *vport = admin_vport(dev, vf);
	u64 c[TWIN_NUM_COUNTERS];

	if (IS_ERR(vport))
		return PTR_ERR(vport);
	twin_sum(vport, c);
	memset(stats, 0, sizeof(*stats));
	stats->rx_packets = c[TWIN_RX_UC_PACKETS] + c[TWIN_RX_MC_PACKETS] + c[TWIN_RX_BC_PACKETS];
	stats->rx_bytes = c[TWIN_RX_UC_BYTES] + c[TWIN_RX_MC_BYTES] + c[TWIN_RX_BC_BYTES];
	stats->tx_packets = c[TWIN_TX_UC_PACKETS] + c[TWIN_TX_MC_PACKETS] + c[TWIN_TX_BC_PACKETS];
	stats->tx_bytes = c[TWIN_TX_UC_BYTES] + c[TWIN_TX_MC_BYTES] + c[TWIN_TX_BC_BYTES];
	stats->multicast = c[TWIN_RX_MC_PACKETS];
	stats->broadcast = c[TWIN_RX_BC_PACKETS];
	stats->rx_dropped = c[TWIN_RX_DROPS];
	stats->tx_dropped = c[TWIN_TX_DROPS];
	return 0;
}

static const struct net_device_ops twin_nic_ops = {
	.ndo_open = nic_open,
	.ndo_stop = nic_stop,
	.ndo_start_xmit = nic_xmit,
	.ndo_set_rx_mode = nic_set_rx_mode,
	.ndo_set_mac_address = nic_set_address,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_change_mtu = change_mtu,
	.ndo_get_stats64 = nic_get_stats64,
	.ndo_has_offload_stats = has_offload_stats,
	.ndo_get_offload_stats = get_offload_stats,
	.ndo_setup_tc = twin_setup_tc,
	.ndo_set_vf_mac = set_vf_mac,
	.ndo_set_vf_vlan = set_vf_vlan,
	.ndo_set_vf_spoofchk = set_vf_spoofchk,
	.ndo_set_vf_trust = set_vf_trust,
	.ndo_set_vf_rate = set_vf_rate,
	.ndo_set_vf_link_state = set_vf_link_state,
	.ndo_get_vf_config = get_vf_config,
	.ndo_get_vf_stats = get_vf_stats,
};

/*
 * mlx5 en_rep.c, mlx5e_netdev_ops_rep: there is an address to set in 7.2, not in
 * 6.12.
 */
static const struct net_device_ops twin_rep_ops = {
#if TWIN_7
	.ndo_set_mac_address = eth_mac_addr,
#endif
	.ndo_open = rep_open,
	.ndo_stop = rep_stop,
	.ndo_start_xmit = nic_xmit,
	.ndo_change_mtu = change_mtu,
	.ndo_change_carrier = rep_change_carrier,
	.ndo_get_stats64 = rep_get_stats64,
	.ndo_has_offload_stats = has_offload_stats,
	.ndo_get_offload_stats = get_offload_stats,
	.ndo_setup_tc = twin_setup_tc,
};

/* mlx5 en_main.c, mlx5e_fix_features: an uplink representor stays where it is. */
void twin_netdev_set_switchdev(struct net_device *dev, bool on)
{
	dev->netns_immutable = on;
	twin_vport_update_link(&((struct twin_nic *)netdev_priv(dev))->port->uplink);
}

/*
 * mlx5 en_main.c, mlx5e_set_netdev_dev_addr: a PF has its own address; a VF what
 * was set for it before it was bound, else a random one, another at every bind.
 */
static void set_address(struct net_device *dev, const struct twin_nic *nic)
{
	u8 mac[ETH_ALEN];

	if (nic->kind == TWIN_PF) {
		eth_hw_addr_set(dev, nic->port->mac);
		return;
	}
	if (nic->kind == TWIN_VF) {
		mutex_lock(&nic->port->info_lock);
		ether_addr_copy(mac, nic->vport->info.mac);
		mutex_unlock(&nic->port->info_lock);
		if (!is_zero_ether_addr(mac)) {
			eth_hw_addr_set(dev, mac);
			return;
		}
	}
	eth_hw_addr_random(dev);
}

#define NIC_FEATURES (NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6 | \
		      NETIF_F_RXCSUM | NETIF_F_GSO_UDP_L4)
#define REP_FEATURES (NETIF_F_HW_TC | NETIF_F_SG | NETIF_F_IP_CSUM | NETIF_F_IPV6_CSUM | \
		      NETIF_F_GRO | NETIF_F_TSO | NETIF_F_TSO6 | NETIF_F_RXCSUM)

/*
 * mlx5 en.h, mlx5e_get_max_num_channels: one for each completion vector. Of a VF's
 * vectors one is for control; max_io_eqs are those for completions.
 */
static unsigned int max_channels(const struct twin_nic *nic)
{
	const struct twin_vf_info *info = &nic->vport->info;
	unsigned int n = TWIN_MAX_CHANNELS;

	if (nic->kind == TWIN_REP)
		return 1;
	if (nic->kind == TWIN_PF)
		return n;
	mutex_lock(&nic->port->info_lock);
	n = min(n, info->max_io_eqs);
	if (!twin_is_sf(nic->vport) && info->msix)
		n = min(n, info->msix - 1);
	mutex_unlock(&nic->port->info_lock);
	return max(1U, n);
}

/* A netdev ready to be registered; it is freed with its unregistration. */
struct net_device *twin_netdev_new(enum twin_kind kind, struct twin_func *func,
				   struct twin_vport *vport)
{
	unsigned int queues = kind == TWIN_REP ? 1 : TWIN_MAX_CHANNELS;
	struct net_device *dev;
	struct twin_nic *nic;

	dev = alloc_etherdev_mqs(sizeof(*nic), queues, queues);
	if (!dev)
		return NULL;
	nic = netdev_priv(dev);
	nic->kind = kind;
	nic->dev = dev;
	nic->port = func->port;
	nic->vport = vport;
	nic->max_channels = min(queues, max_channels(nic));
	nic->channels = min(nic->max_channels, num_online_cpus());
	timer_setup(&nic->pace, pace_end, 0);
	nic->rx_ring = 1024;
	nic->tx_ring = kind == TWIN_REP ? 128 : 1024;

	SET_NETDEV_DEV(dev, func->dev);
	dev_net_set(dev, devlink_net(func->devlink));
	dev->needs_free_netdev = true;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->lltx = true;	/* rings that do not exist need no lock */
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = TWIN_MAX_MTU;
	set_address(dev, nic);

	if (kind == TWIN_REP) {
		dev->netdev_ops = &twin_rep_ops;
		dev->ethtool_ops = &twin_rep_ethtool_ops;
		dev->hw_features = REP_FEATURES;
		dev->features = dev->hw_features;
		dev->netns_immutable = true;
	} else {
		dev->netdev_ops = &twin_nic_ops;
		dev->ethtool_ops = &twin_nic_ethtool_ops;
		dev->vlan_features = NIC_FEATURES;
		dev->hw_features = NIC_FEATURES | NETIF_F_HW_VLAN_CTAG_TX | NETIF_F_HW_VLAN_CTAG_RX;
		dev->features = dev->hw_features | NETIF_F_HIGHDMA;
		if (kind == TWIN_PF) {
			dev->hw_features |= NETIF_F_HW_TC;	/* off until set */
			dev->features |= NETIF_F_RX_UDP_TUNNEL_PORT;
			dev->udp_tunnel_nic_info = &twin_udp_tunnels;
		}
		dev->priv_flags |= IFF_UNICAST_FLT;
		netif_set_tso_max_size(dev, GSO_MAX_SIZE);
		netif_set_real_num_tx_queues(dev, nic->channels);
		netif_set_real_num_rx_queues(dev, nic->channels);
	}
	return dev;
}
