// SPDX-License-Identifier: GPL-2.0
/*
 * The PCI side: a root bus of our own in a domain of its own, with the cards'
 * functions on it. The kernel's PCI core does everything else (enumeration,
 * SR-IOV, sysfs, binding) by reading and writing the configuration space here.
 *
 * Card C is slot C of bus 0: functions 0 and 1 are its ports, each a root-complex
 * integrated endpoint (no bridge above it) without BARs. Port P's VF V is device
 * and function V of bus 1 + 2C + P, so 128 VFs fit on every port:
 *
 *   offset = (1 + 2C + P) * 256 - (C * 8 + P), stride = 1
 *   (PCIe base spec 9.2.1.2; drivers/pci/iov.c, pci_iov_virtfn_bus)
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "twin.h"

#define VENDOR_MELLANOX	0x15b3
#define DEVICE_CX6DX	0x101d	/* ConnectX-6 Dx */
#define DEVICE_CX_VF	0x101e	/* ConnectX Family mlx5Gen Virtual Function */
#define SUBSYSTEM	0x0016

#define CFG_SIZE	4096
#define VF_CFG_SIZE	256

#define CAP_PCIE	0x40
#define CAP_VPD		0x80
#define CAP_MSIX	0xa0	/* of a VF */
#define CAP_SRIOV	0x100

#define VPD_BUSY_FLAG	PCI_VPD_ADDR_F

#define VPD_PRODUCT	"ConnectX-6 Dx EN adapter card, 100GbE, Dual-port QSFP56"
#define VPD_PART	"MCX623106AN-CDAT"

static struct pci_sysdata twin_sysdata;
static struct pci_host_bridge *twin_bridge;
static struct resource twin_busn = {
	.name = "twin", .start = 0, .end = 255, .flags = IORESOURCE_BUS,
};

static void put16(u8 *cfg, unsigned int at, u16 v)
{
	cfg[at] = v;
	cfg[at + 1] = v >> 8;
}

static u16 get16(const u8 *cfg, unsigned int at)
{
	return cfg[at] | cfg[at + 1] << 8;
}

static void put32(u8 *cfg, unsigned int at, u32 v)
{
	put16(cfg, at, v);
	put16(cfg, at + 2, v >> 16);
}

static unsigned int vf_bus(const struct twin_port *port)
{
	return 1 + TWIN_PORTS * port->card->num + port->num;
}

static void init_pf(struct twin_port *port)
{
	unsigned int devfn = PCI_DEVFN(port->card->num, port->num);
	u8 *c = port->cfg;

	put16(c, PCI_VENDOR_ID, VENDOR_MELLANOX);
	put16(c, PCI_DEVICE_ID, DEVICE_CX6DX);
	put16(c, PCI_STATUS, PCI_STATUS_CAP_LIST);
	put16(c, PCI_CLASS_DEVICE, PCI_CLASS_NETWORK_ETHERNET);
	c[PCI_HEADER_TYPE] = PCI_HEADER_TYPE_NORMAL | PCI_HEADER_TYPE_MFD;
	put16(c, PCI_SUBSYSTEM_VENDOR_ID, VENDOR_MELLANOX);
	put16(c, PCI_SUBSYSTEM_ID, SUBSYSTEM);
	c[PCI_CAPABILITY_LIST] = CAP_PCIE;

	c[CAP_PCIE] = PCI_CAP_ID_EXP;
	c[CAP_PCIE + 1] = CAP_VPD;
	put16(c, CAP_PCIE + PCI_EXP_FLAGS, PCI_EXP_TYPE_RC_END << 4 | 2);
	put32(c, CAP_PCIE + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_RBER | PCI_EXP_DEVCAP_FLR | 2);

	c[CAP_VPD] = PCI_CAP_ID_VPD;

	put32(c, CAP_SRIOV, PCI_EXT_CAP_ID_SRIOV | 1 << 16);
	put16(c, CAP_SRIOV + PCI_SRIOV_INITIAL_VF, port->total_vfs);
	put16(c, CAP_SRIOV + PCI_SRIOV_TOTAL_VF, port->total_vfs);
	c[CAP_SRIOV + PCI_SRIOV_FUNC_LINK] = port->num;
	put16(c, CAP_SRIOV + PCI_SRIOV_VF_OFFSET, vf_bus(port) * 256 - devfn);
	put16(c, CAP_SRIOV + PCI_SRIOV_VF_STRIDE, 1);
	put16(c, CAP_SRIOV + PCI_SRIOV_VF_DID, DEVICE_CX_VF);
	put32(c, CAP_SRIOV + PCI_SRIOV_SUP_PGSIZE, 0x553);
	put32(c, CAP_SRIOV + PCI_SRIOV_SYS_PGSIZE, 1);
}

