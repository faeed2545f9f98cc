package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/nic"
)

// Usage is what Parse takes, for help texts.
const Usage = `SPEC is a simulated machine: terms joined by "+", each NAME or NAME:KEY=VALUE,...
  mlx5, ice, igb   cards: cards=1 ports=2 vfs=16 (sriov_totalvfs of each port) numvfs=0
                   mode=legacy|switchdev autoprobe=on|off numa=N bound=on|off
  machine          seed=N udev=on|off iommu=on|off delay=DURATION (until a netdev appears)
  fail             makes a change fail: write=N verb=TEXT object=TEXT skip=N times=N errno=EIO
                   text=TEXT after=on|off crash=on|off
  random           a machine by chance: seed=N; alone
or @FILE, a machine that was saved. Examples: mlx5:cards=1,vfs=16   igb+mlx5:numvfs=4,mode=switchdev`

// Parse builds the machine that spec describes (see Usage). An error names the
// term and the value that is wrong and what is right in its place.
func Parse(spec string) (*Sim, error) {
	if path, ok := strings.CutPrefix(spec, "@"); ok {
		return Load(path)
	}
	var (
		c      Config
		faults []Fault
		random *uint64
		seen   = map[string]bool{}
	)
	terms := strings.Split(spec, "+")
	for _, t := range terms {
		name, rest, colon := strings.Cut(t, ":")
		k := &keys{term: name}
		if colon {
			if err := k.split(rest); err != nil {
				return nil, fmt.Errorf("machine %q: %w", spec, err)
			}
		}
		switch name {
		case "machine", "random":
			if seen[name] {
				k.fail("", "it is there twice")
			}
			seen[name] = true
		}
		switch name {
		case "machine":
			k.machine(&c)
		case "random":
			seed := uint64(k.num("seed", 0, 1<<62))
			random = &seed
		case "fail":
			faults = append(faults, k.fault())
		case "mlx5", "ice", "igb":
			c.Cards = append(c.Cards, k.cards()...)
		default:
			return nil, fmt.Errorf("machine %q: no term %q: want mlx5, ice, igb, machine, random or fail", spec, name)
		}
		if err := k.done(); err != nil {
			return nil, fmt.Errorf("machine %q: %w", spec, err)
		}
	}
	s, err := build(c, random, len(terms) > 1+len(faults))
	if err != nil {
		return nil, fmt.Errorf("machine %q: %w", spec, err)
	}
	s.st.Faults = faults
	return s, nil
}

func build(c Config, random *uint64, more bool) (*Sim, error) {
	if random == nil {
		return New(c)
	}
	if more {
		return nil, errors.New("random: it goes with fail terms only")
	}
	return Random(*random), nil
}

// keys are the KEY=VALUE pairs of one term. Each getter takes its pair out; done
// complains about what was wrong or is left.
type keys struct {
	term  string
	pairs [][2]string
	err   error
}

func (k *keys) split(s string) error {
	for p := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" || value == "" {
			return fmt.Errorf("%s: %q: want KEY=VALUE", k.term, p)
		}
		if slices.ContainsFunc(k.pairs, func(o [2]string) bool { return o[0] == key }) {
			return fmt.Errorf("%s: %s is there twice", k.term, key)
		}
		k.pairs = append(k.pairs, [2]string{key, value})
	}
	return nil
}

func (k *keys) fail(key, what string) {
	if k.err != nil {
		return
	}
	if key != "" {
		key = ": " + key
	}
	k.err = fmt.Errorf("%s%s: %s", k.term, key, what)
}

func (k *keys) text(key string) string {
	for i, p := range k.pairs {
		if p[0] == key {
			k.pairs = slices.Delete(k.pairs, i, i+1)
			return p[1]
		}
	}
	return ""
}

// num reads a number from low to high; low if it is not given.
func (k *keys) num(key string, low, high int) int {
	s := k.text(key)
	if s == "" {
		return low
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		k.fail(key, fmt.Sprintf("%q: want a number from %d to %d", s, low, high))
		return low
	}
	return n
}

func (k *keys) flag(key string, otherwise bool) bool {
	switch s := k.text(key); s {
	case "":
		return otherwise
	case "on":
		return true
	case "off":
		return false
	default:
		k.fail(key, fmt.Sprintf("%q: want on or off", s))
		return otherwise
	}
}

func (k *keys) done() error {
	if len(k.pairs) > 0 {
		k.fail(k.pairs[0][0], "no such key here")
	}
	return k.err
}

func (k *keys) machine(c *Config) {
	c.Seed = uint64(k.num("seed", 0, 1<<62))
	c.NoUdev = !k.flag("udev", true)
	c.NoIOMMU = !k.flag("iommu", true)
	if s := k.text("delay"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			k.fail("delay", fmt.Sprintf("%q: want a duration, for example 200ms", s))
		}
		c.Delay = d
	}
}

func (k *keys) cards() []Card {
	p, _ := profileNamed(k.term)
	n := k.num("cards", 1, maxCards)
	c := Card{
		Profile:     p.name,
		Ports:       k.num("ports", 0, p.maxPorts),
		TotalVFs:    k.num("vfs", 0, p.maxVFs),
		NumVFs:      k.num("numvfs", 0, p.maxVFs),
		NoAutoprobe: !k.flag("autoprobe", true),
		Unbound:     !k.flag("bound", true),
	}
	if node := k.num("numa", -1, 1023); node >= 0 {
		c.NUMA = &node
	}
	if s := k.text("mode"); s != "" {
		c.Mode = nic.Eswitch(s)
		if c.Mode != nic.Legacy && c.Mode != nic.Switchdev {
			k.fail("mode", fmt.Sprintf("%q: want %s or %s", s, nic.Legacy, nic.Switchdev))
		}
	}
	return slices.Repeat([]Card{c}, n)
}

func (k *keys) fault() Fault {
	const many = 1 << 30
	f := Fault{
		Verb: Verb(k.text("verb")), Object: k.text("object"),
		Write: k.num("write", 0, many), Skip: k.num("skip", 0, many), Times: k.num("times", -1, many),
		After: k.flag("after", false), Crash: k.flag("crash", false), Ext: k.text("text"),
	}
	if f.Verb != "" && !slices.Contains(verbs(), f.Verb) {
		k.fail("verb", fmt.Sprintf("%q: want one of %q", f.Verb, verbs()))
	}
	if s := k.text("errno"); s != "" {
		f.Errno = errnoNamed(s)
		if f.Errno == 0 {
			k.fail("errno", fmt.Sprintf("%q: want a name like EIO or EBUSY", s))
		}
	}
	return f
}

// errnoNamed knows the errnos that the modelled calls return; 0 for others.
func errnoNamed(name string) syscall.Errno {
	switch name {
	case "EPERM":
		return syscall.EPERM
	case "ENOENT":
		return syscall.ENOENT
	case "EINTR":
		return syscall.EINTR
	case "EIO":
		return syscall.EIO
	case "EAGAIN":
		return syscall.EAGAIN
	case "ENOMEM":
		return syscall.ENOMEM
	case "EBUSY":
		return syscall.EBUSY
	case "EEXIST":
		return syscall.EEXIST
	case "ENODEV":
		return syscall.ENODEV
	case "EINVAL":
		return syscall.EINVAL
	case "ENOSPC":
		return syscall.ENOSPC
	case "ERANGE":
		return syscall.ERANGE
	case "EOPNOTSUPP":
		return syscall.EOPNOTSUPP
	case "ENETDOWN":
		return syscall.ENETDOWN
	case "ETIMEDOUT":
		return syscall.ETIMEDOUT
	}
	return 0
}
