// SPDX-License-Identifier: GPL-2.0
/*
 * The lab's own door: /sys/kernel/debug/twin/PCI-ADDRESS/, a directory for each
 * PF. README.md lists the files.
 */
#include <linux/ctype.h>
#include <linux/debugfs.h>
#include <linux/rtnetlink.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "twin.h"

static const char *const ops[TWIN_NUM_OPS] = {
	[TWIN_OP_ESWITCH_SET] = "eswitch_set",
	[TWIN_OP_SRIOV_ENABLE] = "sriov_enable",
	[TWIN_OP_VF_PROBE] = "vf_probe",
	[TWIN_OP_REP_ADD] = "rep_add",
	[TWIN_OP_PORT_FN_SET] = "port_fn_set",
	[TWIN_OP_PARAM_SET] = "param_set",
	[TWIN_OP_RELOAD] = "reload",
	[TWIN_OP_FLOWER_ADD] = "flower_add",
	[TWIN_OP_MTU] = "mtu",
	[TWIN_OP_OPEN] = "open",
	[TWIN_OP_VF_SET] = "vf_set",
	[TWIN_OP_RATE_SET] = "rate_set",
	[TWIN_OP_SF_ADD] = "sf_add",
	[TWIN_OP_SF_ACTIVATE] = "sf_activate",
	[TWIN_OP_SF_PROBE] = "sf_probe",
	[TWIN_OP_LAG_BOND] = "lag_bond",
	[TWIN_OP_LAG_CREATE] = "lag_create",
};

static const struct {
	const char *name;
	int value;
} errors[] = {
	{ "EPERM", EPERM }, { "ENOENT", ENOENT }, { "EIO", EIO }, { "ENXIO", ENXIO },
	{ "EAGAIN", EAGAIN }, { "ENOMEM", ENOMEM }, { "EACCES", EACCES }, { "EBUSY", EBUSY },
	{ "EEXIST", EEXIST }, { "ENODEV", ENODEV }, { "EINVAL", EINVAL }, { "ENOSPC", ENOSPC },
	{ "ERANGE", ERANGE }, { "EOPNOTSUPP", EOPNOTSUPP }, { "ETIMEDOUT", ETIMEDOUT },
	{ "EREMOTEIO", EREMOTEIO },
};

/*
 * Does this operation fail now? Zero, or a negative errno and, if the fault has
 * one, its text in EXTACK, which may be NULL.
 */
int twin_fault(struct twin_port *port, enum twin_op op, struct netlink_ext_ack *extack)
{
	struct twin_fault *fault = &port->faults[op];
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&port->fault_lock, flags);
	if (fault->count) {
		if (fault->skip) {
			fault->skip--;
		} else {
			fault->count--;
			err = fault->error;
			if (fault->text[0])
				NL_SET_ERR_MSG_FMT(extack, TWIN_DRIVER ": %s", fault->text);
		}
	}
	spin_unlock_irqrestore(&port->fault_lock, flags);
	return err;
}

/* Reads one line from user space into BUF, without its end. */
static int get_line(char *buf, size_t size, const char __user *from, size_t count)
{
	if (count >= size)
		return -EINVAL;
	if (copy_from_user(buf, from, count))
		return -EFAULT;
	buf[count] = 0;
	strim(buf);
	return 0;
}

static int parse_error(const char *s, int *error)
{
	unsigned int i;
	int n;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		if (!strcmp(s, errors[i].name)) {
			*error = -errors[i].value;
			return 0;
		}
	}
	if (kstrtoint(s, 0, &n))
		return -EINVAL;
	n = abs(n);
	if (!n || n > MAX_ERRNO)
		return -EINVAL;
	*error = -n;
	return 0;
}

/* OP ERROR [COUNT [SKIP [TEXT]]] */
static ssize_t fail_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	struct twin_port *port = file_inode(file)->i_private;
	struct twin_fault fault = { .count = 1 };
	char line[160], *rest = line, *word;
	unsigned long flags;
	int op, err;

	err = get_line(line, sizeof(line), from, count);
	if (err)
		return err;
	word = strsep(&rest, " ");
	op = match_string(ops, TWIN_NUM_OPS, word);
	if (op < 0)
		return -EINVAL;
	word = strsep(&rest, " ");
	if (!word || parse_error(word, &fault.error))
		return -EINVAL;
	word = strsep(&rest, " ");
	if (word && kstrtou32(word, 0, &fault.count))
		return -EINVAL;
	word = strsep(&rest, " ");
	if (word && kstrtou32(word, 0, &fault.skip))
		return -EINVAL;
	if (rest && strscpy(fault.text, rest, sizeof(fault.text)) < 0)
		return -EINVAL;
	spin_lock_irqsave(&port->fault_lock, flags);
	port->faults[op] = fault;
	spin_unlock_irqrestore(&port->fault_lock, flags);
	return count;
}

