package cni

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
)

const (
	minimal = `{"cniVersion":"1.1.0","name":"n","type":"sluice-cni","deviceID":"0000:03:00.2","bridge":"br-int"}`
	complex = `{
		"cniVersion": "1.0.0", "name": "n", "type": "sluice-cni", "bridge": "br-int", "vlan": 4094, "mtu": 9000,
		"mac": "02:00:00:00:00:01", "ifaceID": "conf", "ovsdb": "tcp:192.0.2.1:6640", "stateDir": "/run/s",
		"deviceID": "0000:03:00.2", "pciBusID": "0000:03:00.2",
		"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16"}]]},
		"dns": {"nameservers": ["10.1.0.53"]},
		"capabilities": {"mac": true, "deviceID": true},
		"args": {"cni": {"mac": "02:00:00:00:00:02", "ifaceID": "args", "labels": [{"key": "a"}]}, "other": 1},
		"cni.dev/attachments": [],
		"runtimeConfig": {"deviceID": "0000:03:00.2", "mac": "02:00:00:00:00:04", "ips": ["10.1.0.9/16"]},
		"prevResult": {"interfaces": [{"name": "eth0"}]}
	}`
	podArgs = "IgnoreUnknown=true;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u;MAC=02:00:00:00:00:03;IFACE_ID=env;X=1"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig([]byte(minimal), "")
	want := Config{
		CNIVersion: "1.1.0", Name: "n", VF: "0000:03:00.2", Bridge: "br-int",
		OVSDB: "unix:/run/openvswitch/db.sock", StateDir: "/var/lib/sluice",
		KubeletDir: "/var/lib/kubelet/device-plugins", Attach: AttachDevice, Raw: []byte(minimal),
	}
	if d := cmp.Diff(want, c); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}

	c, err = ParseConfig([]byte(complex), podArgs)
	if err != nil {
		t.Fatal(err)
	}
	if c.Prev == nil || len(c.Prev.Interfaces) != 1 || c.Prev.Interfaces[0].Name != "eth0" {
		t.Errorf("prevResult: %+v", c.Prev)
	}
	want = Config{
		CNIVersion: "1.0.0", Name: "n", VF: "0000:03:00.2", Bridge: "br-int", VLAN: 4094, MTU: 9000,
		MAC: nic.MAC{2, 0, 0, 0, 0, 4}, IfaceID: "env", OVSDB: "tcp:192.0.2.1:6640", StateDir: "/run/s", KubeletDir: "/var/lib/kubelet/device-plugins", Attach: AttachDevice,
		IPAM: "host-local", Pod: record.Pod{Namespace: "ns", Name: "p", UID: "u"}, Raw: []byte(complex), Args: podArgs,
	}
	want.DNS.Nameservers = []string{"10.1.0.53"}
	c.Prev = nil
	if d := cmp.Diff(want, c); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestMACOrder takes runtimeConfig over CNI_ARGS over the configuration.
