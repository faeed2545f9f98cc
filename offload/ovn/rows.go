package ovn

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/ovsdb"
)

// Member is a node that has a block of a network.
type Member struct {
	Node    string
	Block   int
	Chassis string // its name or host name in the southbound; "": that of the node
}

// Wish is a network and who has which part of it.
type Wish struct {
	Network network.Network
	Members []Member
}

// Rows are what the networks come to, in a stable order.
func Rows(wishes []Wish) []Row {
	b := builder{routers: map[string]*Row{}}
	for _, w := range wishes {
		b.network(w)
	}
	for _, name := range slices.Sorted(maps.Keys(b.routers)) {
		b.rows = append(b.rows, *b.routers[name])
	}
	return b.rows
}

type builder struct {
	rows    []Row
	routers map[string]*Row
}

func (b *builder) add(r Row) { b.rows = append(b.rows, r) }

// link is one switch of a network: all of it, or of layer 3 that of a block.
type link struct {
	network.Network
	suffix  string // of keys
	name    string // of the switch
	block   int
	members []Member
}

func links(w Wish) []link {
	n := w.Network
	if n.Layer != 3 {
		return []link{{n, n.Name, "sluice." + n.Name, 0, w.Members}}
	}
	var out []link
	for _, m := range w.Members {
		block := strconv.Itoa(m.Block)
		out = append(out, link{n, n.Name + "/" + block, "sluice." + n.Name + ".block" + block, m.Block, []Member{m}})
	}
	return out
}

func groupOf(n network.Network) string { return "network/" + n.Name }

func (b *builder) network(w Wish) {
	n := w.Network
	var ports []string
	for _, l := range links(w) {
		ports = append(ports, b.link(l)...)
	}
	if len(n.DNS.Records) > 0 {
		records := ovsdb.Map{}
		for name, addrs := range n.DNS.Records {
			records[name] = join(addrs, " ")
		}
		b.add(Row{Table: tableDNS, Key: "dns/" + n.Name, Group: groupOf(n), Columns: map[string]any{"records": records}})
	}
	b.rules(n, ports)
}

// link adds a switch with all that hangs on it, and answers the keys of the ports that
// pods have.
func (b *builder) link(l link) []string {
	group := groupOf(l.Network)
	sw := Row{Table: tableSwitch, Key: "switch/" + l.suffix, Group: group, Refs: map[string][]string{"dns_records": nil},
		Columns: map[string]any{"name": l.name, "other_config": ovsdb.Map{}}}
	if l.VNI != 0 {
		sw.Columns["other_config"] = ovsdb.Map{"requested-tnl-key": strconv.Itoa(l.VNI)}
	}
	if len(l.DNS.Records) > 0 {
		sw.Refs["dns_records"] = []string{"dns/" + l.Network.Name}
	}
	dhcp := b.dhcp(l)
	var pods []string
	for _, m := range l.members {
		for _, s := range l.Slots(m.Block) {
			p := b.port(l, m, s)
			for column, key := range dhcp {
				p.Refs[column] = []string{key}
			}
			b.add(p)
			pods = append(pods, p.Key)
		}
	}
	sw.Refs["ports"] = append(slices.Clone(pods), b.outside(l)...)
	b.add(sw)
	return pods
}

// port is that of a slot. It asks for the chassis of the node that has the block, so
// nobody else can bind it.
func (b *builder) port(l link, m Member, s network.Slot) Row {
	words := []string{l.MAC(s).String()}
	for _, a := range l.Addresses(s) {
		words = append(words, a.Addr().String())
	}
	own := ovsdb.Set[string]{strings.Join(words, " ")}
	security := own
	if l.Loose {
		security = ovsdb.Set[string]{}
	}
	return Row{Table: tablePort, Key: "port/" + l.Network.Name + "/" + strconv.Itoa(int(s)), Group: groupOf(l.Network), Node: m.Node,
		Columns: map[string]any{
			"name": l.PortName(s), "type": "", "addresses": own, "port_security": security, "tag": ovsdb.Set[int]{},
			"options": ovsdb.Map{"requested-chassis": cmp.Or(m.Chassis, m.Node)},
		},
		Refs: map[string][]string{"dhcpv4_options": nil, "dhcpv6_options": nil},
	}
}

