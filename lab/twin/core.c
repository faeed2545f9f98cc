// SPDX-License-Identifier: GPL-2.0
/*
 * The driver: PFs and VFs on the PCI bus, and their Ethernet part on the
 * auxiliary bus. Follows mlx5/core main.c, sriov.c, dev.c and en_main.c.
 */
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "twin.h"

#define IS_VF 1

static DEFINE_IDA(twin_adev_ida);

/* The Ethernet part */

struct twin_adev {
	struct auxiliary_device adev;
	struct twin_func *func;
};

int twin_adev_id_get(void)
{
	return ida_alloc(&twin_adev_ida, GFP_KERNEL);
}

void twin_adev_id_put(int id)
{
	ida_free(&twin_adev_ida, id);
}

static const struct devlink_ops twin_eth_devlink_ops = {};

/* mlx5 en/devlink.c, mlx5e_devlink_port_register */
static int add_eth_port(struct twin_eth *eth)
{
	struct twin_port *port = eth->func->port;
	struct devlink_port_attrs attrs = {};
	unsigned int index;

	if (twin_func_is_pf(eth->func)) {
		attrs.flavour = DEVLINK_PORT_FLAVOUR_PHYSICAL;
		attrs.phys.port_number = port->num;
		attrs.switch_id.id_len = sizeof(port->card->switch_id);
		memcpy(attrs.switch_id.id, port->card->switch_id, sizeof(port->card->switch_id));
		index = twin_port_index(port, TWIN_VPORT_UPLINK);
	} else {
		attrs.flavour = DEVLINK_PORT_FLAVOUR_VIRTUAL;
		index = eth->func->vhca_id << 16;
	}
	devlink_port_attrs_set(&eth->dl_port, &attrs);
	return devlink_port_register(eth->devlink, &eth->dl_port, index);
}

/* mlx5 en_main.c, _mlx5e_probe. Runs with the devlink lock of the func held. */
static int eth_probe(struct auxiliary_device *adev, const struct auxiliary_device_id *id)
{
	struct twin_func *func = container_of(adev, struct twin_adev, adev)->func;
	struct twin_port *port = func->port;
	struct twin_vport *vport = func->vport;
	struct devlink *devlink;
	struct twin_eth *eth;
	int err;

	/* a devlink instance of its own, nested in that of the PCI function */
	devlink = devlink_alloc_ns(&twin_eth_devlink_ops, sizeof(*eth),
				   devlink_net(func->devlink), &adev->dev);
	if (!devlink)
		return -ENOMEM;
	eth = devlink_priv(devlink);
	eth->func = func;
	eth->devlink = devlink;
	err = devl_nested_devlink_set(func->devlink, devlink);
	if (err)
		goto err_free;
	devlink_register(devlink);
	err = add_eth_port(eth);
	if (err)
		goto err_register;

	eth->dev = twin_netdev_new(vport ? TWIN_VF : TWIN_PF, func, vport ?: &port->uplink);
	if (!eth->dev) {
		err = -ENOMEM;
		goto err_port;
	}
	SET_NETDEV_DEVLINK_PORT(eth->dev, &eth->dl_port);
	if (vport)
		rcu_assign_pointer(vport->dev, eth->dev);
	else
		rcu_assign_pointer(port->uplink.rep, eth->dev);
	twin_vport_update_link(vport ?: &port->uplink);
	if (!vport)
		twin_lag_add_netdev(func, eth->dev);
	err = register_netdev(eth->dev);
	if (err)
		goto err_dev;
	auxiliary_set_drvdata(adev, eth);
	func->eth = eth;
	return 0;

err_dev:
	if (vport) {
		RCU_INIT_POINTER(vport->dev, NULL);
	} else {
		twin_lag_remove_netdev(func);
		RCU_INIT_POINTER(port->uplink.rep, NULL);
	}
	synchronize_net();
	free_netdev(eth->dev);
err_port:
	devlink_port_unregister(&eth->dl_port);
err_register:
	devlink_unregister(devlink);
err_free:
	devlink_free(devlink);
	return err;
}

static void eth_remove(struct auxiliary_device *adev)
{
	struct twin_eth *eth = auxiliary_get_drvdata(adev);
	struct twin_func *func = eth->func;

	func->eth = NULL;
	if (func->vport) {
		RCU_INIT_POINTER(func->vport->dev, NULL);
	} else {
		twin_lag_remove_netdev(func);
		RCU_INIT_POINTER(func->port->uplink.rep, NULL);
	}
	unregister_netdev(eth->dev);	/* waits for the packet path, and frees it */
	devlink_port_unregister(&eth->dl_port);
	devlink_unregister(eth->devlink);
	devlink_free(eth->devlink);
}

