package cni

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"sluice.dev/sluice/cni/kubelet"
	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
)

// Where things are when the configuration does not say.
const (
	DefaultStateDir = "/var/lib/sluice"
	DefaultOVSDB    = ovsdb.DefaultEndpoint
)

// Config is a network configuration of type sluice-cni, all sources of it
// joined and checked as far as they can be without a look at the machine.
type Config struct {
	CNIVersion string
	Name       string
	VF         string // PCI address or SF's device: runtimeConfig.deviceID, deviceID or pciBusID; "" see Resource
	Attach     Attach
	Pair       bool     // there is no VF: VF is the name of a pair
	Resource   string   // resourceName: the VF is the pod's of this resource
	KubeletDir string   // where the kubelet keeps what it has allocated
	Bridge     string   // "": the PF is in legacy mode, and the VF in no bridge
	Logical    string   // Network of ours; "" for none
	VLAN       uint16   // 0: untagged
	Trunk      []uint16 // VLANs that pass with their tags, in order; nil: no trunk
	MTU        int      // bytes; 0: as the VF has it
	MAC        nic.MAC  // runtimeConfig over CNI_ARGS over mac; zero: as the VF has it
	GUID       string   // runtimeConfig over CNI_ARGS over args.cni over guid; "": as the VF has it
	IfaceID    string   // CNI_ARGS over args.cni over ifaceID
	VFFields   vfFields
	Sysctls    map[string]string // of the pod's interface, by host.SysctlPath's names
	OVSDB      string            // endpoint
	StateDir   string
	IPAM       string // plugin; "" for none
	DNS        types.DNS
	Prev       *current.Result // prevResult; nil when there is none
	Pod        record.Pod      // from CNI_ARGS

	PodNetworks []string          // Networks that annotations of pods may name; nil: annotations are not read
	Annotations map[string]string // runtimeConfig's, of the pod
	Annotated   bool              // the runtime gave some, or said that there are none
	With        string            // the interface with which this one comes, by an annotation; "" it is the first

	Raw  json.RawMessage // what came in, for the IPAM plugin
	Args string          // CNI_ARGS, for the IPAM plugin
}

// Attach says what the pod's interface is.
type Attach string

// What the pod's interface can be.
const (
	AttachDevice Attach = "device"      // a VF
	AttachVeth   Attach = "veth"        // the end of a pair of software interfaces
	AttachNetkit Attach = "netkit"      // the same of another kind, which kernels have since Linux 6.7
	AttachAny    Attach = "any"         // the pod's VF of resourceName, of a pod without one a pair's end
	AttachRep    Attach = "representor" // that of a VF, which stays where it is
)

// field reads one member of the configuration into c.
type field struct {
	name string
	form string // the right form, for errors
	read func(c *Config, raw json.RawMessage) error
}

// ParseConfig reads a network configuration and CNI_ARGS. Errors carry the CNI
// error code: 2 for a field that is not known, 6 for what is no JSON, 7 for a
// value that cannot be, 4 for CNI_ARGS.
func ParseConfig(stdin []byte, args string) (Config, error) {
	c := Config{OVSDB: DefaultOVSDB, StateDir: DefaultStateDir, KubeletDir: kubelet.DefaultDir, Attach: AttachDevice, Raw: stdin, Args: args}
	members, err := object(stdin)
	if err != nil {
		return Config{}, coded(types.ErrDecodingFailure, "network configuration: %w", err)
	}
	if raw, ok := members["name"]; ok {
		if err := json.Unmarshal(raw, &c.Name); err != nil {
			return Config{}, coded(types.ErrInvalidNetworkConfig, "network configuration: name = %s: want a string", raw)
		}
	}
	where := fmt.Sprintf("network configuration %q", c.Name)
	var p devices
	if err := readFields(&c, where, members, slices.Concat(configFields(), vfConfigFields(), p.fields())); err != nil {
		return Config{}, err
	}
	if err := p.join(&c, where); err != nil {
		return Config{}, err
	}
	if err := c.readArgs(args); err != nil {
		return Config{}, err
	}
	if p.runtimeMAC != nil {
		c.MAC = *p.runtimeMAC
	}
	c.GUID = cmp.Or(p.runtimeGUID, c.GUID)
	if c.Raw, err = c.slim(members); err != nil {
		return Config{}, err
	}
	return c, c.complete(where, members["prevResult"])
}

