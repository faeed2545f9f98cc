/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the two kernels the module is built for (6.12, 7.2).
 * Only API differences belong here; differences in behaviour between the mlx5
 * drivers of the two kernels are marked where they are modelled.
 */
#ifndef TWIN_COMPAT_H
#define TWIN_COMPAT_H

#include <linux/version.h>
#include <net/devlink.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define TWIN_7 1
#else
#define TWIN_7 0
#endif

#if TWIN_7
#define twin_fl4_set_tos(fl4, tos) ((fl4)->flowi4_dscp = inet_dsfield_to_dscp(tos))
#else
#define twin_fl4_set_tos(fl4, tos) ((fl4)->flowi4_tos = (tos) & INET_DSCP_MASK)
#endif

#if TWIN_7
/* devlink_param: get() has an extack, values go by pointer */
#define TWIN_GET_EXTACK , struct netlink_ext_ack *extack
#define twin_val(v) (v)
#define twin_driverinit_set(dl, id, v) devl_param_driverinit_value_set(dl, id, &(v))
#define TWIN_PARAM_VAL union devlink_param_value *
/* health reporters: the grace period moved into the ops */
#define TWIN_GRACE(ms) .default_graceful_period = (ms),
#define twin_reporter_create(dl, ops, ms, priv) devl_health_reporter_create(dl, ops, priv)
#else
#define TWIN_GET_EXTACK
#define TWIN_PARAM_VAL union devlink_param_value
#define twin_val(v) (&(v))
#define twin_driverinit_set(dl, id, v) devl_param_driverinit_value_set(dl, id, v)
#define TWIN_GRACE(ms)
#define twin_reporter_create(dl, ops, ms, priv) devl_health_reporter_create(dl, ops, ms, priv)
#endif

#endif