static const struct auxiliary_device_id eth_ids[] = {
	{ .name = TWIN_DRIVER ".eth" },
	{}
};

static struct auxiliary_driver eth_driver = {
	.name = "eth",
	.probe = eth_probe,
	.remove = eth_remove,
	.id_table = eth_ids,
	/* binding by hand would miss the devlink lock that the func's paths hold */
	.driver = { .suppress_bind_attrs = true },
};

static void adev_release(struct device *dev)
{
	kfree(container_of(to_auxiliary_dev(dev), struct twin_adev, adev));
}

/* mlx5 dev.c, add_adev: mlx5_core.eth.N under the function; none without enable_eth */
static int add_adev(struct twin_func *func)
{
	struct twin_adev *a;
	int err;

	if (!twin_devlink_enabled(func, DEVLINK_PARAM_GENERIC_ID_ENABLE_ETH))
		return 0;
	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		return -ENOMEM;
	a->func = func;
	a->adev.name = "eth";
	a->adev.id = func->adev_id;
	a->adev.dev.parent = func->dev;
	a->adev.dev.release = adev_release;
	err = auxiliary_device_init(&a->adev);
	if (err) {
		kfree(a);
		return err;
	}
	err = __auxiliary_device_add(&a->adev, TWIN_DRIVER);
	if (err) {
		auxiliary_device_uninit(&a->adev);
		return err;
	}
	func->adev = &a->adev;
	return 0;
}

static void del_adev(struct twin_func *func)
{
	if (!func->adev)
		return;
	auxiliary_device_delete(func->adev);
	auxiliary_device_uninit(func->adev);
	func->adev = NULL;
}

/* The PCI function */

/* A fault: the VF is there, its netdev comes later. */
static void late_work(struct work_struct *work)
{
	struct twin_func *func = container_of(to_delayed_work(work), struct twin_func, late);

	devl_lock(func->devlink);
	if (func->loaded && !func->adev && add_adev(func))
		dev_err(func->dev, "Failed to add the Ethernet device\n");
	devl_unlock(func->devlink);
}

/*
 * mlx5 main.c, mlx5_load and mlx5_attach_device: at probe and at the end of a
 * reload, with the devlink lock held.
 */
int twin_func_load(struct twin_func *func)
{
	u32 late = 0;
	int err;

	if (twin_func_is_pf(func)) {
		err = twin_devlink_flow_params(func);
		if (err)
			return err;
		twin_lag_add(func);
		/* VFs that a reload left on the bus: mlx5 sriov.c, mlx5_sriov_attach */
		if (pci_num_vf(func->pdev)) {
			err = twin_eswitch_enable_vfs(func, pci_num_vf(func->pdev));
			if (err)
				goto err_params;
		}
	} else if (!twin_is_sf(func->vport)) {
		late = READ_ONCE(func->port->vf_late_ms);
	}
	func->light = false;
	func->loaded = true;
	if (late) {
		schedule_delayed_work(&func->late, msecs_to_jiffies(late));
		return 0;
	}
	err = add_adev(func);
	if (err)
		goto err_vfs;
	return 0;

err_vfs:
	func->loaded = false;
	if (twin_func_is_pf(func))
		twin_eswitch_disable_vfs(func, false);
err_params:
	if (twin_func_is_pf(func)) {
		twin_lag_remove(func);
		twin_devlink_flow_params_gone(func);
	}
	return err;
}

/* mlx5 main.c, mlx5_unload_one: the E-Switch ends in legacy mode. */
void twin_func_unload(struct twin_func *func)
{
	if (!func->loaded)
		return;
	func->loaded = false;
	if (twin_func_is_pf(func)) {
		twin_eswitch_to_legacy(func);
		twin_sf_stop(func->port);
		twin_eswitch_disable_vfs(func, false);
	}
	del_adev(func);
	if (twin_func_is_pf(func)) {
		twin_lag_remove(func);
		twin_devlink_flow_params_gone(func);
	}
}

static void set_owner(struct twin_func *func, struct twin_func *owner)
{
	struct twin_port *port = func->port;

	mutex_lock(&port->info_lock);
	if (func->vport)
		func->vport->func = owner;
	else
		port->func = owner;
	mutex_unlock(&port->info_lock);
}

