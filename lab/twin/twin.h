/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A dual-port ConnectX-class NIC as mlx5_core shows it to the rest of the kernel.
 *
 * The objects, from the silicon up:
 *
 *   card   one board: serial, switch id, two ports; lives as long as the module
 *   port   one PCI function (PF) with its own E-Switch, wire and VFs; ditto
 *   vport  one leg of a port's E-Switch: the uplink, a VF or an SF; ditto
 *   sf     a place for a subfunction, with its vport; ditto
 *   func   a PF, VF or SF that the driver is bound to (priv of its devlink instance)
 *   eth    the Ethernet part of a func, an auxiliary device with the netdev
 *   nic    priv of every netdev: PF/uplink, VF or SF, representor
 *
 * Locks, outermost first:
 *
 *   device lock of the PF > devlink instance lock > RTNL > port->info_lock
 *   port->sf_dev_lock under the PF's devlink lock; coming and going of SF devices,
 *                     so the device and devlink locks of SFs are inside it
 *   port->sf_lock     what state SFs are in; taken by what an SF's driver does
 *   RTNL              also guards card->lag
 *   port->mode_lock   mode changes and those who offload rules only try it: the
 *                     E-Switch is busy or it is not (mlx5 eswitch.c,
 *                     mlx5_esw_try_lock, mlx5_esw_hold)
 *   port->flow_lock   the flow tables and the outer headers of tunnels; innermost
 *                     but for spinlocks, what a route lookup takes, and the
 *                     flow_block_lock of a conntrack zone's flow table
 *
 * The packet path takes no lock: it reads vport->dev, vport->rep, vport->groups
 * and port->wire.dev under RCU.
 */
#ifndef TWIN_H
#define TWIN_H

#include <linux/auxiliary_bus.h>
#include <linux/debugfs.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/in6.h>
#include <linux/pci.h>
#include <linux/rhashtable.h>
#include <linux/rwsem.h>
#include <net/devlink.h>
#include <net/flow_offload.h>

#include "compat.h"
#include "ct.h"

/* What everything outside calls the driver. */
#define TWIN_DRIVER	"mlx5_core"
#define TWIN_REP_DRIVER	"mlx5e_rep"
#define TWIN_PSID	"MT_0000000359"
#define TWIN_FW_MAJOR	22
#define TWIN_FW_MINOR	41
#define TWIN_FW_SUB	1000

#define TWIN_MAX_CARDS	32	/* slots of one PCI bus */
#define TWIN_PORTS	2
#define TWIN_MAX_VFS	128	/* a port's VFs fill half a PCI bus number */
#define TWIN_MAX_SFS	512
#define TWIN_MAX_CHANNELS 8
#define TWIN_MAX_MTU	9978	/* mlx5: 10000 (max port MTU) less Ethernet, VLAN, FCS */
#define TWIN_MAX_ACTS	32	/* tc's own limit is TCA_ACT_MAX_PRIO */
#define TWIN_MAX_OUTPUTS 32	/* mlx5 MLX5_MAX_FLOW_FWD_VPORTS (fs.h), both of 6.12 and 7.2 */
#define TWIN_MAX_HOPS	16	/* tables one packet may visit */
#define TWIN_MAX_DEPTH	4	/* times one packet may cross a cable */

/* Capabilities of the device; the figures are not from a card. */
#define TWIN_MAX_ENCAP	128	/* bytes of an outer header, max_encap_header_size */
#define TWIN_VXLAN_PORTS 4	/* UDP ports of VXLAN besides 4789, max_vxlan_udp_ports */

#define TWIN_VPORT_UPLINK 0xffff	/* mlx5 MLX5_VPORT_UPLINK */
#define TWIN_VPORT_SF	0x8000	/* the first SF: a capability of the device, sf_base_id */

#define TWIN_VF_MSIX	2048	/* vectors of all VFs of a port */
#define TWIN_MIN_MSIX	2	/* of one VF */
#define TWIN_MAX_MSIX	128

struct twin_card;
struct twin_port;
struct twin_func;

