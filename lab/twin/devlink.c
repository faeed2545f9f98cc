// SPDX-License-Identifier: GPL-2.0
/*
 * What devlink asks of a PF, VF or SF: mlx5/core devlink.c, eswitch_offloads.c,
 * esw/devlink_port.c, fs_core.c and health.c.
 */
#include "twin.h"

#define ERR(extack, text) NL_SET_ERR_MSG(extack, TWIN_DRIVER ": " text)

/* E-Switch attributes. A VF has none: mlx5 eswitch.c, mlx5_devlink_eswitch_get. */

static struct twin_func *pf_of(struct devlink *devlink)
{
	struct twin_func *func = devlink_priv(devlink);

	return twin_func_is_pf(func) ? func : NULL;
}

static int eswitch_mode_get(struct devlink *devlink, u16 *mode)
{
	struct twin_func *pf = pf_of(devlink);

	if (!pf)
		return -EPERM;
	*mode = pf->port->mode;
	return 0;
}

static int eswitch_mode_set(struct devlink *devlink, u16 mode, struct netlink_ext_ack *extack)
{
	struct twin_func *pf = pf_of(devlink);

	return pf ? twin_eswitch_set_mode(pf, mode, extack) : -EPERM;
}

static int eswitch_inline_mode_get(struct devlink *devlink, u8 *mode)
{
	if (!pf_of(devlink))
		return -EPERM;
	*mode = DEVLINK_ESWITCH_INLINE_MODE_NONE;
	return 0;
}

/* mlx5_devlink_eswitch_inline_mode_set, on a device that requires no inlining */
static int eswitch_inline_mode_set(struct devlink *devlink, u8 mode,
				   struct netlink_ext_ack *extack)
{
	if (!pf_of(devlink))
		return -EPERM;
	if (mode == DEVLINK_ESWITCH_INLINE_MODE_NONE)
		return 0;
	ERR(extack, "Inline mode can't be set");
	return -EOPNOTSUPP;
}

static int eswitch_encap_mode_get(struct devlink *devlink, enum devlink_eswitch_encap_mode *encap)
{
	struct twin_func *pf = pf_of(devlink);

	if (!pf)
		return -EPERM;
	*encap = pf->port->encap;
	return 0;
}

/* mlx5_devlink_eswitch_encap_mode_set */
static int eswitch_encap_mode_set(struct devlink *devlink, enum devlink_eswitch_encap_mode encap,
				  struct netlink_ext_ack *extack)
{
	struct twin_func *pf = pf_of(devlink);
	struct twin_port *port;
	int err = 0;

	if (!pf)
		return -EPERM;
	port = pf->port;
	if (encap != DEVLINK_ESWITCH_ENCAP_MODE_NONE && encap != DEVLINK_ESWITCH_ENCAP_MODE_BASIC)
		return -EOPNOTSUPP;
	down_write(&port->mode_lock);
	if (port->mode == DEVLINK_ESWITCH_MODE_SWITCHDEV && port->encap != encap &&
	    READ_ONCE(port->num_flows)) {
		ERR(extack, "Can't set encapsulation when flows are configured");
		err = -EOPNOTSUPP;
	} else {
		port->encap = encap;
	}
	up_write(&port->mode_lock);
	return err;
}

/* Info: mlx5 devlink.c, mlx5_devlink_info_get. The serial number is as of 6.17. */
static int info_get(struct devlink *devlink, struct devlink_info_req *req,
		    struct netlink_ext_ack *extack)
{
	struct twin_func *pf = pf_of(devlink);
	char fw[32];
	int err;

	if (!pf)
		return 0;
	snprintf(fw, sizeof(fw), "%d.%d.%04d", TWIN_FW_MAJOR, TWIN_FW_MINOR, TWIN_FW_SUB);
	err = devlink_info_serial_number_put(req, pf->port->card->serial);
	if (!err)
		err = devlink_info_version_fixed_put(req, "fw.psid", TWIN_PSID);
	if (!err)
		err = devlink_info_version_running_put(req, "fw.version", fw);
	if (!err)
		err = devlink_info_version_running_put(req, DEVLINK_INFO_VERSION_GENERIC_FW, fw);
	if (!err)
		err = devlink_info_version_stored_put(req, "fw.version", fw);
	if (!err)
		err = devlink_info_version_stored_put(req, DEVLINK_INFO_VERSION_GENERIC_FW, fw);
	return err;
}