/*
 * Makes the devlink instance of a function known and loads the function; a light
 * one (mlx5 main.c, mlx5_init_one_light) is loaded by its first reload. The caller
 * owns the instance.
 */
int twin_func_init(struct twin_func *func)
{
	int err;

	INIT_DELAYED_WORK(&func->late, late_work);
	set_owner(func, func);

	devl_lock(func->devlink);
	devl_register(func->devlink);
	err = twin_devlink_params(func);
	if (err)
		goto err_register;
	err = twin_func_is_pf(func) ? twin_sf_resources(func) : 0;
	if (err)
		goto err_params;
	if (!func->light)
		err = twin_func_load(func);
	if (err)
		goto err_resources;
	twin_devlink_reporters(func);
	devl_unlock(func->devlink);
	return 0;

err_resources:
	devl_resources_unregister(func->devlink);
err_params:
	twin_devlink_params_gone(func);
err_register:
	devl_unregister(func->devlink);
	devl_unlock(func->devlink);
	set_owner(func, NULL);
	return err;
}

void twin_func_exit(struct twin_func *func)
{
	cancel_delayed_work_sync(&func->late);
	devl_lock(func->devlink);
	twin_devlink_reporters_gone(func);
	twin_func_unload(func);
	devl_resources_unregister(func->devlink);
	twin_devlink_params_gone(func);
	devl_unregister(func->devlink);
	devl_unlock(func->devlink);
	set_owner(func, NULL);
}

/* mlx5 main.c, probe_one */
static int twin_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct twin_port *port = twin_pci_port(pdev);
	struct twin_vport *vport = NULL;
	struct devlink *devlink;
	struct twin_func *func;
	int err, vf;

	if (!port)
		return -ENODEV;	/* a real card: this driver cannot drive it */
	if (id->driver_data & IS_VF) {
		vf = pci_iov_vf_id(pdev);
		if (vf < 0 || vf >= port->total_vfs)
			return -ENODEV;
		vport = &port->vports[vf];
		err = twin_fault(port, TWIN_OP_VF_PROBE, NULL);
		if (err)
			return err;
	}
	devlink = devlink_alloc(&twin_devlink_ops, sizeof(*func), &pdev->dev);
	if (!devlink)
		return -ENOMEM;
	func = devlink_priv(devlink);
	func->devlink = devlink;
	func->pdev = pdev;
	func->dev = &pdev->dev;
	func->port = port;
	func->vport = vport;
	/* the firmware numbers functions: the PFs first, then the VFs of each */
	func->vhca_id = vport ? TWIN_PORTS + port->num * TWIN_MAX_VFS + vport->num : port->num;
	func->adev_id = twin_adev_id_get();
	if (func->adev_id < 0) {
		err = func->adev_id;
		goto err_devlink;
	}
	err = pci_enable_device(pdev);
	if (err)
		goto err_ida;
	pci_set_master(pdev);
	pci_set_drvdata(pdev, func);
	err = twin_func_init(func);
	if (err)
		goto err_pci;
	return 0;

err_pci:
	pci_set_drvdata(pdev, NULL);
	pci_disable_device(pdev);
err_ida:
	twin_adev_id_put(func->adev_id);
err_devlink:
	devlink_free(devlink);
	return err;
}

/* mlx5 sriov.c, mlx5_sriov_disable: first the VFs on the bus, then their vports. */
static void disable_sriov(struct twin_func *func, bool clear)
{
	pci_disable_sriov(func->pdev);
	devl_lock(func->devlink);
	twin_eswitch_disable_vfs(func, clear);
	devl_unlock(func->devlink);
}

/* mlx5 main.c, remove_one */
static void twin_remove(struct pci_dev *pdev)
{
	struct twin_func *func = pci_get_drvdata(pdev);

	if (twin_func_is_pf(func))
		disable_sriov(func, true);
	twin_func_exit(func);
	pci_set_drvdata(pdev, NULL);
	pci_disable_device(pdev);
	twin_adev_id_put(func->adev_id);
	devlink_free(func->devlink);
}

/*
 * mlx5 pci_irq.c, mlx5_get_default_msix_vec_count: some stay in the pool, so that
 * one VF can be given more without taking from another.
 */
static u32 default_msix(unsigned int num_vfs)
{
	return max(min(TWIN_VF_MSIX / num_vfs, TWIN_MAX_MSIX / 2U), TWIN_MIN_MSIX);
}