/* A VF's ids read as ones: the PCI core takes them from the PF's capability. */
static void init_vf(u8 *c)
{
	memset(c, 0, VF_CFG_SIZE);
	put16(c, PCI_VENDOR_ID, 0xffff);
	put16(c, PCI_DEVICE_ID, 0xffff);
	put16(c, PCI_STATUS, PCI_STATUS_CAP_LIST);
	put16(c, PCI_CLASS_DEVICE, PCI_CLASS_NETWORK_ETHERNET);
	put16(c, PCI_SUBSYSTEM_VENDOR_ID, VENDOR_MELLANOX);
	put16(c, PCI_SUBSYSTEM_ID, SUBSYSTEM);
	c[PCI_CAPABILITY_LIST] = CAP_PCIE;
	c[CAP_PCIE] = PCI_CAP_ID_EXP;
	c[CAP_PCIE + 1] = CAP_MSIX;
	put16(c, CAP_PCIE + PCI_EXP_FLAGS, PCI_EXP_TYPE_RC_END << 4 | 2);
	put32(c, CAP_PCIE + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_RBER | PCI_EXP_DEVCAP_FLR | 2);
	c[CAP_MSIX] = PCI_CAP_ID_MSIX;
}

/* The size of a VF's MSI-X table, as lspci shows it; there is no table behind it. */
void twin_pci_set_msix(struct twin_vport *vport)
{
	struct twin_port *port = vport->port;
	unsigned long flags;

	raw_spin_lock_irqsave(&port->cfg_lock, flags);
	put16(port->vf_cfg + (vport->num - 1) * VF_CFG_SIZE, CAP_MSIX + PCI_MSIX_FLAGS,
	      READ_ONCE(vport->info.msix) - 1);
	raw_spin_unlock_irqrestore(&port->cfg_lock, flags);
}

static void vpd_field(struct twin_card *card, const char *keyword, const char *value)
{
	unsigned int at = card->vpd_len, len = strlen(value);

	card->vpd[at] = keyword[0];
	card->vpd[at + 1] = keyword[1];
	card->vpd[at + 2] = len;
	memcpy(card->vpd + at + 3, value, len);
	card->vpd_len = at + 3 + len;
}

/* Vital product data: PCI Local Bus spec 2.2, appendix I; as lspci -vv prints it. */
static void init_vpd(struct twin_card *card)
{
	unsigned int i, len, start;
	u8 sum = 0;

	len = strlen(VPD_PRODUCT);
	card->vpd[0] = 0x82;	/* large resource: identifier string */
	put16(card->vpd, 1, len);
	memcpy(card->vpd + 3, VPD_PRODUCT, len);
	start = 3 + len;
	card->vpd[start] = 0x90;	/* large resource: read-only data */
	card->vpd_len = start + 3;
	vpd_field(card, "PN", VPD_PART);
	vpd_field(card, "EC", "AB");
	vpd_field(card, "V2", VPD_PART);
	vpd_field(card, "SN", card->serial);
	vpd_field(card, "VA", "MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=CX623106A");
	vpd_field(card, "V0", "PCIeGen4 x16");
	/* RV: the sum of all bytes up to and with it is zero */
	put16(card->vpd, start + 1, card->vpd_len + 4 - start - 3);
	card->vpd[card->vpd_len] = 'R';
	card->vpd[card->vpd_len + 1] = 'V';
	card->vpd[card->vpd_len + 2] = 1;
	for (i = 0; i < card->vpd_len + 3; i++)
		sum += card->vpd[i];
	card->vpd[card->vpd_len + 3] = -sum;
	card->vpd[card->vpd_len + 4] = 0x78;	/* end tag */
	card->vpd_len += 5;
}

