package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/nic"
)

// Usage is what Parse takes, for help texts.
const Usage = `SPEC is a simulated machine: terms joined by "+", each NAME or NAME:KEY=VALUE,...
  mlx5, ice, igb, ixgbe, i40e, generic
                   cards: cards=1 ports=2 vfs=16 (sriov_totalvfs of each port) numvfs=0
                   mode=legacy|switchdev autoprobe=on|off numa=N bound=on|off
                   sfs=64 (the most of each port) numsfs=0 link=ethernet|infiniband
  bond             a bond that somebody has made: name=TEXT members=CARD.PORT/CARD.PORT/...
                   mode=active-backup|balance-xor|802.3ad hash=layer2|layer23|layer34 miimon=N lacp=slow|fast ours=on|off
  uses             what of the host runs over a port: card=0 port=0, or over bond=NAME:
                   what=address|default-route address=192.0.2.7/24
  machine          seed=N udev=on|off iommu=on|off delay=DURATION (until a netdev appears)
                   lag=DURATION|never (until hardware has a bond) rdma=shared|exclusive
                   rdmaboot=shared|exclusive settings=on|off
                   netkit=on|off (whether the kernel has it)
                   reps=free (may leave their network namespace)|untold (may not, and no kernel says so)
  fail             makes a change fail: write=N verb=TEXT object=TEXT skip=N times=N errno=EIO
                   text=TEXT after=on|off crash=on|off (ends the process, as kill -9)
  random           a machine by chance: seed=N; alone
or @FILE, a machine that was saved. Examples: mlx5:cards=1,vfs=16   igb+mlx5:numvfs=4,mode=switchdev
  mlx5:mode=switchdev+bond:name=bond0,members=0.0/0.1   mlx5+uses:port=1,what=default-route`

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
		case "bond":
			c.Bonds = append(c.Bonds, k.bond())
		case "uses":
			c.Uses = append(c.Uses, k.use())
		case "mlx5", "ice", "igb", "ixgbe", "i40e", "generic":
			c.Cards = append(c.Cards, k.cards()...)
		default:
			return nil, fmt.Errorf("machine %q: no term %q: want mlx5, ice, igb, ixgbe, i40e, generic, bond, uses, machine, random or fail", spec, name)
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
	c.Plain = !k.flag("settings", true)
	c.NoNetkit = !k.flag("netkit", true)
	c.Reps = Reps(k.word("reps", "", string(RepsUntold), string(RepsFree)))
	c.Delay = k.duration("delay")
	if never := "never"; k.is("lag", never) {
		c.LAGWait = -1
	} else {
		c.LAGWait = k.duration("lag")
	}
	c.RDMAMode = nic.RDMAMode(k.word("rdma", "", string(nic.RDMAShared), string(nic.RDMAExclusive)))
	c.RDMAAtBoot = nic.RDMAMode(k.word("rdmaboot", "", string(nic.RDMAShared), string(nic.RDMAExclusive)))
}

// duration reads a time; 0 if it is not given.
func (k *keys) duration(key string) time.Duration {
	s := k.text(key)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		k.fail(key, fmt.Sprintf("%q: want a duration, for example 200ms", s))
	}
	return d
}

// is takes a pair out if it has that value.
func (k *keys) is(key, value string) bool {
	if !slices.Contains(k.pairs, [2]string{key, value}) {
		return false
	}
	k.text(key)
	return true
}

// word reads one of the words; otherwise if it is not given.
func (k *keys) word(key, otherwise string, words ...string) string {
	s := k.text(key)
	switch {
	case s == "":
		return otherwise
	case !slices.Contains(words, s):
		k.fail(key, fmt.Sprintf("%q: want %s", s, strings.Join(words, " or ")))
	}
	return s
}

// hash reads a policy, which goes without the "+" that joins terms.
func (k *keys) hash() string {
	return strings.NewReplacer("34", "3+4", "23", "2+3").Replace(k.word("hash", "", "layer2", "layer23", "layer34"))
}

func (k *keys) bond() Bond {
	b := Bond{Ours: k.flag("ours", false), Spec: nic.BondSpec{
		Name: k.text("name"), Hash: k.hash(), Miimon: k.num("miimon", 0, 1<<20), LACPRate: k.word("lacp", "", "slow", "fast"),
		Mode: nic.BondMode(k.word("mode", string(nic.ActiveBackup), string(nic.ActiveBackup), string(nic.BalanceXOR), string(nic.IEEE8023AD))),
	}}
	if b.Spec.Name == "" {
		k.fail("name", `"": want a name`)
	}
	members := k.text("members")
	for s := range strings.SplitSeq(members, "/") {
		if members == "" {
			break
		}
		card, port, ok := strings.Cut(s, ".")
		c, err1 := strconv.Atoi(card)
		p, err2 := strconv.Atoi(port)
		if !ok || err1 != nil || err2 != nil {
			k.fail("members", fmt.Sprintf("%q: want CARD.PORT, for example 0.1", s))
		}
		b.Ports = append(b.Ports, Port{c, p})
	}
	return b
}

func (k *keys) use() Use {
	u := Use{
		Port: Port{k.num("card", 0, maxCards-1), k.num("port", 0, 7)}, Bond: k.text("bond"),
		Default: k.word("what", "address", "address", "default-route") == "default-route",
		Address: netip.MustParsePrefix("192.0.2.7/24"),
	}
	if s := k.text("address"); s != "" {
		a, err := netip.ParsePrefix(s)
		if err != nil {
			k.fail("address", fmt.Sprintf("%q: want an address with its prefix length, for example 192.0.2.7/24", s))
		}
		u.Address = a
	}
	return u
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
		MaxSFs:      k.num("sfs", 0, p.maxSFs),
		NumSFs:      k.num("numsfs", 0, p.maxSFs),
		InfiniBand:  k.word("link", "ethernet", "ethernet", "infiniband") == "infiniband",
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