/* Counters of a vport, seen from its outside: rx is what the VF (or the wire) gets. */
enum twin_counter {
	TWIN_RX_UC_PACKETS, TWIN_RX_UC_BYTES,
	TWIN_RX_MC_PACKETS, TWIN_RX_MC_BYTES,
	TWIN_RX_BC_PACKETS, TWIN_RX_BC_BYTES,
	TWIN_TX_UC_PACKETS, TWIN_TX_UC_BYTES,
	TWIN_TX_MC_PACKETS, TWIN_TX_MC_BYTES,
	TWIN_TX_BC_PACKETS, TWIN_TX_BC_BYTES,
	TWIN_RX_DROPS,		/* to a vport that does not take it: down, no driver, filtered */
	TWIN_TX_DROPS,		/* from a vport: spoofed, no link, looping */
	TWIN_HW_PACKETS,	/* packets from this vport that a rule dealt with */
	TWIN_HW_BYTES,
	TWIN_MISS_PACKETS,	/* packets from this vport handed to its representor */
	TWIN_MISS_BYTES,
	TWIN_REP_PACKETS,	/* packets that the representor sent out to this vport */
	TWIN_REP_BYTES,
	TWIN_NUM_COUNTERS
};

struct twin_counters {
	u64 c[TWIN_NUM_COUNTERS];
};

/* mlx5 eswitch.h, struct mlx5_vport_info: what the PF's administrator sets of a VF. */
struct twin_vf_info {
	u8 mac[ETH_ALEN];
	u16 vlan;
	u8 qos;
	bool spoofchk;
	bool trusted;
	int link_state;		/* IFLA_VF_LINK_STATE_* */
	bool roce;
	u32 max_io_eqs;
	u32 msix;
};

/* A scheduling element of the E-Switch: of a vport, or a node above some. rate.c */
struct twin_rate {
	struct twin_rate __rcu *parent;
	struct rcu_head rcu;
	spinlock_t lock;
	u32 min, max;		/* Mbit/s; 0: nothing assured, no limit */
	s64 tokens, assured;	/* bytes that may be sent now; below 0: a debt */
	u64 last;		/* ns */
	unsigned int children;	/* under the PF's devlink lock, as is the parent */
};

/* Unicast addresses a VF takes besides its own; replaced whole, read under RCU. */
struct twin_macs {
	struct rcu_head rcu;
	unsigned int n;
	u8 addr[][ETH_ALEN];
};

struct twin_vport {
	struct twin_port *port;
	u16 num;			/* VF number + 1, TWIN_VPORT_SF + n, or TWIN_VPORT_UPLINK */
	bool enabled;			/* the E-Switch has it; under the devlink lock */
	bool rep_up;			/* admin state as the representor set it */
	struct net_device __rcu *dev;	/* the VF's netdev; none for the uplink */
	struct net_device __rcu *rep;	/* its representor; the PF's netdev for the uplink */
	struct twin_macs __rcu *macs;
	struct list_head groups;	/* flow groups, by chain and priority; RCU */
	struct twin_counters __percpu *counters;
	struct twin_vf_info info;	/* under port->info_lock */
	struct twin_func *func;		/* bound VF or SF; under port->info_lock */
	struct twin_rate rate;
	struct devlink_port dl_port;
};

/* mlx5_ifc_vhca_event.h, MLX5_VHCA_STATE_* */
enum twin_sf_state {
	TWIN_SF_ALLOCATED,
	TWIN_SF_ACTIVE,		/* the device is, or will be, on the auxiliary bus */
	TWIN_SF_IN_USE,		/* and has its driver */
	TWIN_SF_TEARDOWN,	/* switched off, and not yet gone */
};

struct twin_sf {
	struct twin_vport vport;
	u32 sfnum;
	/* under port->sf_lock */
	bool allocated;
	bool has_port;
	bool pending_delete;	/* its port is gone, its device not yet */
	bool eqs_set;		/* max_io_eqs was chosen */
	enum twin_sf_state state;
	struct delayed_work event;	/* the firmware tells of a new state */
	struct twin_sf_dev *dev;	/* under port->sf_dev_lock */
};

static inline bool twin_is_uplink(const struct twin_vport *vport)
{
	return vport->num == TWIN_VPORT_UPLINK;
}

static inline bool twin_is_sf(const struct twin_vport *vport)
{
	return vport->num >= TWIN_VPORT_SF && !twin_is_uplink(vport);
}

enum twin_wire_kind {
	TWIN_WIRE_NONE,
	TWIN_WIRE_PEER,		/* a cable between the two ports of the card */
	TWIN_WIRE_NETDEV,	/* any netdev of the machine */
};