/* The port whose PF sits at (bus, devfn), or whose VF does; *vf is -1 for the PF. */
static struct twin_port *port_at(unsigned int bus, unsigned int devfn, int *vf)
{
	unsigned int card, port;

	*vf = -1;
	if (!bus) {
		card = PCI_SLOT(devfn);
		port = PCI_FUNC(devfn);
	} else {
		card = (bus - 1) / TWIN_PORTS;
		port = (bus - 1) % TWIN_PORTS;
		*vf = devfn;
	}
	if (card >= twin_num_cards || port >= TWIN_PORTS)
		return NULL;
	return &twin_cards[card].ports[port];
}

/* The port that a PF, or the PF of a VF, is. */
struct twin_port *twin_pci_port(const struct pci_dev *pdev)
{
	int vf;

	if (pdev->bus->sysdata != &twin_sysdata)
		return NULL;
	return port_at(pdev->bus->number, pdev->devfn, &vf);
}

static bool vf_there(const struct twin_port *port, unsigned int vf)
{
	return get16(port->cfg, CAP_SRIOV + PCI_SRIOV_CTRL) & PCI_SRIOV_CTRL_VFE &&
	       vf < get16(port->cfg, CAP_SRIOV + PCI_SRIOV_NUM_VF) &&
	       !test_bit(vf, port->vf_gone);
}

/* The configuration space that answers, or NULL. Under cfg_lock. */
static u8 *cfg_of(struct twin_port *port, int vf)
{
	if (vf < 0)
		return port->cfg;
	return vf_there(port, vf) ? port->vf_cfg + vf * VF_CFG_SIZE : NULL;
}

static int cfg_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *val)
{
	struct twin_port *port;
	unsigned long flags;
	u32 v = 0;
	u8 *cfg;
	int vf, i;

	*val = ~0;
	port = port_at(bus->number, devfn, &vf);
	if (!port)
		return PCIBIOS_DEVICE_NOT_FOUND;
	raw_spin_lock_irqsave(&port->cfg_lock, flags);
	cfg = cfg_of(port, vf);
	if (cfg) {
		/* beyond 256 a VF has no capability: all zero ends the list */
		if (where + size <= (vf < 0 ? CFG_SIZE : VF_CFG_SIZE))
			for (i = size - 1; i >= 0; i--)
				v = v << 8 | cfg[where + i];
		*val = v;
	}
	raw_spin_unlock_irqrestore(&port->cfg_lock, flags);
	return cfg ? PCIBIOS_SUCCESSFUL : PCIBIOS_DEVICE_NOT_FOUND;
}

/* PF registers that keep what is written, beside those both kinds have. */
static bool pf_writable(unsigned int at)
{
	return (at >= CAP_SRIOV + PCI_SRIOV_CTRL && at < CAP_SRIOV + PCI_SRIOV_CTRL + 2) ||
	       (at >= CAP_SRIOV + PCI_SRIOV_NUM_VF && at < CAP_SRIOV + PCI_SRIOV_NUM_VF + 2) ||
	       (at >= CAP_SRIOV + PCI_SRIOV_SYS_PGSIZE &&
		at < CAP_SRIOV + PCI_SRIOV_SYS_PGSIZE + 4);
}

static bool writable(unsigned int at)
{
	return at == PCI_COMMAND || at == PCI_COMMAND + 1 || at == PCI_CACHE_LINE_SIZE ||
	       at == PCI_LATENCY_TIMER || at == PCI_INTERRUPT_LINE ||
	       at == CAP_PCIE + PCI_EXP_DEVCTL || at == CAP_PCIE + PCI_EXP_DEVCTL + 1;
}

