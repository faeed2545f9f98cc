// SPDX-License-Identifier: GPL-2.0
/*
 * Outer headers of tunnels: mlx5/core en/tc_tun.c, en/tc_tun_encap.c, en/rep/neigh.c.
 *
 * The driver asks the host's routes and neighbours where a tunnel's other end is,
 * and writes the whole header. Without a valid neighbour the rule is taken all the
 * same, and hands its packets to software, whose own sending makes the host ask for
 * the neighbour. A work looks at all of them again when neighbours or routes change,
 * and tells the host of neighbours that only the card still uses.
 *
 * mlx5 follows a change of the route for tunnels that end in a VF only
 * (mlx5e_attach_encap_route); here every tunnel follows it.
 */
#include <linux/if_vlan.h>
#include <linux/rtnetlink.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <net/arp.h>
#include <net/fib_notifier.h>
#include <net/geneve.h>
#include <net/ip6_route.h>
#include <net/ndisc.h>
#include <net/netevent.h>
#include <net/route.h>
#include <net/vxlan.h>

#include "flower.h"

static atomic_t encaps;		/* of all ports: without one no event matters */

/* The way to a tunnel's other end. */
struct way {
	struct dst_entry *dst;
	struct neighbour *neigh;
	struct twin_vport *out;
	union {
		struct flowi4 fl4;
		struct flowi6 fl6;
	};
};

static void put_way(struct way *way)
{
	if (way->neigh)
		neigh_release(way->neigh);
	dst_release(way->dst);
}

static bool is_v6(const struct ip_tunnel_info *info)
{
	return ip_tunnel_info_af(info) == AF_INET6;
}

/*
 * get_route_and_out_devs: which uplink a route by DEV means for a rule of VPORT. A
 * netdev that is none of the card's, as a bridge with the uplink in it, means the
 * port's own. A VF's (a tunnel that ends in a VF) is not modelled.
 */
static struct twin_vport *uplink_for(struct twin_vport *vport, struct net_device *dev)
{
	struct net_device *real = is_vlan_dev(dev) ? vlan_dev_real_dev(dev) : dev, *uplink, *bond;
	struct twin_vport *out = &vport->port->uplink;
	const struct twin_nic *nic = netdev_priv(real);

	rcu_read_lock();
	uplink = rcu_dereference(out->rep);
	bond = uplink ? netdev_master_upper_dev_get_rcu(uplink) : NULL;
	if (!uplink)
		out = NULL;
	else if (bond == real && netif_is_lag_master(real) && twin_lag_is_sriov(vport->port))
		;
	else if (!twin_netdev_is_ours(real))
		;
	else if (nic->kind == TWIN_PF && nic->port == vport->port)
		;
	else if (nic->kind == TWIN_PF && twin_netdev_is_uplink(real) && !twin_is_uplink(vport) &&
		 nic->port->card == vport->port->card && twin_lag_is_sriov(vport->port))
		out = &nic->port->uplink;
	else
		out = NULL;
	rcu_read_unlock();
	return out;
}

/* mlx5e_route_lookup_ipv4_get and _ipv6_get: way->fl4 or fl6 has the addresses */
static int find_way(struct net *net, struct twin_vport *vport, bool v6, struct way *way)
{
	const void *daddr = &way->fl4.daddr;

	if (v6) {
		way->dst = ip6_dst_lookup_flow(net, NULL, &way->fl6, NULL);
		if (IS_ERR(way->dst))
			return PTR_ERR(way->dst);
		daddr = &way->fl6.daddr;
	} else {
		struct rtable *rt = ip_route_output_key(net, &way->fl4);

		if (IS_ERR(rt))
			return PTR_ERR(rt);
		way->dst = &rt->dst;
		if (rt->rt_type != RTN_UNICAST) {
			dst_release(way->dst);
			return -ENETUNREACH;
		}
	}
	way->out = uplink_for(vport, way->dst->dev);
	if (!way->out) {
		dst_release(way->dst);
		return -EOPNOTSUPP;
	}
	way->neigh = dst_neigh_lookup(way->dst, daddr);
	if (!way->neigh) {
		dst_release(way->dst);
		return -ENOMEM;
	}
	return 0;
}