struct twin_wire {
	enum twin_wire_kind kind;
	char name[IFNAMSIZ];		/* wanted netdev; it may come later */
	struct net_device __rcu *dev;
	netdevice_tracker tracker;
	bool cut;			/* carrier held down by a fault */
};

/* Operations that a fault can hit; names in faults.c. */
enum twin_op {
	TWIN_OP_ESWITCH_SET, TWIN_OP_SRIOV_ENABLE, TWIN_OP_VF_PROBE, TWIN_OP_REP_ADD,
	TWIN_OP_PORT_FN_SET, TWIN_OP_PARAM_SET, TWIN_OP_RELOAD, TWIN_OP_FLOWER_ADD,
	TWIN_OP_MTU, TWIN_OP_OPEN, TWIN_OP_VF_SET, TWIN_OP_RATE_SET,
	TWIN_OP_SF_ADD, TWIN_OP_SF_ACTIVATE, TWIN_OP_SF_PROBE,
	TWIN_OP_LAG_BOND, TWIN_OP_LAG_CREATE,
	TWIN_NUM_OPS
};

struct twin_fault {
	int error;		/* negative errno */
	u32 skip, count;	/* let so many pass, then fail so many */
	char text[NETLINK_MAX_FMTMSG_LEN - sizeof(TWIN_DRIVER ": ")];	/* extack's */
};

/* lib/geneve.c: the one option of Geneve that rules can match on */
struct twin_geneve_opt {
	__be16 class;
	u8 type;
	unsigned int refs;
};

struct twin_port {
	struct twin_card *card;
	unsigned int num;		/* PCI function number: 0 or 1 */
	unsigned int total_vfs;
	u8 mac[ETH_ALEN];
	u16 mode;			/* DEVLINK_ESWITCH_MODE_*; READ_ONCE in the packet path */
	u8 encap;
	bool metadata;			/* param esw_port_metadata */
	bool smfs;			/* param flow_steering_mode */
	unsigned int num_vfs;		/* VFs that the E-Switch has; under the devlink lock */
	struct rw_semaphore mode_lock;
	bool busy;			/* an E-Switch operation goes on; under mode_lock */
	atomic64_t users;		/* offloaded flows */
	struct mutex info_lock;		/* mlx5's esw->state_lock */
	struct twin_vport uplink;
	struct twin_vport *vports;	/* [total_vfs] */
	struct twin_sf *sfs;		/* [total_sfs] */
	unsigned int total_sfs;
	struct mutex sf_lock, sf_dev_lock;
	struct workqueue_struct *sf_events;
	struct twin_func *func;		/* bound PF; under the PF's device lock */

	struct mutex flow_lock;
	struct rhashtable flows;	/* by vport and tc cookie */
	struct rhashtable matches;	/* by group and masked key */
	struct list_head meters;
	struct list_head encaps;
	struct twin_ct ct;
	struct twin_geneve_opt geneve_opt;	/* under flow_lock */
	u32 geneve_type;		/* of geneve_opt, for the packet path: class << 8 | type */
	struct list_head tunnels;	/* tunnel devices that offer rules: tunnel.c */
	bool takes_tunnels;		/* registered for them; under the PF's devlink lock */
	__be16 vxlan_ports[TWIN_VXLAN_PORTS];	/* 0: free */
	unsigned int num_flows, capacity;
	bool flows_ready;

	struct twin_wire wire;		/* under RTNL */

	spinlock_t fault_lock;
	struct twin_fault faults[TWIN_NUM_OPS];
	u32 vf_late_ms, sf_late_ms;
	struct dentry *debugfs;

	raw_spinlock_t cfg_lock;
	u8 *cfg;			/* 4096 bytes of configuration space */
	u8 *vf_cfg;			/* 256 bytes for each VF */
	unsigned long *vf_gone;		/* VFs that do not answer any more */
};

enum twin_lag_mode { TWIN_LAG_NONE, TWIN_LAG_ROCE, TWIN_LAG_SRIOV };

/* Under RTNL; what the packet path reads is written with WRITE_ONCE. */
struct twin_lag {
	struct delayed_work work;
	struct twin_func *func[TWIN_PORTS];	/* loaded PFs */
	struct net_device *dev[TWIN_PORTS];	/* their netdevs */
	bool roce[TWIN_PORTS];
	unsigned int changes;			/* modes that are being changed */

	/* what the bond says */
	bool bonded, has_inactive;
	enum netdev_lag_tx_type tx_type;
	enum netdev_lag_hash hash_type;
	struct netdev_lag_lower_state_info state[TWIN_PORTS];

