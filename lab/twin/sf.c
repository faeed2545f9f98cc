// SPDX-License-Identifier: GPL-2.0
/*
 * Subfunctions. Three parts, as in mlx5/core sf/:
 *
 *   ports     devlink ports of the PF: added, deleted, switched on and off
 *             (sf/devlink.c, sf/hw_table.c)
 *   devices   when the firmware tells that an SF is on, a device on the auxiliary
 *             bus, mlx5_core.sf.N; when it is off the device goes (sf/dev/dev.c)
 *   driver    of such devices: a devlink instance auxiliary/mlx5_core.sf.N, first
 *             with parameters only; its reload makes what they say (sf/dev/driver.c)
 *
 * The firmware's news comes from a workqueue of the port, so after the command that
 * caused it, and later still with the fault sf_late_ms.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "twin.h"

#define ERR(extack, text) NL_SET_ERR_MSG(extack, TWIN_DRIVER ": " text)

/* mlx5 eswitch.h, MLX5_ESW_DEFAULT_SF_COMP_EQS */
#define DEFAULT_EQS 8

struct twin_sf_dev {
	struct auxiliary_device adev;
	struct twin_sf *sf;
	u32 sfnum;
};

static struct twin_sf *sf_of(struct devlink_port *dl_port)
{
	return container_of(dl_port, struct twin_sf, vport.dl_port);
}

static bool is_active(const struct twin_sf *sf)
{
	return sf->state == TWIN_SF_ACTIVE || sf->state == TWIN_SF_IN_USE;
}

/* Devices */

static ssize_t sfnum_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct auxiliary_device *adev = to_auxiliary_dev(dev);

	return sysfs_emit(buf, "%u\n", container_of(adev, struct twin_sf_dev, adev)->sfnum);
}
static DEVICE_ATTR_RO(sfnum);

static struct attribute *sf_attrs[] = { &dev_attr_sfnum.attr, NULL };
ATTRIBUTE_GROUPS(sf);

static void sf_dev_release(struct device *dev)
{
	struct auxiliary_device *adev = to_auxiliary_dev(dev);

	twin_adev_id_put(adev->id);
	kfree(container_of(adev, struct twin_sf_dev, adev));
}

/* sf/dev/dev.c, mlx5_sf_dev_add. Under port->sf_dev_lock. */
static int add_dev(struct twin_sf *sf)
{
	struct twin_port *port = sf->vport.port;
	struct twin_sf_dev *sd;
	int id, err;

	id = twin_adev_id_get();
	if (id < 0)
		return id;
	sd = kzalloc(sizeof(*sd), GFP_KERNEL);
	if (!sd) {
		twin_adev_id_put(id);
		return -ENOMEM;
	}
	sd->sf = sf;
	sd->sfnum = sf->sfnum;
	sd->adev.id = id;
	sd->adev.name = "sf";
	sd->adev.dev.parent = port->func->dev;
	sd->adev.dev.release = sf_dev_release;
	sd->adev.dev.groups = sf_groups;
	err = auxiliary_device_init(&sd->adev);
	if (err) {
		twin_adev_id_put(id);
		kfree(sd);
		return err;
	}
	err = __auxiliary_device_add(&sd->adev, TWIN_DRIVER);
	if (err) {
		auxiliary_device_uninit(&sd->adev);
		return err;
	}
	sf->dev = sd;
	return 0;
}

static void del_dev(struct twin_sf *sf)
{
	struct twin_sf_dev *sd = sf->dev;

	if (!sd)
		return;
	sf->dev = NULL;
	auxiliary_device_delete(&sd->adev);
	auxiliary_device_uninit(&sd->adev);
}

/* The SF is gone from the bus; one whose port is deleted makes place for another. */
static void gone(struct twin_sf *sf)
{
	struct twin_port *port = sf->vport.port;

	mutex_lock(&port->sf_lock);
	if (sf->state == TWIN_SF_TEARDOWN)
		sf->state = TWIN_SF_ALLOCATED;
	if (sf->pending_delete) {
		sf->pending_delete = false;
		sf->allocated = false;
	}
	mutex_unlock(&port->sf_lock);
}

/* The firmware's news: sf/dev/dev.c, mlx5_sf_dev_state_change_handler */
static void sf_event(struct work_struct *work)
{
	struct twin_sf *sf = container_of(to_delayed_work(work), struct twin_sf, event);
	struct twin_port *port = sf->vport.port;
	bool active;
	int err;

	mutex_lock(&port->sf_dev_lock);
	mutex_lock(&port->sf_lock);
	active = is_active(sf);
	mutex_unlock(&port->sf_lock);
	if (!active) {
		del_dev(sf);
		gone(sf);
	} else if (!sf->dev) {
		err = add_dev(sf);
		if (err)
			dev_err(port->func->dev,
				"SF DEV: fail device add for index=%u sfnum=%u err=%d\n",
				sf->vport.num - TWIN_VPORT_SF, sf->sfnum, err);
	}
	mutex_unlock(&port->sf_dev_lock);
}