static void set_msix(struct twin_vport *vport, u32 count)
{
	mutex_lock(&vport->port->info_lock);
	vport->info.msix = count;
	mutex_unlock(&vport->port->info_lock);
	twin_pci_set_msix(vport);
}

static void set_default_msix(struct twin_port *port, unsigned int num_vfs)
{
	unsigned int i;

	for (i = 0; i < num_vfs; i++)
		set_msix(&port->vports[i], default_msix(num_vfs));
}

static u32 twin_sriov_total_msix(struct pci_dev *pdev)
{
	return TWIN_VF_MSIX;
}

/*
 * mlx5 sriov.c, mlx5_core_sriov_set_msix_vec_count; the PCI core has seen to it that
 * the VF has no driver. More than the pool has is refused by the firmware.
 */
static int twin_sriov_set_msix(struct pci_dev *pdev, int count)
{
	struct twin_port *port = twin_pci_port(pdev);
	int vf = pci_iov_vf_id(pdev);
	unsigned int i;
	u32 sum = 0;

	if (!count)
		count = default_msix(pci_num_vf(pci_physfn(pdev)));
	if (!port || vf < 0 || vf >= port->total_vfs || !READ_ONCE(port->vports[vf].enabled))
		return -EINVAL;
	if (count < TWIN_MIN_MSIX)
		return -EINVAL;
	if (count > TWIN_MAX_MSIX)
		return -EOVERFLOW;
	for (i = 0; i < port->total_vfs; i++)
		if (i != vf && READ_ONCE(port->vports[i].enabled))
			sum += READ_ONCE(port->vports[i].info.msix);
	if (sum + count > TWIN_VF_MSIX)
		return -ENOMEM;	/* mlx5 cmd.c, cmd_status_to_err: MLX5_CMD_STAT_LIM_ERR */
	set_msix(&port->vports[vf], count);
	return 0;
}

/* mlx5 sriov.c, mlx5_sriov_enable: first the vports, then the VFs on the bus. */
static int enable_sriov(struct twin_func *func, int num_vfs)
{
	int err;

	err = twin_fault(func->port, TWIN_OP_SRIOV_ENABLE, NULL);
	if (err)
		return err;
	devl_lock(func->devlink);
	err = twin_eswitch_enable_vfs(func, num_vfs);
	if (!err)
		set_default_msix(func->port, num_vfs);
	devl_unlock(func->devlink);
	if (err)
		return err;
	err = pci_enable_sriov(func->pdev, num_vfs);
	if (err) {
		devl_lock(func->devlink);
		twin_eswitch_disable_vfs(func, true);
		devl_unlock(func->devlink);
	}
	return err;
}

static int twin_sriov_configure(struct pci_dev *pdev, int num_vfs)
{
	struct twin_func *func = pci_get_drvdata(pdev);
	int err = 0;

	if (num_vfs)
		err = enable_sriov(func, num_vfs);
	else
		disable_sriov(func, true);
	return err ?: num_vfs;
}

static const struct pci_device_id twin_ids[] = {
	{ PCI_DEVICE(0x15b3, 0x101d) },
	{ PCI_DEVICE(0x15b3, 0x101e), .driver_data = IS_VF },
	{}
};

static struct pci_driver twin_driver = {
	.name = TWIN_DRIVER,
	.id_table = twin_ids,
	.probe = twin_probe,
	.remove = twin_remove,
	.sriov_configure = twin_sriov_configure,
	.sriov_get_vf_total_msix = twin_sriov_total_msix,
	.sriov_set_msix_vec_count = twin_sriov_set_msix,
};

/*
 * The drivers are registered without a module but with its name, so that sysfs
 * links them to /sys/module/mlx5_core, which the driver core makes for them once
 * and keeps (kernel/params.c, lookup_or_create_module_kobject). Nothing rests on
 * the module being pinned: unregistering waits for whoever is inside.
 */
int twin_core_register(void)
{
	int err;

	err = __auxiliary_driver_register(&eth_driver, NULL, TWIN_DRIVER);
	if (err)
		return err;
	err = twin_sf_register();
	if (err)
		goto err_eth;
	err = __pci_register_driver(&twin_driver, NULL, TWIN_DRIVER);
	if (err)
		goto err_sf;
	return 0;

err_sf:
	twin_sf_unregister();
err_eth:
	auxiliary_driver_unregister(&eth_driver);
	return err;
}

void twin_core_unregister(void)
{
	pci_unregister_driver(&twin_driver);
	twin_sf_unregister();
	auxiliary_driver_unregister(&eth_driver);
}