	/* what the hardware does */
	enum twin_lag_mode mode;
	bool shared_fdb, hash;
	bool drop[TWIN_PORTS];			/* all that comes in here */
	u8 to[TWIN_PORTS];			/* the port that sends for this one */
	u32 pairing;				/* the E-Switches' how manieth, from 1 */

	u32 late_ms;				/* a fault */
	bool waiting;
	unsigned long since;			/* jiffies */
};

struct twin_card {
	unsigned int num;
	char serial[24];
	u8 switch_id[8];		/* system image GUID */
	int node;
	u8 vpd[256];
	unsigned int vpd_len;
	struct twin_port ports[TWIN_PORTS];
	struct twin_lag lag;
};

struct twin_func {
	struct pci_dev *pdev;		/* of an SF: its PF's */
	struct device *dev;
	struct devlink *devlink;
	struct twin_port *port;
	struct twin_vport *vport;	/* NULL: a PF */
	u32 vhca_id;
	int adev_id;
	struct auxiliary_device *adev;
	struct twin_eth *eth;
	struct delayed_work late;	/* VF whose netdev comes late */
	bool loaded;
	bool light;			/* SF before its first reload: params, nothing else */
	struct devlink_health_reporter *fw, *fw_fatal;
	struct dentry *lag_debugfs;
};

struct twin_eth {
	struct twin_func *func;
	struct devlink *devlink;
	struct devlink_port dl_port;
	struct net_device *dev;
};

enum twin_kind { TWIN_PF, TWIN_VF, TWIN_REP };

struct twin_nic {
	enum twin_kind kind;
	struct net_device *dev;
	struct twin_port *port;
	struct twin_vport *vport;	/* the uplink for a PF */
	unsigned int channels, max_channels;
	struct timer_list pace;		/* ends the wait that a rate limit began */
	unsigned int rx_ring, tx_ring;
	u32 msg;
};

/* main.c */
extern struct twin_card *twin_cards;
extern unsigned int twin_num_cards;
extern unsigned int twin_speed;
extern unsigned int twin_domain;
struct dentry *twin_debugfs(void);

/* pci.c */
int twin_pci_init_card(struct twin_card *card);
void twin_pci_free_card(struct twin_card *card);
int twin_pci_scan(void);
void twin_pci_remove(void);
struct twin_port *twin_pci_port(const struct pci_dev *pdev);
int twin_pci_vanish(struct twin_port *port, unsigned int vf);
void twin_pci_set_msix(struct twin_vport *vport);

/* core.c */
int twin_core_register(void);
void twin_core_unregister(void);
int twin_adev_id_get(void);
void twin_adev_id_put(int id);
int twin_func_init(struct twin_func *func);
void twin_func_exit(struct twin_func *func);
int twin_func_load(struct twin_func *func);
void twin_func_unload(struct twin_func *func);

static inline bool twin_func_is_pf(const struct twin_func *func)
{
	return !func->vport;
}

/* eswitch.c */
int twin_eswitch_init(struct twin_port *port);
void twin_eswitch_free(struct twin_port *port);
int twin_eswitch_hold(struct twin_port *port);
void twin_eswitch_release(struct twin_port *port);
int twin_eswitch_set_mode(struct twin_func *func, u16 mode, struct netlink_ext_ack *extack);
int twin_eswitch_enable_vfs(struct twin_func *func, unsigned int num_vfs);
void twin_eswitch_disable_vfs(struct twin_func *func, bool clear);
void twin_eswitch_to_legacy(struct twin_func *func);
int twin_vport_init(struct twin_port *port, struct twin_vport *vport, u16 num);
void twin_vport_free(struct twin_vport *vport);
void twin_vport_clear_info(struct twin_vport *vport);
void twin_vport_name(const struct twin_vport *vport, char *buf, size_t size);
int twin_vport_add(struct twin_func *pf, struct twin_vport *vport);
void twin_vport_del(struct twin_vport *vport);
void twin_vport_update_link(struct twin_vport *vport);
void twin_port_update_links(struct twin_port *port);
bool twin_port_link(const struct twin_port *port);
bool twin_vport_link(const struct twin_vport *vport);

static inline bool twin_switchdev(const struct twin_port *port)
{
	return READ_ONCE(port->mode) == DEVLINK_ESWITCH_MODE_SWITCHDEV;
}

