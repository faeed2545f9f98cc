package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/network/slots"
)

// A pod may list further interfaces in an annotation, where nothing but this plugin
// attaches it. Each is an attachment like the first, with a record of its own that says
// with which it came: with that it is checked, taken down and, when it fails, taken back.

const (
	// annotation is what a pod lists its further interfaces in.
	annotation = "sluice.dev/networks"

	// annotations is the capability by which runtimes give a pod's annotations:
	// containerd since 1.5, CRI-O by the same name.
	annotations = "io.kubernetes.cri.pod-annotations"

	mostFurther = 16
)

// entry is one element of the annotation's list.
type entry struct {
	Network   string `json:"network"`
	Interface string `json:"interface"`    // "" netN, N being its place from 1
	Resource  string `json:"resourceName"` // "" that of the configuration
	Attach    Attach `json:"attach"`       // "" that of the configuration
}

// another is a further interface.
type another struct {
	Config
	args *skel.CmdArgs
}

func readPodNetworks(c *Config, raw json.RawMessage) error {
	if err := json.Unmarshal(raw, &c.PodNetworks); err != nil {
		return err
	}
	if len(c.PodNetworks) == 0 || slices.ContainsFunc(c.PodNetworks, func(s string) bool { return !networkName(s) }) {
		return errForm
	}
	return nil
}