static int find_encap_way(struct net *net, struct twin_vport *vport, const struct twin_encap *encap,
			  struct way *way)
{
	const struct ip_tunnel_key *key = &encap->info->key;
	bool v6 = is_v6(encap->info);

	memset(way, 0, sizeof(*way));
	if (v6) {
		way->fl6.flowi6_oif = encap->oif;
		way->fl6.flowlabel = ip6_make_flowinfo(key->tos, key->label);
		way->fl6.daddr = key->u.ipv6.dst;
		way->fl6.saddr = key->u.ipv6.src;
	} else {
		way->fl4.flowi4_oif = encap->oif;
		twin_fl4_set_tos(&way->fl4, key->tos);
		way->fl4.daddr = key->u.ipv4.dst;
		way->fl4.saddr = key->u.ipv4.src;
	}
	return find_way(net, vport, v6, way);
}

/*
 * mlx5e_attach_decap_route: a rule with both addresses of the tunnel wants a way back
 * to where the packets come from, by its own uplink.
 */
int twin_decap_route(const struct twin_rule *p)
{
	const struct twin_key *key = &p->key;
	bool v6 = key->enc_proto == htons(ETH_P_IPV6);
	struct way way = {};
	int err;

	if (!key->enc_proto || ipv6_addr_any(&key->enc_saddr) || ipv6_addr_any(&key->enc_daddr))
		return 0;
	if (v6) {
		way.fl6.saddr = key->enc_daddr;
		way.fl6.daddr = key->enc_saddr;
	} else {
		way.fl4.saddr = key->enc_daddr.s6_addr32[0];
		way.fl4.daddr = key->enc_saddr.s6_addr32[0];
	}
	err = find_way(dev_net(p->dev), p->vport, v6, &way);
	if (!err)
		put_way(&way);
	return err;
}

/* Headers */

static unsigned int tunnel_len(const struct twin_encap *encap)
{
	return sizeof(struct udphdr) +
	       (encap->tun == TWIN_TUN_VXLAN ? sizeof(struct vxlanhdr) :
		sizeof(struct genevehdr) + encap->info->options_len);
}

static void put_vxlan(const struct twin_encap *encap, void *to)
{
	struct vxlanhdr *vxlan = to;

	vxlan->vx_flags = VXLAN_HF_VNI;
	vxlan->vx_vni = vxlan_vni_field(tunnel_id_to_key32(encap->info->key.tun_id));
}

static void put_geneve(const struct twin_encap *encap, void *to)
{
	const struct ip_tunnel_info *info = encap->info;
	u32 vni = ntohl(tunnel_id_to_key32(info->key.tun_id));
	struct genevehdr *geneve = to;

	geneve->opt_len = info->options_len / 4;
	geneve->oam = test_bit(IP_TUNNEL_OAM_BIT, info->key.tun_flags);
	geneve->critical = test_bit(IP_TUNNEL_CRIT_OPT_BIT, info->key.tun_flags);
	geneve->proto_type = htons(ETH_P_TEB);
	geneve->vni[0] = vni >> 16;
	geneve->vni[1] = vni >> 8;
	geneve->vni[2] = vni;
	if (test_bit(IP_TUNNEL_GENEVE_OPT_BIT, info->key.tun_flags))
		memcpy(geneve + 1, ip_tunnel_info_opts(encap->info), info->options_len);
}