static inline unsigned int twin_port_index(const struct twin_port *port, u16 vport)
{
	/* mlx5 eswitch.h, mlx5_esw_vport_to_devlink_port_index */
	return (unsigned int)(port->num) << 16 | vport;
}

/* devlink.c */
extern const struct devlink_ops twin_devlink_ops;
extern const struct devlink_port_ops twin_vf_port_ops;
extern const struct devlink_port_ops twin_sf_port_ops;
bool twin_devlink_enabled(struct twin_func *func, u32 param);
int twin_devlink_params(struct twin_func *func);
void twin_devlink_params_gone(struct twin_func *func);
int twin_devlink_flow_params(struct twin_func *func);
void twin_devlink_flow_params_gone(struct twin_func *func);
void twin_devlink_reporters(struct twin_func *func);
void twin_devlink_reporters_gone(struct twin_func *func);
int twin_devlink_report(struct twin_func *func, bool fatal, const char *msg);

/* netdev.c */
struct net_device *twin_netdev_new(enum twin_kind kind, struct twin_func *func,
				   struct twin_vport *vport);
bool twin_netdev_is_ours(const struct net_device *dev);
bool twin_netdev_is_rep(const struct net_device *dev);
bool twin_netdev_is_uplink(const struct net_device *dev);
void twin_netdev_set_switchdev(struct net_device *dev, bool on);
int twin_netdev_set_mac(struct twin_vport *vport, const u8 *mac);
void twin_netdev_receive(struct sk_buff *skb, struct net_device *dev,
			 const struct twin_restore *restore);

/* rate.c */
int twin_rate_leaf_add(struct twin_vport *vport);
void twin_rate_leaf_del(struct twin_vport *vport);
void twin_rate_clear(struct twin_vport *vport);
void twin_rate_set(struct twin_rate *rate, u32 min, u32 max);
u64 twin_rate_take(struct twin_vport *vport, u64 bytes);
int twin_rate_leaf_share_set(struct devlink_rate *leaf, void *priv, u64 share,
			     struct netlink_ext_ack *extack);
int twin_rate_leaf_max_set(struct devlink_rate *leaf, void *priv, u64 max,
			   struct netlink_ext_ack *extack);
int twin_rate_leaf_parent_set(struct devlink_rate *leaf, struct devlink_rate *node, void *priv,
			      void *node_priv, struct netlink_ext_ack *extack);
int twin_rate_node_share_set(struct devlink_rate *node, void *priv, u64 share,
			     struct netlink_ext_ack *extack);
int twin_rate_node_max_set(struct devlink_rate *node, void *priv, u64 max,
			   struct netlink_ext_ack *extack);
int twin_rate_node_new(struct devlink_rate *node, void **priv, struct netlink_ext_ack *extack);
int twin_rate_node_del(struct devlink_rate *node, void *priv, struct netlink_ext_ack *extack);
#if TWIN_7
int twin_rate_node_parent_set(struct devlink_rate *node, struct devlink_rate *parent, void *priv,
			      void *parent_priv, struct netlink_ext_ack *extack);
int twin_rate_tc_bw_set(struct devlink_rate *rate, void *priv, u32 *tc_bw,
			struct netlink_ext_ack *extack);
#endif

/* sf.c */
int twin_sf_init(struct twin_port *port);
void twin_sf_free(struct twin_port *port);
int twin_sf_register(void);
void twin_sf_unregister(void);
int twin_sf_resources(struct twin_func *pf);
void twin_sf_del_all(struct twin_port *port);
void twin_sf_stop(struct twin_port *port);
int twin_sf_port_new(struct devlink *devlink, const struct devlink_port_new_attrs *attrs,
		     struct netlink_ext_ack *extack, struct devlink_port **dl_port);
int twin_sf_port_del(struct devlink *devlink, struct devlink_port *dl_port,
		     struct netlink_ext_ack *extack);
int twin_sf_state_get(struct devlink_port *dl_port, enum devlink_port_fn_state *state,
		      enum devlink_port_fn_opstate *opstate, struct netlink_ext_ack *extack);
int twin_sf_state_set(struct devlink_port *dl_port, enum devlink_port_fn_state state,
		      struct netlink_ext_ack *extack);
void twin_sf_eqs_chosen(struct twin_vport *vport);

/* ethtool.c */
extern const struct ethtool_ops twin_nic_ethtool_ops;
extern const struct ethtool_ops twin_rep_ethtool_ops;

