package deviceplugin

import (
	"errors"
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// DefaultPrefix is the first part of the resource names of pools that name none.
const DefaultPrefix = "sluice.dev"

// Pool is a set of VFs that pods ask for under one resource name.
type Pool struct {
	Prefix string // "" is DefaultPrefix
	Name   string

	// Select says which VFs. A VF must not be in two pools.
	Select []Selector

	// Driver that a VF must have to be healthy: nic.DriverKernel or
	// nic.DriverVFIO; "" is the kernel's.
	Driver nic.Driver

	// RDMA adds the VF's RDMA device files to the container, and makes a VF
	// without them unhealthy while it is free. (In use they may be in the pod's
	// namespace, in exclusive mode, if whoever attached the VF moved them too.)
	RDMA bool
}

// Selector picks VFs of one PF.
type Selector struct {
	PF  nic.Handle
	VFs nic.Ranges // empty: all

	// Eswitch is the mode that the PF must be in for its VFs to be healthy; ""
	// is any. It keeps VFs from pods before their switch is ready.
	Eswitch nic.Eswitch
}

// String is what people write: handle, and #ranges if not all.
func (s Selector) String() string {
	if len(s.VFs) == 0 {
		return s.PF.String()
	}
	return s.PF.String() + "#" + s.VFs.String()
}

// Resource is the name that pods ask for, prefix/name.
func (p Pool) Resource() string { return p.prefix() + "/" + p.Name }

func (p Pool) String() string { return p.Resource() }

func (p Pool) prefix() string {
	if p.Prefix == "" {
		return DefaultPrefix
	}
	return p.Prefix
}

func (p Pool) driver() nic.Driver {
	if p.Driver == "" {
		return nic.DriverKernel
	}
	return p.Driver
}

// Validate answers every reason why pools cannot be offered, joined.
func Validate(pools []Pool) error {
	var problems []error
	resources := map[string]bool{}
	envs := map[string]string{}
	for _, p := range pools {
		problems = append(problems, p.check()...)
		r := p.Resource()
		if resources[r] {
			problems = append(problems, fmt.Errorf("pool %s: there are two of this name: want one", r))
			continue
		}
		resources[r] = true
		// The kubelet keeps only one of two equal variables, so a pod with both
		// resources would not learn of one of them.
		for _, key := range []string{p.envKey(), p.infoKey()} {
			if other := envs[key]; other != "" {
				problems = append(problems, fmt.Errorf("pools %s and %s: containers would get both as variable %s: want names that differ in more than case, dots and underscores", other, r, key))
			}
			envs[key] = r
		}
	}
	return errors.Join(append(problems, overlaps(pools)...)...)
}

func (p Pool) check() []error {
	var problems []error
	fail := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("pool %s: "+format, append([]any{p.Resource()}, args...)...))
	}
	if err := checkResource(p.prefix(), p.Name); err != nil {
		fail("%w", err)
	}
	switch p.driver() {
	case nic.DriverKernel:
	case nic.DriverVFIO:
		if p.RDMA {
			fail("a VF bound to %s has no RDMA device: want driver %s, or no RDMA", p.Driver, nic.DriverKernel)
		}
	default:
		fail("driver %q: want %s or %s", p.Driver, nic.DriverKernel, nic.DriverVFIO)
	}
	if len(p.Select) == 0 {
		fail("it selects nothing: want at least one PF, for example pci/0000:03:00.0")
	}
	for _, s := range p.Select {
		if s.PF.IsZero() {
			fail("a selector names no PF: want a devlink handle, for example pci/0000:03:00.0")
		}
		switch s.Eswitch {
		case "", nic.Legacy, nic.Switchdev:
		default:
			fail("%s: eswitch %q: want %s or %s", s, s.Eswitch, nic.Legacy, nic.Switchdev)
		}
		for i, r := range s.VFs {
			if r.First < 0 || r.Last > nic.MaxVFIndex || r.First > r.Last || i > 0 && r.First <= s.VFs[i-1].Last+1 {
				fail("VF ranges %q of %s: want ascending ranges apart from each other within 0 to %d", s.VFs, s.PF, nic.MaxVFIndex)
				break
			}
		}
	}
	return problems
}

// overlaps finds VFs that two selectors pick, be they of one pool or of two.
func overlaps(pools []Pool) []error {
	type claim struct {
		pool Pool
		vfs  nic.Ranges
	}
	var problems []error
	claims := map[nic.Handle][]claim{}
	for _, p := range pools {
		for _, s := range p.Select {
			for _, c := range claims[s.PF] {
				both, yes := s.VFs.Shared(c.vfs)
				if !yes {
					continue
				}
				what := "VF " + both.String()
				if both.Last == nic.MaxVFIndex {
					what = fmt.Sprintf("all VFs from %d on", both.First)
				}
				if p.Resource() == c.pool.Resource() {
					problems = append(problems, fmt.Errorf("pool %s names %s of %s twice: want each VF once", p, what, s.PF))
				} else {
					problems = append(problems, fmt.Errorf("pools %s and %s both want %s of %s: want each VF in one pool", c.pool, p, what, s.PF))
				}
			}
			claims[s.PF] = append(claims[s.PF], claim{p, s.VFs})
		}
	}
	return problems
}

// checkResource applies the rules that the kubelet holds a registration to:
// IsExtendedResourceName in pkg/apis/core/v1/helper, which asks of
// requests.PREFIX/NAME that it be a qualified name.
func checkResource(prefix, name string) error {
	const quota = "requests."
	switch resource := prefix + "/" + name; {
	case strings.Contains(resource, "kubernetes.io/"):
		return fmt.Errorf("prefix %q: names under kubernetes.io are Kubernetes' own: want another domain, for example %s", prefix, DefaultPrefix)
	case strings.HasPrefix(resource, quota):
		return fmt.Errorf("prefix %q: want one that does not begin with %q, which stands for quotas", prefix, quota)
	case len(quota)+len(prefix) > 253 || !isSubdomain(prefix):
		return fmt.Errorf("prefix %q is no DNS name: want labels of lower-case letters, digits and inner dashes joined by dots, %d characters at most, for example %s", prefix, 253-len(quota), DefaultPrefix)
	case !isQualified(name):
		return fmt.Errorf("name %q: want 1 to 63 letters, digits, dashes, underscores and dots, the first and the last a letter or digit", name)
	}
	return nil
}

func isSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && !isDigit(c) && !isLower(c) {
				return false
			}
		}
	}
	return true
}

func isQualified(s string) bool {
	if len(s) == 0 || len(s) > 63 {
		return false
	}
	for i, c := range []byte(s) {
		alnum := isDigit(c) || isLower(c) || isLower(c|0x20)
		inner := c == '-' || c == '_' || c == '.'
		if !alnum && (!inner || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
