// SPDX-License-Identifier: GPL-2.0
/*
 * Rules of tunnel devices: how they come to the card, and which matches it takes.
 * Follows mlx5/core en/rep/tc.c (indirect blocks), en/tc_tun.c, en/tc_tun_vxlan.c,
 * en/tc_tun_geneve.c, lib/vxlan.c and lib/geneve.c.
 *
 * mlx5 says what it dislikes of a tunnel's match in the log; the extack is then
 * overwritten (en_tc.c, parse_tunnel_attr).
 */
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <net/geneve.h>
#include <net/inet_ecn.h>
#include <net/pkt_cls.h>
#include <net/udp_tunnel.h>
#include <net/vxlan.h>

#include "flower.h"

#define GENEVE_OPT_WORDS 1	/* max_geneve_tlv_option_data_len: no more is copied to the match */

/* A block of a tunnel device, and the port that it was offered to. */
struct twin_tunnel {
	struct list_head list;
	struct net_device *dev;
	struct twin_port *port;
	enum flow_block_binder_type binder;
};

static DEFINE_MUTEX(tunnels_lock);	/* the lists of all ports */

/* mlx5e_get_tc_tun, of which GRE and bareudp are not modelled */
enum twin_tun twin_tun_of(const struct net_device *dev)
{
	if (netif_is_vxlan(dev))
		return TWIN_TUN_VXLAN;
	if (netif_is_geneve(dev))
		return TWIN_TUN_GENEVE;
	return TWIN_TUN_NONE;
}

/* UDP ports */

bool twin_vxlan_port(const struct twin_port *port, __be16 udp)
{
	unsigned int i;

	if (udp == htons(IANA_VXLAN_UDP_PORT))
		return true;
	for (i = 0; udp && i < TWIN_VXLAN_PORTS; i++)
		if (READ_ONCE(port->vxlan_ports[i]) == udp)
			return true;
	return false;
}

static int set_port(struct net_device *dev, unsigned int table, unsigned int entry,
		    struct udp_tunnel_info *ti)
{
	struct twin_nic *nic = netdev_priv(dev);

	WRITE_ONCE(nic->port->vxlan_ports[entry], ti->port);
	return 0;
}

static int unset_port(struct net_device *dev, unsigned int table, unsigned int entry,
		      struct udp_tunnel_info *ti)
{
	struct twin_nic *nic = netdev_priv(dev);

	WRITE_ONCE(nic->port->vxlan_ports[entry], 0);
	return 0;
}

const struct udp_tunnel_nic_info twin_udp_tunnels = {
	.set_port = set_port,
	.unset_port = unset_port,
	.flags = UDP_TUNNEL_NIC_INFO_STATIC_IANA_VXLAN,
	.tables = { { .n_entries = TWIN_VXLAN_PORTS, .tunnel_types = UDP_TUNNEL_TYPE_VXLAN } },
};

/* Indirect blocks */

static int tunnel_cb(enum tc_setup_type type, void *data, void *priv)
{
	struct twin_tunnel *tunnel = priv;

	if (type != TC_SETUP_CLSFLOWER)
		return -EOPNOTSUPP;
	return twin_flower(tunnel->dev, &tunnel->port->uplink, data);
}

static void tunnel_release(void *priv)
{
	struct twin_tunnel *tunnel = priv;

	mutex_lock(&tunnels_lock);
	list_del(&tunnel->list);
	mutex_unlock(&tunnels_lock);
	kfree(tunnel);
}

static LIST_HEAD(tunnel_cbs);

static struct twin_tunnel *find_tunnel(struct twin_port *port, const struct net_device *dev,
				       enum flow_block_binder_type binder)
{
	struct twin_tunnel *tunnel, *found = NULL;

	mutex_lock(&tunnels_lock);
	list_for_each_entry(tunnel, &port->tunnels, list)
		if (tunnel->dev == dev && tunnel->binder == binder)
			found = tunnel;
	mutex_unlock(&tunnels_lock);
	return found;
}

static int bind_tunnel(struct net_device *dev, struct Qdisc *sch, struct twin_port *port,
		       struct flow_block_offload *f, void *data,
		       void (*cleanup)(struct flow_block_cb *block_cb))
{
	struct flow_block_cb *block_cb;
	struct twin_tunnel *tunnel;

	if (find_tunnel(port, dev, f->binder_type))
		return -EEXIST;
	tunnel = kzalloc(sizeof(*tunnel), GFP_KERNEL);
	if (!tunnel)
		return -ENOMEM;
	tunnel->dev = dev;
	tunnel->port = port;
	tunnel->binder = f->binder_type;
	block_cb = flow_indr_block_cb_alloc(tunnel_cb, tunnel, tunnel, tunnel_release, f, dev, sch,
					    data, port, cleanup);
	if (IS_ERR(block_cb)) {
		kfree(tunnel);
		return PTR_ERR(block_cb);
	}
	mutex_lock(&tunnels_lock);
	list_add(&tunnel->list, &port->tunnels);
	mutex_unlock(&tunnels_lock);
	flow_block_cb_add(block_cb, f);
	list_add_tail(&block_cb->driver_list, &tunnel_cbs);
	return 0;
}