// object reads a JSON object's members.
func object(data []byte) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("it is %s: want an object", data)
	}
	return m, nil
}

// readFields reads members in the order of the table, so that of several
// mistakes always the same one is told, unknown ones first.
func readFields(c *Config, where string, members map[string]json.RawMessage, table []field) error {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		known := strings.HasPrefix(name, "cni.dev/") || // the specification's own, for other verbs
			slices.ContainsFunc(table, func(f field) bool { return f.name == name })
		if !known {
			return coded(types.ErrUnsupportedField, "%s: unknown field %s = %s: want one of %s",
				where, name, members[name], names(table))
		}
	}
	for _, f := range table {
		raw, ok := members[f.name]
		if !ok || string(raw) == "null" {
			continue
		}
		if err := f.read(c, raw); err != nil {
			if isCoded(err) {
				return err
			}
			return coded(types.ErrInvalidNetworkConfig, "%s: %s = %s: want %s", where, f.name, raw, f.form)
		}
	}
	return nil
}

func names(table []field) string {
	words := make([]string, len(table))
	for i, f := range table {
		words[i] = f.name
	}
	return strings.Join(words, ", ")
}

// configFields are the members of the configuration itself but for those that
// name a device.
func configFields() []field {
	ignored := func(*Config, json.RawMessage) error { return nil }
	return []field{
		{"cniVersion", "a version, 0.3.1 to 1.1.0", func(c *Config, raw json.RawMessage) error {
			return json.Unmarshal(raw, &c.CNIVersion)
		}},
		{"name", "a string", ignored}, // read before, for the errors
		{"type", "a string", func(_ *Config, raw json.RawMessage) error {
			return json.Unmarshal(raw, new(string))
		}},
		{"bridge", "the name of an Open vSwitch bridge, 1 to 15 characters", func(c *Config, raw json.RawMessage) error {
			return text(raw, &c.Bridge, isIfName)
		}},
		{"network", "the name of a Network", func(c *Config, raw json.RawMessage) error {
			return text(raw, &c.Logical, networkName)
		}},
		{"podNetworks", `a list of names of Networks, for example ["blue"]`, readPodNetworks},
		{"vlan", "a number, 0 (untagged) to 4094", func(c *Config, raw json.RawMessage) error {
			n, err := number(raw, 0, 4094)
			c.VLAN = uint16(n)
			return err
		}},
		{"trunk", trunkForm, readTrunk},
		{"mtu", "a number of bytes, 68 to 65535, or 0 to leave it", func(c *Config, raw json.RawMessage) (err error) {
			if c.MTU, err = number(raw, 0, 65535); err == nil && c.MTU != 0 && c.MTU < 68 {
				err = errForm
			}
			return err
		}},
		{"mac", macForm, func(c *Config, raw json.RawMessage) error { return mac(raw, &c.MAC) }},
		{"guid", guidForm, func(c *Config, raw json.RawMessage) error { return guid(raw, &c.GUID) }},
		{"ifaceID", "a string", func(c *Config, raw json.RawMessage) error {
			return text(raw, &c.IfaceID, isPrintable)
		}},
		{"ovsdb", "an OVSDB endpoint, for example " + DefaultOVSDB, func(c *Config, raw json.RawMessage) error {
			return text(raw, &c.OVSDB, isEndpoint)
		}},
		{"stateDir", "an absolute path", func(c *Config, raw json.RawMessage) error {
			return text(raw, &c.StateDir, isPath)
		}},
		{"attach", `"device", "representor", "veth", "netkit" or "any"`, func(c *Config, raw json.RawMessage) error {
			return text(raw, (*string)(&c.Attach), func(s string) bool {
				return slices.Contains([]Attach{AttachDevice, AttachRep, AttachVeth, AttachNetkit, AttachAny}, Attach(s))
			})
		}},
		{"resourceName", "the name of a resource, for example sluice.dev/fast", func(c *Config, raw json.RawMessage) error {
			return text(raw, &c.Resource, isResource)
		}},
		{"kubeletDir", "an absolute path, for example " + kubelet.DefaultDir, func(c *Config, raw json.RawMessage) error {
			return text(raw, &c.KubeletDir, isPath)
		}},
		{"sysctls", `an object of names with numbers for values, for example {"net.ipv4.conf.IFNAME.rp_filter": "0"}`, readSysctls},
		{"ipam", `an object with a "type", for example {"type": "host-local"}`, readIPAM},
		{"dns", "an object with nameservers, domain, search, options", func(c *Config, raw json.RawMessage) error {
			return json.Unmarshal(raw, &c.DNS)
		}},
		{"capabilities", `an object of booleans, for example {"mac": true}`, func(_ *Config, raw json.RawMessage) error {
			return json.Unmarshal(raw, new(map[string]bool))
		}},
		{"args", "an object", func(c *Config, raw json.RawMessage) error { return readConfArgs(c, raw) }},
		{"prevResult", "a result", ignored}, // needs the version: read by complete
	}
}

