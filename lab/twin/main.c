// SPDX-License-Identifier: GPL-2.0
/* Module parameters, the cards, and the order in which all comes and goes. */
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/slab.h>

#include "twin.h"

static unsigned int cards = 1;
module_param(cards, uint, 0444);
MODULE_PARM_DESC(cards, "number of dual-port cards, 1 to 32");

static unsigned int vfs = 16;
module_param(vfs, uint, 0444);
MODULE_PARM_DESC(vfs, "sriov_totalvfs of every port, 1 to 128");

static unsigned int sfs = 64;
module_param(sfs, uint, 0444);
MODULE_PARM_DESC(sfs, "subfunctions that every port can have, 0 to 512");

static unsigned int flows = 65536;
module_param(flows, uint, 0444);
MODULE_PARM_DESC(flows, "rules that the flow table of a port holds");

static unsigned int connections = 65536;
module_param(connections, uint, 0444);
MODULE_PARM_DESC(connections, "directions of tracked connections that a port holds");

static unsigned int zones = 255;
module_param(zones, uint, 0444);
MODULE_PARM_DESC(zones, "conntrack zones that a port tells apart");

static int numa[TWIN_MAX_CARDS] = { [0 ... TWIN_MAX_CARDS - 1] = NUMA_NO_NODE };
static int num_numa;
module_param_array(numa, int, &num_numa, 0444);
MODULE_PARM_DESC(numa, "NUMA node of each card, -1 for none");

static char *wire[TWIN_MAX_CARDS * TWIN_PORTS];
static int num_wire;
module_param_array(wire, charp, &num_wire, 0444);
MODULE_PARM_DESC(wire, "what each port is cabled to, port 0 of card 0 first: peer (the default), none, or a netdev");

unsigned int twin_speed = 100000;
module_param_named(speed, twin_speed, uint, 0444);
MODULE_PARM_DESC(speed, "speed of every port in Mbit/s");

unsigned int twin_domain = 0x1000;
module_param_named(domain, twin_domain, uint, 0444);
MODULE_PARM_DESC(domain, "PCI domain of the cards");

static char *serial = "MT2430X";
module_param(serial, charp, 0444);
MODULE_PARM_DESC(serial, "start of the cards' serial numbers; five digits are appended");

struct twin_card *twin_cards;
unsigned int twin_num_cards;
static struct dentry *debugfs;

struct dentry *twin_debugfs(void)
{
	return debugfs;
}

/*
 * Ids and addresses come from the serial number alone, so that they are the same
 * at every load. 0c:42:a1 is one of the vendor's prefixes. The switch id is the
 * system image GUID: the base MAC with 03:00 in its middle, one for both ports
 * (mlx5 mlx5_query_nic_vport_system_image_guid).
 */
static void name_card(struct twin_card *card)
{
	u32 hash = 2166136261u;
	const char *c;
	u8 mac[ETH_ALEN];
	unsigned int i;

	snprintf(card->serial, sizeof(card->serial), "%s%05u", serial, card->num + 1);
	for (c = card->serial; *c; c++)
		hash = (hash ^ *c) * 16777619u;
	mac[0] = 0x0c;
	mac[1] = 0x42;
	mac[2] = 0xa1;
	mac[3] = hash >> 16;
	mac[4] = hash >> 8;
	mac[5] = hash & 0xf0;
	for (i = 0; i < TWIN_PORTS; i++) {
		ether_addr_copy(card->ports[i].mac, mac);
		card->ports[i].mac[5] += i;
	}
	card->switch_id[0] = mac[0];
	card->switch_id[1] = mac[1];
	card->switch_id[2] = mac[2];
	card->switch_id[3] = 0x03;
	card->switch_id[4] = 0x00;
	card->switch_id[5] = mac[3];
	card->switch_id[6] = mac[4];
	card->switch_id[7] = mac[5];
}

static int init_card(struct twin_card *card, unsigned int num)
{
	unsigned int i;
	int err;

	card->num = num;
	card->node = numa[num];
	name_card(card);
	for (i = 0; i < TWIN_PORTS; i++) {
		struct twin_port *port = &card->ports[i];

		port->card = card;
		port->num = i;
		port->total_vfs = vfs;
		port->capacity = flows;
		port->ct.capacity = connections;
		port->ct.zone_capacity = zones;
		port->total_sfs = sfs;
		err = twin_eswitch_init(port);
		if (err)
			return err;
		err = twin_sf_init(port);
		if (err)
			return err;
		err = twin_flows_init(port);
		if (err)
			return err;
		twin_faults_init(port);
	}
	return twin_pci_init_card(card);
}

