package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// The modes and drivers of documents.
const (
	kernelDriver = "kernel"
	vfioDriver   = "vfio-pci"
)

// nodePolicy is a SriovNetworkNodePolicy that was read.
type nodePolicy struct {
	spec     *object
	name     string
	nodes    map[string]string // labels
	priority int               // 0 is heard before 99
	choices  []choice
	numVFs   int
	mtu      int // 0: as it is
	eswitch  string
	external bool // who makes the VFs is somebody else
	pool     poolTraits
	vdpa     string
	guid     string
}

// poolTraits is what policies of one resource must agree on.
type poolTraits struct {
	resource        string
	driver          string
	rdma            bool
	vhostNet        bool
	vdpa            string
	excludeTopology bool
}

// choice is one PF by name or address, or the PFs of a selector, with some VFs.
type choice struct {
	pf     string           // exact name or address; "" is select
	choose *v1alpha1.Select // nil with pf
	vfs    nic.Ranges       // empty: all that the policy makes
}

// key tells choices of different PFs apart.
func (c choice) key() string {
	if c.pf != "" {
		return c.pf
	}
	raw, err := json.Marshal(c.choose)
	if err != nil {
		panic(fmt.Sprintf("a selector is no JSON: %v", err))
	}
	return string(raw)
}

// broad says whether the choice names no PF.
func (c choice) broad() bool {
	return c.pf == "" && len(c.choose.PFNames) == 0 && len(c.choose.Addresses) == 0
}

func (s *set) nodePolicy(doc, spec *object) {
	p := &nodePolicy{spec: spec, name: s.metadata(doc).name}
	if p.name == "default" {
		spec.report.add(Note{Left, spec.who, "", "", "their operator passes over the policy of this name"})
		return
	}
	p.nodes = spec.labels("nodeSelector")
	if _, there := spec.lookup("nodeSelector"); !there {
		spec.refuse("nodeSelector", "it is missing: want labels of nodes, or {} for all nodes")
	}
	if n := spec.number("priority", 0, 99); n != nil {
		p.priority = *n
	}
	s.readVFs(p)
	s.readPool(p)
	s.readChoices(p)
	s.readBridge(p)
	spec.done()
	s.policies = append(s.policies, p)
}

// readVFs reads what the PF and its VFs are to be.
func (s *set) readVFs(p *nodePolicy) {
	spec := p.spec
	switch n := spec.number("numVfs", 0, nic.MaxVFIndex); {
	case n == nil:
		if _, there := spec.lookup("numVfs"); !there {
			spec.refuse("numVfs", "it is missing: want the number of VFs")
		}
	case *n == 0:
		spec.refuse("numVfs", "their plugin then offers the PF itself; pools of sluice have VFs alone: want the number of VFs")
	default:
		p.numVFs = *n
	}
	if n := spec.number("mtu", 1, 65535); n != nil {
		p.mtu = *n
		if *n < 68 {
			spec.refuse("mtu", "want 68 to 65535 bytes")
		}
	}
	p.eswitch = cmp.Or(spec.word("eSwitchMode", "legacy", "switchdev"), "legacy")
	if p.eswitch == "switchdev" {
		spec.note(Changed, "eSwitchMode", "their operator also sets the flow steering mode smfs; here it stays as it is, unless flowSteering: smfs is added")
	}
	if p.external = spec.flag("externallyManaged"); p.external {
		spec.note(Changed, "externallyManaged", "eswitch, numVfs and the MTU of the PF are left to whoever makes the VFs, and not checked either; VFs that are not there are refused when the node is planned")
	}
	p.vdpa = spec.word("vdpaType", "virtio", "vhost")
	if p.vdpa != "" && p.eswitch != "switchdev" {
		spec.refuse("vdpaType", "it needs eSwitchMode: switchdev")
	}
	if spec.word("linkType", "eth", "ETH", "ib", "IB") != "" {
		spec.note(Changed, "linkType", "it chooses PFs that are so; their operator also changes it in the firmware of NICs that can be either")
	}
	if isIB(spec) {
		p.guid = "stable"
		spec.note(Changed, "linkType", "VFs get GUIDs that follow from the card's serial number, port and index, not random ones or those of a file on the node")
		if p.eswitch != "legacy" {
			spec.refuse("eSwitchMode", "InfiniBand has legacy alone")
		}
	}
}

func isIB(spec *object) bool {
	link, _ := spec.lookup("linkType")
	text, _ := link.(string)
	return strings.EqualFold(text, "ib")
}

// readPool reads what pods get.
func (s *set) readPool(p *nodePolicy) {
	spec := p.spec
	t := poolTraits{resource: spec.text("resourceName"), driver: kernelDriver, vdpa: p.vdpa}
	if err := resourceName(t.resource); err != nil {
		spec.refuse("resourceName", "%v", err)
	}
	if spec.word("deviceType", "netdevice", "vfio-pci") == "vfio-pci" {
		t.driver = vfioDriver
	}
	t.rdma = spec.flag("isRdma")
	if t.rdma && t.driver == vfioDriver {
		spec.refuse("isRdma", "a VF bound to vfio-pci has no RDMA device")
	}
	if t.rdma && t.vdpa != "" {
		spec.refuse("isRdma", "a VF is offered for RDMA or for vDPA")
	}
	t.vhostNet = spec.flag("needVhostNet")
	t.excludeTopology = spec.flag("excludeTopology")
	p.pool = t
}

