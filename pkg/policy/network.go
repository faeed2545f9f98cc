package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/network"
)

// DecodeNetworks reads the Network documents of a file, as strictly as Decode reads a
// NodeNIC; there is at least one.
func DecodeNetworks(raw []byte) ([]v1alpha1.Network, error) {
	var out []v1alpha1.Network
	in := yaml.NewDecoder(bytes.NewReader(raw))
	for n := 1; ; n++ {
		var v any
		err := in.Decode(&v)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("no valid YAML: document %d: %w", n, err)
		}
		if v == nil {
			continue
		}
		one, err := yaml.Marshal(v)
		if err != nil {
			return nil, err
		}
		doc, err := decodeNetwork(one)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		out = append(out, *doc)
	}
	if len(out) == 0 {
		return nil, errors.New("the document is empty: want a Network (apiVersion sluice.dev/v1alpha1)")
	}
	return out, nil
}

func decodeNetwork(raw []byte) (*v1alpha1.Network, error) {
	asJSON, err := kyaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, err
	}
	var doc v1alpha1.Network
	if err := misshapen(asJSON, doc); err != nil {
		return nil, err
	}
	strict, err := kjson.UnmarshalStrict(asJSON, &doc)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	if doc.APIVersion != v1alpha1.APIVersion || doc.Kind != v1alpha1.KindNetwork {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want %s, %s", doc.APIVersion, doc.Kind, v1alpha1.APIVersion, v1alpha1.KindNetwork)
	}
	return &doc, nil
}

// The sizes of a block.
const (
	leastPorts   = 8
	mostPorts    = 256
	defaultPorts = 32
)

// mostVNI is OVN's largest local tunnel key (ovn: lib/ovn-util.h,
// OVN_MAX_DP_KEY_LOCAL), mostVXLAN what is left where it has 12 bits.
const (
	mostVNI   = 1<<24 - 1 - (1<<16 - 1)
	mostVXLAN = 1<<12 - 1
)

// ResolveNetwork makes of a document a network with every default in place. It
// answers all problems at once, each with its path, the wrong value and the right
// form, also such as an API server has refused already.
func ResolveNetwork(doc *v1alpha1.Network) (network.Network, error) {
	f := &netForm{n: network.Network{
		Name: doc.Name, Layer: doc.Spec.Layer, Router: doc.Spec.Router, Isolated: doc.Spec.Isolated,
		Loose: doc.Spec.PortSecurity != nil && !*doc.Spec.PortSecurity,
	}}
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	if !label.MatchString(doc.Name) || len(doc.Name) > 40 {
		f.fail("metadata.name", "%q: want lower-case letters, digits and dashes, at most 40", doc.Name)
	}
	if r := doc.Spec.Router; r != "" && (!label.MatchString(r) || len(r) > 40) {
		f.fail("spec.router", "%q: want lower-case letters, digits and dashes, at most 40", r)
	}
	if doc.Spec.Layer != 2 && doc.Spec.Layer != 3 {
		f.fail("spec.layer", "%d: want 2 or 3", doc.Spec.Layer)
	}
	f.n.MTU = f.number("spec.mtu", doc.Spec.MTU, 576, 9978, " bytes")
	f.ports(doc.Spec.PortsPerNode)
	f.carrier(doc.Spec)
	f.subnets(doc.Spec)
	f.dns(doc.Spec.DNS)
	f.dhcp(doc.Spec.DHCP)
	f.firewall(doc.Spec.Firewall)
	return f.n, f.err()
}

// netForm is a form that fills a network.
type netForm struct {
	form
	n network.Network
}

func (f *netForm) ports(ports int) {
	f.n.Ports = cmp.Or(ports, defaultPorts)
	if n := f.n.Ports; n < leastPorts || n > mostPorts || n&(n-1) != 0 {
		f.fail("spec.portsPerNode", "%d: want 8, 16, 32, 64, 128 or 256", n)
		f.n.Ports = defaultPorts
	}
}