// outside adds what joins the switch to the physical network or to a router, and
// answers the keys of its ports.
func (b *builder) outside(l link) []string {
	p := Row{Table: tablePort, Group: groupOf(l.Network), Columns: map[string]any{"port_security": ovsdb.Set[string]{}, "tag": ovsdb.Set[int]{}}}
	gateways := l.Gateways(l.block)
	switch {
	case l.VLAN != nil:
		p.Key = "localnet/" + l.suffix
		p.Columns["name"], p.Columns["type"] = l.name+".physical", "localnet"
		p.Columns["addresses"] = ovsdb.Set[string]{"unknown"}
		p.Columns["options"] = ovsdb.Map{"network_name": l.VLAN.Physical}
		if l.VLAN.ID != 0 {
			p.Columns["tag"] = ovsdb.Set[int]{l.VLAN.ID}
		}
	case l.Layer == 3 || l.Router != "":
		p.Key = "routed/" + l.suffix
		p.Columns["name"], p.Columns["type"] = l.name+".router", "router"
		p.Columns["addresses"] = ovsdb.Set[string]{"router"}
		p.Columns["options"] = ovsdb.Map{"router-port": b.routerPort(l, gateways)}
	default:
		return nil
	}
	b.add(p)
	return []string{p.Key}
}

// routerPort adds the port of a router to a switch, and the router if there is none
// yet; it answers the port's name.
func (b *builder) routerPort(l link, gateways []netip.Addr) string {
	id, name := "network/"+l.Network.Name, "sluice."+l.Network.Name
	if l.Router != "" {
		id, name = "router/"+l.Router, "sluice.router."+l.Router
	}
	r := b.routers[id]
	if r == nil {
		r = &Row{Table: tableRouter, Key: id, Group: id, Refs: map[string][]string{}, Columns: map[string]any{"name": name, "options": ovsdb.Map{}}}
		b.routers[id] = r
	}
	var own ovsdb.Set[string]
	ra := ovsdb.Map{}
	for i, g := range gateways {
		own = append(own, netip.PrefixFrom(g, l.Links(l.block)[i].Bits()).String())
		if g.Is6() && l.DHCP != nil {
			ra["address_mode"] = "dhcpv6_stateful"
			if l.MTU != 0 {
				ra["mtu"] = strconv.Itoa(l.MTU)
			}
		}
	}
	p := Row{Table: tableRouterPort, Key: "gateway/" + l.suffix, Group: id, Columns: map[string]any{
		"name": l.name + ".gateway", "mac": l.RouterMAC(l.block).String(), "networks": own, "ipv6_ra_configs": ra}}
	b.add(p)
	r.Refs["ports"] = append(r.Refs["ports"], p.Key)
	return l.name + ".gateway"
}

// dhcp adds what the ports of a switch are answered, and says which row of it goes
// into which column of a port.
func (b *builder) dhcp(l link) map[string]string {
	if l.DHCP == nil {
		return nil
	}
	out := map[string]string{}
	for i, p := range l.Links(l.block) {
		gateway := l.Gateway(l.Subnets[i], l.block)
		column, options := "dhcpv4_options", l.options4(gateway)
		if p.Addr().Is6() {
			column, options = "dhcpv6_options", l.options6()
		}
		key := strings.TrimSuffix(column, "_options") + "/" + l.suffix
		b.add(Row{Table: tableDHCP, Key: key, Group: groupOf(l.Network), Columns: map[string]any{"cidr": p.String(), "options": options}})
		out[column] = key
	}
	return out
}

// noRouter is the DHCP server where there is no gateway whose address it could have.
const noRouter = "169.254.1.1"

func (l link) options4(gateway netip.Addr) ovsdb.Map {
	m := ovsdb.Map{"lease_time": strconv.Itoa(l.DHCP.Lease), "server_id": noRouter, "server_mac": l.RouterMAC(l.block).String()}
	maps.Copy(m, l.DHCP.Options)
	if gateway.IsValid() {
		m["server_id"], m["router"] = gateway.String(), gateway.String()
	}
	if l.MTU != 0 {
		m["mtu"] = strconv.Itoa(l.MTU)
	}
	if s := l.servers(true); len(s) > 0 {
		m["dns_server"] = "{" + join(s, ", ") + "}"
	}
	if len(l.DNS.Search) > 0 {
		m["domain_name"] = strconv.Quote(l.DNS.Search[0])
	}
	return m
}

func (l link) options6() ovsdb.Map {
	m := ovsdb.Map{"server_id": l.RouterMAC(l.block).String()}
	if s := l.servers(false); len(s) > 0 {
		m["dns_server"] = "{" + join(s, ", ") + "}"
	}
	if len(l.DNS.Search) > 0 {
		m["domain_search"] = strconv.Quote(l.DNS.Search[0])
	}
	return m
}

func (l link) servers(four bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(l.DNS.Servers), func(a netip.Addr) bool { return a.Is4() != four })
}

func join[T fmt.Stringer](all []T, sep string) string {
	words := make([]string, len(all))
	for i, a := range all {
		words[i] = a.String()
	}
	return strings.Join(words, sep)
}