static u8 *put_ethernet(u8 *at, const struct net_device *dev, const u8 *dst, u16 proto)
{
	struct ethhdr *eth = (struct ethhdr *)at;

	ether_addr_copy(eth->h_dest, dst);
	ether_addr_copy(eth->h_source, dev->dev_addr);
	eth->h_proto = htons(proto);
	at += ETH_HLEN;
	if (is_vlan_dev(dev)) {
		struct vlan_hdr *vlan = (struct vlan_hdr *)at;

		eth->h_proto = vlan_dev_vlan_proto(dev);
		vlan->h_vlan_TCI = htons(vlan_dev_vlan_id(dev));
		vlan->h_vlan_encapsulated_proto = htons(proto);
		at += VLAN_HLEN;
	}
	return at;
}

static u8 *put_ip(u8 *at, const struct twin_encap *encap, const struct way *way)
{
	const struct ip_tunnel_key *key = &encap->info->key;

	if (is_v6(encap->info)) {
		struct ipv6hdr *ip = (struct ipv6hdr *)at;

		ip6_flow_hdr(ip, key->tos, 0);
		ip->hop_limit = key->ttl ?: ip6_dst_hoplimit(way->dst);
		ip->nexthdr = IPPROTO_UDP;
		ip->daddr = way->fl6.daddr;
		ip->saddr = way->fl6.saddr;
		return at + sizeof(*ip);
	} else {
		struct iphdr *ip = (struct iphdr *)at;

		ip->version = 4;
		ip->ihl = 5;
		ip->tos = key->tos;
		ip->ttl = key->ttl ?: ip4_dst_hoplimit(way->dst);
		ip->protocol = IPPROTO_UDP;
		ip->daddr = way->fl4.daddr;
		ip->saddr = way->fl4.saddr;
		return at + sizeof(*ip);
	}
}

static unsigned int header_len(const struct twin_encap *encap, const struct way *way)
{
	return (is_vlan_dev(way->dst->dev) ? VLAN_ETH_HLEN : ETH_HLEN) +
	       (is_v6(encap->info) ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) +
	       tunnel_len(encap);
}

static struct twin_header *make_header(const struct twin_encap *encap, const struct way *way,
				       const u8 *mac)
{
	struct twin_header *header = kzalloc(sizeof(*header), GFP_KERNEL);
	struct udphdr *udp;
	u8 *at;

	if (!header)
		return NULL;
	header->out = way->out;
	header->v6 = is_v6(encap->info);
	header->len = header_len(encap, way);
	at = put_ethernet(header->data, way->dst->dev, mac, header->v6 ? ETH_P_IPV6 : ETH_P_IP);
	header->l3 = at - header->data;
	udp = (struct udphdr *)put_ip(at, encap, way);
	udp->dest = encap->info->key.tp_dst;
	if (encap->tun == TWIN_TUN_VXLAN)
		put_vxlan(encap, udp + 1);
	else
		put_geneve(encap, udp + 1);
	return header;
}

/* NULL: software has it from now on, WHY says why. */
static void set_header(struct twin_encap *encap, struct twin_header *header, const char *why)
{
	struct twin_header *old;

	encap->why = why;
	old = rcu_replace_pointer(encap->header, header, true);
	if (old)
		kfree_rcu(old, rcu);
}

/*
 * Looks up way and neighbour and makes the header by them. FRESH: the rule is just
 * being offered, so an error is its refusal. Returns a negative errno.
 */
static int resolve(struct net *net, struct twin_vport *vport, struct twin_encap *encap, bool fresh)
{
	bool used = xchg(&encap->used, false);
	struct twin_header *header = NULL;
	struct neighbour *n;
	struct way way;
	u8 mac[ETH_ALEN];
	bool dead;
	u8 state;
	int err;

	err = find_encap_way(net, vport, encap, &way);
	if (err) {
		set_header(encap, NULL, "no-route");
		return err;
	}
	if (header_len(encap, &way) > TWIN_MAX_ENCAP) {
		netdev_warn(way.dst->dev, "encap size %u too big, max supported is %d\n",
			    header_len(encap, &way), TWIN_MAX_ENCAP);
		set_header(encap, NULL, "too-long");
		err = -EOPNOTSUPP;
		goto put;
	}
	n = way.neigh;
	read_lock_bh(&n->lock);
	state = n->nud_state;
	dead = n->dead;
	ether_addr_copy(mac, n->ha);
	read_unlock_bh(&n->lock);
	/* a neighbour that failed is asked for again by what software sends, not here */
	if (fresh || used || !state)
		neigh_event_send(n, NULL);
	if (!(state & NUD_VALID) || dead) {
		set_header(encap, NULL, "no-neighbour");
		goto put;
	}
	header = make_header(encap, &way, mac);
	if (!header)
		err = -ENOMEM;
	set_header(encap, header, header ? NULL : "no-memory");
put:
	put_way(&way);
	return err;
}

