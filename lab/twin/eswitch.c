// SPDX-License-Identifier: GPL-2.0
/*
 * The E-Switch of a port: its mode, its vports and their representors.
 *
 * Follows mlx5/core eswitch.c and eswitch_offloads.c. The devlink instance lock
 * of the PF is held around everything that changes the mode or the set of VFs.
 */
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "twin.h"

int twin_vport_init(struct twin_port *port, struct twin_vport *vport, u16 num)
{
	vport->port = port;
	vport->num = num;
	INIT_LIST_HEAD(&vport->groups);
	spin_lock_init(&vport->rate.lock);
	vport->counters = alloc_percpu(struct twin_counters);
	return vport->counters ? 0 : -ENOMEM;
}

/* mlx5 eswitch.c, mlx5_eswitch_clear_vf_vports_info */
void twin_vport_clear_info(struct twin_vport *vport)
{
	memset(&vport->info, 0, sizeof(vport->info));
	vport->info.link_state = IFLA_VF_LINK_STATE_AUTO;
	/* what the firmware gives a fresh VF */
	vport->info.roce = true;
	vport->info.max_io_eqs = 120;
}

int twin_eswitch_init(struct twin_port *port)
{
	unsigned int i;
	int err;

	init_rwsem(&port->mode_lock);
	mutex_init(&port->info_lock);
	port->mode = DEVLINK_ESWITCH_MODE_LEGACY;
	/* mlx5 eswitch.c, mlx5_eswitch_init: encap where the device can */
	port->encap = DEVLINK_ESWITCH_ENCAP_MODE_BASIC;
	port->metadata = true;
	port->smfs = true;
	err = twin_vport_init(port, &port->uplink, TWIN_VPORT_UPLINK);
	if (err)
		return err;
	port->vports = kvcalloc(port->total_vfs, sizeof(*port->vports), GFP_KERNEL);
	if (!port->vports)
		return -ENOMEM;
	for (i = 0; i < port->total_vfs; i++) {
		err = twin_vport_init(port, &port->vports[i], i + 1);
		if (err)
			return err;
		twin_vport_clear_info(&port->vports[i]);
	}
	return 0;
}

void twin_vport_free(struct twin_vport *vport)
{
	kfree(rcu_dereference_raw(vport->macs));
	free_percpu(vport->counters);
}

void twin_eswitch_free(struct twin_port *port)
{
	unsigned int i;

	for (i = 0; port->vports && i < port->total_vfs; i++)
		twin_vport_free(&port->vports[i]);
	kvfree(port->vports);
	twin_vport_free(&port->uplink);
}

/* As in phys_port_name, and p0 for the uplink. */
void twin_vport_name(const struct twin_vport *vport, char *buf, size_t size)
{
	unsigned int pf = vport->port->num;

	if (twin_is_uplink(vport))
		snprintf(buf, size, "p%u", pf);
	else if (twin_is_sf(vport))
		snprintf(buf, size, "pf%usf%u", pf,
			 container_of(vport, struct twin_sf, vport)->sfnum);
	else
		snprintf(buf, size, "pf%uvf%u", pf, vport->num - 1);
}

/*
 * mlx5 eswitch.c, mlx5_esw_hold: whoever offloads a rule holds the mode for
 * reading, and is turned away while an operation goes on.
 */
int twin_eswitch_hold(struct twin_port *port)
{
	if (!down_read_trylock(&port->mode_lock))
		return -EBUSY;
	if (port->busy) {
		up_read(&port->mode_lock);
		return -EBUSY;
	}
	return 0;
}

void twin_eswitch_release(struct twin_port *port)
{
	up_read(&port->mode_lock);
}

/* mlx5 eswitch.c, mlx5_esw_try_lock: not while rules are offloaded. */
static int try_lock(struct twin_port *port)
{
	if (!down_write_trylock(&port->mode_lock))
		return -EINVAL;
	if (port->busy || atomic64_read(&port->users) > 0) {
		up_write(&port->mode_lock);
		return -EBUSY;
	}
	return 0;
}

/* Links */

/* The physical link: what the uplink, and in legacy mode every VF, goes by. */
bool twin_port_link(const struct twin_port *port)
{
	return twin_wire_up(port);
}