// further is what the pod's annotation lists. What is no annotation, or names what pods
// may not have, is an error before anything is begun.
func (c *Config) further(args *skel.CmdArgs) ([]another, error) {
	if c.PodNetworks == nil {
		return nil, nil
	}
	if !c.Annotated {
		return nil, coded(types.ErrInvalidNetworkConfig,
			`network configuration %q: podNetworks, and no annotations of the pod: want "capabilities": {%q: true}, and a runtime that has it (containerd 1.5)`, c.Name, annotations)
	}
	text, ok := c.Annotations[annotation]
	if !ok {
		return nil, nil
	}
	bad := func(format string, a ...any) ([]another, error) {
		return nil, coded(types.ErrInvalidNetworkConfig, "annotation %s of pod %s/%s: "+format, append([]any{annotation, c.Pod.Namespace, c.Pod.Name}, a...)...)
	}
	var list []entry
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil || d.More() {
		return bad(`%q: %v: want a list such as [{"network": %q, "interface": "net1"}]`, text, err, c.PodNetworks[0])
	}
	if len(list) > mostFurther {
		return bad("%d interfaces: want at most %d", len(list), mostFurther)
	}
	var out []another
	taken := []string{args.IfName, "lo"}
	for i, e := range list {
		if e.Interface == "" {
			e.Interface = fmt.Sprintf("net%d", i+1)
		}
		switch {
		case !slices.Contains(c.PodNetworks, e.Network):
			return bad("network = %q: pods may have one of %q (podNetworks of network configuration %q)", e.Network, c.PodNetworks, c.Name)
		case !isIfName(e.Interface):
			return bad("interface = %q: want an interface's name, 1 to 15 printable characters without /, : and spaces", e.Interface)
		case slices.Contains(taken, e.Interface):
			return bad("interface = %q: the pod has one of this name: want another", e.Interface)
		}
		taken = append(taken, e.Interface)
		a, err := c.another(e, args)
		if err != nil {
			return bad("interface %s: %w", e.Interface, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// slim is the configuration as it came but for annotations that are not ours: a pod may
// have many, and a record keeps what an ADD came with.
func (c *Config) slim(members map[string]json.RawMessage) (json.RawMessage, error) {
	if len(c.Annotations) == 0 {
		return c.Raw, nil
	}
	runtime, err := object(members["runtimeConfig"])
	if err != nil {
		return nil, err
	}
	ours := maps.Clone(c.Annotations)
	maps.DeleteFunc(ours, func(key, _ string) bool { return key != annotation })
	out := maps.Clone(members)
	runtime[annotations], _ = json.Marshal(ours)
	out["runtimeConfig"], _ = json.Marshal(runtime)
	return json.Marshal(out)
}

// another makes of the configuration that of a further interface: what is of the first
// alone is left out.
func (c *Config) another(e entry, args *skel.CmdArgs) (another, error) {
	members, err := object(c.Raw)
	if err != nil {
		return another{}, err
	}
	for _, name := range []string{
		"podNetworks", "capabilities", "runtimeConfig", "args", "deviceID", "pciBusID", "mac", "guid", "ifaceID",
		"vlan", "trunk", "vlanQoS", "vlanProto", "ipam", "dns",
	} {
		delete(members, name)
	}
	if c.Logical == "" {
		delete(members, "bridge") // OVN's is another
	}
	set := map[string]string{"network": e.Network}
	if e.Attach != "" {
		set["attach"] = string(e.Attach)
	}
	if e.Attach == AttachVeth || e.Attach == AttachNetkit {
		delete(members, "resourceName")
	}
	if e.Resource != "" {
		set["resourceName"] = e.Resource
	}
	for name, value := range set {
		members[name], _ = json.Marshal(value)
	}
	raw, err := json.Marshal(members)
	if err != nil {
		return another{}, err
	}
	its := *args
	its.IfName, its.StdinData, its.Args = e.Interface, raw, ofPod(args.Args)
	conf, err := ParseConfig(raw, its.Args)
	conf.With = args.IfName
	return another{conf, &its}, err
}

// ofPod is CNI_ARGS without what is of the first interface alone.
func ofPod(args string) string {
	pairs := slices.DeleteFunc(strings.Split(args, ";"), func(pair string) bool {
		key, _, _ := strings.Cut(pair, "=")
		return slices.Contains([]string{"MAC", "GUID", "guid", "IFACE_ID", "IP", "GATEWAY"}, key)
	})
	return strings.Join(pairs, ";")
}

// undoAll takes down what an ADD has attached before one of its interfaces failed.
func (p *Plugin) undoAll(ctx context.Context, c Config, args *skel.CmdArgs, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Limits.Undo)
	defer cancel()
	store := record.In(c.StateDir)
	made, err := store.FindWith(args.ContainerID, args.IfName)
	errs := []error{err}
	for _, r := range made {
		errs = append(errs, p.delOne(ctx, store, r.Key(), c, args))
	}
	if err := errors.Join(errs...); err != nil {
		return coded(codeOf(cause), "%w; and it could not be undone, which is left to DEL: %w", cause, err)
	}
	return cause
}

// leaveAll gives back slots that a container took for interfaces of which there is no
// record: its ADD was cut off before.
func leaveAll(store record.Store, container string) error {
	s := slots.Open(store.StateDir())
	names, err := s.Names()
	for _, name := range names {
		leases, listed := s.Leases(name)
		err = errors.Join(err, listed)
		for _, l := range leases {
			ifname, mine := strings.CutPrefix(l.Owner, container+"/")
			if !mine {
				continue
			}
			known, found := store.Find(container, ifname)
			if err = errors.Join(err, found); found == nil && len(known) == 0 {
				err = errors.Join(err, s.Give(name, l.Owner))
			}
		}
	}
	return err
}

// checkFurther compares the interfaces that came with the first.
func (p *Plugin) checkFurther(ctx context.Context, c Config, args *skel.CmdArgs) error {
	if !c.Annotated {
		return nil
	}
	more, err := c.further(args)
	for _, m := range more {
		if err := p.checkOne(ctx, m.Config, m.args); err != nil {
			return err
		}
	}
	return err
}

// gcNetworks gives back slots of the Networks that annotations may name.
func (p *Plugin) gcNetworks(ctx context.Context, c Config, path string) error {
	members, err := object(c.Raw)
	for _, name := range c.PodNetworks {
		if name == c.Logical {
			continue
		}
		conf := maps.Clone(members)
		conf["network"], _ = json.Marshal(name)
		raw, coding := json.Marshal(conf)
		err = errors.Join(err, coding, p.IPAM.GC(ctx, Call{Plugin: ownIPAM, Config: bytes.TrimSpace(raw), Path: path}))
	}
	return err
}