func (f *netForm) carrier(spec v1alpha1.NetworkSpec) {
	if v := spec.VLAN; v != nil {
		f.n.VLAN = &network.VLAN{Physical: v.PhysicalNetwork, ID: f.number("spec.vlan.id", v.ID, 1, 4094, "")}
		if v.PhysicalNetwork == "" {
			f.fail("spec.vlan.physicalNetwork", `"": want a name as in ovn-bridge-mappings of the nodes`)
		}
		if spec.Overlay != nil {
			f.fail("spec.overlay", "want vlan or overlay, not both")
		}
		if spec.Layer == 3 {
			f.fail("spec.layer", "3 with vlan: a VLAN-backed network is one broadcast domain, want 2")
		}
		if spec.Router != "" {
			f.fail("spec.router", "%q with vlan: its router is the physical network's, want none", spec.Router)
		}
		return
	}
	f.n.Encapsulation = "geneve"
	o := spec.Overlay
	if o == nil {
		return
	}
	f.word("spec.overlay.encapsulation", o.Encapsulation, "geneve", "vxlan")
	f.n.Encapsulation = cmp.Or(o.Encapsulation, "geneve")
	most := mostVNI
	if f.n.Encapsulation == "vxlan" {
		most = mostVXLAN
	}
	f.n.VNI = f.number("spec.overlay.vni", o.VNI, 1, most, " with "+f.n.Encapsulation)
	if o.VNI != nil && spec.Layer == 3 {
		f.fail("spec.overlay.vni", "%d with layer 3: each node's switch has a VNI of its own, want none", *o.VNI)
	}
}

func (f *netForm) subnets(spec v1alpha1.NetworkSpec) {
	if n := len(spec.Subnets); n < 1 || n > 2 {
		f.fail("spec.subnets", "%d: want one, or one of IPv4 and one of IPv6", n)
	}
	for i, s := range spec.Subnets {
		path := fmt.Sprintf("spec.subnets[%d]", i)
		p, err := netip.ParsePrefix(s.CIDR)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			f.fail(path+".cidr", "%q: want a prefix without host bits, such as 10.1.0.0/16 or fd00:1::/64", s.CIDR)
			continue
		}
		if slices.ContainsFunc(f.n.Subnets, func(o network.Subnet) bool { return o.Prefix.Addr().Is4() == p.Addr().Is4() }) {
			f.fail(path+".cidr", "%s: a second subnet of its family", p)
			continue
		}
		sub := network.Subnet{Prefix: p}
		sub.Gateway = f.gateway(path+".gateway", s.Gateway, sub, spec)
		for j, text := range s.Exclude {
			if e, ok := f.within(fmt.Sprintf("%s.exclude[%d]", path, j), text, p); ok {
				sub.Exclude = append(sub.Exclude, e)
			}
		}
		f.n.Subnets = append(f.n.Subnets, sub)
		if one := (network.Network{Layer: 2, Ports: f.n.Ports, Subnets: []network.Subnet{{Prefix: p}}}); one.Blocks() == 0 {
			f.fail(path+".cidr", "%s has not the %d addresses of one node's block", p, f.n.Ports)
		}
	}
}

func (f *netForm) gateway(path, text string, sub network.Subnet, spec v1alpha1.NetworkSpec) netip.Addr {
	switch {
	case text == "" && spec.Router != "" && spec.Layer == 2:
		f.fail(path, `"": want an address for router %q to have`, spec.Router)
		return netip.Addr{}
	case text == "":
		return netip.Addr{}
	case spec.Layer == 3:
		f.fail(path, "%q with layer 3: the first address of each node's block is the gateway, want none", text)
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !sub.Prefix.Contains(a) {
		f.fail(path, "%q: want an address within %s", text, sub.Prefix)
		return netip.Addr{}
	}
	return a
}

// within reads an address or a prefix that is part of another.
func (f *netForm) within(path, text string, of netip.Prefix) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if a, notPrefix := netip.ParseAddr(text); notPrefix == nil {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil || p != p.Masked() || !of.Contains(p.Addr()) || p.Bits() < of.Bits() {
		f.fail(path, "%q: want an address or a prefix within %s", text, of)
		return p, false
	}
	return p, true
}

func (f *netForm) addresses(path string, texts []string) []netip.Addr {
	var out []netip.Addr
	for i, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			f.fail(fmt.Sprintf("%s[%d]", path, i), "%q: want an IP address", text)
			continue
		}
		out = append(out, a)
	}
	return out
}

func (f *netForm) dns(d *v1alpha1.NetworkDNS) {
	if d == nil {
		return
	}
	f.n.DNS = network.DNS{Servers: f.addresses("spec.dns.servers", d.Servers), Search: d.Search}
	name := regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	for i, s := range d.Search {
		if !name.MatchString(s) {
			f.fail(fmt.Sprintf("spec.dns.search[%d]", i), "%q: want a domain in lower case", s)
		}
	}
	for i, r := range d.Records {
		path := fmt.Sprintf("spec.dns.records[%d]", i)
		if !name.MatchString(r.Name) {
			f.fail(path+".name", "%q: want a name in lower case", r.Name)
		}
		if len(r.Addresses) == 0 {
			f.fail(path+".addresses", "want at least one")
		}
		if _, twice := f.n.DNS.Records[r.Name]; twice {
			f.fail(path+".name", "%q: given twice", r.Name)
		}
		if f.n.DNS.Records == nil {
			f.n.DNS.Records = map[string][]netip.Addr{}
		}
		f.n.DNS.Records[r.Name] = f.addresses(path+".addresses", r.Addresses)
	}
}