/* Rules */

static bool same(const struct twin_encap *encap, enum twin_tun tun, int oif,
		 const struct ip_tunnel_info *info)
{
	return encap->tun == tun && encap->oif == oif &&
	       !memcmp(&encap->info->key, &info->key, sizeof(info->key)) &&
	       encap->info->options_len == info->options_len &&
	       !memcmp(ip_tunnel_info_opts(encap->info),
		       ip_tunnel_info_opts((struct ip_tunnel_info *)info), info->options_len);
}

static void wake(unsigned long delay);

static int check_tunnel(struct twin_rule *p, enum twin_tun tun)
{
	const struct ip_tunnel_info *info = p->encap;

	if (p->vport->port->encap == DEVLINK_ESWITCH_ENCAP_MODE_NONE)
		return -EINVAL;	/* the firmware's, on tables without MLX5_FLOW_TABLE_TUNNEL_EN_REFORMAT */
	if (!tun) {
		ERR(p->extack, "Unsupported tunnel");
		return -EOPNOTSUPP;
	}
	if (tun == TWIN_TUN_VXLAN && !twin_vxlan_port(p->vport->port, info->key.tp_dst)) {
		netdev_warn(p->port_dev, "%d isn't an offloaded vxlan udp dport\n",
			    ntohs(info->key.tp_dst));
		ERR(p->extack, "vxlan udp dport was not registered with the HW");
		return -EOPNOTSUPP;
	}
	/* mlx5e_gen_ip_tunnel_header_vxlan and _geneve; group policies are not modelled */
	if (tun == TWIN_TUN_VXLAN && test_bit(IP_TUNNEL_VXLAN_OPT_BIT, info->key.tun_flags))
		return -EOPNOTSUPP;
	if (tun == TWIN_TUN_GENEVE && !info->options_len &&
	    test_bit(IP_TUNNEL_GENEVE_OPT_BIT, info->key.tun_flags))
		return -EOPNOTSUPP;
	return 0;
}

/*
 * mlx5e_attach_encap: what p->encap and the tunnel device DEV say. Without a way
 * there is an error and, as in mlx5, no text.
 */
struct twin_encap *twin_encap_get(struct twin_rule *p, struct net_device *dev)
{
	const struct ip_tunnel_info *info = p->encap;
	struct twin_port *port = p->vport->port;
	enum twin_tun tun = twin_tun_of(dev);
	struct twin_encap *encap;
	int oif, err;

	err = check_tunnel(p, tun);
	if (err)
		return ERR_PTR(err);
	oif = tun == TWIN_TUN_VXLAN ?
	      ((struct vxlan_dev *)netdev_priv(dev))->default_dst.remote_ifindex : 0;
	list_for_each_entry(encap, &port->encaps, list) {
		if (same(encap, tun, oif, info)) {
			encap->refs++;
			return encap;
		}
	}
	encap = kzalloc(sizeof(*encap), GFP_KERNEL);
	if (!encap)
		return ERR_PTR(-ENOMEM);
	encap->info = kmemdup(info, sizeof(*info) + info->options_len, GFP_KERNEL);
	if (!encap->info) {
		kfree(encap);
		return ERR_PTR(-ENOMEM);
	}
	encap->refs = 1;
	encap->vport = p->vport;
	encap->tun = tun;
	encap->oif = oif;
	/* known first, so that no event is missed between the look and the header */
	list_add(&encap->list, &port->encaps);
	atomic_inc(&encaps);
	err = resolve(dev_net(dev), p->vport, encap, true);
	if (err) {
		twin_encap_put(encap);
		return ERR_PTR(err);
	}
	wake(HZ);
	return encap;
}