/*
 * A VF's link. In switchdev mode it is its representor's admin state, once that
 * was opened or closed (mlx5 en_rep.c, mlx5e_rep_open); before, and in legacy
 * mode, what the administrator set, where auto follows the physical link.
 */
bool twin_vport_link(const struct twin_vport *vport)
{
	if (!READ_ONCE(vport->enabled))
		return false;
	if (twin_switchdev(vport->port))
		return READ_ONCE(vport->rep_up);
	switch (READ_ONCE(vport->info.link_state)) {
	case IFLA_VF_LINK_STATE_ENABLE:
		return true;
	case IFLA_VF_LINK_STATE_DISABLE:
		return false;
	}
	return twin_port_link(vport->port);
}

static void set_carrier(struct net_device *dev, bool on)
{
	if (on)
		netif_carrier_on(dev);
	else
		netif_carrier_off(dev);
}

void twin_vport_update_link(struct twin_vport *vport)
{
	struct net_device *dev;

	rcu_read_lock();
	if (twin_is_uplink(vport)) {
		dev = rcu_dereference(vport->rep);
		if (dev)
			set_carrier(dev, twin_port_link(vport->port));
	} else {
		dev = rcu_dereference(vport->dev);
		if (dev)
			set_carrier(dev, twin_vport_link(vport));
	}
	rcu_read_unlock();
}

void twin_port_update_links(struct twin_port *port)
{
	unsigned int i;

	twin_vport_update_link(&port->uplink);
	for (i = 0; i < port->total_vfs; i++)
		twin_vport_update_link(&port->vports[i]);
}

/* Representors */

/* mlx5 esw/devlink_port.c, mlx5_esw_offloads_devlink_port_register */
static int add_port(struct twin_func *pf, struct twin_vport *vport)
{
	struct twin_port *port = vport->port;
	bool sf = twin_is_sf(vport);
	int err;

	memset(&vport->dl_port, 0, sizeof(vport->dl_port));
	memcpy(vport->dl_port.attrs.switch_id.id, port->card->switch_id,
	       sizeof(port->card->switch_id));
	vport->dl_port.attrs.switch_id.id_len = sizeof(port->card->switch_id);
	if (sf)
		devlink_port_attrs_pci_sf_set(&vport->dl_port, 0, port->num,
					      container_of(vport, struct twin_sf, vport)->sfnum,
					      false);
	else
		devlink_port_attrs_pci_vf_set(&vport->dl_port, 0, port->num, vport->num - 1,
					      false);
	err = devl_port_register_with_ops(pf->devlink, &vport->dl_port,
					  twin_port_index(port, vport->num),
					  sf ? &twin_sf_port_ops : &twin_vf_port_ops);
	if (err)
		return err;
	err = twin_rate_leaf_add(vport);
	if (err)
		devl_port_unregister(&vport->dl_port);
	return err;
}

static void del_port(struct twin_vport *vport)
{
	if (!vport->dl_port.devlink)
		return;
	twin_rate_leaf_del(vport);
	devl_port_unregister(&vport->dl_port);
	vport->dl_port.devlink = NULL;
}

/* The vport's port and representor; with the PF's devlink lock, in switchdev mode. */
int twin_vport_add(struct twin_func *pf, struct twin_vport *vport)
{
	struct net_device *dev;
	int err;

	err = twin_fault(vport->port, TWIN_OP_REP_ADD, NULL);
	if (err)
		return err;
	err = add_port(pf, vport);
	if (err)
		return err;
	dev = twin_netdev_new(TWIN_REP, pf, vport);
	if (!dev) {
		err = -ENOMEM;
		goto err_port;
	}
	/* after the port is registered and before the netdev is */
	SET_NETDEV_DEVLINK_PORT(dev, &vport->dl_port);
	netif_carrier_off(dev);
	rcu_assign_pointer(vport->rep, dev);
	rtnl_lock();
	err = register_netdevice(dev);
	rtnl_unlock();
	if (err)
		goto err_dev;
	return 0;

err_dev:
	RCU_INIT_POINTER(vport->rep, NULL);
	synchronize_net();
	free_netdev(dev);
err_port:
	del_port(vport);
	return err;
}

void twin_vport_del(struct twin_vport *vport)
{
	struct net_device *dev;

	rtnl_lock();
	dev = rtnl_dereference(vport->rep);
	RCU_INIT_POINTER(vport->rep, NULL);
	vport->rep_up = false;
	if (dev)
		unregister_netdevice(dev);
	rtnl_unlock();
	del_port(vport);
}