/* Reload: mlx5 devlink.c, mlx5_devlink_reload_down and _up */

static int reload_down(struct devlink *devlink, bool netns_change,
		       enum devlink_reload_action action, enum devlink_reload_limit limit,
		       struct netlink_ext_ack *extack)
{
	struct twin_func *func = devlink_priv(devlink);
	int err;

	err = twin_fault(func->port, TWIN_OP_RELOAD, extack);
	if (err)
		return err;
	if (!TWIN_7 && twin_func_is_pf(func) && twin_lag_is_active(func->port)) {
		ERR(extack, "reload is unsupported in Lag mode");
		return -EOPNOTSUPP;
	}
	if (twin_func_is_pf(func) && pci_num_vf(func->pdev))
		ERR(extack, "reload while VFs are present is unfavorable");
	twin_func_unload(func);
	return 0;
}

static int reload_up(struct devlink *devlink, enum devlink_reload_action action,
		     enum devlink_reload_limit limit, u32 *actions_performed,
		     struct netlink_ext_ack *extack)
{
	*actions_performed = BIT(action);
	return twin_func_load(devlink_priv(devlink));
}

const struct devlink_ops twin_devlink_ops = {
	.eswitch_mode_get = eswitch_mode_get,
	.eswitch_mode_set = eswitch_mode_set,
	.eswitch_inline_mode_get = eswitch_inline_mode_get,
	.eswitch_inline_mode_set = eswitch_inline_mode_set,
	.eswitch_encap_mode_get = eswitch_encap_mode_get,
	.eswitch_encap_mode_set = eswitch_encap_mode_set,
	.rate_leaf_tx_share_set = twin_rate_leaf_share_set,
	.rate_leaf_tx_max_set = twin_rate_leaf_max_set,
	.rate_leaf_parent_set = twin_rate_leaf_parent_set,
	.rate_node_tx_share_set = twin_rate_node_share_set,
	.rate_node_tx_max_set = twin_rate_node_max_set,
	.rate_node_new = twin_rate_node_new,
	.rate_node_del = twin_rate_node_del,
#if TWIN_7
	.rate_node_parent_set = twin_rate_node_parent_set,
	.rate_leaf_tc_bw_set = twin_rate_tc_bw_set,
	.rate_node_tc_bw_set = twin_rate_tc_bw_set,
#endif
	.port_new = twin_sf_port_new,
	.info_get = info_get,
	.reload_actions = BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT),
	.reload_down = reload_down,
	.reload_up = reload_up,
};

/* The function behind a representor's port: mlx5 eswitch_offloads.c, mlx5_devlink_port_fn_* */

static struct twin_vport *vport_of(struct devlink_port *dl_port)
{
	return container_of(dl_port, struct twin_vport, dl_port);
}

static int fn_hw_addr_get(struct devlink_port *dl_port, u8 *addr, int *len,
			  struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = vport_of(dl_port);

	mutex_lock(&vport->port->info_lock);
	ether_addr_copy(addr, vport->info.mac);
	mutex_unlock(&vport->port->info_lock);
	*len = ETH_ALEN;
	return 0;
}

static int fn_hw_addr_set(struct devlink_port *dl_port, const u8 *addr, int len,
			  struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = vport_of(dl_port);
	int err;

	err = twin_fault(vport->port, TWIN_OP_PORT_FN_SET, extack);
	if (err)
		return err;
	return twin_netdev_set_mac(vport, addr);
}

static int fn_roce_get(struct devlink_port *dl_port, bool *on, struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = vport_of(dl_port);

	mutex_lock(&vport->port->info_lock);
	*on = vport->info.roce;
	mutex_unlock(&vport->port->info_lock);
	return 0;
}

/*
 * Capabilities of a function that runs cannot be changed: the firmware refuses
 * SET_HCA_CAP then (Documentation/networking/devlink/devlink-port.rst: set them
 * before the function is bound).
 */