static void free_encap(struct rcu_head *rcu)
{
	struct twin_encap *encap = container_of(rcu, struct twin_encap, rcu);

	kfree(rcu_access_pointer(encap->header));
	kfree(encap->info);
	kfree(encap);
}

void twin_encap_put(struct twin_encap *encap)
{
	if (--encap->refs)
		return;
	list_del(&encap->list);
	atomic_dec(&encaps);
	call_rcu(&encap->rcu, free_encap);
}

void twin_encap_show(struct seq_file *m, const struct twin_encap *encap)
{
	const struct ip_tunnel_key *key = &encap->info->key;
	const struct twin_header *header;
	char name[24];

	seq_printf(m, " encap:%s(id:%u", encap->tun == TWIN_TUN_VXLAN ? "vxlan" : "geneve",
		   ntohl(tunnel_id_to_key32(key->tun_id)));
	if (is_v6(encap->info))
		seq_printf(m, " dst:%pI6c)", &key->u.ipv6.dst);
	else
		seq_printf(m, " dst:%pI4)", &key->u.ipv4.dst);
	rcu_read_lock();
	header = rcu_dereference(encap->header);
	if (header) {
		twin_vport_name(header->out, name, sizeof(name));
		seq_printf(m, " output:%s", name);
	} else {
		seq_printf(m, " slow:%s", encap->why);
	}
	rcu_read_unlock();
}

/* Events */

static void resolve_port(struct twin_port *port)
{
	struct net_device *dev = rtnl_dereference(port->uplink.rep);
	struct twin_encap *encap;

	if (!dev)
		return;
	mutex_lock(&port->flow_lock);
	list_for_each_entry(encap, &port->encaps, list)
		resolve(dev_net(dev), encap->vport, encap, false);
	mutex_unlock(&port->flow_lock);
}

static void resolve_all(struct work_struct *work)
{
	unsigned int i, j;

	rtnl_lock();
	for (i = 0; i < twin_num_cards; i++)
		for (j = 0; j < TWIN_PORTS; j++)
			resolve_port(&twin_cards[i].ports[j]);
	rtnl_unlock();
	/* mlx5e_rep_neigh_stats_work: neighbours in use are not to go stale */
	wake(NEIGH_VAR(&arp_tbl.parms, DELAY_PROBE_TIME));
}

static DECLARE_DELAYED_WORK(work, resolve_all);

static void wake(unsigned long delay)
{
	if (!atomic_read(&encaps))
		return;
	if (delay)
		schedule_delayed_work(&work, delay);
	else
		mod_delayed_work(system_wq, &work, 0);
}

static int neigh_event(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct neighbour *n = data;

	if (event == NETEVENT_NEIGH_UPDATE && (n->tbl == &arp_tbl || n->tbl == &nd_tbl))
		wake(0);
	return NOTIFY_DONE;
}

static int fib_event(struct notifier_block *nb, unsigned long event, void *data)
{
	wake(0);
	return NOTIFY_DONE;
}

static struct notifier_block neigh_nb = { .notifier_call = neigh_event };
static struct notifier_block fib_nb = { .notifier_call = fib_event };

int twin_encaps_init(void)
{
	int err = register_netevent_notifier(&neigh_nb);

	if (err)
		return err;
	/* uplinks are in the first namespace: one in another gets its routes' news late */
	err = register_fib_notifier(&init_net, &fib_nb, NULL, NULL);
	if (err)
		unregister_netevent_notifier(&neigh_nb);
	return err;
}

void twin_encaps_exit(void)
{
	unregister_fib_notifier(&init_net, &fib_nb);
	unregister_netevent_notifier(&neigh_nb);
	cancel_delayed_work_sync(&work);
}