static int unbind_tunnel(struct net_device *dev, struct twin_port *port,
			 struct flow_block_offload *f)
{
	struct twin_tunnel *tunnel = find_tunnel(port, dev, f->binder_type);
	struct flow_block_cb *block_cb;

	if (!tunnel)
		return -ENOENT;
	block_cb = flow_block_cb_lookup(f->block, tunnel_cb, tunnel);
	if (!block_cb)
		return -ENOENT;
	flow_indr_block_cb_remove(block_cb, f);
	list_del(&block_cb->driver_list);
	return 0;
}

/* mlx5e_rep_indr_setup_cb: every block of the machine is shown to every port. */
static int offer(struct net_device *dev, struct Qdisc *sch, void *priv, enum tc_setup_type type,
		 void *type_data, void *data, void (*cleanup)(struct flow_block_cb *block_cb))
{
	struct flow_block_offload *f = type_data;
	struct twin_port *port = priv;

	if (!dev || type != TC_SETUP_BLOCK || !twin_tun_of(dev) ||
	    f->binder_type != FLOW_BLOCK_BINDER_TYPE_CLSACT_INGRESS)
		return -EOPNOTSUPP;
	f->unlocked_driver_cb = true;
	f->driver_block_list = &tunnel_cbs;
	switch (f->command) {
	case FLOW_BLOCK_BIND:
		return bind_tunnel(dev, sch, port, f, data, cleanup);
	case FLOW_BLOCK_UNBIND:
		return unbind_tunnel(dev, port, f);
	default:
		return -EOPNOTSUPP;
	}
}

/* A port in switchdev mode wants them; with the PF's devlink lock, without RTNL. */
int twin_tunnels_start(struct twin_port *port)
{
	int err = flow_indr_dev_register(offer, port);

	port->takes_tunnels = !err;
	return err;
}

/* Takes back every rule of a tunnel device; takes RTNL for it. */
void twin_tunnels_stop(struct twin_port *port)
{
	if (!port->takes_tunnels)
		return;
	port->takes_tunnels = false;
	flow_indr_dev_unregister(offer, port, tunnel_release);
}

/* Matches */

/* mlx5e_tc_tun_parse_udp_ports, and the check of the port by kind */
static int parse_ports(struct twin_rule *p)
{
	struct flow_match_ports ports;

	if (!flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_ENC_PORTS)) {
		netdev_warn(p->port_dev, "UDP tunnel decap filter must include enc_dst_port condition\n");
		return -EOPNOTSUPP;
	}
	flow_rule_match_enc_ports(p->rule, &ports);
	if (ports.mask->dst != htons(0xffff)) {
		netdev_warn(p->port_dev, "UDP tunnel decap filter must match enc_dst_port fully\n");
		return -EOPNOTSUPP;
	}
	if (p->tun == TWIN_TUN_VXLAN && !twin_vxlan_port(p->vport->port, ports.key->dst)) {
		netdev_warn(p->port_dev, "UDP port %d is not registered as a VXLAN port\n",
			    ntohs(ports.key->dst));
		return -EOPNOTSUPP;
	}
	if (p->tun == TWIN_TUN_GENEVE && ports.key->dst != htons(GENEVE_UDP_PORT)) {
		netdev_warn(p->port_dev, "UDP port %d is not registered as a GENEVE port\n",
			    ntohs(ports.key->dst));
		return -EOPNOTSUPP;
	}
	p->mask.enc_dport = ports.mask->dst;
	p->key.enc_dport = ports.key->dst;
	p->mask.enc_sport = ports.mask->src;
	p->key.enc_sport = ports.key->src;
	return 0;
}

static void parse_id(struct twin_rule *p)
{
	struct flow_match_enc_keyid id;

	if (!flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_ENC_KEYID))
		return;
	flow_rule_match_enc_keyid(p->rule, &id);
	/* the headers' field has 24 bits */
	p->mask.enc_id = id.mask->keyid & htonl(0xffffff);
	p->key.enc_id = id.key->keyid & htonl(0xffffff);
}