// readIPAM takes the plugin's name; everything else in the object is its own.
func readIPAM(c *Config, raw json.RawMessage) error {
	var ipam struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &ipam); err != nil {
		return err
	}
	// The name becomes a path below CNI_PATH.
	if ipam.Type == "" && string(bytes.TrimSpace(raw)) != "{}" || strings.ContainsRune(ipam.Type, filepath.Separator) {
		return errForm
	}
	c.IPAM = ipam.Type
	return nil
}

// readConfArgs reads args.cni, which all plugins of a list share: what is not
// ours there is somebody's.
func readConfArgs(c *Config, raw json.RawMessage) error {
	var args struct {
		CNI struct {
			MAC     json.RawMessage `json:"mac"`
			GUID    json.RawMessage `json:"guid"`
			IfaceID json.RawMessage `json:"ifaceID"`
		} `json:"cni"`
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return err
	}
	bad := func(name string, raw json.RawMessage, form string) error {
		return coded(types.ErrInvalidNetworkConfig, "network configuration %q: args.cni.%s = %s: want %s", c.Name, name, raw, form)
	}
	if args.CNI.MAC != nil && mac(args.CNI.MAC, &c.MAC) != nil {
		return bad("mac", args.CNI.MAC, macForm)
	}
	if args.CNI.GUID != nil && guid(args.CNI.GUID, &c.GUID) != nil {
		return bad("guid", args.CNI.GUID, guidForm)
	}
	if args.CNI.IfaceID != nil && text(args.CNI.IfaceID, &c.IfaceID, isPrintable) != nil {
		return bad("ifaceID", args.CNI.IfaceID, "a string")
	}
	return nil
}

// devices are the members that may name the VF: deviceID from the configuration
// or, by its capability, the runtime; pciBusID beside it from meta plugins.
type devices struct {
	deviceID, pciBusID, runtime string
	runtimeMAC                  *nic.MAC
	runtimeGUID                 string
}

const deviceForm = "the PCI address of a VF, for example 0000:03:00.2, or the auxiliary device of an SF, for example mlx5_core.sf.4"

func isDevice(s string) bool { return nic.IsPCIAddress(s) || nic.IsSFDevice(s) }

