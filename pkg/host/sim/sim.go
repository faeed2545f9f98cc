package sim

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Sim is a simulated machine. All methods may be called from several goroutines.
type Sim struct {
	place   *place // nil: it is kept nowhere
	mu      sync.Mutex
	st      state
	clock   Clock
	handles map[int]int // open handles by namespace
	log     []Op
	dead    bool
	told    []*host.Outbox // of those who watch
	shown   shown          // what they have been told of

	table    []knob    // see Sim.knobs
	promised time.Time // up to when those will be told of what is late
}

// hand is the machine as somebody uses it: sluice, whose changes are counted, logged
// and made to fail, and which can crash; or a stranger.
type hand struct {
	*Sim
	stranger bool
}

// Clock is how time passes for the machine. Wait returns ctx's error if ctx ends
// before d has passed.
type Clock interface {
	Now() time.Time
	Wait(ctx context.Context, d time.Duration) error
}

// wallClock is the clock of a machine that was given none; in a testing/synctest
// bubble its time is the bubble's.
type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Config says what machine New builds.
type Config struct {
	Seed    uint64
	NoUdev  bool // netdevs are called ethN instead of by their path
	NoIOMMU bool // vfio-pci cannot be bound
	Plain   bool // nothing of nic.Setting is offered
	Reps    Reps

	NoNetkit bool          // the kernel has no netkit
	Delay    time.Duration // how long after its driver a netdev is there
	LAGWait  time.Duration // how long after its bond LAG is active; below 0 never

	RDMAMode   nic.RDMAMode // "" shared
	RDMAAtBoot nic.RDMAMode

	Cards []Card
	Bonds []Bond
	Uses  []Use
}

// Port names a port of a card, both counted from 0.
type Port struct{ Card, Port int }

// Bond is a bond that the machine has when it starts. The zero mode is active-backup.
type Bond struct {
	Spec  nic.BondSpec // Members are not looked at
	Ours  bool
	Ports []Port
}

// Use is an address, and with it a default route, on a port's netdev or on a bond.
type Use struct {
	Port    Port
	Bond    string // "" the port
	Address netip.Prefix
	Default bool
}

// Card is one card of a machine, or several alike. A zero number stands for the
// profile's usual one.
type Card struct {
	Profile  string // mlx5, ice, igb, ixgbe, i40e, generic
	Ports    int
	TotalVFs int  // sriov_totalvfs of each port
	NUMA     *int // nil: by the card's place
	MaxSFs   int  // that each port can have, where it can; 0: the usual

	// InfiniBand: the link layer of its ports. It has GUIDs and no eswitch mode then.
	InfiniBand bool

	// How its ports are found when the machine starts.
	NumVFs      int
	NumSFs      int         // active, numbered from 1; in switchdev mode
	Mode        nic.Eswitch // "" legacy, where there is a mode
	NoAutoprobe bool
	Unbound     bool // the PFs have no driver
}

// Reps says whether representors may leave their network namespace.
type Reps string

// Of mlx5 they may not, and Linux 6.15 tells so beforehand and with words; 6.13 and
// 6.14 tell nothing, and refuse the move. Other drivers do not pin theirs (netdevsim).
const (
	RepsPinned Reps = ""
	RepsUntold Reps = "untold"
	RepsFree   Reps = "free"
)

// maxCards is what fits on the machine's buses.
const maxCards = 8