static void tell(struct twin_sf *sf)
{
	struct twin_port *port = sf->vport.port;

	mod_delayed_work(port->sf_events, &sf->event,
			 msecs_to_jiffies(READ_ONCE(port->sf_late_ms)));
}

/* The driver of SF devices */

/* The port of the SF shows the instance of its function: mlx5_core_peer_devlink_set */
static int set_peer(struct twin_sf *sf, struct devlink *devlink)
{
	struct twin_port *port = sf->vport.port;
	int err = 0;

	mutex_lock(&port->sf_lock);
	if (sf->has_port)
		err = devl_port_fn_devlink_set(&sf->vport.dl_port, devlink);
	mutex_unlock(&port->sf_lock);
	return err;
}

static void set_in_use(struct twin_sf *sf, bool in_use)
{
	struct twin_port *port = sf->vport.port;

	mutex_lock(&port->sf_lock);
	if (is_active(sf))
		sf->state = in_use ? TWIN_SF_IN_USE : TWIN_SF_ACTIVE;
	mutex_unlock(&port->sf_lock);
}

static int sf_probe(struct auxiliary_device *adev, const struct auxiliary_device_id *id)
{
	struct twin_sf *sf = container_of(adev, struct twin_sf_dev, adev)->sf;
	struct twin_port *port = sf->vport.port;
	struct devlink *devlink;
	struct twin_func *func;
	int err;

	err = twin_fault(port, TWIN_OP_SF_PROBE, NULL);
	if (err)
		return err;
	devlink = devlink_alloc(&twin_devlink_ops, sizeof(*func), &adev->dev);
	if (!devlink)
		return -ENOMEM;
	func = devlink_priv(devlink);
	func->devlink = devlink;
	func->dev = &adev->dev;
	func->pdev = to_pci_dev(adev->dev.parent);
	func->port = port;
	func->vport = &sf->vport;
	func->vhca_id = TWIN_PORTS * (1 + TWIN_MAX_VFS) + port->num * TWIN_MAX_SFS +
			sf->vport.num - TWIN_VPORT_SF + 1;
	func->adev_id = adev->id;
	func->light = true;
	/* before the instance is registered */
	err = set_peer(sf, devlink);
	if (err)
		goto err_devlink;
	auxiliary_set_drvdata(adev, func);
	err = twin_func_init(func);
	if (err)
		goto err_devlink;
	set_in_use(sf, true);
	return 0;

err_devlink:
	devlink_free(devlink);
	return err;
}

static void sf_remove(struct auxiliary_device *adev)
{
	struct twin_func *func = auxiliary_get_drvdata(adev);

	twin_func_exit(func);
	set_in_use(container_of(adev, struct twin_sf_dev, adev)->sf, false);
	devlink_free(func->devlink);
}

static const struct auxiliary_device_id sf_ids[] = {
	{ .name = TWIN_DRIVER ".sf" },
	{}
};

static struct auxiliary_driver sf_driver = {
	.name = "sf",
	.probe = sf_probe,
	.remove = sf_remove,
	.id_table = sf_ids,
};

int twin_sf_register(void)
{
	return __auxiliary_driver_register(&sf_driver, NULL, TWIN_DRIVER);
}

void twin_sf_unregister(void)
{
	auxiliary_driver_unregister(&sf_driver);
}

/* Ports; all of it under the PF's devlink lock */

int twin_sf_state_get(struct devlink_port *dl_port, enum devlink_port_fn_state *state,
		      enum devlink_port_fn_opstate *opstate, struct netlink_ext_ack *extack)
{
	struct twin_sf *sf = sf_of(dl_port);
	struct twin_port *port = sf->vport.port;

	mutex_lock(&port->sf_lock);
	*state = is_active(sf) ? DEVLINK_PORT_FN_STATE_ACTIVE : DEVLINK_PORT_FN_STATE_INACTIVE;
	*opstate = sf->state == TWIN_SF_IN_USE || sf->state == TWIN_SF_TEARDOWN ?
		   DEVLINK_PORT_FN_OPSTATE_ATTACHED : DEVLINK_PORT_FN_OPSTATE_DETACHED;
	mutex_unlock(&port->sf_lock);
	return 0;
}