static int fail_show(struct seq_file *m, void *v)
{
	struct twin_port *port = m->private;
	unsigned int i;

	for (i = 0; i < TWIN_NUM_OPS; i++)
		if (port->faults[i].count)
			seq_printf(m, "%s %d %u %u %s\n", ops[i], -port->faults[i].error,
				   port->faults[i].count, port->faults[i].skip,
				   port->faults[i].text);
	return 0;
}

static int fail_open(struct inode *inode, struct file *file)
{
	return single_open(file, fail_show, inode->i_private);
}

static const struct file_operations fail_fops = {
	.owner = THIS_MODULE, .open = fail_open, .read = seq_read, .llseek = seq_lseek,
	.release = single_release, .write = fail_write,
};

static int ops_show(struct seq_file *m, void *v)
{
	unsigned int i;

	for (i = 0; i < TWIN_NUM_OPS; i++)
		seq_printf(m, "%s\n", ops[i]);
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(ops);

/* Anything written ends all that the faults did. */
static ssize_t clear_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	struct twin_port *port = file_inode(file)->i_private;
	unsigned long flags;

	spin_lock_irqsave(&port->fault_lock, flags);
	memset(port->faults, 0, sizeof(port->faults));
	spin_unlock_irqrestore(&port->fault_lock, flags);
	port->vf_late_ms = 0;
	port->sf_late_ms = 0;
	port->card->lag.late_ms = 0;
	rtnl_lock();
	WRITE_ONCE(port->wire.cut, false);
	twin_port_update_links(port);
	twin_port_update_links(&port->card->ports[!port->num]);
	rtnl_unlock();
	return count;
}

static const struct file_operations clear_fops = {
	.owner = THIS_MODULE, .open = simple_open, .write = clear_write,
};

static ssize_t wire_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	struct twin_port *port = file_inode(file)->i_private;
	char line[IFNAMSIZ + 2];
	int err;

	err = get_line(line, sizeof(line), from, count);
	if (!err)
		err = twin_wire_set(port, line);
	return err ?: count;
}

static int wire_show(struct seq_file *m, void *v)
{
	struct twin_port *port = m->private;
	static const char *const kinds[] = { "none", "peer" };

	rtnl_lock();
	if (port->wire.kind == TWIN_WIRE_NETDEV)
		seq_printf(m, "%s%s\n", port->wire.name,
			   rtnl_dereference(port->wire.dev) ? "" : " (not there)");
	else
		seq_printf(m, "%s\n", kinds[port->wire.kind]);
	rtnl_unlock();
	return 0;
}

static int wire_open(struct inode *inode, struct file *file)
{
	return single_open(file, wire_show, inode->i_private);
}

static const struct file_operations wire_fops = {
	.owner = THIS_MODULE, .open = wire_open, .read = seq_read, .llseek = seq_lseek,
	.release = single_release, .write = wire_write,
};

static int carrier_get(void *data, u64 *v)
{
	*v = twin_port_link(data);
	return 0;
}

static int carrier_set(void *data, u64 v)
{
	struct twin_port *port = data;

	rtnl_lock();
	WRITE_ONCE(port->wire.cut, !v);
	twin_port_update_links(port);
	twin_port_update_links(&port->card->ports[!port->num]);
	rtnl_unlock();
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(carrier_fops, carrier_get, carrier_set, "%llu\n");

static int vanish_set(void *data, u64 v)
{
	struct twin_port *port = data;

	return v < port->total_vfs ? twin_pci_vanish(port, v) : -EINVAL;
}

DEFINE_DEBUGFS_ATTRIBUTE(vanish_fops, NULL, vanish_set, "%llu\n");

/* fw [TEXT] or fw_fatal [TEXT] */
static ssize_t health_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	struct twin_port *port = file_inode(file)->i_private;
	char line[80], *text = line, *word;
	struct pci_dev *pdev;
	int err;

	err = get_line(line, sizeof(line), from, count);
	if (err)
		return err;
	word = strsep(&text, " ");
	if (strcmp(word, "fw") && strcmp(word, "fw_fatal"))
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(twin_domain, 0,
					   PCI_DEVFN(port->card->num, port->num));
	if (!pdev)
		return -ENODEV;
	/* the device lock keeps the driver bound */
	device_lock(&pdev->dev);
	err = port->func ? twin_devlink_report(port->func, !strcmp(word, "fw_fatal"),
					       text ?: "an error") : -ENODEV;
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
	return err ?: count;
}

static const struct file_operations health_fops = {
	.owner = THIS_MODULE, .open = simple_open, .write = health_write,
};

