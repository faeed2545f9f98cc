package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// NetworkAttachmentDefinition is what Multus reads of a network: metadata, and a
// CNI configuration as text.
type NetworkAttachmentDefinition struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   networkMetadata `json:"metadata"`
	Spec       networkSpec     `json:"spec"`
}

type networkMetadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type networkSpec struct {
	Config string `json:"config"`
}

// resourceAnnotation names the resource whose devices the network's pods get.
const resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"

// netconf is the configuration of sluice-cni, docs/cni.md.
type netconf struct {
	CNIVersion   string          `json:"cniVersion,omitempty"`
	Name         string          `json:"name,omitempty"`
	Type         string          `json:"type"`
	Bridge       string          `json:"bridge"`
	VLAN         int             `json:"vlan,omitempty"`
	MinRate      int             `json:"min_tx_rate,omitempty"` // Mbit/s, as theirs
	MaxRate      int             `json:"max_tx_rate,omitempty"`
	MTU          int             `json:"mtu,omitempty"`
	Capabilities map[string]bool `json:"capabilities"`
	IPAM         any             `json:"ipam,omitempty"`
}

// chain is netconf with plugins after it.
type chain struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Plugins    []any  `json:"plugins"`
}

// network is a network that is being read.
type network struct {
	spec      *object
	name      string
	namespace string
	resource  string // with prefix
	conf      netconf
	after     []any // meta plugins
}

// network reads what the three kinds of networks have in common.
func (s *set) network(doc, spec *object) *network {
	meta := s.metadata(doc)
	n := &network{spec: spec, name: meta.name + s.options.Suffix, namespace: meta.namespace}
	if other := spec.text("networkNamespace"); other != "" {
		n.namespace = other
	}
	name := spec.text("resourceName")
	if name == "" {
		spec.refuse("resourceName", "it is missing: want the name of the resource whose VFs the pods get")
	}
	n.resource = s.operatorPrefix() + "/" + name
	n.conf = netconf{
		CNIVersion: "1.0.0", Name: n.name, Type: "sluice-cni", Bridge: s.options.Bridge,
		Capabilities: capabilities(spec), IPAM: ipam(spec),
	}
	n.after = metaPlugins(spec)
	return n
}

// capabilities reads what the runtime is to pass on. The VF's address is what
// sluice-cni cannot do without.
func capabilities(spec *object) map[string]bool {
	out := map[string]bool{"deviceID": true}
	inner := embedded(spec, "capabilities")
	if inner == nil {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(inner.members)) {
		on := inner.flag(name)
		switch name {
		case "mac", "ips", "deviceID":
			if on {
				out[name] = true
			}
		default:
			if on {
				inner.refuse(name, "sluice-cni does not take it: want mac and ips")
			}
		}
	}
	return out
}

// ipam reads the IPAM plugin's configuration; nil for none.
func ipam(spec *object) any {
	inner := embedded(spec, "ipam")
	if inner == nil || len(inner.members) == 0 {
		return nil
	}
	if inner.text("type") == "" {
		inner.refuse("type", `it is missing: want an IPAM plugin, for example {"type": "host-local"}`)
	}
	return inner.members
}

// metaPlugins reads plugins that are to follow: objects with commas between them.
func metaPlugins(spec *object) []any {
	text := spec.text("metaPlugins")
	if text == "" {
		return nil
	}
	v, err := parseJSON([]byte("[" + text + "]"))
	list, ok := v.([]any)
	if err != nil || !ok {
		spec.refuse("metaPlugins", "%v: want CNI configurations with commas between them", err)
		return nil
	}
	var out []any
	for i, item := range list {
		members, _ := item.(map[string]any)
		switch kind, _ := members["type"].(string); kind {
		case "":
			spec.refuseAt("metaPlugins", i, item, `want an object with a "type"`)
		case "rdma":
			spec.note(Left, "metaPlugins", "rdma: sluice-cni itself takes RDMA devices along in exclusive mode")
		default:
			out = append(out, item)
		}
	}
	return out
}

// embedded reads an object that is written as text; nil if it is not there.
func embedded(spec *object, name string) *object {
	text := spec.text(name)
	if text == "" {
		return nil
	}
	v, err := parseJSON([]byte(text))
	if err != nil {
		spec.refuse(name, "%v", err)
		return nil
	}
	members, ok := v.(map[string]any)
	if !ok {
		spec.misfit(name, "a JSON object as text")
		return nil
	}
	return &object{report: spec.report, who: spec.who, path: spec.at(name), members: members}
}

