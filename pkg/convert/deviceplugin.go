package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// config is a configuration of the SR-IOV network device plugin that was read.
type config struct {
	resources []*resource
}

// resource is one entry of resourceList.
type resource struct {
	o               *object
	prefix, name    string
	sf              bool // SFs, not VFs
	excludeTopology bool
	selectors       []selector
}

// selector is one object of selectors: a device fits every list, and of each one
// value.
type selector struct {
	o         *object
	vendors   []string
	devices   []string // PCI ids of the VFs; of SFs the PF's
	drivers   []string
	addresses []string
	acpi      []int
	ports     []portRange // by name of the PF's netdev
	roots     []portRange // by PCI address of the PF
	linkType  string
	rdma      bool
	vhostNet  bool
	vdpa      string
}

func (r *resource) String() string { return r.prefix + "/" + r.name }

// readConfig reads the object of resourceList. Names of members are read whatever
// their case, as the plugin does.
func (s *set) readConfig(o *object) {
	o.fold = true
	c := &config{}
	list := o.objects("resourceList")
	if len(list) == 0 {
		o.refuse("resourceList", "it has nothing: want at least one resource")
	}
	names := map[string]bool{}
	for _, item := range list {
		r := s.readResource(item)
		if r.name != "" && names[r.String()] {
			item.refuse("resourceName", "there are two of %s: want one", r)
		}
		names[r.String()] = true
		c.resources = append(c.resources, r)
	}
	o.done()
	s.configs = append(s.configs, c)
}

func (s *set) readResource(o *object) *resource {
	r := &resource{o: o, name: o.text("resourceName"), prefix: o.text("resourcePrefix")}
	prefix := s.pluginPrefix()
	if r.prefix != "" {
		prefix = r.prefix
		if err := resourcePrefix(prefix); err != nil {
			o.refuse("resourcePrefix", "%v", err)
		}
	}
	r.prefix = prefix
	if err := resourceName(r.name); err != nil {
		o.refuse("resourceName", "%v", err)
	} else {
		o.who = "resource " + r.String() // says more than a number in a list
	}
	r.excludeTopology = o.flag("excludeTopology")
	switch o.word("deviceType", "netDevice", "accelerator", "auxNetDevice") {
	case "auxNetDevice":
		r.sf = true
	case "accelerator":
		o.refuse("deviceType", "sluice offers devices of NICs: keep the plugin for this resource, in a configuration of its own")
		o.ask("selectors")
		o.ask("additionalInfo")
		o.done()
		return r
	}
	s.readSelectors(r)
	if info := o.object("additionalInfo"); info != nil {
		for _, device := range slices.Sorted(maps.Keys(info.members)) {
			info.labels(device)
		}
		o.refuse("additionalInfo", "containers get nothing of it: nearest is an environment variable in the pod")
	}
	o.done()
	return r
}

// readSelectors reads selectors, one object or a list of them.
func (s *set) readSelectors(r *resource) {
	var list []*object
	switch v, _ := r.o.lookup("selectors"); v.(type) {
	case map[string]any:
		list = append(list, r.o.object("selectors"))
	case nil:
		r.o.ask("selectors")
		r.o.refuse("selectors", "there are none, so that every NIC would be chosen: want at least one, for example {\"vendors\": [\"15b3\"]}")
	default:
		list = r.o.objects("selectors")
		if items, ok := v.([]any); ok && len(items) == 0 {
			r.o.refuse("selectors", "there are none, so that every NIC would be chosen: want at least one, for example {\"vendors\": [\"15b3\"]}")
		}
	}
	for _, o := range list {
		if len(o.members) == 0 {
			o.refuseSelf("it is empty, and would choose every NIC: want at least one of vendors, devices, drivers, pciAddresses, pfNames, rootDevices")
			continue
		}
		r.selectors = append(r.selectors, readSelector(o, r.sf))
	}
}

func readSelector(o *object, sf bool) selector {
	sel, before := selector{o: o}, o.report.refusals()
	sel.vendors = o.checked("vendors", pciID)
	sel.devices = o.checked("devices", pciID)
	if len(sel.devices) > 0 && len(sel.vendors) == 0 {
		o.refuse("devices", "devices are numbered by their vendors: want vendors too, for example [\"15b3\"]")
	}
	sel.drivers = o.texts("drivers")
	if sf && len(sel.drivers) > 0 {
		o.refuse("drivers", "SFs are not told apart by drivers: want it left out")
	}
	sel.ports = o.portRanges("pfNames", nil)
	sel.roots = o.portRanges("rootDevices", pciAddress)
	sel.linkType = o.linkTypes()
	sel.rdma, sel.vhostNet = o.flag("isRdma"), o.flag("needVhostNet")
	sel.acpi = o.acpiIndexes()
	if sf {
		o.readAuxTypes()
	} else {
		sel.addresses = o.checked("pciAddresses", pciAddress)
		sel.vdpa = o.word("vdpaType", "virtio", "vhost")
		if sel.vdpa != "" && sel.rdma {
			o.refuse("isRdma", "beside vdpaType: want one of them")
		}
		for _, x := range []struct{ name, why string }{
			{"ddpProfiles", "sluice knows no DDP profiles of Intel NICs"},
			{"pKeys", "sluice does not tell VFs apart by partition keys"},
		} {
			if len(o.texts(x.name)) > 0 {
				o.refuse(x.name, "%s: nearest is a list of pciAddresses", x.why)
			}
		}
	}
	o.done()
	// needVhostNet chooses nothing, and neither does what is null or false.
	if before == o.report.refusals() && sel.filter().IsZero() && len(sel.ports) == 0 && len(sel.roots) == 0 && !sel.rdma && sel.vdpa == "" {
		o.refuseSelf("it limits nothing, and would choose every NIC: want at least one of vendors, devices, drivers, pciAddresses, pfNames, rootDevices")
	}
	return sel
}

func (o *object) readAuxTypes() {
	types := o.checked("auxTypes", func(t string) error {
		if t != "sf" {
			return fmt.Errorf(`want "sf"`)
		}
		return nil
	})
	if len(types) == 0 {
		o.refuse("auxTypes", `it has nothing that sluice knows: want ["sf"]`)
	}
}

// portRanges reads PFs with ranges, several entries of one PF as one.
func (o *object) portRanges(name string, check func(string) error) []portRange {
	var out []portRange
	o.checked(name, func(text string) error {
		p, err := parsePortRange(text)
		if err == nil && check != nil {
			err = check(p.port)
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(out, func(q portRange) bool { return q.port == p.port }) {
			o.note(Changed, name, "%s: all its entries count; the plugin hears of one PF the first alone", p.port)
		}
		out = join(out, p)
		return nil
	})
	return out
}

// linkTypes reads the link types by the kernel's names. Both together are any.
func (o *object) linkTypes() string {
	list := o.checked("linkTypes", func(text string) error {
		if text != "ether" && text != "infiniband" {
			return fmt.Errorf("want ether or infiniband")
		}
		return nil
	})
	switch {
	case len(list) == 0 || slices.Contains(list, "ether") && slices.Contains(list, "infiniband"):
		return ""
	case list[0] == "ether":
		return "ethernet"
	}
	return "infiniband"
}

func (o *object) acpiIndexes() []int {
	var out []int
	o.checked("acpiIndexes", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || strconv.Itoa(n) != text {
			return fmt.Errorf("want a number from 1 on, in quotes")
		}
		out = append(out, n)
		return nil
	})
	if len(out) > 0 {
		o.note(Changed, "acpiIndexes", "it is the PF's, and chooses all its VFs; with the plugin it is the device's own")
	}
	return out
}