static const char *const counter_names[TWIN_NUM_COUNTERS] = {
	[TWIN_RX_UC_PACKETS] = "rx_unicast_packets", [TWIN_RX_UC_BYTES] = "rx_unicast_bytes",
	[TWIN_RX_MC_PACKETS] = "rx_multicast_packets", [TWIN_RX_MC_BYTES] = "rx_multicast_bytes",
	[TWIN_RX_BC_PACKETS] = "rx_broadcast_packets", [TWIN_RX_BC_BYTES] = "rx_broadcast_bytes",
	[TWIN_TX_UC_PACKETS] = "tx_unicast_packets", [TWIN_TX_UC_BYTES] = "tx_unicast_bytes",
	[TWIN_TX_MC_PACKETS] = "tx_multicast_packets", [TWIN_TX_MC_BYTES] = "tx_multicast_bytes",
	[TWIN_TX_BC_PACKETS] = "tx_broadcast_packets", [TWIN_TX_BC_BYTES] = "tx_broadcast_bytes",
	[TWIN_RX_DROPS] = "rx_drops", [TWIN_TX_DROPS] = "tx_drops",
	[TWIN_HW_PACKETS] = "hw_packets", [TWIN_HW_BYTES] = "hw_bytes",
	[TWIN_MISS_PACKETS] = "miss_packets", [TWIN_MISS_BYTES] = "miss_bytes",
	[TWIN_REP_PACKETS] = "rep_packets", [TWIN_REP_BYTES] = "rep_bytes",
};

static void show_counters(struct seq_file *m, const struct twin_vport *vport)
{
	u64 c[TWIN_NUM_COUNTERS];
	unsigned int i;
	char name[24];

	twin_sum(vport, c);
	twin_vport_name(vport, name, sizeof(name));
	seq_puts(m, name);
	for (i = 0; i < TWIN_NUM_COUNTERS; i++)
		seq_printf(m, " %s:%llu", counter_names[i], c[i]);
	seq_puts(m, "\n");
}

static int counters_show(struct seq_file *m, void *v)
{
	struct twin_port *port = m->private;
	unsigned int i;

	show_counters(m, &port->uplink);
	for (i = 0; i < port->total_vfs; i++)
		if (READ_ONCE(port->vports[i].enabled))
			show_counters(m, &port->vports[i]);
	for (i = 0; i < port->total_sfs; i++)
		if (READ_ONCE(port->sfs[i].vport.enabled))
			show_counters(m, &port->sfs[i].vport);
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(counters);

static int flows_show(struct seq_file *m, void *v)
{
	return twin_flows_show(m, m->private);
}

DEFINE_SHOW_ATTRIBUTE(flows);

static int connections_show(struct seq_file *m, void *v)
{
	return twin_ct_show(m, m->private);
}

DEFINE_SHOW_ATTRIBUTE(connections);

void twin_faults_init(struct twin_port *port)
{
	char name[32];

	spin_lock_init(&port->fault_lock);
	snprintf(name, sizeof(name), "%04x:00:%02x.%u", twin_domain, port->card->num, port->num);
	port->debugfs = debugfs_create_dir(name, twin_debugfs());
	debugfs_create_file("fail", 0600, port->debugfs, port, &fail_fops);
	debugfs_create_file("ops", 0400, port->debugfs, port, &ops_fops);
	debugfs_create_file("clear", 0200, port->debugfs, port, &clear_fops);
	debugfs_create_file("wire", 0600, port->debugfs, port, &wire_fops);
	debugfs_create_file_unsafe("carrier", 0600, port->debugfs, port, &carrier_fops);
	debugfs_create_file_unsafe("vf_vanish", 0200, port->debugfs, port, &vanish_fops);
	debugfs_create_file("health", 0200, port->debugfs, port, &health_fops);
	debugfs_create_file("counters", 0400, port->debugfs, port, &counters_fops);
	debugfs_create_file("flows", 0400, port->debugfs, port, &flows_fops);
	debugfs_create_u32("vf_late_ms", 0600, port->debugfs, &port->vf_late_ms);
	debugfs_create_u32("sf_late_ms", 0600, port->debugfs, &port->sf_late_ms);
	debugfs_create_u32("lag_late_ms", 0600, port->debugfs, &port->card->lag.late_ms);
	debugfs_create_u32("capacity", 0600, port->debugfs, &port->capacity);
	debugfs_create_file("connections", 0400, port->debugfs, port, &connections_fops);
	debugfs_create_u32("ct_capacity", 0600, port->debugfs, &port->ct.capacity);
	debugfs_create_u32("zone_capacity", 0600, port->debugfs, &port->ct.zone_capacity);
}

void twin_faults_free(struct twin_port *port)
{
	debugfs_remove_recursive(port->debugfs);
	port->debugfs = NULL;
}