/* mlx5_geneve_tlv_option_add: one class and type at a time for all rules of the port */
static int take_option(struct twin_rule *p, const struct geneve_opt *opt)
{
	struct twin_geneve_opt *have = &p->vport->port->geneve_opt;

	if (have->refs && (have->class != opt->opt_class || have->type != opt->type)) {
		netdev_warn(p->port_dev,
			    "Won't create Geneve TLV opt object with class:type:len = 0x%x:0x%x:%d (another class:type already exists)\n",
			    ntohs(opt->opt_class), opt->type, opt->length);
		return -EOPNOTSUPP;
	}
	have->class = opt->opt_class;
	have->type = opt->type;
	have->refs++;
	WRITE_ONCE(p->vport->port->geneve_type, ntohs(opt->opt_class) << 8 | opt->type);
	return 0;
}

void twin_geneve_opt_put(struct twin_port *port)
{
	if (!--port->geneve_opt.refs)
		WRITE_ONCE(port->geneve_type, 0);
}

/* mlx5e_tc_tun_parse_geneve_options */
static int parse_geneve_options(struct twin_rule *p)
{
	const struct geneve_opt *key, *mask;
	struct flow_match_enc_opts opts;
	int err;

	if (!flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_ENC_OPTS))
		return 0;
	flow_rule_match_enc_opts(p->rule, &opts);
	if (opts.key->dst_opt_type != IP_TUNNEL_GENEVE_OPT_BIT) {
		netdev_warn(p->port_dev, "Matching on GENEVE options: option type is not GENEVE\n");
		return -EOPNOTSUPP;
	}
	if (opts.key->len / 4 > GENEVE_OPT_WORDS + 1) {
		netdev_warn(p->port_dev,
			    "Matching on GENEVE options: unsupported options len (len=%d)\n",
			    opts.key->len);
		return -EOPNOTSUPP;
	}
	p->mask.opt_words = opts.mask->len / 4;
	p->key.opt_words = opts.key->len / 4;
	key = (const struct geneve_opt *)opts.key->data;
	mask = (const struct geneve_opt *)opts.mask->data;
	if (!mask->opt_class && !mask->type &&
	    !memchr_inv(mask->opt_data, 0, mask->length * 4))
		return 0;
	if (key->length > GENEVE_OPT_WORDS) {
		netdev_warn(p->port_dev,
			    "Matching on GENEVE options: unsupported option len (key=%d, mask=%d)\n",
			    key->length, mask->length);
		return -EOPNOTSUPP;
	}
	if (!memchr_inv(key->opt_data, 0, key->length * 4)) {
		netdev_warn(p->port_dev, "Matching on GENEVE options: can't match on 0 data field\n");
		return -EOPNOTSUPP;
	}
	err = take_option(p, key);
	if (err) {
		netdev_warn(p->port_dev,
			    "Matching on GENEVE options: failed creating TLV opt object (class:type:len = 0x%x:0x%x:%d)\n",
			    ntohs(key->opt_class), key->type, key->length);
		return err;
	}
	p->mask.opt_found = 0xff;
	p->key.opt_found = 1;
	memcpy(&p->mask.opt_data, mask->opt_data, key->length * 4);
	memcpy(&p->key.opt_data, key->opt_data, key->length * 4);
	return 0;
}

/* mlx5e_tc_tun_parse_vxlan_gbp_option: the custom header match is not modelled */
static int parse_vxlan_options(struct twin_rule *p)
{
	if (!p->mask.enc_id || !flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_ENC_OPTS))
		return 0;
	netdev_warn(p->port_dev, "Matching on VxLAN GBP is not supported\n");
	return -EOPNOTSUPP;
}

static int parse_addresses(struct twin_rule *p)
{
	struct flow_match_control control;

	if (!flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_ENC_CONTROL))
		return 0;
	flow_rule_match_enc_control(p->rule, &control);
	if (flow_rule_has_enc_control_flags(control.mask->flags, p->extack))
		return -EOPNOTSUPP;
	if (control.key->addr_type == FLOW_DISSECTOR_KEY_IPV4_ADDRS) {
		struct flow_match_ipv4_addrs addrs;

		flow_rule_match_enc_ipv4_addrs(p->rule, &addrs);
		p->mask.enc_saddr.s6_addr32[0] = addrs.mask->src;
		p->key.enc_saddr.s6_addr32[0] = addrs.key->src;
		p->mask.enc_daddr.s6_addr32[0] = addrs.mask->dst;
		p->key.enc_daddr.s6_addr32[0] = addrs.key->dst;
		p->key.enc_proto = htons(ETH_P_IP);
		p->mask.enc_proto = htons(0xffff);
	} else if (control.key->addr_type == FLOW_DISSECTOR_KEY_IPV6_ADDRS) {
		struct flow_match_ipv6_addrs addrs;

		flow_rule_match_enc_ipv6_addrs(p->rule, &addrs);
		p->mask.enc_saddr = addrs.mask->src;
		p->key.enc_saddr = addrs.key->src;
		p->mask.enc_daddr = addrs.mask->dst;
		p->key.enc_daddr = addrs.key->dst;
		p->key.enc_proto = htons(ETH_P_IPV6);
		p->mask.enc_proto = htons(0xffff);
	}
	return 0;
}

