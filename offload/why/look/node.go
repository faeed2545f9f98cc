package look

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/offload/why"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
)

// Bridges are the interfaces of Open vSwitch's bridges, by name.
type Bridges map[string]Member

// Member is one interface in a bridge.
type Member struct {
	Bridge   string
	Priority string // other_config:hw-offload-priority
}

// ReadBridges reads them.
func ReadBridges(ctx context.Context, c *ovsdb.Client) (Bridges, error) {
	out, err := c.Transact(ctx,
		ovsdb.Select(ovsdb.TableBridge, ovsdb.All(), "name", "ports"),
		ovsdb.Select(ovsdb.TablePort, ovsdb.All(), "_uuid", "interfaces"),
		ovsdb.Select(ovsdb.TableInterface, ovsdb.All(), "_uuid", "name", "other_config"))
	if err != nil {
		return nil, fmt.Errorf("read bridges: %w", err)
	}
	var bridges []struct {
		Name  string                `json:"name"`
		Ports ovsdb.Set[ovsdb.UUID] `json:"ports"`
	}
	var ports []struct {
		UUID       ovsdb.UUID            `json:"_uuid"`
		Interfaces ovsdb.Set[ovsdb.UUID] `json:"interfaces"`
	}
	var interfaces []struct {
		UUID        ovsdb.UUID `json:"_uuid"`
		Name        string     `json:"name"`
		OtherConfig ovsdb.Map  `json:"other_config"`
	}
	if err := errors.Join(out[0].Decode(&bridges), out[1].Decode(&ports), out[2].Decode(&interfaces)); err != nil {
		return nil, fmt.Errorf("read bridges: %w", err)
	}
	portOf, bridgeOf := map[ovsdb.UUID]ovsdb.UUID{}, map[ovsdb.UUID]string{}
	for _, p := range ports {
		for _, i := range p.Interfaces {
			portOf[i] = p.UUID
		}
	}
	for _, b := range bridges {
		for _, p := range b.Ports {
			bridgeOf[p] = b.Name
		}
	}
	all := Bridges{}
	for _, i := range interfaces {
		if bridge := bridgeOf[portOf[i.UUID]]; bridge != "" {
			all[i.Name] = Member{Bridge: bridge, Priority: i.OtherConfig["hw-offload-priority"]}
		}
	}
	return all, nil
}

// facts are what is the same for all ports.
func (n Node) facts() why.Facts {
	s := n.Capabilities.Switch
	f := why.Facts{
		Netdevs: n.netdevs(),
		Switch: why.Switch{
			Runs: s.Error == "" && s.DaemonError == "", Error: strings.TrimPrefix(s.Error+"; "+s.DaemonError, "; "),
			HWOffload: s.HWOffload, TCPolicy: s.TCPolicy, Offloads: s.Offloading,
		},
	}
	k := n.Capabilities.Kernel
	if k.Config != "" {
		on := k.Options["NET_TC_SKB_EXT"] == "y"
		f.Recirculates, f.RecirculatesFrom = &on, k.Config
	} else if on, known := k.Symbols["tc_skb_ext_tc_enable"]; known {
		f.Recirculates, f.RecirculatesFrom = &on, "/proc/kallsyms"
	}
	return f
}

// tunnels are the kinds of netdevs that tunnels end in (lib/netdev-vport.c).
var tunnels = []string{"geneve", "vxlan", "gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ip6erspan", "bareudp"}

func (n Node) netdevs() map[string]why.Netdev {
	out := map[string]why.Netdev{}
	for _, l := range n.Links {
		d := why.Netdev{Name: l.Name, Kind: l.Kind, SwitchID: l.SwitchID, Up: l.Up, Role: why.RoleStranger}
		switch {
		case l.Kind == "openvswitch":
			d.Role = why.RoleInternal
		case slices.Contains(tunnels, l.Kind):
			d.Role = why.RoleTunnel
		}
		out[l.Name] = d
	}
	for _, pf := range n.State.PFs {
		n.ofPF(pf, out)
	}
	for _, b := range n.State.Bonds {
		d, ok := out[b.Name]
		if !ok {
			continue
		}
		d.Role = why.RoleBond
		for _, h := range b.Members {
			if pf := n.State.PF(h); pf != nil {
				d.SwitchID, d.LAG = pf.SwitchID, pf.LAG
				d.Underneath = append(d.Underneath, pf.Uplink.Name)
			}
		}
		out[b.Name] = d
	}
	for name, m := range n.Bridges {
		if d, ok := out[name]; ok {
			d.Bridge, d.Priority = m.Bridge, m.Priority
			out[name] = d
		}
	}
	return out
}