// New builds a machine. What a card cannot be is an error.
func New(c Config) (*Sim, error) {
	s := &Sim{clock: wallClock{}, handles: map[int]int{}}
	s.st = state{
		Version: stateVersion, Boot: rand.Text(), Seed: c.Seed, Udev: !c.NoUdev, IOMMU: !c.NoIOMMU, Plain: c.Plain, Reps: c.Reps, NoNetkit: c.NoNetkit, Delay: c.Delay,
		LAGWait: c.LAGWait, RDMAMode: cmp.Or(c.RDMAMode, nic.RDMAShared), RDMAAtBoot: c.RDMAAtBoot,
		Netns: []*netns{{ID: hostNS}},
	}
	s.addLoopback(s.st.Netns[0])
	if len(c.Cards) > maxCards {
		return nil, fmt.Errorf("%d cards: a machine holds %d at most", len(c.Cards), maxCards)
	}
	switch {
	case !slices.Contains([]Reps{RepsPinned, RepsUntold, RepsFree}, c.Reps):
		return nil, fmt.Errorf("representors %q: want %q, %q or none", c.Reps, RepsUntold, RepsFree)
	case c.Delay < 0:
		return nil, fmt.Errorf("delay %v: want 0 or more", c.Delay)
	case !rdmaMode(s.st.RDMAMode), c.RDMAAtBoot != "" && !rdmaMode(c.RDMAAtBoot):
		return nil, fmt.Errorf("RDMA modes %q and %q: want %s or %s", c.RDMAMode, c.RDMAAtBoot, nic.RDMAShared, nic.RDMAExclusive)
	}
	var first []int
	for i, card := range c.Cards {
		first = append(first, len(s.st.PFs))
		if err := s.addCard(i, card); err != nil {
			return nil, err
		}
	}
	for i, card := range c.Cards {
		if err := s.start(first[i], card); err != nil {
			return nil, err
		}
	}
	for _, l := range s.st.Links {
		l.Due = time.Time{}
	}
	for _, b := range c.Bonds {
		if err := s.startBond(b); err != nil {
			return nil, err
		}
	}
	s.startLAGs()
	for _, u := range c.Uses {
		if err := s.startUse(u); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// addCard plugs card number n in and lets its driver bind.
func (s *Sim) addCard(n int, c Card) error {
	p, ok := profileNamed(c.Profile)
	if !ok {
		return fmt.Errorf("card %d: no profile %q: want one of %q", n, c.Profile, profileNames())
	}
	ports, total := cmp.Or(c.Ports, p.defaultPorts), cmp.Or(c.TotalVFs, p.defaultVFs)
	if ports < 1 || ports > p.maxPorts {
		return fmt.Errorf("card %d: %s with %d ports: want 1 to %d", n, p.name, ports, p.maxPorts)
	}
	if total < 1 || total > p.maxVFs {
		return fmt.Errorf("card %d: %s with %d VFs a port: want 1 to %d", n, p.name, total, p.maxVFs)
	}
	switch {
	case c.InfiniBand && !p.infiniband:
		return fmt.Errorf("card %d: %s with InfiniBand ports: want one of mlx5", n, p.name)
	case c.MaxSFs < 0 || c.MaxSFs > p.maxSFs:
		return fmt.Errorf("card %d: %s with %d SFs a port: want 0 to %d", n, p.name, c.MaxSFs, p.maxSFs)
	}
	numa := 0
	if cardBus(n) >= 0x40 {
		numa = 1
	}
	if c.NUMA != nil {
		numa = *c.NUMA
	}
	if numa < -1 {
		return fmt.Errorf("card %d: NUMA node %d: want -1 (not said) or a node", n, numa)
	}
	id := s.draw()
	for port := range ports {
		f := &pf{
			Profile: p.name, Card: n, Port: port, Ports: ports, Address: pfAddress(n, port),
			MAC:  nic.MAC{p.oui[0], p.oui[1], p.oui[2], byte(id >> 16), byte(id >> 8), byte(id)&0xfe + byte(port)},
			NUMA: numa, TotalVFs: total, Autoprobe: !c.NoAutoprobe, InfiniBand: c.InfiniBand,
		}
		if !c.InfiniBand {
			f.MaxSFs = cmp.Or(c.MaxSFs, p.defaultSFs)
		}
		if p.product != "" {
			f.Serial = fmt.Sprintf("SIM%02d%07d", n, id%10_000_000)
		}
		if p.devlink && !c.InfiniBand {
			f.Mode = nic.Legacy
			f.SwitchID = nic.SwitchIDOf([]byte{p.oui[0], p.oui[1], p.oui[2], 3, 0, byte(id >> 16), byte(id >> 8), byte(id) & 0xfe})
		}
		s.st.PFs = append(s.st.PFs, f)
		if !c.Unbound {
			s.probePF(len(s.st.PFs) - 1)
		}
	}
	return nil
}

// start brings the ports of a card, from PF number first on, to how they are to
// be found.
func (s *Sim) start(first int, c Card) error {
	p := s.profile(first)
	switch {
	case c.NumVFs < 0 || c.NumVFs > s.st.PFs[first].TotalVFs:
		return fmt.Errorf("card %d: %d VFs of %d", s.st.PFs[first].Card, c.NumVFs, s.st.PFs[first].TotalVFs)
	case c.Mode != "" && c.Mode != nic.Legacy && c.Mode != nic.Switchdev:
		return fmt.Errorf("card %d: no mode %q: want %s or %s", s.st.PFs[first].Card, c.Mode, nic.Legacy, nic.Switchdev)
	case c.Mode != "" && s.st.PFs[first].Mode == "":
		return fmt.Errorf("card %d: %s has no eswitch mode", s.st.PFs[first].Card, p.name)
	case c.NumSFs < 0 || c.NumSFs > s.st.PFs[first].MaxSFs:
		return fmt.Errorf("card %d: %d SFs of %d", s.st.PFs[first].Card, c.NumSFs, s.st.PFs[first].MaxSFs)
	case c.NumSFs > 0 && c.Mode != nic.Switchdev:
		return fmt.Errorf("card %d: SFs are of switchdev mode", s.st.PFs[first].Card)
	case p.modeAfterVFs && c.Mode == nic.Switchdev && c.NumVFs == 0:
		return fmt.Errorf("card %d: %s is in switchdev mode only while it has VFs", s.st.PFs[first].Card, p.name)
	case c.Unbound && (c.NumVFs > 0 || c.Mode == nic.Switchdev):
		return fmt.Errorf("card %d: without a driver it has neither VFs nor a mode", s.st.PFs[first].Card)
	}
	for i := range s.st.PFs[first].Ports {
		if p.modeAfterVFs && c.NumVFs > 0 {
			s.makeVFs(first+i, c.NumVFs)
		}
		if c.Mode == nic.Switchdev {
			s.setMode(first+i, c.Mode)
		}
		if !p.modeAfterVFs && c.NumVFs > 0 {
			s.makeVFs(first+i, c.NumVFs)
		}
		for n := range c.NumSFs {
			s.addSF(first+i, n+1)
			s.activateSF(first+i, s.st.PFs[first+i].SFs[n])
		}
	}
	return nil
}

// Machine gives the machine through the seam.
func (s *Sim) Machine() host.Machine { return hand{Sim: s}.machine() }

func (s hand) machine() host.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return host.Machine{
		Boot:     s.st.Boot,
		PCI:      pci{s},
		Devlink:  devlink{s},
		Links:    &links{s: s, ns: hostNS},
		Bonds:    bonds{s},
		Pairs:    pairs{s},
		RDMA:     rdma{s},
		Netns:    namespaces{s},
		Settings: settings{s},
		Watch:    watch{s},
	}
}

// SetClock replaces the clock by which late netdevs appear.
func (s *Sim) SetClock(c Clock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = c
}

// SetDelay says how long after its driver is bound, or after the mode change that
// makes it, a netdev appears.
func (s *Sim) SetDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Delay = d
}