/*
 * Takes the representors of vports FROM to N away, in one go: with 128 VFs one by
 * one would mean 128 waits for all CPUs to leave the packet path.
 */
static void del_reps(struct twin_port *port, unsigned int from, unsigned int n)
{
	struct net_device *dev, *next;
	LIST_HEAD(gone);
	unsigned int i;

	rtnl_lock();
	for (i = n; i-- > from;) {
		dev = rtnl_dereference(port->vports[i].rep);
		if (!dev)
			continue;
		RCU_INIT_POINTER(port->vports[i].rep, NULL);
		unregister_netdevice_queue(dev, &gone);
	}
	/* the list lives on until the netdevs are freed; walk a copy of it by vport */
	list_for_each_entry_safe(dev, next, &gone, unreg_list) {
		struct twin_nic *nic = netdev_priv(dev);

		nic->vport->rep_up = false;
	}
	unregister_netdevice_many(&gone);
	rtnl_unlock();

	for (i = n; i-- > from;)
		del_port(&port->vports[i]);
}

static int add_reps(struct twin_func *pf, unsigned int n)
{
	unsigned int i;
	int err;

	for (i = 0; i < n; i++) {
		err = twin_vport_add(pf, &pf->port->vports[i]);
		if (err) {
			del_reps(pf->port, 0, i);
			return err;
		}
	}
	return 0;
}

static void enable_vports(struct twin_port *port, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		WRITE_ONCE(port->vports[i].enabled, true);
}

static void disable_vports(struct twin_port *port, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		WRITE_ONCE(port->vports[i].enabled, false);
		twin_rate_clear(&port->vports[i]);
	}
	twin_port_update_links(port);
}

/* Mode */

static struct net_device *uplink_dev(struct twin_func *pf)
{
	return pf->eth ? pf->eth->dev : NULL;
}

/*
 * The PF's netdev becomes the uplink representor and back, keeping its name and
 * index: mlx5 en_main.c, mlx5e_netdev_change_profile, which detaches it meanwhile.
 */
static void change_uplink(struct twin_func *pf, u16 mode)
{
	struct net_device *dev = uplink_dev(pf);

	rtnl_lock();
	if (dev) {
		netif_device_detach(dev);
		netif_carrier_off(dev);
	}
	WRITE_ONCE(pf->port->mode, mode);
	if (dev) {
		synchronize_net();
		twin_netdev_set_switchdev(dev, mode == DEVLINK_ESWITCH_MODE_SWITCHDEV);
		netif_device_attach(dev);
	}
	rtnl_unlock();
}

/* mlx5 eswitch.c, esw_vport_cleanup: a mode ends with its vports, and rates with them. */
static void clear_rates(struct twin_port *port)
{
	unsigned int i;

	for (i = 0; i < port->total_vfs; i++)
		twin_rate_clear(&port->vports[i]);
}

static int start_switchdev(struct twin_func *pf)
{
	struct twin_port *port = pf->port;
	int err;

	clear_rates(port);
	change_uplink(pf, DEVLINK_ESWITCH_MODE_SWITCHDEV);
	err = add_reps(pf, port->num_vfs);
	if (err)
		goto err_uplink;
	err = twin_tunnels_start(port);
	if (err)
		goto err_reps;
	return 0;

err_reps:
	del_reps(port, 0, port->num_vfs);
err_uplink:
	change_uplink(pf, DEVLINK_ESWITCH_MODE_LEGACY);
	return err;
}

/* mlx5 eswitch.c, mlx5_eswitch_disable_locked: SFs first, rate nodes last. */
static void stop_switchdev(struct twin_func *pf)
{
	twin_tunnels_stop(pf->port);
	twin_sf_del_all(pf->port);
	del_reps(pf->port, 0, pf->port->num_vfs);
	clear_rates(pf->port);
	change_uplink(pf, DEVLINK_ESWITCH_MODE_LEGACY);
	devl_rate_nodes_destroy(pf->devlink);
}