// ofPF gives the netdevs of a PF their roles. In legacy mode there is no switch,
// though mlx5 tells its number then as well (en_main.c).
func (n Node) ofPF(pf nic.PF, out map[string]why.Netdev) {
	set := func(name string, role why.Role) {
		d, ok := out[name]
		if !ok {
			return
		}
		d.Port, d.LAG, d.SwitchID = pf.Handle, pf.LAG, ""
		if pf.Eswitch == nic.Switchdev {
			d.Role, d.SwitchID = role, pf.SwitchID
		}
		if role == why.RoleUplink {
			d.TCOffload = pf.Settings[nic.TCOffload]
		}
		out[name] = d
	}
	set(pf.Uplink.Name, why.RoleUplink)
	for _, vf := range pf.VFs {
		set(vf.Rep.Netdev.Name, why.RoleRepresentor)
	}
	for _, sf := range pf.SFs {
		set(sf.Rep.Name, why.RoleRepresentor)
	}
}

// ours are the ports of attachments by our records.
func (n Node) ours() (ports []proof.Port) {
	for _, r := range n.Records {
		if p, ok := n.port(r); ok {
			ports = append(ports, p)
		}
	}
	return ports
}

// others are the ports of VFs and SFs in use of which we have no record: another CNI
// plugin has attached them. With a name (NAMESPACE/NAME) it is those of which the kubelet
// says that this pod has them.
func (n Node) others(pod string) (ports []proof.Port) {
	for _, p := range proof.Representors(n.State) {
		recorded := slices.ContainsFunc(n.Records, func(r *record.Record) bool { return r.VF == p.Address })
		if _, used := n.use(p); used && !recorded && (pod == "" || n.byKubelet(p) == pod) {
			ports = append(ports, p)
		}
	}
	return ports
}

// use is who holds the VF or SF behind a port, and whether anybody does.
func (n Node) use(p proof.Port) (owner string, used bool) {
	for _, pf := range n.State.PFs {
		for _, v := range pf.VFs {
			if p.VF != nil && p.VF.PF == pf.Handle && p.VF.Index == v.Index {
				return v.Owner, v.InUse() != ""
			}
		}
		for _, f := range pf.SFs {
			if p.SF != nil && p.SF.PF == pf.Handle && p.SF.Num == f.Num {
				return f.Owner, f.InUse() != ""
			}
		}
	}
	return "", false
}

// byKubelet is the pod of which the kubelet says that it has the VF or SF behind a port;
// "" it says none.
func (n Node) byKubelet(p proof.Port) string {
	owner, _ := n.use(p)
	pod, ok := strings.CutPrefix(owner, "pod ")
	if !ok {
		return ""
	}
	return pod
}

// pod finds the ports of a pod by our records, and by what the kubelet says.
func (n Node) pod(name string) (ports []proof.Port, err error) {
	namespace, pod, _ := strings.Cut(name, "/")
	for _, r := range n.Records {
		if r.Pod.Namespace != namespace || r.Pod.Name != pod {
			continue
		}
		p, ok := n.port(r)
		if !ok {
			return nil, fmt.Errorf("%s of pod %s: %s has no representor: its PF is not in switchdev mode", r.IfName, name, record.Name(r.VF))
		}
		ports = append(ports, p)
	}
	if ports = append(ports, n.others(name)...); ports == nil {
		return nil, fmt.Errorf("pod %s: %w among the %d attachments of this node; sluice why NETDEV takes a representor", name, fs.ErrNotExist, len(n.Records))
	}
	return ports, nil
}

// port is the representor of a record's VF: by address, as netdevs change their names.
func (n Node) port(r *record.Record) (proof.Port, bool) {
	for _, p := range proof.Representors(n.State) {
		if p.Address == r.VF {
			return p, true
		}
	}
	return proof.Port{}, false
}

// named is the port as reports have it, with whose it is by our records, or else by the
// kubelet.
func (n Node) named(p proof.Port) why.Port {
	out := why.Port{Netdev: p.Netdev, Ifindex: p.Ifindex, VF: p.VF, SF: p.SF, Address: p.Address, Pod: n.byKubelet(p)}
	for _, r := range n.Records {
		if r.VF == p.Address && p.Address != "" {
			out.Interface = r.IfName
			if r.Pod.Name != "" {
				out.Pod = r.Pod.Namespace + "/" + r.Pod.Name
			}
		}
	}
	return out
}
