// SPDX-License-Identifier: GPL-2.0
/* ethtool: mlx5/core en_ethtool.c, en_stats.c and en_rep.c. */
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>

#include "twin.h"

static void drvinfo(struct net_device *dev, struct ethtool_drvinfo *info, const char *driver)
{
	strscpy(info->driver, driver, sizeof(info->driver));
	snprintf(info->fw_version, sizeof(info->fw_version), "%d.%d.%04d (%.16s)",
		 TWIN_FW_MAJOR, TWIN_FW_MINOR, TWIN_FW_SUB, TWIN_PSID);
	strscpy(info->bus_info, dev_name(dev->dev.parent), sizeof(info->bus_info));
}

static void nic_get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	drvinfo(dev, info, TWIN_DRIVER);
}

/* mlx5e_rep_get_drvinfo names no bus; the core fills in the parent device's name */
static void rep_get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	drvinfo(dev, info, TWIN_REP_DRIVER);
}

static void get_channels(struct net_device *dev, struct ethtool_channels *ch)
{
	struct twin_nic *nic = netdev_priv(dev);

	ch->max_combined = nic->max_channels;
	ch->combined_count = nic->channels;
}

static int set_channels(struct net_device *dev, struct ethtool_channels *ch)
{
	struct twin_nic *nic = netdev_priv(dev);
	int err;

	if (!ch->combined_count || ch->rx_count || ch->tx_count || ch->other_count)
		return -EINVAL;
	err = netif_set_real_num_queues(dev, ch->combined_count, ch->combined_count);
	if (!err)
		nic->channels = ch->combined_count;
	return err;
}

static void get_ringparam(struct net_device *dev, struct ethtool_ringparam *ring,
			  struct kernel_ethtool_ringparam *kernel, struct netlink_ext_ack *extack)
{
	struct twin_nic *nic = netdev_priv(dev);

	ring->rx_max_pending = 8192;
	ring->tx_max_pending = 8192;
	ring->rx_pending = nic->rx_ring;
	ring->tx_pending = nic->tx_ring;
}

/* mlx5e_ethtool_set_ringparam: rounded up to a power of two, at least 64 */
static int set_ringparam(struct net_device *dev, struct ethtool_ringparam *ring,
			 struct kernel_ethtool_ringparam *kernel, struct netlink_ext_ack *extack)
{
	struct twin_nic *nic = netdev_priv(dev);

	if (ring->rx_jumbo_pending || ring->rx_mini_pending ||
	    ring->rx_pending < 2 || ring->tx_pending < 64)
		return -EINVAL;
	nic->rx_ring = roundup_pow_of_two(ring->rx_pending);
	nic->tx_ring = roundup_pow_of_two(ring->tx_pending);
	return 0;
}

static int get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *ks)
{
	ethtool_link_ksettings_zero_link_mode(ks, supported);
	ethtool_link_ksettings_zero_link_mode(ks, advertising);
	ethtool_link_ksettings_add_link_mode(ks, supported, FIBRE);
	ethtool_link_ksettings_add_link_mode(ks, supported, 25000baseCR_Full);
	ethtool_link_ksettings_add_link_mode(ks, supported, 100000baseCR4_Full);
	ethtool_link_ksettings_add_link_mode(ks, supported, Autoneg);
	ethtool_link_ksettings_add_link_mode(ks, advertising, 100000baseCR4_Full);
	ethtool_link_ksettings_add_link_mode(ks, advertising, Autoneg);
	ks->base.port = PORT_DA;
	ks->base.autoneg = AUTONEG_ENABLE;
	ks->base.speed = netif_carrier_ok(dev) ? twin_speed : SPEED_UNKNOWN;
	ks->base.duplex = netif_carrier_ok(dev) ? DUPLEX_FULL : DUPLEX_UNKNOWN;
	return 0;
}

static u32 get_msglevel(struct net_device *dev)
{
	struct twin_nic *nic = netdev_priv(dev);

	return nic->msg;
}

static void set_msglevel(struct net_device *dev, u32 msg)
{
	struct twin_nic *nic = netdev_priv(dev);

	nic->msg = msg;
}

/* Statistics: groups sw, vport and 802_3 of en_stats.c; sw_rep and vport_rep of en_rep.c */

static const char nic_stats[][ETH_GSTRING_LEN] = {
	"rx_packets", "rx_bytes", "tx_packets", "tx_bytes",
	"rx_vport_unicast_packets", "rx_vport_unicast_bytes",
	"tx_vport_unicast_packets", "tx_vport_unicast_bytes",
	"rx_vport_multicast_packets", "rx_vport_multicast_bytes",
	"tx_vport_multicast_packets", "tx_vport_multicast_bytes",
	"rx_vport_broadcast_packets", "rx_vport_broadcast_bytes",
	"tx_vport_broadcast_packets", "tx_vport_broadcast_bytes",
	"rx_steer_missed_packets",
};

static const char phy_stats[][ETH_GSTRING_LEN] = {
	"tx_packets_phy", "rx_packets_phy", "tx_bytes_phy", "rx_bytes_phy",
	"tx_multicast_phy", "tx_broadcast_phy", "rx_multicast_phy", "rx_broadcast_phy",
	"link_down_events_phy",
};

static const char rep_stats[][ETH_GSTRING_LEN] = {
	"rx_packets", "rx_bytes", "tx_packets", "tx_bytes",
	"vport_rx_packets", "vport_rx_bytes", "vport_tx_packets", "vport_tx_bytes",
	"rx_vport_rdma_unicast_packets", "rx_vport_rdma_unicast_bytes",
	"tx_vport_rdma_unicast_packets", "tx_vport_rdma_unicast_bytes",
	"rx_vport_rdma_multicast_packets", "rx_vport_rdma_multicast_bytes",
	"tx_vport_rdma_multicast_packets", "tx_vport_rdma_multicast_bytes",
	"vport_loopback_packets", "vport_loopback_bytes",
};