// sriovNetwork reads a SriovNetwork. Its VFs were switched by the NIC in legacy
// mode, and what belonged to the VF there has no place in switchdev mode.
func (s *set) sriovNetwork(doc, spec *object) {
	n := s.network(doc, spec)
	if n.conf.Bridge == "" {
		spec.report.add(Note{Refused, spec.who, "", "", "it names no bridge, since the NIC itself switched its VFs: sluice-cni makes their representors ports of an Open vSwitch bridge, which --bridge names; or leave this network as it is, with sriov-cni: the resource keeps its name"})
	}
	if vlan := spec.number("vlan", 0, 4094); vlan != nil && *vlan != 0 {
		n.conf.VLAN = *vlan
		spec.note(Changed, "vlan", "it is the access VLAN of the representor's port in Open vSwitch; the NIC itself puts none on")
	}
	if qos := spec.number("vlanQoS", 0, 7); qos != nil && *qos != 0 {
		spec.refuse("vlanQoS", "ports in switchdev mode have none: nearest is vfGroups[].vlan.qos of the policy, in legacy mode with sriov-cni")
	}
	switch spec.word("vlanProto", "802.1q", "802.1Q", "802.1ad", "802.1AD") {
	case "802.1ad", "802.1AD":
		spec.refuse("vlanProto", "an access port of Open vSwitch puts on 802.1Q alone: nearest is vfGroups[].vlan.proto of the policy, in legacy mode with sriov-cni")
	case "802.1q", "802.1Q":
		spec.note(Left, "vlanProto", "it is what an access VLAN of Open vSwitch has")
	}
	spec.legacyOnly("spoofChk", "the NIC checks no source address in switchdev mode", "vfGroups[].spoofCheck")
	spec.legacyOnly("trust", "there is no such thing in switchdev mode", "vfGroups[].trust")
	linkState(spec)
	const most = 1_000_000 // Mbit/s: what sluice-cni takes
	for _, rate := range []struct {
		theirs string
		ours   *int
	}{{"minTxRate", &n.conf.MinRate}, {"maxTxRate", &n.conf.MaxRate}} {
		switch v := spec.number(rate.theirs, 0, most); {
		case v == nil:
		case *v == 0:
			spec.note(Left, rate.theirs, "no bound is what there is without it")
		default:
			*rate.ours = *v
		}
	}
	if n.conf.MaxRate != 0 && n.conf.MinRate > n.conf.MaxRate {
		spec.refuse("minTxRate", "it is more than maxTxRate, %d: sluice-cni takes no such pair", n.conf.MaxRate)
	}
	if spec.word("logLevel", "panic", "error", "warning", "info", "debug") != "" {
		spec.note(Left, "logLevel", "sluice-cni says what is wrong in its answer to the runtime")
	}
	if spec.text("logFile") != "" {
		spec.note(Left, "logFile", "sluice-cni says what is wrong in its answer to the runtime")
	}
	spec.done()
	s.networks = append(s.networks, n)
}

// legacyOnly reads on or off of what there is in legacy mode only, where it is off
// by nature.
func (o *object) legacyOnly(name, why, nearest string) {
	switch o.word(name, "on", "off") {
	case "on":
		o.refuse(name, "%s: nearest is %s of the policy, in legacy mode with sriov-cni", why, nearest)
	case "off":
		o.note(Left, name, "%s", why)
	}
}

func linkState(spec *object) {
	switch spec.word("linkState", "auto", "enable", "disable") {
	case "auto":
		spec.note(Changed, "linkState", "the VF's link follows its representor, which is up while the pod is there, and not the wire")
	case "enable", "disable":
		spec.refuse("linkState", "it is the representor's in switchdev mode: nearest is vfGroups[].linkState of the policy, in legacy mode with sriov-cni")
	}
}

// ovsNetwork reads an OVSNetwork.
func (s *set) ovsNetwork(doc, spec *object) {
	n := s.network(doc, spec)
	if bridge := spec.text("bridge"); bridge != "" {
		n.conf.Bridge = bridge
	}
	if n.conf.Bridge == "" {
		spec.refuse("bridge", "it is left out, so that ovs-cni looks for the bridge that the VF's PF is in; sluice-cni wants its name: put it here, or give --bridge")
	}
	if vlan := spec.number("vlan", 0, 4095); vlan != nil {
		n.conf.VLAN = *vlan
		if *vlan == 4095 {
			spec.refuse("vlan", "it is reserved (IEEE 802.1Q): want 1 to 4094, or 0 for no tag")
		}
	}
	if mtu := spec.number("mtu", 0, 65535); mtu != nil {
		n.conf.MTU = *mtu
		switch {
		case *mtu == 0:
		case *mtu < 68:
			spec.refuse("mtu", "want 68 to 65535 bytes")
		default:
			spec.note(Changed, "mtu", "the VF gets it as well as the representor")
		}
	}
	for i, t := range spec.objects("trunk") {
		for _, name := range []string{"id", "minID", "maxID"} {
			t.number(name, 0, 4095)
		}
		t.done()
		spec.refuseAt("trunk", i, t.members, "sluice-cni has access VLANs alone: nearest is no vlan, a port that carries all VLANs of the bridge with their tags")
	}
	if spec.text("interfaceType") != "" {
		spec.refuse("interfaceType", "a representor is a port of the kernel's datapath, which has no type: want it left out")
	}
	spec.done()
	s.networks = append(s.networks, n)
}

// ibNetwork refuses a SriovIBNetwork, field by field.
func (s *set) ibNetwork(doc, spec *object) {
	s.network(doc, spec)
	linkState(spec)
	spec.done()
	spec.report.add(Note{Refused, spec.who, "", "", "networks of InfiniBand are not converted: leave this one as it is, with ib-sriov-cni, or write one of sluice-cni (docs/cni.md, InfiniBand); the resource keeps its name, and vfGroups[].guid: stable gives VFs their GUIDs"})
}

// document is the network as Multus takes it.
func (n *network) document() NetworkAttachmentDefinition {
	var conf any = n.conf
	if len(n.after) > 0 {
		inner := n.conf
		inner.CNIVersion, inner.Name = "", ""
		conf = chain{n.conf.CNIVersion, n.conf.Name, append([]any{inner}, n.after...)}
	}
	raw, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("what was read as JSON cannot be written as such: %v", err))
	}
	return NetworkAttachmentDefinition{
		APIVersion: "k8s.cni.cncf.io/v1",
		Kind:       "NetworkAttachmentDefinition",
		Metadata: networkMetadata{
			Name: n.name, Namespace: n.namespace,
			Annotations: map[string]string{resourceAnnotation: n.resource},
		},
		Spec: networkSpec{Config: string(raw)},
	}
}