static int fn_roce_set(struct devlink_port *dl_port, bool on, struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = vport_of(dl_port);
	int err;

	err = twin_fault(vport->port, TWIN_OP_PORT_FN_SET, extack);
	mutex_lock(&vport->port->info_lock);
	if (!err && vport->info.roce != on && vport->func)
		err = -EINVAL;
	if (err && !(extack && extack->_msg))
		ERR(extack, "Failed setting HCA roce cap");
	if (!err)
		vport->info.roce = on;
	mutex_unlock(&vport->port->info_lock);
	return err;
}

static int fn_max_io_eqs_get(struct devlink_port *dl_port, u32 *max, struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = vport_of(dl_port);

	mutex_lock(&vport->port->info_lock);
	*max = vport->info.max_io_eqs;
	mutex_unlock(&vport->port->info_lock);
	return 0;
}

static int fn_max_io_eqs_set(struct devlink_port *dl_port, u32 max, struct netlink_ext_ack *extack)
{
	struct twin_vport *vport = vport_of(dl_port);
	u32 all;
	int err;

	/* 4 control event queues come on top: mlx5 MLX5_ESW_MAX_CTRL_EQS */
	if (check_add_overflow(max, 4U, &all)) {
		ERR(extack, "Supplied value out of range");
		return -EINVAL;
	}
	err = twin_fault(vport->port, TWIN_OP_PORT_FN_SET, extack);
	mutex_lock(&vport->port->info_lock);
	if (!err && vport->info.max_io_eqs != max && vport->func)
		err = -EINVAL;
	if (err && !(extack && extack->_msg))
		ERR(extack, "Failed setting HCA caps");
	if (!err)
		vport->info.max_io_eqs = max;
	mutex_unlock(&vport->port->info_lock);
	if (!err && twin_is_sf(vport))
		twin_sf_eqs_chosen(vport);
	return err;
}

const struct devlink_port_ops twin_vf_port_ops = {
	.port_fn_hw_addr_get = fn_hw_addr_get,
	.port_fn_hw_addr_set = fn_hw_addr_set,
	.port_fn_roce_get = fn_roce_get,
	.port_fn_roce_set = fn_roce_set,
	.port_fn_max_io_eqs_get = fn_max_io_eqs_get,
	.port_fn_max_io_eqs_set = fn_max_io_eqs_set,
};

/* mlx5 esw/devlink_port.c, mlx5_esw_dl_sf_port_ops */
const struct devlink_port_ops twin_sf_port_ops = {
	.port_del = twin_sf_port_del,
	.port_fn_hw_addr_get = fn_hw_addr_get,
	.port_fn_hw_addr_set = fn_hw_addr_set,
	.port_fn_roce_get = fn_roce_get,
	.port_fn_roce_set = fn_roce_set,
	.port_fn_state_get = twin_sf_state_get,
	.port_fn_state_set = twin_sf_state_set,
	.port_fn_max_io_eqs_get = fn_max_io_eqs_get,
	.port_fn_max_io_eqs_set = fn_max_io_eqs_set,
};

/* Parameters */

enum {
	PARAM_BASE = DEVLINK_PARAM_GENERIC_ID_MAX,
	PARAM_FLOW_STEERING_MODE,
	PARAM_ESW_PORT_METADATA,
};

/* mlx5 devlink.c, mlx5_devlink_eq_depth_validate */
static int eq_size_validate(struct devlink *devlink, u32 id, TWIN_PARAM_VAL val,
			    struct netlink_ext_ack *extack)
{
	u32 size = twin_val(val)->vu32;

	return size >= 64 && size <= 4096 ? 0 : -EINVAL;
}

/* mlx5 devlink.c, mlx5_devlink_enable_roce_validate */
static int roce_validate(struct devlink *devlink, u32 id, TWIN_PARAM_VAL val,
			 struct netlink_ext_ack *extack)
{
	struct twin_func *pf = pf_of(devlink);

	if (pf && twin_lag_is_active(pf->port)) {
		ERR(extack, "Multi port slave/Lag device can't configure RoCE");
		return -EOPNOTSUPP;
	}
	return 0;
}

static const struct devlink_param init_params[] = {
	DEVLINK_PARAM_GENERIC(ENABLE_ROCE, BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL,
			      roce_validate),
	DEVLINK_PARAM_GENERIC(IO_EQ_SIZE, BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL,
			      eq_size_validate),
	DEVLINK_PARAM_GENERIC(EVENT_EQ_SIZE, BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL,
			      eq_size_validate),
};