/* drivers/pci/vpd.c, pci_vpd_read: write the address, wait for F, read the data. */
static void vpd_access(struct twin_port *port, u16 addr)
{
	const struct twin_card *card = port->card;
	unsigned int i, at = addr & PCI_VPD_ADDR_MASK;

	if (addr & PCI_VPD_ADDR_F) {
		/* a write to the card: done at once, and not kept */
		put16(port->cfg, CAP_VPD + PCI_VPD_ADDR, at);
		return;
	}
	for (i = 0; i < 4; i++)
		port->cfg[CAP_VPD + PCI_VPD_DATA + i] =
			at + i < card->vpd_len ? card->vpd[at + i] : 0;
	put16(port->cfg, CAP_VPD + PCI_VPD_ADDR, at | VPD_BUSY_FLAG);
}

static int cfg_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 val)
{
	struct twin_port *port;
	unsigned long flags;
	u8 *cfg;
	int vf, i;

	port = port_at(bus->number, devfn, &vf);
	if (!port)
		return PCIBIOS_DEVICE_NOT_FOUND;
	raw_spin_lock_irqsave(&port->cfg_lock, flags);
	cfg = cfg_of(port, vf);
	if (cfg && vf < 0 && where == CAP_VPD + PCI_VPD_ADDR && size == 2) {
		vpd_access(port, val);
	} else if (cfg) {
		for (i = 0; i < size; i++)
			if (writable(where + i) || (vf < 0 && pf_writable(where + i)))
				cfg[where + i] = val >> (8 * i);
		/* function level reset completes at once; the bit reads as zero */
		if (get16(cfg, CAP_PCIE + PCI_EXP_DEVCTL) & PCI_EXP_DEVCTL_BCR_FLR) {
			put16(cfg, CAP_PCIE + PCI_EXP_DEVCTL, 0);
			put16(cfg, PCI_COMMAND, 0);
		}
	}
	/* VFs that went away come back with a new VF enable */
	if (vf < 0 && !(get16(port->cfg, CAP_SRIOV + PCI_SRIOV_CTRL) & PCI_SRIOV_CTRL_VFE))
		bitmap_zero(port->vf_gone, TWIN_MAX_VFS);
	raw_spin_unlock_irqrestore(&port->cfg_lock, flags);
	return cfg ? PCIBIOS_SUCCESSFUL : PCIBIOS_DEVICE_NOT_FOUND;
}

static struct pci_ops twin_pci_ops = { .read = cfg_read, .write = cfg_write };

int twin_pci_init_card(struct twin_card *card)
{
	unsigned int i, vf;

	init_vpd(card);
	for (i = 0; i < TWIN_PORTS; i++) {
		struct twin_port *port = &card->ports[i];

		raw_spin_lock_init(&port->cfg_lock);
		port->cfg = kzalloc(CFG_SIZE, GFP_KERNEL);
		port->vf_cfg = kvzalloc(array_size(port->total_vfs, VF_CFG_SIZE), GFP_KERNEL);
		port->vf_gone = bitmap_zalloc(TWIN_MAX_VFS, GFP_KERNEL);
		if (!port->cfg || !port->vf_cfg || !port->vf_gone)
			return -ENOMEM;
		init_pf(port);
		for (vf = 0; vf < port->total_vfs; vf++)
			init_vf(port->vf_cfg + vf * VF_CFG_SIZE);
	}
	return 0;
}

void twin_pci_free_card(struct twin_card *card)
{
	unsigned int i;

	for (i = 0; i < TWIN_PORTS; i++) {
		kfree(card->ports[i].cfg);
		kvfree(card->ports[i].vf_cfg);
		bitmap_free(card->ports[i].vf_gone);
	}
}

/*
 * All cards share a bus and a bus has one node (the first card's), so each
 * function is given its card's as it is added: before user space hears of it and a driver binds.
 */