// Clone returns another machine in the same state, faults included, with an empty
// log and no open namespace handles.
func (s *Sim) Clone() *Sim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Sim{clock: s.clock, handles: map[int]int{}, table: s.table}
	c.st = s.st.clone()
	return c
}

// Op is one attempt to change the machine, as it reached the kernel. What was so
// already makes none.
type Op struct {
	N      int    // counted from 1 over the life of the machine
	Verb   Verb   // what was asked
	Arg    string // for what value
	Object string // of what: PCI address, devlink handle (and port), or interface
	Netns  string // path, of an interface that is not in the host's namespace
	Err    error  // how it ended
}

// Verb is the kind of an Op.
type Verb string

// The verbs, one for each setter of package host.
const (
	SetVFs       Verb = "set sriov_numvfs"
	SetAutoprobe Verb = "set sriov_drivers_autoprobe"
	Bind         Verb = "bind driver"
	Unbind       Verb = "unbind driver"
	SetEswitch   Verb = "set eswitch mode"
	SetPortMAC   Verb = "set hw_addr"
	SetMTU       Verb = "set mtu"
	SetMAC       Verb = "set address"
	SetUp        Verb = "set state"
	SetName      Verb = "set name"
	SetVFMAC     Verb = "set vf mac"
	Move         Verb = "move to netns"
	AddAddress   Verb = "add address"
	AddRoute     Verb = "add route"
	Announce     Verb = "announce address"
	SetSysctl    Verb = "set sysctl"
	AddSF        Verb = "add SF"
	DelSF        Verb = "remove SF"
	SetSFActive  Verb = "set SF state"
	AddBond      Verb = "add bond"
	DelBond      Verb = "remove bond"
	Enslave      Verb = "enslave"
	Release      Verb = "release"
	SetRDMAMode  Verb = "set RDMA mode"
	SetRDMABoot  Verb = "set RDMA mode at boot"
	MoveRDMA     Verb = "move RDMA device to netns"
	SetAltName   Verb = "set alternative name"
	SetPromisc   Verb = "set promiscuous"
	AddPair      Verb = "add pair"
	DelPair      Verb = "remove pair"

	// Aggregate is the driver's own: that it takes a bond into hardware. It makes no
	// Op, and only a Fault that names it meets it.
	Aggregate Verb = "activate LAG"
)

// SetOf is the verb of a setting.
func SetOf(name nic.Setting) Verb { return Verb("set " + string(name)) }

