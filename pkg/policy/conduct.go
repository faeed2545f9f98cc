package policy

import (
	"fmt"
	"net/netip"
	"time"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// Conduct is how a node is brought to what its document wants: what must hold
// afterwards, what may not be cut off, and what is done about strangers' changes.
type Conduct struct {
	Probe   Probe
	Protect []netip.Addr // the routes to these
	Drift   Drift
	Switch  Switch
}

// Switch is what is wanted of Open vSwitch's settings; what is zero stays as it is.
type Switch struct {
	HWOffload bool
	MaxIdle   time.Duration // whole milliseconds
	FlowLimit int
}

// Probe is what must hold after a change for it to stay.
type Probe struct {
	Addresses    []netip.Addr // which answer
	Connect      []string     // host:port, which take a TCP connection
	DefaultRoute bool         // there is one, if there was
	Timeout      time.Duration
}

// Drift is what is done when a stranger has changed something.
type Drift string

// The ways to treat drift.
const (
	DriftMend   Drift = "mend"
	DriftReport Drift = "report"
)

// The time that probes may take.
const (
	defaultTimeout = 30 * time.Second
	minTimeout     = time.Second
	maxTimeout     = 10 * time.Minute
)

// What Open vSwitch's settings may be. Flows that rest for less than half a second are
// those of a single exchange; more than ten million are beyond any NIC.
const (
	minIdle      = 500 * time.Millisecond
	maxIdle      = time.Hour
	minFlowLimit = 1000
	maxFlowLimit = 10_000_000
)

// ConductOf reads spec.probe, spec.protect, spec.drift and spec.openVSwitch, with defaults for what
// is left out. The error has all that is wrong in them, which Resolve says too.
func ConductOf(doc *v1alpha1.NodeNIC) (Conduct, error) {
	var f form
	c := f.conduct(doc.Spec)
	if err := f.err(); err != nil {
		return Conduct{}, err
	}
	return c, nil
}

func (f *form) conduct(spec v1alpha1.NodeNICSpec) Conduct {
	c := Conduct{Probe: Probe{Timeout: defaultTimeout}, Drift: DriftMend}
	if p := spec.Probe; p != nil {
		c.Probe.Addresses = f.addresses("spec.probe.addresses", p.Addresses)
		c.Probe.Connect = f.endpoints("spec.probe.connect", p.Connect)
		c.Probe.DefaultRoute = p.DefaultRoute
		if p.Timeout != "" {
			c.Probe.Timeout = f.timeout("spec.probe.timeout", p.Timeout)
		}
	}
	if p := spec.Protect; p != nil {
		c.Protect = f.addresses("spec.protect.routesTo", p.RoutesTo)
	}
	if o := spec.OpenVSwitch; o != nil {
		c.Switch = f.openVSwitch(*o)
	}
	f.word("spec.drift", spec.Drift, string(DriftMend), string(DriftReport))
	if spec.Drift != "" {
		c.Drift = Drift(spec.Drift)
	}
	return c
}

func (f *form) openVSwitch(o v1alpha1.OpenVSwitch) Switch {
	s := Switch{HWOffload: o.HWOffload, FlowLimit: o.FlowLimit}
	if o.MaxIdle != "" {
		d, err := time.ParseDuration(o.MaxIdle)
		if err != nil || d < minIdle || d > maxIdle || d%time.Millisecond != 0 {
			f.fail("spec.openVSwitch.maxIdle", "%q: want a duration of whole milliseconds from %s to 1h, for example 30s", o.MaxIdle, minIdle)
		}
		s.MaxIdle = d
	}
	if o.FlowLimit != 0 && (o.FlowLimit < minFlowLimit || o.FlowLimit > maxFlowLimit) {
		f.fail("spec.openVSwitch.flowLimit", "%d: want %d to %d", o.FlowLimit, minFlowLimit, maxFlowLimit)
	}
	return s
}

func (f *form) addresses(path string, texts []string) []netip.Addr {
	var out []netip.Addr
	seen := map[netip.Addr]int{}
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || a.Zone() != "":
			f.fail(at, "%q: want an IP address without prefix length or zone, for example 192.0.2.1 or 2001:db8::1", text)
			continue
		case a.IsUnspecified() || a.IsMulticast():
			f.fail(at, "%q is the address of no single host: want that of one", text)
			continue
		}
		a = a.Unmap()
		if first, twice := seen[a]; twice {
			f.fail(at, "%q is %s[%d] already: want each address once", text, path, first)
			continue
		}
		seen[a] = i
		out = append(out, a)
	}
	return out
}

func (f *form) endpoints(path string, texts []string) []string {
	var out []string
	for i, text := range texts {
		a, err := netip.ParseAddrPort(text)
		if err != nil || a.Port() == 0 || a.Addr().Zone() != "" || a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
			f.fail(fmt.Sprintf("%s[%d]", path, i), "%q: want an IP address and a port, for example 192.0.2.10:6443 or [2001:db8::1]:6443", text)
			continue
		}
		out = append(out, a.String())
	}
	return out
}

func (f *form) timeout(path, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d < minTimeout || d > maxTimeout {
		f.fail(path, "%q: want a duration from %s to 10m, for example 30s", text, minTimeout)
		return defaultTimeout
	}
	return d
}