/* Which parts of a function there are: enable_vnet on VFs and SFs only. */
static const struct devlink_param part_params[] = {
	DEVLINK_PARAM_GENERIC(ENABLE_ETH, BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL, NULL),
	DEVLINK_PARAM_GENERIC(ENABLE_RDMA, BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL, NULL),
	DEVLINK_PARAM_GENERIC(ENABLE_VNET, BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL, NULL),
};

static size_t num_part_params(const struct twin_func *func)
{
	return ARRAY_SIZE(part_params) - twin_func_is_pf(func);
}

/* mlx5 dev.c, is_vnet_enabled and its like */
bool twin_devlink_enabled(struct twin_func *func, u32 param)
{
	union devlink_param_value v;

	return !devl_param_driverinit_value_get(func->devlink, param, &v) && v.vbool;
}

int twin_devlink_params(struct twin_func *func)
{
	union devlink_param_value v = {};
	size_t i;
	int err;

	err = devl_params_register(func->devlink, init_params, ARRAY_SIZE(init_params));
	if (err)
		return err;
	err = devl_params_register(func->devlink, part_params, num_part_params(func));
	if (err) {
		devl_params_unregister(func->devlink, init_params, ARRAY_SIZE(init_params));
		return err;
	}
	/* an SF starts with no part and no RoCE: mlx5_devlink_eth_params_register */
	v.vbool = !func->light;
	for (i = 0; i < num_part_params(func); i++)
		twin_driverinit_set(func->devlink, part_params[i].id, v);
	twin_driverinit_set(func->devlink, DEVLINK_PARAM_GENERIC_ID_ENABLE_ROCE, v);
	v.vu32 = 1024;
	twin_driverinit_set(func->devlink, DEVLINK_PARAM_GENERIC_ID_IO_EQ_SIZE, v);
	v.vu32 = 4096;
	twin_driverinit_set(func->devlink, DEVLINK_PARAM_GENERIC_ID_EVENT_EQ_SIZE, v);
	return 0;
}

void twin_devlink_params_gone(struct twin_func *func)
{
	devl_params_unregister(func->devlink, part_params, num_part_params(func));
	devl_params_unregister(func->devlink, init_params, ARRAY_SIZE(init_params));
}

static int steering_get(struct devlink *devlink, u32 id,
			struct devlink_param_gset_ctx *ctx TWIN_GET_EXTACK)
{
	struct twin_func *func = devlink_priv(devlink);

	strscpy(ctx->val.vstr, func->port->smfs ? "smfs" : "dmfs", sizeof(ctx->val.vstr));
	return 0;
}

static int steering_set(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx,
			struct netlink_ext_ack *extack)
{
	struct twin_func *func = devlink_priv(devlink);
	int err;

	err = twin_fault(func->port, TWIN_OP_PARAM_SET, extack);
	if (err)
		return err;
	func->port->smfs = !strcmp(ctx->val.vstr, "smfs");
	return 0;
}

/*
 * mlx5 fs_core.c, mlx5_fs_mode_validate, as of 7.2: no change in switchdev mode
 * (6.12 refuses smfs only), and a third mode that this device has not.
 */
static int steering_validate(struct devlink *devlink, u32 id, TWIN_PARAM_VAL val,
			     struct netlink_ext_ack *extack)
{
	struct twin_func *func = devlink_priv(devlink);
	const char *mode = twin_val(val)->vstr;

	if (twin_switchdev(func->port)) {
		ERR(extack, "Changing fs mode is not supported when eswitch offloads enabled.");
		return -EOPNOTSUPP;
	}
	if (!strcmp(mode, "dmfs") || !strcmp(mode, "smfs"))
		return 0;
	if (!strcmp(mode, "hmfs")) {
		ERR(extack, "Hardware steering is not supported by current device");
		return -EOPNOTSUPP;
	}
	ERR(extack, "Bad parameter: supported values are [\"dmfs\", \"smfs\", \"hmfs\"]");
	return -EINVAL;
}

static int metadata_get(struct devlink *devlink, u32 id,
			struct devlink_param_gset_ctx *ctx TWIN_GET_EXTACK)
{
	struct twin_func *func = devlink_priv(devlink);

	ctx->val.vbool = func->port->metadata;
	return 0;
}