func verbs() []Verb {
	out := []Verb{
		SetVFs, SetAutoprobe, Bind, Unbind, SetEswitch, SetPortMAC, SetMTU, SetMAC, SetUp, SetName, SetVFMAC, Move,
		AddAddress, AddRoute, Announce, SetSysctl, AddSF, DelSF, SetSFActive, AddBond, DelBond, Enslave, Release,
		SetRDMAMode, SetRDMABoot, MoveRDMA, SetAltName, SetPromisc, AddPair, DelPair, Aggregate,
	}
	for _, k := range knobs() {
		if v := SetOf(k.name); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func (o Op) what() string {
	if o.Arg == "" {
		return string(o.Verb)
	}
	return string(o.Verb) + " " + o.Arg
}

func (o Op) String() string {
	out := fmt.Sprintf("%d: %s of %s", o.N, o.what(), o.Object)
	if o.Netns != "" {
		out += " in " + o.Netns
	}
	if o.Err != nil {
		out += " (" + o.Err.Error() + ")"
	}
	return out
}

// Writes counts the Ops of the machine's life.
func (s *Sim) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.Writes
}

// Log returns the Ops since New, Load or Clone, in order.
func (s *Sim) Log() []Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// refusal is the kernel's no: an errno and the extended ack text that went with
// it. err replaces the errno as the cause where package host has a sentinel that
// the errno does not lead to.
type refusal struct {
	errno syscall.Errno
	ext   string
	err   error
}

func (r *refusal) Error() string { return r.errno.Error() }

func refuse(errno syscall.Errno, ext string) error { return &refusal{errno: errno, ext: ext} }

// fail puts op and object around what went wrong.
func (o Op) fail(err error) error {
	if err == nil {
		return nil
	}
	var r *refusal
	if errors.As(err, &r) {
		return &host.Error{Op: o.what(), Object: o.Object, Errno: r.errno, Ext: r.ext, Err: r.err}
	}
	return host.Fail(o.what(), o.Object, err, "")
}

// set runs one setter. plan looks at the machine, under the lock, and returns the
// change to make, nil if all is so already, or the kernel's refusal. late picks
// the links that must be there before the setter may return; nil for none.
func (s hand) set(ctx context.Context, op Op, plan func() (change func(), err error), late func(*link) bool) error {
	if err := s.attempt(ctx, &op, plan); err != nil {
		return err
	}
	if late == nil {
		return nil
	}
	return s.settle(ctx, op, late)
}

func (s hand) attempt(ctx context.Context, op *Op, plan func() (func(), error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead && !s.stranger {
		return op.fail(ErrCrashed)
	}
	if err := ctx.Err(); err != nil {
		return op.fail(err)
	}
	release, err := s.alone()
	if err != nil {
		return op.fail(err)
	}
	defer release()
	s.work()
	change, err := plan()
	if s.stranger {
		if err == nil && change != nil {
			s.change(*op, change)
			err = s.put()
		}
		return op.fail(err)
	}
	if change == nil && err == nil {
		return nil
	}
	s.st.Writes++
	op.N = s.st.Writes
	fault := s.fault(*op)
	switch {
	case fault != nil && !fault.After:
		err = s.strike(*op, fault)
	case err != nil:
		err = op.fail(err)
	default:
		s.change(*op, change)
		if fault != nil {
			err = s.strike(*op, fault)
		}
	}
	if kept := s.put(); err == nil {
		err = op.fail(kept)
	}
	op.Err = err
	s.log = append(s.log, *op)
	return err
}

// change makes a change, lets the kernel do what follows from it, and tells those
// who watch.
func (s *Sim) change(op Op, do func()) {
	do()
	s.work()
	s.tell(op.what() + " of " + op.Object)
}

// settle waits for the netdevs that late picks. The wait is bounded, the more VFs
// the longer: 125 of them were seen to take 65 s.
func (s hand) settle(ctx context.Context, op Op, late func(*link) bool) error {
	s.mu.Lock()
	now, due, n := s.clock.Now(), time.Time{}, 0
	for _, l := range s.st.Links {
		if late(l) {
			n++
			if l.Due.After(due) {
				due = l.Due
			}
		}
	}
	clock := s.clock
	s.mu.Unlock()
	wait := due.Sub(now)
	if due.IsZero() || wait <= 0 {
		return nil
	}
	bound := 10*time.Second + time.Duration(n)*time.Second
	if err := clock.Wait(ctx, min(wait, bound)); err != nil {
		return op.fail(err)
	}
	if wait > bound {
		return op.fail(refuse(syscall.ETIMEDOUT, fmt.Sprintf("netdevs did not appear within %v", bound)))
	}
	return nil
}

// read runs one query under the lock.
func (s hand) read(ctx context.Context, op string, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := Op{Verb: Verb(op), Object: "the machine"}
	if s.dead && !s.stranger {
		return o.fail(ErrCrashed)
	}
	if err := ctx.Err(); err != nil {
		return o.fail(err)
	}
	if err := s.reread(); err != nil {
		return o.fail(err)
	}
	s.work()
	return f()
}
