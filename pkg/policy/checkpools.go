package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// CheckPools answers every reason why pools cannot be offered, joined. It judges
// by themselves alone; Pools also looks at which devices addresses are.
func CheckPools(pools []nic.Pool) error {
	var out []error
	for _, p := range poolProblems(pools, nil) {
		out = append(out, errors.New(p.text))
	}
	return errors.Join(out...)
}

// poolProblem is what is wrong with the pool of that place in the list.
type poolProblem struct {
	pool int
	text string
}

// poolProblems finds what is wrong with resolved pools; state may be nil.
func poolProblems(pools []nic.Pool, state *nic.State) []poolProblem {
	var out []poolProblem
	resources := map[string]bool{}
	variables := map[string]string{}
	for i, p := range pools {
		fail := func(format string, args ...any) {
			out = append(out, poolProblem{i, fmt.Sprintf(format, args...)})
		}
		if err := checkResource(cmp.Or(p.Prefix, nic.DefaultPrefix), p.Name); err != nil {
			fail("%v", err) // what else is wrong with it has no name to be said by
			continue
		}
		checkPool(p, fail)
		r := p.Resource()
		if resources[r] {
			fail("pool %s: there are two of this name: want one", r)
			continue
		}
		resources[r] = true
		// The kubelet keeps only one of two equal variables, so a pod with both
		// resources would not learn of one of them.
		for _, name := range []string{PoolVariable(p), PoolVariable(p) + "_INFO"} {
			if other := variables[name]; other != "" {
				fail("pools %s and %s: containers would get both as variable %s: want names that differ in more than case, dots and underscores", other, r, name)
			}
			variables[name] = r
		}
	}
	if len(out) > 0 {
		return out // in good order, only overlaps are left
	}
	return overlaps(pools, state)
}

// PoolVariable is the environment variable that names a pool's devices in
// containers: PCIDEVICE_PREFIX_NAME in upper case. Dots become underscores and
// dashes stay, as programs expect that know it from elsewhere.
func PoolVariable(p nic.Pool) string {
	return strings.ToUpper(strings.ReplaceAll("PCIDEVICE_"+strings.Replace(p.Resource(), "/", "_", 1), ".", "_"))
}

func checkPool(p nic.Pool, problem func(string, ...any)) {
	fail := func(format string, args ...any) {
		problem("pool %s: "+format, append([]any{p.Resource()}, args...)...)
	}
	switch p.WantedDriver() {
	case nic.DriverKernel, nic.DriverAny:
	case nic.DriverVFIO:
		if p.RDMA {
			fail("a VF bound to %s has no RDMA device: want driver %s, or no RDMA", p.Driver, nic.DriverKernel)
		}
		if p.VDPA != "" {
			fail("a VF bound to %s has no vDPA device: want driver %s, or no vDPA", p.Driver, nic.DriverKernel)
		}
	default:
		fail("driver %q: want %s, %s or %s", p.Driver, nic.DriverKernel, nic.DriverVFIO, nic.DriverAny)
	}
	if p.Select == nil {
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
		for i, r := range s.Indexes {
			if r.First < 0 || r.Last > nic.MaxVFIndex || r.First > r.Last || i > 0 && r.First <= s.Indexes[i-1].Last+1 {
				fail("VF ranges %q of %s: want ascending ranges apart from each other within 0 to %d", s.Indexes, s.PF, nic.MaxVFIndex)
				break
			}
		}
	}
}

// claim is one pick of one pool.
type claim struct {
	at   int // of the pool in the list
	pool nic.Pool
	pick nic.Pick
}