static int nic_get_sset_count(struct net_device *dev, int set)
{
	struct twin_nic *nic = netdev_priv(dev);

	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return ARRAY_SIZE(nic_stats) + (nic->kind == TWIN_PF ? ARRAY_SIZE(phy_stats) : 0);
}

static void nic_get_strings(struct net_device *dev, u32 set, u8 *data)
{
	struct twin_nic *nic = netdev_priv(dev);

	if (set != ETH_SS_STATS)
		return;
	memcpy(data, nic_stats, sizeof(nic_stats));
	if (nic->kind == TWIN_PF)
		memcpy(data + sizeof(nic_stats), phy_stats, sizeof(phy_stats));
}

static void put_sw(struct net_device *dev, u64 **data)
{
	struct rtnl_link_stats64 sw = {};

	dev_fetch_sw_netstats(&sw, dev->tstats);
	*(*data)++ = sw.rx_packets;
	*(*data)++ = sw.rx_bytes;
	*(*data)++ = sw.tx_packets;
	*(*data)++ = sw.tx_bytes;
}

static void nic_get_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	static const enum twin_counter vport_order[] = {
		TWIN_RX_UC_PACKETS, TWIN_RX_UC_BYTES, TWIN_TX_UC_PACKETS, TWIN_TX_UC_BYTES,
		TWIN_RX_MC_PACKETS, TWIN_RX_MC_BYTES, TWIN_TX_MC_PACKETS, TWIN_TX_MC_BYTES,
		TWIN_RX_BC_PACKETS, TWIN_RX_BC_BYTES, TWIN_TX_BC_PACKETS, TWIN_TX_BC_BYTES,
	};
	struct twin_nic *nic = netdev_priv(dev);
	u64 c[TWIN_NUM_COUNTERS];
	unsigned int i;

	twin_sum(nic->vport, c);
	put_sw(dev, &data);
	/* the PF's own vport is not counted apart from its wire */
	for (i = 0; i < ARRAY_SIZE(vport_order); i++)
		*data++ = nic->kind == TWIN_VF ? c[vport_order[i]] : 0;
	*data++ = nic->kind == TWIN_VF ? c[TWIN_RX_DROPS] : 0;
	if (nic->kind != TWIN_PF)
		return;
	/* seen from the uplink, rx is what goes out on the wire */
	*data++ = c[TWIN_RX_UC_PACKETS] + c[TWIN_RX_MC_PACKETS] + c[TWIN_RX_BC_PACKETS];
	*data++ = c[TWIN_TX_UC_PACKETS] + c[TWIN_TX_MC_PACKETS] + c[TWIN_TX_BC_PACKETS];
	*data++ = c[TWIN_RX_UC_BYTES] + c[TWIN_RX_MC_BYTES] + c[TWIN_RX_BC_BYTES];
	*data++ = c[TWIN_TX_UC_BYTES] + c[TWIN_TX_MC_BYTES] + c[TWIN_TX_BC_BYTES];
	*data++ = c[TWIN_RX_MC_PACKETS];
	*data++ = c[TWIN_RX_BC_PACKETS];
	*data++ = c[TWIN_TX_MC_PACKETS];
	*data++ = c[TWIN_TX_BC_PACKETS];
	*data++ = atomic_read(&dev->carrier_down_count);
}

static int rep_get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(rep_stats) : -EOPNOTSUPP;
}

static void rep_get_strings(struct net_device *dev, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, rep_stats, sizeof(rep_stats));
}

static void rep_get_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct twin_nic *nic = netdev_priv(dev);
	u64 c[TWIN_NUM_COUNTERS];

	twin_sum(nic->vport, c);
	memset(data, 0, ARRAY_SIZE(rep_stats) * sizeof(*data));
	put_sw(dev, &data);
	*data++ = c[TWIN_TX_UC_PACKETS] + c[TWIN_TX_MC_PACKETS] + c[TWIN_TX_BC_PACKETS];
	*data++ = c[TWIN_TX_UC_BYTES] + c[TWIN_TX_MC_BYTES] + c[TWIN_TX_BC_BYTES];
	*data++ = c[TWIN_RX_UC_PACKETS] + c[TWIN_RX_MC_PACKETS] + c[TWIN_RX_BC_PACKETS];
	*data++ = c[TWIN_RX_UC_BYTES] + c[TWIN_RX_MC_BYTES] + c[TWIN_RX_BC_BYTES];
}

const struct ethtool_ops twin_nic_ethtool_ops = {
	.get_drvinfo = nic_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_channels = get_channels,
	.set_channels = set_channels,
	.get_ringparam = get_ringparam,
	.set_ringparam = set_ringparam,
	.get_link_ksettings = get_link_ksettings,
	.get_ts_info = ethtool_op_get_ts_info,
	.get_msglevel = get_msglevel,
	.set_msglevel = set_msglevel,
	.get_sset_count = nic_get_sset_count,
	.get_strings = nic_get_strings,
	.get_ethtool_stats = nic_get_stats,
};

const struct ethtool_ops twin_rep_ethtool_ops = {
	.get_drvinfo = rep_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_channels = get_channels,
	.set_channels = set_channels,
	.get_ringparam = get_ringparam,
	.set_ringparam = set_ringparam,
	.get_sset_count = rep_get_sset_count,
	.get_strings = rep_get_strings,
	.get_ethtool_stats = rep_get_stats,
};