/* sf/devlink.c, mlx5_sf_activate. Under port->sf_lock. */
static int activate(struct twin_sf *sf, struct netlink_ext_ack *extack)
{
	struct twin_port *port = sf->vport.port;
	int err;

	if (sf->state != TWIN_SF_ALLOCATED) {
		ERR(extack, "SF is inactivated but it is still attached");
		return -EBUSY;
	}
	if (!sf->eqs_set) {
		mutex_lock(&port->info_lock);
		sf->vport.info.max_io_eqs = DEFAULT_EQS;
		mutex_unlock(&port->info_lock);
		sf->eqs_set = true;
	}
	err = twin_fault(port, TWIN_OP_SF_ACTIVATE, extack);
	if (err)
		return err;
	sf->state = TWIN_SF_ACTIVE;
	tell(sf);
	return 0;
}

/* Under port->sf_lock. */
static void deactivate(struct twin_sf *sf)
{
	sf->state = TWIN_SF_TEARDOWN;
	tell(sf);
}

int twin_sf_state_set(struct devlink_port *dl_port, enum devlink_port_fn_state state,
		      struct netlink_ext_ack *extack)
{
	struct twin_sf *sf = sf_of(dl_port);
	struct twin_port *port = sf->vport.port;
	bool want = state == DEVLINK_PORT_FN_STATE_ACTIVE;
	int err = 0;

	mutex_lock(&port->sf_lock);
	if (want && !is_active(sf))
		err = activate(sf, extack);
	else if (!want && is_active(sf))
		deactivate(sf);
	mutex_unlock(&port->sf_lock);
	return err;
}

void twin_sf_eqs_chosen(struct twin_vport *vport)
{
	container_of(vport, struct twin_sf, vport)->eqs_set = true;
}

/* sf/devlink.c, mlx5_sf_new_check_attr */
static int check_attrs(const struct twin_port *port, const struct devlink_port_new_attrs *attrs,
		       struct netlink_ext_ack *extack)
{
	if (attrs->flavour != DEVLINK_PORT_FLAVOUR_PCI_SF)
		ERR(extack, "Driver supports only SF port addition");
	else if (attrs->port_index_valid)
		ERR(extack, "Driver does not support user defined port index assignment");
	else if (!attrs->sfnum_valid)
		ERR(extack, "User must provide unique sfnum. Driver does not support auto assignment");
	else if (attrs->controller_valid && attrs->controller)
		ERR(extack, "External controller is unsupported");
	else if (attrs->pfnum != port->num)
		ERR(extack, "Invalid pfnum supplied");
	else
		return 0;
	return -EOPNOTSUPP;
}

/* sf/devlink.c, mlx5_devlink_sf_port_new; the mode comes last in 6.12 */
static int check_new(struct twin_func *func, const struct devlink_port_new_attrs *attrs,
		     struct netlink_ext_ack *extack)
{
	struct twin_port *port = func->port;
	bool switchdev = twin_switchdev(port);
	int err;

	if (!TWIN_7 || (twin_func_is_pf(func) && port->total_sfs && switchdev)) {
		err = check_attrs(port, attrs, extack);
		if (err)
			return err;
	}
	if (!twin_func_is_pf(func) || !port->total_sfs) {
		ERR(extack, "SF ports are not supported.");
		return -EOPNOTSUPP;
	}
	if (!switchdev) {
		ERR(extack, "SF ports are only supported in eswitch switchdev mode.");
		return -EOPNOTSUPP;
	}
	return 0;
}

/*
 * sf/hw_table.c, mlx5_sf_hw_table_id_alloc: one that is on its way out still has its
 * place and its number. With all places taken mlx5 says ENOSPC and no more.
 */
static struct twin_sf *get_sf(struct twin_port *port, u32 sfnum, struct netlink_ext_ack *extack)
{
	struct twin_sf *sf = NULL;
	unsigned int i;

	mutex_lock(&port->sf_lock);
	for (i = 0; i < port->total_sfs; i++) {
		if (!port->sfs[i].allocated) {
			sf = sf ?: &port->sfs[i];
		} else if (port->sfs[i].sfnum == sfnum) {
			mutex_unlock(&port->sf_lock);
			ERR(extack, "SF already exist. Choose different sfnum");
			return ERR_PTR(-EEXIST);
		}
	}
	if (sf) {
		sf->allocated = true;
		sf->sfnum = sfnum;
		sf->state = TWIN_SF_ALLOCATED;
		sf->eqs_set = false;
	}
	mutex_unlock(&port->sf_lock);
	return sf ?: ERR_PTR(-ENOSPC);
}

static void set_has_port(struct twin_sf *sf, bool on)
{
	mutex_lock(&sf->vport.port->sf_lock);
	sf->has_port = on;
	mutex_unlock(&sf->vport.port->sf_lock);
}

int twin_sf_port_new(struct devlink *devlink, const struct devlink_port_new_attrs *attrs,
		     struct netlink_ext_ack *extack, struct devlink_port **dl_port)
{
	struct twin_func *func = devlink_priv(devlink);
	struct twin_port *port = func->port;
	struct twin_sf *sf;
	int err;