/* mlx5 eswitch_offloads.c, mlx5_esw_vport_match_metadata_set: not while there is an FDB */
static int metadata_set(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx,
			struct netlink_ext_ack *extack)
{
	struct twin_func *func = devlink_priv(devlink);
	int err;

	err = twin_fault(func->port, TWIN_OP_PARAM_SET, extack);
	if (err)
		return err;
	if (twin_switchdev(func->port) || func->port->num_vfs)
		return -EBUSY;
	func->port->metadata = ctx->val.vbool;
	return 0;
}

static const struct devlink_param flow_params[] = {
	DEVLINK_PARAM_DRIVER(PARAM_FLOW_STEERING_MODE, "flow_steering_mode",
			     DEVLINK_PARAM_TYPE_STRING, BIT(DEVLINK_PARAM_CMODE_RUNTIME),
			     steering_get, steering_set, steering_validate),
	DEVLINK_PARAM_DRIVER(PARAM_ESW_PORT_METADATA, "esw_port_metadata",
			     DEVLINK_PARAM_TYPE_BOOL, BIT(DEVLINK_PARAM_CMODE_RUNTIME),
			     metadata_get, metadata_set, NULL),
};

int twin_devlink_flow_params(struct twin_func *func)
{
	return devl_params_register(func->devlink, flow_params, ARRAY_SIZE(flow_params));
}

void twin_devlink_flow_params_gone(struct twin_func *func)
{
	devl_params_unregister(func->devlink, flow_params, ARRAY_SIZE(flow_params));
}

/* Health: mlx5 health.c. Reporter fw only reports; fw_fatal also recovers. */

static int fw_diagnose(struct devlink_health_reporter *reporter, struct devlink_fmsg *fmsg,
		       struct netlink_ext_ack *extack)
{
	devlink_fmsg_u8_pair_put(fmsg, "Syndrome", 0);
	return 0;
}

static int fw_dump(struct devlink_health_reporter *reporter, struct devlink_fmsg *fmsg,
		   void *ctx, struct netlink_ext_ack *extack)
{
	if (ctx)
		devlink_fmsg_string_pair_put(fmsg, "error", ctx);
	return 0;
}

static const struct devlink_health_reporter_ops fw_ops = {
	.name = "fw",
	.diagnose = fw_diagnose,
	.dump = fw_dump,
};

static int fw_fatal_recover(struct devlink_health_reporter *reporter, void *ctx,
			    struct netlink_ext_ack *extack)
{
	return 0;
}

static const struct devlink_health_reporter_ops fw_fatal_ops = {
	.name = "fw_fatal",
	.recover = fw_fatal_recover,
	.dump = fw_dump,
	TWIN_GRACE(60000)
};

/* Without them the card works: as in mlx5_fw_reporters_create, an error is only told. */
void twin_devlink_reporters(struct twin_func *func)
{
	if (!twin_func_is_pf(func))
		return;
	func->fw = twin_reporter_create(func->devlink, &fw_ops, 0, func);
	func->fw_fatal = twin_reporter_create(func->devlink, &fw_fatal_ops, 60000, func);
	if (IS_ERR(func->fw))
		dev_warn(&func->pdev->dev, "Failed to create fw reporter, err = %ld\n",
			 PTR_ERR(func->fw));
	if (IS_ERR(func->fw_fatal))
		dev_warn(&func->pdev->dev, "Failed to create fw fatal reporter, err = %ld\n",
			 PTR_ERR(func->fw_fatal));
}

void twin_devlink_reporters_gone(struct twin_func *func)
{
	if (!IS_ERR_OR_NULL(func->fw))
		devl_health_reporter_destroy(func->fw);
	if (!IS_ERR_OR_NULL(func->fw_fatal))
		devl_health_reporter_destroy(func->fw_fatal);
	func->fw = NULL;
	func->fw_fatal = NULL;
}

int twin_devlink_report(struct twin_func *func, bool fatal, const char *msg)
{
	struct devlink_health_reporter *reporter = fatal ? func->fw_fatal : func->fw;

	if (IS_ERR_OR_NULL(reporter))
		return -ENODEV;
	/* fw cannot recover and stays in error: that is the answer wanted */
	devlink_health_report(reporter, msg, (void *)msg);
	return 0;
}
