package host_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// This file reads deploy/60-sluice-names.rules as udev does (systemd,
// src/udev/udev-rules.c), as far as the rules there go.

// device is what udev sees: kernel name and subsystem of the device and of those
// above it, nearest first, and the attributes that can be read.
type device struct {
	chain []ancestor
	attrs map[string]string
}

type ancestor struct{ kernel, subsystem string }

func netdev(name string, attrs map[string]string, parents ...ancestor) device {
	return device{append([]ancestor{{name, "net"}}, parents...), attrs}
}

var (
	aPCI = ancestor{"0000:03:00.0", "pci"}
	aSF  = ancestor{"mlx5_core.sf.2", "auxiliary"}
)

// token is one KEY{arg}OP"value" of a rule.
type token struct{ key, arg, op, value string }

var tokenForm = regexp.MustCompile(`^([A-Z]+)(?:\{([a-z_]+)\})?(==|!=|=)"([^"]*)"(?:, |$)`)

func parseRules(t *testing.T, text string) [][]token {
	t.Helper()
	var out [][]token
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var rule []token
		for line != "" {
			m := tokenForm.FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("no rule: %s", line)
			}
			rule = append(rule, token{m[1], m[2], m[3], m[4]})
			line = line[len(m[0]):]
		}
		out = append(out, rule)
	}
	return out
}

// nameOf is what the rules call d, "" for nothing.
func nameOf(t *testing.T, rules [][]token, action string, d device) (name string) {
	t.Helper()
	skipTo := ""
	for _, rule := range rules {
		if skipTo != "" && rule[0] != (token{"LABEL", "", "=", skipTo}) {
			continue
		}
		skipTo = ""
		if !applies(t, rule, action, d) {
			continue
		}
		for _, k := range rule {
			switch {
			case k.key == "NAME" && k.op == "=":
				name = k.value
			case k.key == "GOTO" && k.op == "=":
				skipTo = k.value
			}
		}
	}
	if skipTo != "" {
		t.Fatalf("no label %s", skipTo)
	}
	return name
}

// applies: all of a rule's conditions hold, those on parents all of one of the
// device and what is above it.
func applies(t *testing.T, rule []token, action string, d device) bool {
	t.Helper()
	var parents []token
	for _, k := range rule {
		switch k.key {
		case "ACTION":
			if !k.holds(action) {
				return false
			}
		case "SUBSYSTEM":
			if !k.holds(d.chain[0].subsystem) {
				return false
			}
		case "ATTR":
			value, ok := d.attrs[k.arg]
			if !ok || !k.holds(strings.TrimRight(value, " \n")) {
				return false
			}
		case "SUBSYSTEMS", "KERNELS":
			parents = append(parents, k)
		case "NAME", "GOTO", "LABEL":
		default:
			t.Fatalf("%s: not known to this test", k.key)
		}
	}
	for _, a := range d.chain {
		all := true
		for _, k := range parents {
			value := a.kernel
			if k.key == "SUBSYSTEMS" {
				value = a.subsystem
			}
			all = all && k.holds(value)
		}
		if all {
			return true
		}
	}
	return false
}

func (k token) holds(value string) bool {
	is := false
	for pattern := range strings.SplitSeq(k.value, "|") {
		if ok, _ := path.Match(pattern, value); ok {
			is = true
		}
	}
	return is == (k.op == "==")
}

// nameRules reads the rules as they are shipped, and with the examples in force.
func nameRules(t *testing.T) (shipped, used [][]token) {
	t.Helper()
	b, err := os.ReadFile("../../deploy/60-sluice-names.rules")
	if err != nil {
		t.Fatal(err)
	}
	return parseRules(t, string(b)), parseRules(t, strings.ReplaceAll(string(b), "\n#SUBSYSTEMS", "\nSUBSYSTEMS"))
}