// readBridge reads the bridge that their operator makes for each PF.
func (s *set) readBridge(p *nodePolicy) {
	bridge := p.spec.object("bridge")
	if bridge == nil {
		return
	}
	if ovs := bridge.object("ovs"); ovs != nil {
		readOVS(ovs)
		bridge.refuse("ovs", "sluice makes no bridges: nearest is a bridge made on the node with the PF as its port, which networks then name; want this left out")
	}
	bridge.done()
}

func readOVS(ovs *object) {
	if b := ovs.object("bridge"); b != nil {
		b.text("datapathType")
		b.labels("externalIDs")
		b.labels("otherConfig")
		b.word("failMode", "secure", "standalone")
		b.done()
	}
	if up := ovs.object("uplink"); up != nil {
		if i := up.object("interface"); i != nil {
			i.text("type")
			i.labels("options")
			i.labels("externalIDs")
			i.labels("otherConfig")
			i.number("mtuRequest", 0, 65535)
			i.done()
		}
		up.done()
	}
	ovs.done()
}

// readChoices reads nicSelector: all its fields together choose a PF.
func (s *set) readChoices(p *nodePolicy) {
	sel := p.spec.object("nicSelector")
	if sel == nil || len(sel.members) == 0 {
		p.spec.refuse("nicSelector", "it is empty, which chooses nothing: want at least one of vendor, deviceID, rootDevices, pfNames")
		return
	}
	vendor, device := sel.text("vendor"), sel.text("deviceID")
	for _, id := range []struct{ name, value string }{{"vendor", vendor}, {"deviceID", device}} {
		if err := pciID(id.value); id.value != "" && err != nil {
			sel.refuse(id.name, "%v", err)
		}
	}
	if device != "" && vendor == "" {
		sel.refuse("deviceID", "devices are numbered by their vendors: want vendor too, for example 15b3")
	}
	roots := sel.checked("rootDevices", pciAddress)
	ports := p.readPorts(sel)
	if sel.text("netFilter") != "" {
		sel.refuse("netFilter", "it names a network of a cloud, whose PFs have no VFs to make: want it left out")
	}
	sel.done()
	p.choices = choices(v1alpha1.Select{Vendor: vendor, Device: device, LinkType: linkType(p.spec)}, ports, roots)
	if len(p.choices) > 0 && p.choices[0].pf == "" {
		sel.report.add(Note{Changed, sel.who, sel.path, "", "PFs over which the host itself runs (its default route, an address) are not chosen, unless their names or addresses alone choose them"})
	}
}

func linkType(spec *object) string {
	link, _ := spec.lookup("linkType")
	switch text, _ := link.(string); strings.ToLower(text) {
	case "eth":
		return "ethernet"
	case "ib":
		return "infiniband"
	}
	return ""
}

func (p *nodePolicy) readPorts(sel *object) []portRange {
	var ports []portRange
	sel.checked("pfNames", func(text string) error {
		port, err := parsePortRange(text)
		switch {
		case err != nil:
			return err
		case p.numVFs > 0 && port.vfs.Last() >= p.numVFs:
			return fmt.Errorf("numVfs is %d: want VFs from 0 to %d", p.numVFs, p.numVFs-1)
		case slices.ContainsFunc(ports, func(q portRange) bool { return q.port == port.port }):
			return fmt.Errorf("their operator hears of one PF the first entry alone: want one entry, and a policy for each further range")
		case len(port.vfs) > 1:
			return fmt.Errorf("their operator reads one range: want FIRST-LAST, and a policy for each further range")
		}
		ports = append(ports, port)
		return nil
	})
	if len(ports) > 0 {
		sel.note(Changed, "pfNames", "they are exact names of netdevs; alternative names choose nothing")
	}
	return ports
}

// choices splits a selector into one choice for each PF that it names, so that
// those of several policies can be compared.
func choices(sel v1alpha1.Select, ports []portRange, roots []string) []choice {
	bare := sel.Vendor == "" && sel.LinkType == "" // a device has a vendor
	var out []choice
	switch {
	case len(ports) > 0:
		for _, port := range ports {
			c := choice{pf: port.port, vfs: port.vfs}
			if !bare || len(roots) > 0 {
				with := sel
				with.PFNames, with.Addresses = []string{port.port}, roots
				c.pf, c.choose = "", &with
			}
			out = append(out, c)
		}
	case len(roots) > 0:
		for _, a := range roots {
			c := choice{pf: a}
			if !bare {
				with := sel
				with.Addresses = []string{a}
				c.pf, c.choose = "", &with
			}
			out = append(out, c)
		}
	case !bare:
		out = append(out, choice{choose: &sel})
	}
	return out
}