/* mlx5e_tc_tun_parse */
static int parse_tunnel(struct twin_rule *p)
{
	struct flow_match_ip ip;
	int err;

	p->key.tun = p->tun;
	p->mask.tun = 0xff;
	err = parse_ports(p);
	if (err)
		return err;
	parse_id(p);
	err = p->tun == TWIN_TUN_GENEVE ? parse_geneve_options(p) : parse_vxlan_options(p);
	if (err)
		return err;
	err = parse_addresses(p);
	if (err)
		return err;
	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_ENC_IP)) {
		flow_rule_match_enc_ip(p->rule, &ip);
		p->mask.enc_tos = ip.mask->tos;
		p->key.enc_tos = ip.key->tos;
		p->mask.enc_ttl = ip.mask->ttl;
		p->key.enc_ttl = ip.key->ttl;
	}
	return 0;
}

/* mlx5e_tc_verify_tunnel_ecn: the card matches the inner mark as it was in the tunnel */
static int check_ecn(struct twin_rule *p)
{
	u8 outer_mask = p->mask.enc_tos & INET_ECN_MASK, outer = p->key.enc_tos & INET_ECN_MASK;
	u8 inner_mask = 0, inner = 0;
	struct flow_match_ip ip;

	if (flow_rule_match_key(p->rule, FLOW_DISSECTOR_KEY_IP)) {
		flow_rule_match_ip(p->rule, &ip);
		inner_mask = ip.mask->tos & INET_ECN_MASK;
		inner = ip.key->tos & INET_ECN_MASK;
	}
	if (outer_mask && outer_mask != INET_ECN_MASK) {
		ERR(p->extack, "Partial match on enc_tos ecn bits isn't supported");
		return -EOPNOTSUPP;
	}
	if (!inner_mask)
		return 0;
	if (!outer_mask) {
		ERR(p->extack, "Matching on tos ecn bits without also matching enc_tos ecn bits isn't supported");
		return -EOPNOTSUPP;
	}
	if (inner_mask != INET_ECN_MASK) {
		ERR(p->extack, "Partial match on tos ecn bits with match on enc_tos ecn bits isn't supported");
		return -EOPNOTSUPP;
	}
	if (outer == INET_ECN_ECT_1) {
		ERR(p->extack, "Match on enc_tos ecn = ECT(1) isn't supported");
		return -EOPNOTSUPP;
	}
	if (outer != INET_ECN_CE)
		return 0;
	if (inner != INET_ECN_CE) {
		ERR(p->extack, "Match on tos enc_tos ecn = CE while match on tos ecn != CE isn't supported");
		return -EOPNOTSUPP;
	}
	p->drop_inner_ecn = true;
	return 0;
}

/* flow_requires_tunnel_mapping: what would go on in another table, or in software */
static bool goes_on(const struct twin_rule *p)
{
	const struct flow_action_entry *a;
	int i;

	flow_action_for_each(i, a, &p->rule->action)
		if (a->id == FLOW_ACTION_GOTO || a->id == FLOW_ACTION_SAMPLE)
			return true;
	return p->chain;
}

/* en_tc.c, parse_tunnel_attr: the outer headers; what else the rule matches is inside. */
int twin_rule_match_tunnel(struct twin_rule *p)
{
	int err;

	if (p->vport->port->encap == DEVLINK_ESWITCH_ENCAP_MODE_NONE)
		return -EINVAL;	/* the firmware's, on tables without MLX5_FLOW_TABLE_TUNNEL_EN_DECAP */
	if (goes_on(p)) {
		ERR(p->extack, "Chains on tunnel devices isn't supported without register loopback support");
		return -EOPNOTSUPP;
	}
	err = parse_tunnel(p);
	if (err) {
		ERR(p->extack, "Failed to parse tunnel attributes");
		return err;
	}
	return check_ecn(p);
}

void twin_tunnel_show(struct seq_file *m, const struct twin_key *key, const struct twin_key *mask)
{
	seq_printf(m, " tunnel:%s", key->tun == TWIN_TUN_VXLAN ? "vxlan" : "geneve");
	if (mask->enc_id)
		seq_printf(m, " id:%u", ntohl(key->enc_id));
	if (key->enc_proto == htons(ETH_P_IP))
		seq_printf(m, " enc_src:%pI4 enc_dst:%pI4", &key->enc_saddr, &key->enc_daddr);
	else if (key->enc_proto == htons(ETH_P_IPV6))
		seq_printf(m, " enc_src:%pI6c enc_dst:%pI6c", &key->enc_saddr, &key->enc_daddr);
	if (mask->opt_found)
		seq_printf(m, " option:%08x/%08x", ntohl(key->opt_data), ntohl(mask->opt_data));
}