// TestB13NamesOfPortsAlone: a name by PCI address is the port's, never that of a
// representor or SF with the same device above it.
func TestB13NamesOfPortsAlone(t *testing.T) {
	shipped, used := nameRules(t)
	port := func(name string) map[string]string { return map[string]string{"phys_port_name": name} }
	for what, c := range map[string]struct {
		d    device
		want string
	}{
		"uplink":                  {netdev("eth0", port("p0\n"), aPCI), "fast0"},
		"uplink of a second port": {netdev("eth1", port("p1"), ancestor{"0000:03:00.1", "pci"}), "fast1"},
		"uplink p12":              {netdev("eth0", port("p12"), aPCI), "fast0"},
		"empty":                   {netdev("eth0", port(""), aPCI), "fast0"},
		"a line end":              {netdev("eth0", port("\n"), aPCI), "fast0"},
		"absent":                  {netdev("eth0", nil, aPCI), "fast0"},
		"VF representor":          {netdev("eth1", port("pf0vf0"), aPCI), ""},
		"of another host":         {netdev("eth1", port("c1pf0vf0"), aPCI), ""},
		"SF representor":          {netdev("eth1", port("pf0sf88"), aPCI), ""},
		"PF representor":          {netdev("eth1", port("pf0"), aPCI), ""},
		"old representor":         {netdev("eth1", port("0"), aPCI), ""},
		"a split port":            {netdev("eth1", port("p0s1"), aPCI), ""},
		"p and no number":         {netdev("eth1", port("p"), aPCI), ""},
		"SF":                      {netdev("eth1", nil, aSF, aPCI), ""},
		"SF, empty":               {netdev("eth1", port(""), aSF, aPCI), ""},
		"VF":                      {netdev("eth1", nil, ancestor{"0000:03:00.2", "pci"}), ""},
		"another card":            {netdev("eth1", port("p0"), ancestor{"0000:04:00.0", "pci"}), ""},
		"a bridge":                {netdev("br0", nil), ""},
		"an RDMA device":          {device{[]ancestor{{"mlx5_0", "infiniband"}, aPCI}, nil}, ""},
	} {
		if got := nameOf(t, used, "add", c.d); got != c.want {
			t.Errorf("%s: named %q, want %q", what, got, c.want)
		}
		for _, rules := range [][][]token{shipped, used} {
			if got := nameOf(t, rules, "change", c.d); got != "" {
				t.Errorf("%s: a change names it %q", what, got)
			}
		}
		if got := nameOf(t, shipped, "add", c.d); got != "" {
			t.Errorf("%s: as shipped the rules name it %q", what, got)
		}
	}
}

// The rules and Observe mean the same by a port: of all netdevs of a card, in
// either mode, with VFs and SFs, the ports' are named and nothing else.
func TestB13RulesAgreeWithObserve(t *testing.T) {
	_, used := nameRules(t)
	for _, spec := range []string{"mlx5:numvfs=3,mode=switchdev,sfs=2,numsfs=2", "mlx5:numvfs=3", "ice:numvfs=3,mode=switchdev", "igb:numvfs=3"} {
		st, links := simulated(t, spec)
		ports := map[int]string{}
		for i, name := range []string{"fast0", "fast1"} {
			if p := st.PF(nic.PCI([]string{"0000:03:00.0", "0000:03:00.1"}[i])); p != nil {
				ports[p.Uplink.Ifindex] = name
			}
		}
		if len(ports) == 0 {
			t.Errorf("%s: no PF where the rules name one: %v", spec, st.PFs)
		}
		for _, l := range links {
			if got := nameOf(t, used, "add", seen(l, st)); got != ports[l.Ifindex] {
				t.Errorf("%s: %s, port %q of %s, is named %q, want %q", spec, l.Name, l.PortName, l.Parent, got, ports[l.Ifindex])
			}
		}
	}
}

// seen is a link as udev sees it.
func seen(l host.Link, st nic.State) device {
	d := netdev(l.Name, nil)
	if l.PortName != "" {
		d.attrs = map[string]string{"phys_port_name": l.PortName + "\n"}
	}
	if nic.IsPCIAddress(l.Parent) {
		d.chain = append(d.chain, ancestor{l.Parent, "pci"})
	}
	for _, p := range st.PFs {
		for _, f := range p.SFs {
			if f.Device == l.Parent && l.Parent != "" {
				d.chain = append(d.chain, ancestor{f.Device, "auxiliary"}, ancestor{p.Handle.Name, "pci"})
			}
		}
	}
	return d
}
