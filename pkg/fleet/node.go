package fleet

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// Node is what is known of one node.
type Node struct {
	Name   string
	Labels map[string]string

	// Ready is what kubelet's node says of itself, Away why it is not, and Lost that
	// nobody has heard of it for some time. Cordoned is the generation for which the
	// controller has made it unschedulable, "" if it has not.
	Ready    bool
	Away     string
	Lost     bool
	Cordoned string

	// NIC is its NodeNIC; nil: there is none yet.
	NIC *v1alpha1.NodeNIC

	// Pods are those of the plan's holders that are still on the node, each as
	// namespace/name.
	Pods map[string]bool
}

// Chooses says whether p is of a node with these labels. A selector that cannot be
// read is an error; the schema lets it through, since only the value's form is
// wrong.
func Chooses(p *v1alpha1.NICPolicy, node map[string]string) (bool, error) {
	s, err := selector(p)
	return err == nil && s.Matches(labels.Set(node)), err
}

// Chosen are the nodes that p is of.
func Chosen(p *v1alpha1.NICPolicy, nodes []Node) ([]Node, error) {
	s, err := selector(p)
	if err != nil {
		return nil, err
	}
	var out []Node
	for _, n := range nodes {
		if s.Matches(labels.Set(n.Labels)) {
			out = append(out, n)
		}
	}
	return out, nil
}

func selector(p *v1alpha1.NICPolicy) (labels.Selector, error) {
	s, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.nodeSelector: %w", err)
	}
	return s, nil
}

// StateOf is what an inventory tells of a node, as far as a document can be judged
// by it.
func StateOf(inv *v1alpha1.Inventory) (nic.State, error) {
	out := nic.State{RDMA: nic.RDMA{Mode: nic.RDMAMode(inv.RDMA)}}
	for _, port := range inv.Ports {
		h, err := nic.ParseHandle(port.Handle)
		if err != nil {
			return nic.State{}, fmt.Errorf("status.inventory: %w", err)
		}
		pf := nic.PF{
			Handle: h, Vendor: port.Vendor, Device: port.Device, Product: port.Product, Serial: port.Serial,
			Driver: port.Driver, NUMA: int(port.NUMA), Eswitch: nic.Eswitch(port.Eswitch), TotalVFs: int(port.TotalVFs),
			InfiniBand: port.LinkType == "infiniband", Carries: port.Carries,
		}
		if port.Netdev != "" {
			pf.Uplink = nic.Netdev{Name: port.Netdev, Ifindex: len(out.PFs) + 1, Carrier: port.Carrier}
			if port.MAC != "" {
				if pf.Uplink.MAC, err = nic.ParseMAC(port.MAC); err != nil {
					return nic.State{}, fmt.Errorf("status.inventory: %s: %w", port.Handle, err)
				}
			}
		}
		for i := range int(port.VFs) {
			pf.VFs = append(pf.VFs, nic.VF{Index: i})
		}
		out.PFs = append(out.PFs, pf)
	}
	for _, b := range inv.Bonds {
		bond := nic.Bond{Netdev: nic.Netdev{Name: b.Name, Ifindex: len(out.PFs) + len(out.Bonds) + 1}}
		for _, text := range b.Members {
			h, err := nic.ParseHandle(text)
			if err != nil {
				return nic.State{}, fmt.Errorf("status.inventory: bond %s: %w", b.Name, err)
			}
			bond.Members = append(bond.Members, h)
		}
		out.Bonds = append(out.Bonds, bond)
	}
	return out, nil
}
