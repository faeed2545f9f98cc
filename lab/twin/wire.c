// SPDX-License-Identifier: GPL-2.0
/*
 * What a port is cabled to: nothing, the other port of its card, or a netdev of
 * the machine, which the port then owns as a bridge owns its ports: it takes
 * all that arrives there (rx_handler, promiscuous) and sends what goes out.
 */
#include <linux/if_arp.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>

#include "twin.h"

static struct twin_port *peer_of(const struct twin_port *port)
{
	return &port->card->ports[!port->num];
}

bool twin_wire_up(const struct twin_port *port)
{
	const struct twin_wire *wire = &port->wire;
	struct net_device *dev;
	bool up = false;

	if (READ_ONCE(wire->cut))
		return false;
	switch (READ_ONCE(wire->kind)) {
	case TWIN_WIRE_NONE:
		break;
	case TWIN_WIRE_PEER:
		up = READ_ONCE(peer_of(port)->wire.kind) == TWIN_WIRE_PEER &&
		     !READ_ONCE(peer_of(port)->wire.cut);
		break;
	case TWIN_WIRE_NETDEV:
		rcu_read_lock();
		dev = rcu_dereference(wire->dev);
		up = dev && netif_running(dev) && netif_carrier_ok(dev);
		rcu_read_unlock();
		break;
	}
	return up;
}

/* Out on the wire; a frame on a cable that hangs loose is lost. */
void twin_wire_xmit(struct twin_port *port, struct sk_buff *skb, int depth)
{
	struct net_device *dev;

	if (!twin_wire_up(port))
		goto drop;
	if (READ_ONCE(port->wire.kind) == TWIN_WIRE_PEER) {
		twin_from_vport(&peer_of(port)->uplink, skb, depth + 1);
		return;
	}
	dev = rcu_dereference(port->wire.dev);
	if (!dev)
		goto drop;
	skb_orphan(skb);
	skb_scrub_packet(skb, true);
	skb->dev = dev;
	skb->protocol = eth_hdr(skb)->h_proto;
	dev_queue_xmit(skb);
	return;

drop:
	this_cpu_inc(port->uplink.counters->c[TWIN_RX_DROPS]);
	kfree_skb(skb);
}

static rx_handler_result_t wire_receive(struct sk_buff **pskb)
{
	struct sk_buff *skb = skb_share_check(*pskb, GFP_ATOMIC);
	struct twin_port *port;

	if (!skb)
		return RX_HANDLER_CONSUMED;
	port = rcu_dereference(skb->dev->rx_handler_data);
	skb_push(skb, skb->data - skb_mac_header(skb));
	skb = twin_frame(skb);
	if (skb)
		twin_from_vport(&port->uplink, skb, 1);
	return RX_HANDLER_CONSUMED;
}

static void detach(struct twin_port *port)
{
	struct net_device *dev = rtnl_dereference(port->wire.dev);

	if (!dev)
		return;
	netdev_rx_handler_unregister(dev);	/* waits for the packet path */
	dev_set_promiscuity(dev, -1);
	RCU_INIT_POINTER(port->wire.dev, NULL);
	synchronize_net();
	netdev_put(dev, &port->wire.tracker);
}

static int attach(struct twin_port *port, struct net_device *dev)
{
	int err;

	if (twin_netdev_is_ours(dev) || dev->type != ARPHRD_ETHER || dev->flags & IFF_LOOPBACK)
		return -EINVAL;
	err = netdev_rx_handler_register(dev, wire_receive, port);
	if (err)
		return err;
	err = dev_set_promiscuity(dev, 1);
	if (err) {
		netdev_rx_handler_unregister(dev);
		return err;
	}
	netdev_hold(dev, &port->wire.tracker, GFP_KERNEL);
	rcu_assign_pointer(port->wire.dev, dev);
	return 0;
}

/*
 * WHAT is "none", "peer" or the name of a netdev in the caller's namespace. One
 * that is not there yet is taken when it comes; one that cannot be taken is an
 * error and leaves the wire "none".
 */
int twin_wire_set(struct twin_port *port, const char *what)
{
	struct twin_wire *wire = &port->wire;
	struct net_device *dev;
	int err = 0;

	rtnl_lock();
	detach(port);
	wire->name[0] = 0;
	if (!strcmp(what, "none")) {
		WRITE_ONCE(wire->kind, TWIN_WIRE_NONE);
	} else if (!strcmp(what, "peer")) {
		WRITE_ONCE(wire->kind, TWIN_WIRE_PEER);
	} else if (!dev_valid_name(what)) {
		WRITE_ONCE(wire->kind, TWIN_WIRE_NONE);
		err = -EINVAL;
	} else {
		strscpy(wire->name, what, sizeof(wire->name));
		WRITE_ONCE(wire->kind, TWIN_WIRE_NETDEV);
		dev = __dev_get_by_name(current->nsproxy->net_ns, what);
		if (dev)
			err = attach(port, dev);
		if (err) {
			wire->name[0] = 0;
			WRITE_ONCE(wire->kind, TWIN_WIRE_NONE);
		}
	}
	twin_port_update_links(port);
	twin_port_update_links(peer_of(port));
	rtnl_unlock();
	return err;
}

void twin_wire_unset(struct twin_port *port)
{
	rtnl_lock();
	detach(port);
	WRITE_ONCE(port->wire.kind, TWIN_WIRE_NONE);
	rtnl_unlock();
}

static struct twin_port *wire_of(const struct net_device *dev)
{
	unsigned int i, j;

	for (i = 0; i < twin_num_cards; i++) {
		for (j = 0; j < TWIN_PORTS; j++) {
			struct twin_port *port = &twin_cards[i].ports[j];

			if (rtnl_dereference(port->wire.dev) == dev)
				return port;
			if (port->wire.kind == TWIN_WIRE_NETDEV &&
			    !rtnl_dereference(port->wire.dev) &&
			    !strcmp(port->wire.name, dev->name))
				return port;
		}
	}
	return NULL;
}

static int wire_event(struct notifier_block *nb, unsigned long event, void *data)
{
	struct net_device *dev = netdev_notifier_info_to_dev(data);
	struct twin_port *port = wire_of(dev);

	if (!port)
		return NOTIFY_DONE;
	switch (event) {
	case NETDEV_REGISTER:
	case NETDEV_CHANGENAME:
		if (!rtnl_dereference(port->wire.dev) && attach(port, dev))
			netdev_warn(dev, "cannot be the wire of port %u of card %u\n",
				    port->num, port->card->num);
		break;
	case NETDEV_UNREGISTER:
		if (rtnl_dereference(port->wire.dev) == dev)
			detach(port);
		break;
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		break;
	default:
		return NOTIFY_DONE;
	}
	twin_port_update_links(port);
	return NOTIFY_DONE;
}

static struct notifier_block wire_nb = { .notifier_call = wire_event };

int twin_wire_init(void)
{
	return register_netdevice_notifier(&wire_nb);
}

void twin_wire_exit(void)
{
	unregister_netdevice_notifier(&wire_nb);
}