func (f *netForm) dhcp(d *v1alpha1.NetworkDHCP) {
	if d == nil {
		return
	}
	f.n.DHCP = &network.DHCP{Lease: cmp.Or(f.number("spec.dhcp.lease", d.Lease, 60, 31536000, " seconds"), 3600), Options: d.Options}
	for _, own := range []string{"server_id", "server_mac", "lease_time", "router", "mtu", "dns_server", "domain_name"} {
		if v, ok := d.Options[own]; ok {
			f.fail("spec.dhcp.options."+own, "%q: this one follows from the network", v)
		}
	}
}

func (f *netForm) firewall(w *v1alpha1.NetworkFirewall) {
	if w == nil {
		return
	}
	f.word("spec.firewall.default", w.Default, "allow", "drop")
	f.n.Firewall = &network.Firewall{Stateful: w.Stateful, Default: cmp.Or(w.Default, "drop")}
	for i, r := range w.Rules {
		f.n.Firewall.Rules = append(f.n.Firewall.Rules, f.rule(fmt.Sprintf("spec.firewall.rules[%d]", i), r))
	}
}

func (f *netForm) rule(path string, r v1alpha1.NetworkRule) network.Rule {
	out := network.Rule{Direction: r.Direction, Protocol: r.Protocol, Action: r.Action, Log: r.Log}
	if r.Direction == "" || r.Action == "" {
		f.fail(path, "direction %q, action %q: want in or out, and allow or drop", r.Direction, r.Action)
	}
	f.word(path+".direction", r.Direction, "in", "out")
	f.word(path+".action", r.Action, "allow", "drop")
	f.word(path+".protocol", r.Protocol, "tcp", "udp", "sctp", "icmp")
	for i, text := range r.Peers {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			f.fail(fmt.Sprintf("%s.peers[%d]", path, i), "%q: want a prefix without host bits, such as 10.1.0.0/16", text)
			continue
		}
		out.Peers = append(out.Peers, p)
	}
	if len(r.Ports) > 0 && (r.Protocol == "" || r.Protocol == "icmp") {
		f.fail(path+".ports", "with protocol %q: want tcp, udp or sctp", r.Protocol)
	}
	for i, text := range r.Ports {
		p, err := portRange(text)
		if err != nil {
			f.fail(fmt.Sprintf("%s.ports[%d]", path, i), "%q: want a port or a range such as 8000-8080, within 1 and 65535", text)
			continue
		}
		out.Ports = append(out.Ports, p)
	}
	return out
}

func portRange(text string) (network.PortRange, error) {
	a, b, two := strings.Cut(text, "-")
	if !two {
		b = a
	}
	first, err := strconv.ParseUint(a, 10, 16)
	last, err2 := strconv.ParseUint(b, 10, 16)
	if err := errors.Join(err, err2); err != nil || first == 0 || first > last {
		return network.PortRange{}, errors.New("no range")
	}
	return network.PortRange{First: uint16(first), Last: uint16(last)}, nil
}

// NetworkConflicts is what two networks cannot both have: overlapping addresses at one
// router, a VNI, a VLAN of one physical network. It answers for each network, by name,
// what is wrong with it.
func NetworkConflicts(all []network.Network) map[string][]string {
	out := map[string][]string{}
	for i, a := range all {
		for _, b := range all[i+1:] {
			for _, what := range conflicts(a, b) {
				out[a.Name] = append(out[a.Name], fmt.Sprintf("%s, as network %s has", what, b.Name))
				out[b.Name] = append(out[b.Name], fmt.Sprintf("%s, as network %s has", what, a.Name))
			}
		}
	}
	return out
}

func conflicts(a, b network.Network) []string {
	var out []string
	if a.VNI != 0 && a.VNI == b.VNI {
		out = append(out, fmt.Sprintf("overlay.vni is %d", a.VNI))
	}
	if a.VLAN != nil && b.VLAN != nil && *a.VLAN == *b.VLAN {
		out = append(out, fmt.Sprintf("vlan is %d of %s", a.VLAN.ID, a.VLAN.Physical))
	}
	if a.Router == "" || a.Router != b.Router {
		return out
	}
	for _, s := range a.Subnets {
		for _, o := range b.Subnets {
			if s.Prefix.Overlaps(o.Prefix) {
				out = append(out, fmt.Sprintf("router is %s and subnet %s overlaps %s", a.Router, s.Prefix, o.Prefix))
			}
		}
	}
	return out
}