/* wire.c */
int twin_wire_init(void);
void twin_wire_exit(void);
int twin_wire_set(struct twin_port *port, const char *what);
void twin_wire_unset(struct twin_port *port);
void twin_wire_xmit(struct twin_port *port, struct sk_buff *skb, int depth);
bool twin_wire_up(const struct twin_port *port);

/* lag.c */
int twin_lag_init(void);
void twin_lag_exit(void);
void twin_lag_add(struct twin_func *pf);
void twin_lag_remove(struct twin_func *pf);
void twin_lag_add_netdev(struct twin_func *pf, struct net_device *dev);
void twin_lag_remove_netdev(struct twin_func *pf);
void twin_lag_begin_change(struct twin_port *port);
void twin_lag_end_change(struct twin_port *port);
bool twin_lag_is_active(const struct twin_port *port);
bool twin_lag_is_sriov(const struct twin_port *port);
bool twin_lag_drops(const struct twin_vport *vport);
struct twin_vport *twin_lag_fdb(struct twin_vport *vport);
u32 twin_lag_pairing(const struct twin_vport *vport);
bool twin_lag_finds(const struct twin_vport *vport, u32 pairing);
struct twin_vport *twin_lag_out(struct twin_vport *from, struct twin_vport *to,
				const struct sk_buff *skb);
struct twin_vport *twin_lag_uplink(struct twin_port *port, struct net_device *bond);

/* exec.c */
struct sk_buff *twin_frame(struct sk_buff *skb);
void twin_from_vport(struct twin_vport *vport, struct sk_buff *skb, int depth);
void twin_to_vport(struct twin_vport *vport, struct sk_buff *skb, int depth);
void twin_from_pf(struct twin_port *port, struct sk_buff *skb);
void twin_count(struct twin_vport *vport, enum twin_counter first, u64 packets, u64 bytes);
void twin_count_cast(struct twin_vport *vport, bool rx, const struct sk_buff *skb,
		     u64 packets, u64 bytes);
void twin_sum(const struct twin_vport *vport, u64 *c);
u32 twin_skb_packets(const struct sk_buff *skb);
u64 twin_skb_bytes(const struct sk_buff *skb);

/* flower.c */

/*
 * What a packet is matched by. Network order as in the packet, IPv4 addresses in
 * the first word of the IPv6 ones. Compared as 64-bit words, so no holes.
 */
struct twin_key {
	u8 dst[ETH_ALEN];
	u8 src[ETH_ALEN];
	__be16 proto;		/* of what follows the tags */
	u8 tags;		/* bit 0: first VLAN tag is there, bit 1: second */
	u8 frag;
	__be16 tpid[2];
	__be16 tci[2];
	u8 ip_proto, tos, ttl, icmp_type, icmp_code;
	u8 pad[3];
	__be16 sport, dport;
	__be16 tcp_flags;
	u16 pad2;
	struct in6_addr saddr, daddr;
	/* what a tunnel's frame has around it; the above is the inner frame's then */
	u8 tun;			/* enum twin_tun */
	u8 enc_tos, enc_ttl;
	u8 opt_words;		/* length of Geneve's options in 32-bit words */
	u8 opt_found;		/* there is the one that port->geneve_opt names */
	u8 pad3;
	__be16 enc_proto;
	__be32 enc_id;
	__be32 opt_data;
	__be16 enc_sport, enc_dport;
	u32 pad4;
	struct in6_addr enc_saddr, enc_daddr;
	/* what the packet's registers say of its connection */
	u32 ct_mark;
	u16 ct_zone;
	u8 ct_state;		/* TCA_FLOWER_KEY_CT_FLAGS_* */
	u8 pad5;
	u32 ct_labels[4];
} __aligned(8);

enum twin_tun { TWIN_TUN_NONE, TWIN_TUN_VXLAN, TWIN_TUN_GENEVE };

#define TWIN_KEY_WORDS (sizeof(struct twin_key) / sizeof(u64))