func (d *devices) fields() []field {
	address := func(into *string) func(*Config, json.RawMessage) error {
		return func(_ *Config, raw json.RawMessage) error { return text(raw, into, isDevice) }
	}
	return []field{
		{"deviceID", deviceForm, address(&d.deviceID)},
		{"pciBusID", deviceForm, address(&d.pciBusID)},
		{"runtimeConfig", "an object", func(c *Config, raw json.RawMessage) error {
			members, err := object(raw)
			if err != nil {
				return err
			}
			_, c.Annotated = members[annotations]
			return readFields(c, fmt.Sprintf("network configuration %q, runtimeConfig", c.Name), members, []field{
				{"deviceID", deviceForm, address(&d.runtime)},
				{"mac", macForm, func(_ *Config, raw json.RawMessage) error {
					d.runtimeMAC = new(nic.MAC)
					return mac(raw, d.runtimeMAC)
				}},
				{"infinibandGUID", guidForm, func(_ *Config, raw json.RawMessage) error { return guid(raw, &d.runtimeGUID) }},
				{"bandwidth", "an object with egressRate, in bits per second", readBandwidth},
				// The IPAM plugin reads it.
				{"ips", "a list of addresses", func(_ *Config, raw json.RawMessage) error {
					return json.Unmarshal(raw, new([]string))
				}},
				{annotations, "an object of strings", func(c *Config, raw json.RawMessage) error {
					return json.Unmarshal(raw, &c.Annotations)
				}},
			})
		}},
	}
}

func (d *devices) join(c *Config, where string) error {
	for _, x := range []struct{ name, value string }{
		{"runtimeConfig.deviceID", d.runtime}, {"deviceID", d.deviceID}, {"pciBusID", d.pciBusID},
	} {
		switch {
		case x.value == "" || x.value == c.VF:
		case c.VF == "":
			c.VF = x.value
		default:
			return coded(types.ErrInvalidNetworkConfig, "%s: %s = %q: another device is named as well, %s: want one", where, x.name, x.value, c.VF)
		}
	}
	return nil
}