// overlaps finds devices that two picks have, be they of one pool or of two.
func overlaps(pools []nic.Pool, state *nic.State) []poolProblem {
	var out []poolProblem
	claims := map[nic.Handle][]claim{}
	for i, p := range pools {
		for _, s := range p.Select {
			mine := claim{i, p, s}
			for _, c := range claims[s.PF] {
				what := c.shared(mine, state)
				switch {
				case what == "":
				case c.at == i:
					out = append(out, poolProblem{i, fmt.Sprintf("pool %s names %s of %s twice: want each once", p, what, s.PF)})
				default:
					out = append(out, poolProblem{i, fmt.Sprintf("pools %s and %s both want %s of %s: want each in one pool", c.pool, p, what, s.PF)})
				}
			}
			claims[s.PF] = append(claims[s.PF], mine)
		}
	}
	return out
}

// shared says what both claims have; "" nothing. Which devices addresses are only
// state tells; without it, or of one that is not there, they say nothing.
func (c claim) shared(o claim, state *nic.State) string {
	both, yes := c.pick.Indexes.Shared(o.pick.Indexes)
	if c.pick.PF != o.pick.PF || !c.pool.IsOf(cmp.Or(o.pool.Kind, nic.PoolOfVFs)) {
		return ""
	}
	if !yes || c.pool.Filter.Apart(o.pool.Filter) {
		return ""
	}
	kind := "VF"
	switch {
	case c.pool.IsOf(nic.PoolOfHCAs):
		return "the RDMA device"
	case c.pool.IsOf(nic.PoolOfSFs):
		kind = "SF"
	}
	if len(c.pool.Filter.Addresses) > 0 || len(o.pool.Filter.Addresses) > 0 {
		return c.sharedNow(o, state)
	}
	if state != nil {
		if pf := state.PF(c.pick.PF); pf != nil && (!c.pool.Filter.FitsPF(pf) || !o.pool.Filter.FitsPF(pf)) {
			return ""
		}
	}
	if both.Last == nic.MaxVFIndex {
		return fmt.Sprintf("all %ss from %d on", kind, both.First)
	}
	return kind + " " + both.String()
}

// sharedNow compares devices that are there.
func (c claim) sharedNow(o claim, state *nic.State) string {
	if state == nil {
		return ""
	}
	pf := state.PF(c.pick.PF)
	if pf == nil || !c.pool.Filter.FitsPF(pf) || !o.pool.Filter.FitsPF(pf) {
		return ""
	}
	// Drivers and ids may be others later: Apart has judged them.
	named := func(addresses []string, name string) bool {
		return len(addresses) == 0 || slices.Contains(addresses, name)
	}
	has := func(c claim, i int, name string) bool {
		return c.pick.Indexes.Has(i) && named(c.pool.Filter.Addresses, name)
	}
	if c.pool.IsOf(nic.PoolOfSFs) {
		for _, sf := range pf.SFs {
			if has(c, sf.Num, sf.Device) && has(o, sf.Num, sf.Device) {
				return fmt.Sprintf("SF %d (%s)", sf.Num, sf.Device)
			}
		}
		return ""
	}
	for i, vf := range pf.VFs {
		if has(c, i, vf.Address) && has(o, i, vf.Address) {
			return fmt.Sprintf("VF %d (%s)", i, vf.Address)
		}
	}
	return ""
}

// checkResource applies the rules that the kubelet holds a registration to:
// IsExtendedResourceName in pkg/apis/core/v1/helper, which asks of
// requests.PREFIX/NAME that it be a qualified name.
func checkResource(prefix, name string) error {
	const quota = "requests."
	switch resource := prefix + "/" + name; {
	case strings.Contains(resource, "kubernetes.io/"):
		return fmt.Errorf("prefix %q: names under kubernetes.io are Kubernetes' own: want another domain, for example %s", prefix, nic.DefaultPrefix)
	case strings.HasPrefix(resource, quota):
		return fmt.Errorf("prefix %q: want one that does not begin with %q, which stands for quotas", prefix, quota)
	case len(quota)+len(prefix) > 253 || !isSubdomain(prefix):
		return fmt.Errorf("prefix %q is no DNS name: want labels of lower-case letters, digits and inner dashes joined by dots, %d characters at most, for example %s", prefix, 253-len(quota), nic.DefaultPrefix)
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