static int bus_event(struct notifier_block *nb, unsigned long event, void *data)
{
	struct device *dev = data;
	struct twin_port *port;

	if (event != BUS_NOTIFY_ADD_DEVICE)
		return NOTIFY_DONE;
	port = twin_pci_port(to_pci_dev(dev));
	if (port)
		set_dev_node(dev, port->card->node);
	return NOTIFY_DONE;
}

static struct notifier_block twin_bus_nb = { .notifier_call = bus_event };

int twin_pci_scan(void)
{
	int err;

	twin_bridge = pci_alloc_host_bridge(0);
	if (!twin_bridge)
		return -ENOMEM;
	/* the domain is x86's own business; bridge->domain_nr is not for it */
	twin_sysdata.domain = twin_domain;
	twin_sysdata.node = twin_cards[0].node;
	twin_bridge->sysdata = &twin_sysdata;
	twin_bridge->ops = &twin_pci_ops;
	twin_bridge->busnr = 0;
	pci_add_resource(&twin_bridge->windows, &twin_busn);
	err = bus_register_notifier(&pci_bus_type, &twin_bus_nb);
	if (err)
		goto err_bridge;

	pci_lock_rescan_remove();
	err = pci_scan_root_bus_bridge(twin_bridge);
	if (err) {
		pci_unlock_rescan_remove();
		bus_unregister_notifier(&pci_bus_type, &twin_bus_nb);
		goto err_bridge;
	}
	pci_bus_add_devices(twin_bridge->bus);
	pci_unlock_rescan_remove();
	return 0;

err_bridge:
	pci_free_host_bridge(twin_bridge);
	twin_bridge = NULL;
	return err;
}

void twin_pci_remove(void)
{
	if (!twin_bridge)
		return;
	pci_lock_rescan_remove();
	pci_stop_root_bus(twin_bridge->bus);
	pci_remove_root_bus(twin_bridge->bus);
	pci_unlock_rescan_remove();
	bus_unregister_notifier(&pci_bus_type, &twin_bus_nb);
	pci_free_host_bridge(twin_bridge);	/* pci_remove_root_bus leaves it to its maker */
	twin_bridge = NULL;
}

/*
 * Surprise removal of one VF: it stops answering and leaves the bus, as after
 * "echo 1 > remove". The PCI core's SR-IOV code believes that it still has all
 * VFs, and on disable skips the one it cannot find (drivers/pci/iov.c,
 * pci_iov_remove_virtfn); the reference on the PF and the virtfnN link, which it
 * would have dropped, are dropped here.
 */
int twin_pci_vanish(struct twin_port *port, unsigned int vf)
{
	struct pci_dev *pf, *virtfn;
	struct pci_bus *bus;
	unsigned long flags;
	char link[16];

	pf = pci_get_domain_bus_and_slot(twin_domain, 0,
					 PCI_DEVFN(port->card->num, port->num));
	if (!pf)
		return -ENODEV;
	pci_lock_rescan_remove();
	virtfn = pci_get_domain_bus_and_slot(twin_domain, vf_bus(port), vf);
	if (!virtfn) {
		pci_unlock_rescan_remove();
		pci_dev_put(pf);
		return -ENODEV;
	}
	raw_spin_lock_irqsave(&port->cfg_lock, flags);
	set_bit(vf, port->vf_gone);
	raw_spin_unlock_irqrestore(&port->cfg_lock, flags);

	snprintf(link, sizeof(link), "virtfn%u", vf);
	sysfs_remove_link(&pf->dev.kobj, link);
	sysfs_remove_link(&virtfn->dev.kobj, "physfn");
	bus = virtfn->bus;
	pci_stop_and_remove_bus_device(virtfn);
	pci_dev_put(virtfn);
	if (list_empty(&bus->devices))
		pci_remove_bus(bus);
	pci_unlock_rescan_remove();
	pci_dev_put(pf);	/* the one virtfn held */
	pci_dev_put(pf);	/* ours */
	return 0;
}