	err = check_new(func, attrs, extack);
	if (!err)
		err = twin_fault(port, TWIN_OP_SF_ADD, extack);
	if (err)
		return err;
	sf = get_sf(port, attrs->sfnum, extack);
	if (IS_ERR(sf))
		return PTR_ERR(sf);
	mutex_lock(&port->info_lock);
	twin_vport_clear_info(&sf->vport);
	mutex_unlock(&port->info_lock);
	WRITE_ONCE(sf->vport.enabled, true);
	err = twin_vport_add(func, &sf->vport);
	if (err) {
		WRITE_ONCE(sf->vport.enabled, false);
		mutex_lock(&port->sf_lock);
		sf->allocated = false;
		mutex_unlock(&port->sf_lock);
		return err;
	}
	set_has_port(sf, true);
	*dl_port = &sf->vport.dl_port;
	return 0;
}

/*
 * sf/devlink.c, mlx5_sf_del: whatever its state. An active one is switched off; its
 * device goes when the firmware tells, and its place is free after that.
 */
static void del_sf(struct twin_sf *sf)
{
	struct twin_port *port = sf->vport.port;

	set_has_port(sf, false);
	twin_vport_del(&sf->vport);
	WRITE_ONCE(sf->vport.enabled, false);
	twin_vport_update_link(&sf->vport);
	mutex_lock(&port->sf_lock);
	if (sf->state == TWIN_SF_ALLOCATED) {
		sf->allocated = false;
	} else {
		sf->pending_delete = true;
		if (is_active(sf))
			deactivate(sf);
	}
	mutex_unlock(&port->sf_lock);
}

int twin_sf_port_del(struct devlink *devlink, struct devlink_port *dl_port,
		     struct netlink_ext_ack *extack)
{
	del_sf(sf_of(dl_port));
	return 0;
}

/* sf/devlink.c, mlx5_sf_esw_event: the E-Switch leaves switchdev mode */
void twin_sf_del_all(struct twin_port *port)
{
	unsigned int i;

	for (i = 0; i < port->total_sfs; i++)
		if (port->sfs[i].has_port)
			del_sf(&port->sfs[i]);
}

/*
 * The PF's driver goes, or reloads: no device of an SF may be left (mlx5 main.c,
 * mlx5_unload, mlx5_sf_dev_table_destroy). All ports are gone, so all news there
 * can be is of SFs that end.
 */
void twin_sf_stop(struct twin_port *port)
{
	unsigned int i;

	for (i = 0; i < port->total_sfs; i++)
		if (port->sfs[i].allocated)
			mod_delayed_work(port->sf_events, &port->sfs[i].event, 0);
	flush_workqueue(port->sf_events);
}

/* sf/hw_table.c, mlx5_sf_hw_table_res_register */
int twin_sf_resources(struct twin_func *pf)
{
	struct devlink_resource_size_params size;
	unsigned int n = pf->port->total_sfs;
	int err;

	devlink_resource_size_params_init(&size, n, n, 1, DEVLINK_RESOURCE_UNIT_ENTRY);
	err = devl_resource_register(pf->devlink, "max_local_SFs", n, 1,
				     DEVLINK_RESOURCE_ID_PARENT_TOP, &size);
	if (err)
		return err;
	devlink_resource_size_params_init(&size, 0, 0, 1, DEVLINK_RESOURCE_UNIT_ENTRY);
	return devl_resource_register(pf->devlink, "max_external_SFs", 0, 2,
				      DEVLINK_RESOURCE_ID_PARENT_TOP, &size);
}

int twin_sf_init(struct twin_port *port)
{
	unsigned int i;
	int err;

	mutex_init(&port->sf_lock);
	mutex_init(&port->sf_dev_lock);
	port->sf_events = alloc_ordered_workqueue("mlx5_vhca_event", 0);
	if (!port->sf_events)
		return -ENOMEM;
	port->sfs = kvcalloc(port->total_sfs, sizeof(*port->sfs), GFP_KERNEL);
	if (!port->sfs && port->total_sfs)
		return -ENOMEM;
	for (i = 0; i < port->total_sfs; i++) {
		INIT_DELAYED_WORK(&port->sfs[i].event, sf_event);
		err = twin_vport_init(port, &port->sfs[i].vport, TWIN_VPORT_SF + i);
		if (err)
			return err;
	}
	return 0;
}

void twin_sf_free(struct twin_port *port)
{
	unsigned int i;

	if (port->sf_events)
		destroy_workqueue(port->sf_events);
	for (i = 0; port->sfs && i < port->total_sfs; i++)
		twin_vport_free(&port->sfs[i].vport);
	kvfree(port->sfs);
}