// readArgs reads CNI_ARGS, "KEY=VALUE;KEY=VALUE".
func (c *Config) readArgs(args string) error {
	if args == "" {
		return nil
	}
	var unknown string
	ignore := false
	for pair := range strings.SplitSeq(args, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return coded(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: %q: want KEY=VALUE pairs, separated by semicolons", pair)
		}
		switch key {
		case "IgnoreUnknown":
			b, err := strconv.ParseBool(value)
			if err != nil {
				return coded(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: IgnoreUnknown = %q: want 1 or 0", value)
			}
			ignore = b
		case "K8S_POD_NAMESPACE":
			c.Pod.Namespace = value
		case "K8S_POD_NAME":
			c.Pod.Name = value
		case "K8S_POD_UID":
			c.Pod.UID = value
		case "MAC":
			m, err := nic.ParseMAC(value)
			if err != nil || !m.IsUnicast() {
				return coded(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: MAC = %q: want %s", value, macForm)
			}
			c.MAC = m
		case "GUID", "guid": // ib-kubernetes writes the latter
			g, ok := parseGUID(value)
			if !ok {
				return coded(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: %s = %q: want %s", key, value, guidForm)
			}
			c.GUID = g
		case "IFACE_ID":
			if !isPrintable(value) {
				return coded(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: IFACE_ID = %q: want a string", value)
			}
			c.IfaceID = value
		case "K8S_POD_INFRA_CONTAINER_ID", "IP", "GATEWAY": // the runtime's, and IPAM plugins'
		default:
			unknown = pair
		}
	}
	if unknown != "" && !ignore {
		return coded(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: unknown key in %q: want it away, or IgnoreUnknown=1", unknown)
	}
	return nil
}

// complete checks what no single field can.
func (c *Config) complete(where string, prev json.RawMessage) error {
	if err := c.joinable(where); err != nil {
		return err
	}
	if err := c.checkVFFields(where); err != nil {
		return err
	}
	if err := c.checkAttach(where); err != nil {
		return err
	}
	if prev == nil || string(prev) == "null" {
		return nil
	}
	// A result without a version has the configuration's.
	members, err := object(prev)
	if err == nil {
		if _, ok := members["cniVersion"]; !ok {
			members["cniVersion"], _ = json.Marshal(c.CNIVersion)
			prev, err = json.Marshal(members)
		}
	}
	var r types.Result
	if err == nil {
		r, err = version.NewResult(c.CNIVersion, prev)
	}
	if err == nil {
		c.Prev, err = current.NewResultFromResult(r)
	}
	if err != nil {
		return coded(types.ErrDecodingFailure, "%s: prevResult: %w", where, err)
	}
	return nil
}

func (c *Config) checkAttach(where string) error {
	bad := func(format string, a ...any) error {
		return coded(types.ErrInvalidNetworkConfig, "%s: attach = %q: "+format, append([]any{where, string(c.Attach)}, a...)...)
	}
	switch {
	case c.Attach == AttachDevice:
		return nil
	case c.Attach == AttachRep:
		return c.checkRep(bad)
	case c.Bridge == "":
		return bad("bridge is missing: want the name of an Open vSwitch bridge for the other end")
	case c.software() && c.VF != "":
		return bad("deviceID = %q names a device: want one of the two", c.VF)
	case c.software() && c.Resource != "":
		return bad("resourceName = %q: want it away, or attach any, for the pod's VF where it has one", c.Resource)
	case c.Attach == AttachAny && c.Resource == "":
		return bad("resourceName is missing: want the resource that the VFs of pods are from")
	}
	return nil
}

// software says that there is a pair, whatever the pod has.
func (c *Config) software() bool { return c.Attach == AttachVeth || c.Attach == AttachNetkit }

const macForm = "a unicast MAC address, for example 02:00:00:00:00:01"

// errForm says that a value has not its field's form; the field says which.
var errForm = errors.New("wrong form")

func text(raw json.RawMessage, into *string, good func(string) bool) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if !good(s) {
		return errForm
	}
	*into = s
	return nil
}

func number(raw json.RawMessage, least, most int) (int, error) {
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < least || n > most {
		return 0, errForm
	}
	return n, nil
}

func mac(raw json.RawMessage, into *nic.MAC) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	m, err := nic.ParseMAC(s)
	if err != nil {
		return err
	}
	if !m.IsUnicast() {
		return errForm
	}
	*into = m
	return nil
}

// isIfName is dev_valid_name of the kernel, which bridges are subject to.
func isIfName(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." && isPrintable(s) && !strings.ContainsAny(s, "/: ")
}

// isPrintable: what is not UTF-8 a record in JSON would have as something else.
func isPrintable(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
}

func isPath(s string) bool { return filepath.IsAbs(s) && isPrintable(s) }

// isResource is a qualified name, domain/name, as extended resources have.
func isResource(s string) bool {
	domain, name, ok := strings.Cut(s, "/")
	return ok && domain != "" && name != "" && isPrintable(s) && !strings.ContainsAny(s, " ") && !strings.Contains(name, "/")
}

// isEndpoint has the forms of ovsdb-server(7) that need no keys.
func isEndpoint(s string) bool {
	scheme, rest, ok := strings.Cut(s, ":")
	switch {
	case !ok:
		return false
	case scheme == "unix":
		return filepath.IsAbs(rest) && isPrintable(rest)
	case scheme == "tcp":
		host, port, err := net.SplitHostPort(rest)
		return err == nil && host != "" && port != "" && isPrintable(rest)
	}
	return false
}

// wherefrom reads of a configuration what DEL needs to find a record, and
// forgives the rest: an attachment is to come down even if its configuration
// was edited into one that ADD would refuse.
func wherefrom(stdin []byte) (Config, error) {
	var c struct {
		StateDir string          `json:"stateDir"`
		OVSDB    string          `json:"ovsdb"`
		Networks json.RawMessage `json:"podNetworks"`
		DeviceID string          `json:"deviceID"`
		Runtime  struct {
			DeviceID string `json:"deviceID"`
		} `json:"runtimeConfig"`
	}
	if err := json.Unmarshal(stdin, &c); err != nil {
		return Config{}, coded(types.ErrDecodingFailure, "network configuration: %w", err)
	}
	out := Config{
		VF: cmp.Or(c.Runtime.DeviceID, c.DeviceID), StateDir: cmp.Or(c.StateDir, DefaultStateDir), OVSDB: cmp.Or(c.OVSDB, DefaultOVSDB),
	}
	if c.Networks != nil {
		out.PodNetworks = []string{} // whatever it is by now
	}
	if !isDevice(out.VF) {
		out.VF = ""
	}
	return out, nil
}