static void free_cards(void)
{
	unsigned int i, j;

	for (i = 0; i < twin_num_cards; i++) {
		for (j = 0; j < TWIN_PORTS; j++) {
			struct twin_port *port = &twin_cards[i].ports[j];

			if (!port->card)
				continue;
			twin_faults_free(port);
			twin_wire_unset(port);
			twin_flows_free(port);
			twin_sf_free(port);
			twin_eswitch_free(port);
		}
		twin_pci_free_card(&twin_cards[i]);
	}
	kvfree(twin_cards);
	twin_cards = NULL;
}

static int check_params(void)
{
	unsigned int i;

	if (cards < 1 || cards > TWIN_MAX_CARDS) {
		pr_err("mlx5_core: cards=%u: must be 1 to %u\n", cards, TWIN_MAX_CARDS);
		return -EINVAL;
	}
	if (vfs < 1 || vfs > TWIN_MAX_VFS) {
		pr_err("mlx5_core: vfs=%u: must be 1 to %u\n", vfs, TWIN_MAX_VFS);
		return -EINVAL;
	}
	if (sfs > TWIN_MAX_SFS) {
		pr_err("mlx5_core: sfs=%u: must be 0 to %u\n", sfs, TWIN_MAX_SFS);
		return -EINVAL;
	}
	if (twin_domain < 1 || twin_domain > 0xffff) {
		pr_err("mlx5_core: domain=%u: must be 1 to 65535\n", twin_domain);
		return -EINVAL;
	}
	for (i = 0; i < cards; i++) {
		if (numa[i] != NUMA_NO_NODE &&
		    (numa[i] < 0 || numa[i] >= MAX_NUMNODES || !node_online(numa[i]))) {
			pr_err("mlx5_core: numa=%d: this machine has no such node\n", numa[i]);
			return -EINVAL;
		}
	}
	return 0;
}

static int __init twin_init(void)
{
	unsigned int i;
	int err;

	err = check_params();
	if (err)
		return err;
	twin_cards = kvcalloc(cards, sizeof(*twin_cards), GFP_KERNEL);
	if (!twin_cards)
		return -ENOMEM;
	twin_num_cards = cards;
	debugfs = debugfs_create_dir("twin", NULL);
	for (i = 0; i < cards; i++) {
		err = init_card(&twin_cards[i], i);
		if (err)
			goto err_cards;
	}
	err = twin_lag_init();
	if (err)
		goto err_cards;
	err = twin_encaps_init();
	if (err)
		goto err_lag;
	err = twin_wire_init();
	if (err)
		goto err_encaps;
	for (i = 0; i < cards * TWIN_PORTS; i++) {
		err = twin_wire_set(&twin_cards[i / TWIN_PORTS].ports[i % TWIN_PORTS],
				    i < num_wire ? wire[i] : "peer");
		if (err)
			goto err_wire;
	}
	/* The driver first: then nothing else can claim the functions. */
	err = twin_core_register();
	if (err)
		goto err_wire;
	err = twin_pci_scan();
	if (err)
		goto err_core;
	return 0;

err_core:
	twin_core_unregister();
err_wire:
	for (i = 0; i < cards * TWIN_PORTS; i++)
		twin_wire_unset(&twin_cards[i / TWIN_PORTS].ports[i % TWIN_PORTS]);
	twin_wire_exit();
err_encaps:
	twin_encaps_exit();
err_lag:
	twin_lag_exit();
err_cards:
	free_cards();
	debugfs_remove_recursive(debugfs);
	return err;
}

static void __exit twin_exit(void)
{
	unsigned int i, j;

	/* debugfs first: its files act on devices */
	for (i = 0; i < twin_num_cards; i++)
		for (j = 0; j < TWIN_PORTS; j++)
			twin_faults_free(&twin_cards[i].ports[j]);
	/*
	 * Then the driver, which takes the VFs with it, outside the rescan lock as
	 * at mlx5's unload; what is left on the bus is two idle functions a card.
	 */
	twin_core_unregister();
	twin_pci_remove();
	for (i = 0; i < twin_num_cards; i++)
		for (j = 0; j < TWIN_PORTS; j++)
			twin_wire_unset(&twin_cards[i].ports[j]);
	twin_wire_exit();
	twin_encaps_exit();
	twin_lag_exit();
	free_cards();
	debugfs_remove_recursive(debugfs);
	rcu_barrier();
}

module_init(twin_init);
module_exit(twin_exit);
MODULE_DESCRIPTION("A ConnectX-class NIC without the silicon");
MODULE_LICENSE("GPL");