/* mlx5 eswitch_offloads.c, mlx5_devlink_eswitch_mode_set */
int twin_eswitch_set_mode(struct twin_func *pf, u16 mode, struct netlink_ext_ack *extack)
{
	struct twin_port *port = pf->port;
	struct net_device *dev;
	int err;

	/* switchdev_inactive (7.2) is not modelled; 6.12 has no such mode */
	if (mode != DEVLINK_ESWITCH_MODE_LEGACY && mode != DEVLINK_ESWITCH_MODE_SWITCHDEV)
		return -EINVAL;
	twin_lag_begin_change(port);
	err = try_lock(port);
	if (err) {
		NL_SET_ERR_MSG(extack, TWIN_DRIVER ": Can't change mode, E-Switch is busy");
		goto end_change;
	}
	if (port->mode == mode)
		goto unlock;

	port->busy = true;
	up_write(&port->mode_lock);

	err = twin_fault(port, TWIN_OP_ESWITCH_SET, extack);
	if (err) {
		if (extack && extack->_msg)
			;	/* the fault brought its own */
		else if (mode == DEVLINK_ESWITCH_MODE_SWITCHDEV)
			NL_SET_ERR_MSG(extack, TWIN_DRIVER ": Failed setting eswitch to offloads");
		else
			NL_SET_ERR_MSG(extack, TWIN_DRIVER ": Failed setting eswitch to legacy");
		goto done;
	}
	dev = uplink_dev(pf);
	if (TWIN_7 && mode == DEVLINK_ESWITCH_MODE_SWITCHDEV && dev &&
	    !net_eq(dev_net(dev), devlink_net(pf->devlink))) {
		/* 7.2: mlx5_devlink_netdev_netns_immutable_set */
		NL_SET_ERR_MSG(extack, TWIN_DRIVER ": Can't change E-Switch mode to switchdev when netdev net namespace has diverged from the devlink's.");
		err = -EINVAL;
		goto done;
	}
	if (mode == DEVLINK_ESWITCH_MODE_SWITCHDEV) {
		err = start_switchdev(pf);
		if (err)
			NL_SET_ERR_MSG(extack, TWIN_DRIVER ": Failed setting eswitch to offloads");
	} else {
		stop_switchdev(pf);
	}
	twin_port_update_links(port);

done:
	down_write(&port->mode_lock);
	port->busy = false;
unlock:
	up_write(&port->mode_lock);
end_change:
	twin_lag_end_change(port);
	return err;
}

/* mlx5 eswitch.c, mlx5_eswitch_disable: at reload and at removal, rules or not. */
void twin_eswitch_to_legacy(struct twin_func *pf)
{
	twin_lag_begin_change(pf->port);
	if (pf->port->mode == DEVLINK_ESWITCH_MODE_SWITCHDEV) {
		stop_switchdev(pf);
		twin_port_update_links(pf->port);
	}
	twin_lag_end_change(pf->port);
}

/*
 * mlx5 eswitch.c, mlx5_eswitch_enable: the vports come up in the mode that is
 * set, before the PCI core makes the VFs; in switchdev mode with representors. In
 * legacy mode the first VFs start the E-Switch, which is a change to LAG.
 */
int twin_eswitch_enable_vfs(struct twin_func *pf, unsigned int num_vfs)
{
	struct twin_port *port = pf->port;
	int err;

	enable_vports(port, num_vfs);
	if (port->mode == DEVLINK_ESWITCH_MODE_LEGACY) {
		twin_lag_begin_change(port);
		port->num_vfs = num_vfs;
		twin_lag_end_change(port);
		return 0;
	}
	err = add_reps(pf, num_vfs);
	if (err) {
		disable_vports(port, num_vfs);
		return err;
	}
	port->num_vfs = num_vfs;
	return 0;
}

/* mlx5 eswitch.c, mlx5_eswitch_disable_sriov: after the VFs are gone. */
void twin_eswitch_disable_vfs(struct twin_func *pf, bool clear)
{
	struct twin_port *port = pf->port;
	unsigned int i, n = port->num_vfs;

	if (port->mode == DEVLINK_ESWITCH_MODE_SWITCHDEV)
		del_reps(port, 0, n);
	disable_vports(port, n);
	if (clear) {
		mutex_lock(&port->info_lock);
		for (i = 0; i < n; i++)
			twin_vport_clear_info(&port->vports[i]);
		mutex_unlock(&port->info_lock);
	}
	port->num_vfs = 0;
}