func TestMACOrder(t *testing.T) {
	conf := func(members string) string { return strings.TrimSuffix(minimal, "}") + members + "}" }
	const own, args, run = `,"mac":"02:00:00:00:00:01"`, "MAC=02:00:00:00:00:02", `,"runtimeConfig":{"mac":"02:00:00:00:00:03"}`
	for _, c := range []struct {
		conf, args string
		want       byte
	}{
		{conf(own), "", 1}, {conf(own), args, 2}, {conf(own + run), args, 3}, {conf(own + run), "", 3}, {conf(run), args, 3}, {conf(""), args, 2}, {conf(""), "", 0},
	} {
		got, err := ParseConfig([]byte(c.conf), c.args)
		if err != nil || got.MAC[5] != c.want {
			t.Errorf("%s with CNI_ARGS %q: MAC %s, %v; want ...%02x", c.conf, c.args, got.MAC, err, c.want)
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	with := func(members string) string { return strings.TrimSuffix(minimal, "}") + "," + members + "}" }
	for _, c := range []struct {
		conf, args string
		code       uint
		want       string
	}{
		{`{"name":`, "", 6, `network configuration: unexpected end of JSON input`},
		{`[]`, "", 6, `network configuration: json: cannot unmarshal array`},
		{`null`, "", 6, `network configuration: it is null: want an object`},
		{`{"name":7}`, "", 7, `network configuration: name = 7: want a string`},
		{with(`"brigde":"br0"`), "", 2, `network configuration "n": unknown field brigde = "br0": want one of cniVersion, name, type, bridge, network, podNetworks, vlan, `},
		{with(`"Vlan":1`), "", 2, `unknown field Vlan = 1`},
		{with(`"runtimeConfig":{"portMappings":[]}`), "", 2, `network configuration "n", runtimeConfig: unknown field portMappings = []: want one of deviceID, mac, infinibandGUID, bandwidth, ips, io.kubernetes.cri.pod-annotations`},
		{with(`"runtimeConfig":7`), "", 7, `runtimeConfig = 7: want an object`},
		{with(`"runtimeConfig":{"mac":"x"}`), "", 7, `network configuration "n", runtimeConfig: mac = "x": want a unicast MAC address, for example 02:00:00:00:00:01`},
		{with(`"vlan":4095`), "", 7, `network configuration "n": vlan = 4095: want a number, 0 (untagged) to 4094`},
		{with(`"vlan":-1`), "", 7, `vlan = -1`},
		{with(`"vlan":1.5`), "", 7, `vlan = 1.5`},
		{with(`"vlan":"100"`), "", 7, `vlan = "100"`},
		{with(`"mtu":67`), "", 7, `mtu = 67: want a number of bytes, 68 to 65535, or 0 to leave it`},
		{with(`"mtu":65536`), "", 7, `mtu = 65536`},
		{with(`"mac":"01:00:00:00:00:01"`), "", 7, `mac = "01:00:00:00:00:01": want a unicast MAC address, for example 02:00:00:00:00:01`},
		{with(`"mac":"00:00:00:00:00:00"`), "", 7, `mac = "00:00:00:00:00:00"`},
		{with(`"mac":"02:00:00:00:00:01:02:03"`), "", 7, `mac = "02:00`},
		{with(`"ovsdb":"unix:relative"`), "", 7, `ovsdb = "unix:relative": want an OVSDB endpoint, for example unix:/run/openvswitch/db.sock`},
		{with(`"ovsdb":"tcp:host"`), "", 7, `ovsdb = "tcp:host"`},
		{with(`"ovsdb":"db.sock"`), "", 7, `ovsdb = "db.sock"`},
		{with(`"ovsdb":"ssl:192.0.2.1:6640"`), "", 7, `ovsdb = "ssl:192.0.2.1:6640"`},
		{with(`"ovsdb":"pipe:/x"`), "", 7, `ovsdb = "pipe:/x"`},
		{with(`"stateDir":"state"`), "", 7, `stateDir = "state": want an absolute path`},
		{with(`"kubeletDir":"plugins"`), "", 7, `kubeletDir = "plugins": want an absolute path, for example /var/lib/kubelet/device-plugins`},
		{with(`"attach":"vf"`), "", 7, `attach = "vf": want "device", "representor", "veth", "netkit" or "any"`},
		{with(`"attach":"veth"`), "", 7, `attach = "veth": deviceID = "0000:03:00.2" names a device: want one of the two`},
		{with(`"attach":"any"`), "", 7, `attach = "any": resourceName is missing: want the resource that the VFs of pods are from`},
		{strings.Replace(minimal, `"deviceID":"0000:03:00.2"`, `"attach":"veth","resourceName":"a/b"`, 1), "", 7, `resourceName = "a/b": want it away, or attach any`},
		{`{"cniVersion":"1.1.0","name":"n","attach":"veth"}`, "", 7, `attach = "veth": bridge is missing: want the name of an Open vSwitch bridge for the other end`},
		{with(`"resourceName":"fast"`), "", 7, `resourceName = "fast": want the name of a resource, for example sluice.dev/fast`},
		{with(`"resourceName":"a/b/c"`), "", 7, `resourceName = "a/b/c"`},
		{with(`"ipam":{"ranges":[]}`), "", 7, `ipam = {"ranges":[]}: want an object with a "type", for example {"type": "host-local"}`},
		{with(`"ipam":{"type":"../../bin/sh"}`), "", 7, `ipam = {"type":"../../bin/sh"}`},
		{with(`"ipam":"host-local"`), "", 7, `ipam = "host-local"`},
		{with(`"dns":[]`), "", 7, `dns = []`},
		{with(`"capabilities":{"mac":1}`), "", 7, `capabilities = {"mac":1}: want an object of booleans, for example {"mac": true}`},
		{with(`"args":[]`), "", 7, `args = []`},
		{with(`"args":{"cni":{"mac":7}}`), "", 7, `network configuration "n": args.cni.mac = 7: want a unicast MAC address`},
		{with(`"args":{"cni":{"ifaceID":""}}`), "", 7, `args.cni.ifaceID = "": want a string`},
		{with(`"ifaceID":"a\nb"`), "", 7, `ifaceID = "a\nb": want a string`},
		{with(`"prevResult":{"cniVersion":"9.9"}`), "", 6, `network configuration "n": prevResult:`},
		{with(`"prevResult":7`), "", 6, `prevResult:`},
		{strings.Replace(minimal, `"bridge":"br-int"`, `"ifaceID":"x"`, 1), "", 7, `ifaceID = "x": there is no bridge for the port: want bridge with it, br-int for OVN`},
		{with(`"vlanQoS":8`), "", 7, `vlanQoS = 8: want a number, 0 to 7`},
		{with(`"vlanQoS":3`), "", 7, `vlanQoS = 3: there is no vlan: want vlan from 1 to 4094 with it`},
		{with(`"vlanProto":"802.1AD"`), "", 7, `vlanProto = "802.1ad": there is no vlan`},
		{with(`"vlanProto":"qinq"`), "", 7, `vlanProto = "qinq": want "802.1q" or "802.1ad"`},
		{with(`"spoofchk":true`), "", 7, `spoofchk = true: want "on" or "off"`},
		{with(`"trust":"yes"`), "", 7, `trust = "yes": want "on" or "off"`},
		{with(`"link_state":"up"`), "", 7, `link_state = "up": want "auto", "enable" or "disable"`},
		{with(`"min_tx_rate":-1`), "", 7, `min_tx_rate = -1: want a number of Mbit/s, 0 for none`},
		{with(`"max_tx_rate":10,"min_tx_rate":20`), "", 7, `min_tx_rate = 20: want at most max_tx_rate, 10`},
		{with(`"runtimeConfig":{"bandwidth":{"ingressRate":1000}}`), "", 7, `runtimeConfig.bandwidth: ingressRate = 1000: a VF's hardware bounds only what the VF sends`},
		{with(`"runtimeConfig":{"bandwidth":{"egressRate":"1M"}}`), "", 7, `egressRate = "1M": want a number of bits per second`},
		{with(`"runtimeConfig":{"bandwidth":{"egressRate":18446744073709551615}}`), "", 7, `want at most 1000000000000`},
		{with(`"runtimeConfig":{"bandwidth":{"egress":1}}`), "", 2, `runtimeConfig.bandwidth: unknown field egress = 1: want one of egressRate, egressBurst, ingressRate, ingressBurst`},
		{strings.Replace(minimal, "br-int", "a-bridge-of-16-b", 1), "", 7, `bridge = "a-bridge-of-16-b": want the name of an Open vSwitch bridge, 1 to 15 characters`},
		{strings.Replace(minimal, "br-int", "br int", 1), "", 7, `bridge = "br int"`},
		{strings.Replace(minimal, "br-int", "", 1), "", 7, `bridge = ""`},
		{strings.Replace(minimal, "0000:03:00.2", "03:00.2", 1), "", 7, `deviceID = "03:00.2": want the PCI address of a VF, for example 0000:03:00.2`},
		{strings.Replace(minimal, "0000:03:00.2", "../0000:03:00.2", 1), "", 7, `deviceID = "../0000:03:00.2"`},
		{with(`"pciBusID":"0000:03:00.3"`), "", 7, `pciBusID = "0000:03:00.3": another device is named as well, 0000:03:00.2: want one`},
		{with(`"runtimeConfig":{"deviceID":"0000:03:00.3"}`), "", 7, `deviceID = "0000:03:00.2": another device is named as well, 0000:03:00.3: want one`},
		{minimal, "K8S_POD_NAME", 4, `CNI_ARGS: "K8S_POD_NAME": want KEY=VALUE pairs, separated by semicolons`},
		{minimal, "a=b;", 4, `CNI_ARGS: ""`},
		{minimal, "FOO=bar", 4, `CNI_ARGS: unknown key in "FOO=bar": want it away, or IgnoreUnknown=1`},
		{minimal, "FOO=bar;IgnoreUnknown=no", 4, `CNI_ARGS: IgnoreUnknown = "no": want 1 or 0`},
		{minimal, "MAC=ff:ff:ff:ff:ff:ff", 4, `CNI_ARGS: MAC = "ff:ff:ff:ff:ff:ff": want a unicast MAC address`},
		{minimal, "IFACE_ID=", 4, `CNI_ARGS: IFACE_ID = ""`},
	} {
		_, err := ParseConfig([]byte(c.conf), c.args)
		if err == nil {
			t.Errorf("%s with CNI_ARGS %q is taken; want: %s", c.conf, c.args, c.want)
			continue
		}
		if codeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with CNI_ARGS %q:\n got code %d, %v\nwant code %d, %s", c.conf, c.args, codeOf(err), err, c.code, c.want)
		}
	}
}

// FuzzParseConfig: whatever comes, it is refused with a code of the
// specification, or it can be attached and its files are where they should be.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(minimal), "")
	f.Add([]byte(complex), podArgs)
	f.Add([]byte(`{"name":"n","runtimeConfig":null,"prevResult":null,"deviceID":null}`), "IgnoreUnknown=1;=")
	f.Add([]byte(`{"name":"n"}`), "") // a VF of a PF in legacy mode, which goes into no bridge
	f.Fuzz(func(t *testing.T, conf []byte, args string) {
		c, err := ParseConfig(conf, args)
		if err != nil {
			var e *codedError
			if !errors.As(err, &e) || e.code == 0 || e.code > 7 {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		if c.VF != "" && !nic.IsPCIAddress(c.VF) || c.Bridge != "" && !isIfName(c.Bridge) ||
			c.Bridge == "" && (c.Attach == AttachVeth || c.Attach == AttachAny) || c.VLAN > 4094 || c.MTU > 65535 ||
			!c.MAC.IsZero() && !c.MAC.IsUnicast() || !strings.HasPrefix(c.StateDir, "/") || strings.Contains(c.IPAM, "/") {
			t.Fatalf("taken: %+v", c)
		}
		// DEL finds the record where ADD puts it.
		w, err := wherefrom(conf)
		if err != nil || w.StateDir != c.StateDir || w.VF != c.VF && w.VF != "" {
			t.Fatalf("DEL looks for %s in %s (%v), ADD puts %s into %s", w.VF, w.StateDir, err, c.VF, c.StateDir)
		}
	})
}