enum twin_act_kind {
	TWIN_ACT_OUTPUT,	/* to vport; the packet goes on if more acts follow */
	TWIN_ACT_DROP,
	TWIN_ACT_SLOW,		/* to the representor: trap, accept */
	TWIN_ACT_GOTO,
	TWIN_ACT_PUSH_VLAN,
	TWIN_ACT_POP_VLAN,
	TWIN_ACT_SET_VLAN,
	TWIN_ACT_SET,
	TWIN_ACT_ADD,
	TWIN_ACT_METER,
	TWIN_ACT_ENCAP,		/* to the uplink in an outer header, as TWIN_ACT_OUTPUT */
	TWIN_ACT_DECAP,
	TWIN_ACT_CT,
	TWIN_ACT_CT_CLEAR,
};

struct twin_act {
	enum twin_act_kind kind;
	bool last;			/* of the packet's acts, so no copy is needed */
	union {
		struct twin_vport *vport;
		struct twin_encap *encap;
		u32 chain;
		struct {
			__be16 proto;
			u16 tci;
		} vlan;
		struct {
			enum flow_action_mangle_base base;
			u32 offset, mask, val;
		} set;
		struct {
			struct twin_meter *meter;
			u8 exceed, conform;	/* TWIN_ACT_DROP, TWIN_ACT_SLOW, or pipe */
		} meter;
		struct {
			struct twin_ct_zone *zone;
			u64 miss;		/* tc's cookie of this action */
			u16 num;		/* of the zone */
			bool nat;
		} ct;
	};
};

#define TWIN_METER_PIPE 0xff

struct twin_meter {
	struct list_head list;
	struct rcu_head rcu;
	u32 index;
	unsigned int refs;		/* under port->flow_lock */
	spinlock_t lock;
	u64 rate, burst;		/* bytes (or packets) per second, bytes (or packets) */
	bool packets;
	u64 tokens, last;		/* bytes (or packets), ns */
};

/* An outer header, whole but for lengths, source port and checksum. */
struct twin_header {
	struct rcu_head rcu;
	struct twin_vport *out;		/* the uplink that it leaves by */
	u8 l3;				/* where the IP header begins */
	bool v6;
	u8 len;
	u8 data[TWIN_MAX_ENCAP];
};

/* What rules put packets into: encap.c. Shared by all rules of the port that say the same. */
struct twin_encap {
	struct list_head list;
	struct rcu_head rcu;
	unsigned int refs;		/* under port->flow_lock */
	struct twin_vport *vport;	/* of the first such rule */
	enum twin_tun tun;
	int oif;			/* the tunnel device's own link, or 0 */
	struct twin_header __rcu *header;	/* NULL: packets go to software */
	const char *why;		/* and this is why */
	bool used;			/* by the packet path, since the neighbour was told last */
	struct ip_tunnel_info *info;	/* with its options */
};

struct twin_group {
	struct list_head list;
	struct rcu_head rcu;
	u32 chain, prio;
	unsigned int refs;		/* under port->flow_lock */
	struct twin_key mask;
};

struct twin_flow_key {
	unsigned long cookie;
	unsigned long vport;
};

struct twin_match_key {
	u64 group;
	struct twin_key key;
};

struct twin_flow {
	struct rhash_head node, match_node;
	struct twin_flow_key id;
	struct twin_match_key match;
	struct twin_vport *vport;
	struct twin_group *group;
	u32 pairing;			/* twin_lag_pairing at its coming */
	struct rcu_head rcu;
	atomic64_t packets, bytes;
	u64 lastused;			/* jiffies */
	u64 seen_packets, seen_bytes;	/* reported; under port->flow_lock */
	bool conntrack;			/* has a ct action, so it may hand packets back */
	unsigned int num_acts;
	struct twin_act acts[];
};

int twin_flows_init(struct twin_port *port);
void twin_flows_free(struct twin_port *port);
int twin_setup_tc(struct net_device *dev, enum tc_setup_type type, void *data);
struct twin_flow *twin_flow_lookup(struct twin_vport *vport, u32 chain,
				   const struct twin_key *key, const struct twin_key *inner);
int twin_flows_show(struct seq_file *m, struct twin_port *port);

/* tunnel.c */
extern const struct udp_tunnel_nic_info twin_udp_tunnels;
bool twin_vxlan_port(const struct twin_port *port, __be16 udp);
int twin_tunnels_start(struct twin_port *port);
void twin_tunnels_stop(struct twin_port *port);

/* encap.c */
int twin_encaps_init(void);
void twin_encaps_exit(void);

/* faults.c */
int twin_fault(struct twin_port *port, enum twin_op op, struct netlink_ext_ack *extack);
void twin_faults_init(struct twin_port *port);
void twin_faults_free(struct twin_port *port);

#endif
