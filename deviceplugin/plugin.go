package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// Where the kubelet listens and looks for plugins. It is fixed in the kubelet,
// below its root folder.
const (
	DefaultDir      = "/var/lib/kubelet/device-plugins"
	DefaultRegistry = "/var/lib/kubelet/plugins_registry"
)

// Config is what a Plugin needs of its surroundings.
type Config struct {
	Dir   string // of the kubelet's socket; "" is DefaultDir
	Pools []nic.Pool

	// Registry is the folder of the kubelet's plugin watcher, DefaultRegistry say;
	// "" is none. Way says which of the two is gone; "" the one that is there.
	Registry string
	Way      Way

	// PodResources is the socket where the kubelet tells which pod has what,
	// DefaultPodResources say; "": it is not asked.
	PodResources string

	// DeviceInfo and CDI are folders for what is told of devices in files; "": none
	// are written, and a pool that gives devices by CDI gives none.
	DeviceInfo string
	CDI        string

	// Observe reads the machine, with VF.Owner filled in where the caller keeps
	// a record. It is called at the start, after each change, and once for every
	// allocation, from several goroutines at a time.
	Observe func(context.Context) (nic.State, error)

	// RDMA lists RDMA devices, and GPUs what NICs may be near to; nil: there are
	// none. RDMA is called where Observe is, GPUs while a pool asks for them.
	RDMA func(context.Context) ([]host.RDMADevice, error)
	GPUs func(context.Context) ([]host.GPU, error)

	// Allocated is told how an allocation of a resource went, and how long it took from
	// the kubelet's call to the answer; nil is fine.
	Allocated func(resource string, took time.Duration, err error)

	// Held is told when pods have other devices than they had, by the kubelet's word;
	// nil is fine. It must not wait.
	Held func()

	// Exists says whether a device file is there; nil asks the file system.
	Exists func(path string) bool

	Log *slog.Logger // nil: nothing is logged
}

// Plugin offers pools to the kubelet.
type Plugin struct {
	config Config
	papers *papers
	timing timing
	poked  chan struct{}   // look anew
	asked  chan struct{}   // ask the kubelet anew
	noted  map[string]bool // problems of pools that were logged; of who looks

	mu        sync.Mutex
	endpoints []*endpoint                // in the order of the pools
	ending    map[string]<-chan struct{} // of pools that were removed, by resource
	holders   holders                    // by the kubelet's last word
	said      bool                       // there was one
	run       context.Context            // nil unless Run runs
	all       *sync.WaitGroup
}

// timing is what endpoints and observations wait for. Only tests change it.
type timing struct {
	settle   time.Duration // between the end of a place with the kubelet and the next try
	first    time.Duration // the first wait after a failure, doubled each time
	most     time.Duration // the longest one; the kubelet is found again within it
	poll     time.Duration // how often a place is checked without any event
	register time.Duration // bound of one registration
	listen   time.Duration // how long the kubelet may take to open its stream then
	ask      time.Duration // how often the kubelet is asked who has what
}

func defaultTiming() timing {
	return timing{
		settle: 250 * time.Millisecond, first: 50 * time.Millisecond, most: time.Second,
		poll: time.Second, register: 5 * time.Second, listen: 5 * time.Second, ask: 10 * time.Second,
	}
}

// New checks the configuration: pools as in policy.CheckPools, and folders in which
// a socket's path is not too long for the kernel.
func New(c Config) (*Plugin, error) {
	if c.Dir == "" {
		c.Dir = DefaultDir
	}
	for _, dir := range []*string{&c.Dir, &c.Registry} {
		if err := socketDir(dir); err != nil {
			return nil, err
		}
	}
	switch c.Way {
	case "", ByRegister:
	case ByWatcher:
		if c.Registry == "" {
			return nil, fmt.Errorf("device plugin: way %s without a folder of the plugin watcher: want one, for example %s", c.Way, DefaultRegistry)
		}
	default:
		return nil, fmt.Errorf("device plugin: way %q: want %s, %s or none", c.Way, ByRegister, ByWatcher)
	}
	if c.Observe == nil {
		return nil, errors.New("device plugin: Observe is nil: want a function that reads the machine")
	}
	if c.Exists == nil {
		c.Exists = func(path string) bool {
			_, err := os.Stat(path)
			return err == nil
		}
	}
	if c.Allocated == nil {
		c.Allocated = func(string, time.Duration, error) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Plugin{
		config: c, noted: map[string]bool{}, timing: defaultTiming(), ending: map[string]<-chan struct{}{},
		papers: &papers{infos: c.DeviceInfo, specs: c.CDI, log: c.Log},
		poked:  make(chan struct{}, 1), asked: make(chan struct{}, 1),
	}
	if err := p.SetPools(c.Pools); err != nil {
		return nil, err
	}
	return p, nil
}

// socketDir makes a folder's path absolute and sees that sockets in it can have one.
func socketDir(dir *string) error {
	if *dir == "" {
		return nil
	}
	abs, err := filepath.Abs(*dir)
	if err != nil {
		return fmt.Errorf("device plugin folder %q: %w", *dir, err)
	}
	*dir = abs
	if longest := filepath.Join(abs, socketName(longName, ^uint32(0))); len(longest) > maxSocketPath {
		return fmt.Errorf("device plugin folder %q: the path of a socket in it, such as %s, has %d characters: want %d at most", abs, longest, len(longest), maxSocketPath)
	}
	return nil
}

// dirs are the folders of sockets.
func (p *Plugin) dirs() []string {
	if p.config.Registry == "" {
		return []string{p.config.Dir}
	}
	return []string{p.config.Dir, p.config.Registry}
}

// SetPools offers these pools from now on, or answers why they cannot be offered
// and changes nothing. It may be called at any time, by any goroutine. A pool that
// is offered already, by its resource name, keeps its place with the kubelet and its
// stream, on which a changed list follows; one that is not in pools any more is
// listed as empty and then taken from the kubelet. The same pools again touch
// nothing.
func (p *Plugin) SetPools(pools []nic.Pool) error {
	if err := policy.CheckPools(pools); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	var next []*endpoint
	for _, pool := range pools {
		i := slices.IndexFunc(p.endpoints, func(e *endpoint) bool { return e.resource == pool.Resource() })
		if i < 0 {
			e := newEndpoint(pool, meeting{p.config.Dir, p.config.Registry, p.config.Way}, p, p.config.Log)
			e.after = p.ending[e.resource]
			delete(p.ending, e.resource)
			next = append(next, e)
			p.begin(e)
			changed = true
			continue
		}
		e := p.endpoints[i]
		if !reflect.DeepEqual(e.offer.current(), pool) {
			e.offer.become(pool)
			changed = true
		}
		next = append(next, e)
	}
	for _, e := range p.endpoints {
		if !slices.Contains(next, e) {
			p.retire(e)
			changed = true
		}
	}
	p.endpoints = next
	if changed && p.run != nil {
		p.Look()
		poke(p.asked) // what was written of a removed pool is to go
	}
	return nil
}

// begin starts an endpoint, if Run runs. The caller holds mu.
func (p *Plugin) begin(e *endpoint) {
	if p.run == nil {
		return
	}
	ctx, cancel := context.WithCancel(p.run)
	e.cancel = cancel
	p.all.Go(func() {
		defer cancel()
		e.run(ctx, p.timing)
	})
}

// retire ends an endpoint whose pool was removed, after the kubelet has had time to
// hear that it lists nothing. The caller holds mu.
func (p *Plugin) retire(e *endpoint) {
	e.offer.end()
	if p.run == nil {
		return
	}
	e.log.Info("the pool is not offered any more")
	p.ending[e.resource] = e.ended
	run := p.run
	p.all.Go(func() {
		pause(run, p.timing.settle)
		e.cancel()
	})
}

// current is the endpoints, in order.
func (p *Plugin) current() []*endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endpoints
}

// Look has the machine looked at again, soon and without waiting for it: whoever
// has changed something need not wait for the kernel to tell of it.
func (p *Plugin) Look() { poke(p.poked) }

// Run offers the pools until ctx ends, then removes its sockets and returns nil.
// It observes once before it registers: a first list that is short would make
// the kubelet fail the pods of a node that has just booted. After that it
// observes at once whenever changes has a value or Look is called; what comes
// meanwhile counts as one change. An observation that fails is tried again, and the
// last list stands meanwhile.
//
// Run does not give up: a kubelet that is away or refuses is tried for at
// intervals of a second. It must not be called twice at the same time.
func (p *Plugin) Run(ctx context.Context, changes <-chan host.Change) error {
	for _, dir := range p.dirs() {
		p.removeDead(dir)
	}
	p.ask(ctx)
	var all sync.WaitGroup
	p.mu.Lock()
	p.run, p.all = ctx, &all
	for _, e := range p.endpoints {
		p.begin(e) // which waits for its first list
	}
	p.mu.Unlock()
	all.Go(func() { p.watchDirs(ctx) })
	if p.first(ctx) {
		all.Go(func() { p.attend(ctx) })
		p.follow(ctx, changes)
	}
	p.mu.Lock()
	p.run, p.all = nil, nil // nothing is begun any more
	p.mu.Unlock()
	all.Wait()
	return nil
}

// first looks until it has seen the machine; false when ctx has ended before.
func (p *Plugin) first(ctx context.Context) bool {
	wait := backoff{first: p.timing.first, most: p.timing.most}
	for !p.look(ctx) {
		if !pause(ctx, wait.grow()) {
			return false
		}
	}
	return true
}

// follow observes after each change, and again for as long as that fails. The
// first change is looked at at once; in a storm of them half of the time is spent
// looking, whatever a look takes.
func (p *Plugin) follow(ctx context.Context, changes <-chan host.Change) {
	wait := backoff{first: p.timing.first, most: p.timing.most}
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case _, more := <-changes:
			if !more {
				changes = nil
				continue
			}
		case <-p.poked:
		case <-retry:
		}
		drain(changes)
		begun := time.Now()
		if p.look(ctx) {
			wait.reset()
			retry = nil
		} else {
			retry = time.After(wait.grow())
		}
		if !pause(ctx, min(time.Since(begun), p.timing.most)) {
			return
		}
	}
}

// drain takes what has been told so far: the look that follows sees it.
func drain(changes <-chan host.Change) {
	for {
		select {
		case _, more := <-changes:
			if !more {
				return
			}
		default:
			return
		}
	}
}

// look observes and offers what there is. It answers false if that failed.
func (p *Plugin) look(ctx context.Context) bool {
	node, err := p.observe(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.config.Log.Error("VFs cannot be listed; the last list stands", "error", err)
		}
		return false
	}
	problems := map[string]bool{}
	note := func(problem string) {
		problems[problem] = true
		if !p.noted[problem] {
			p.config.Log.Warn("a pool is not as it is wanted", "problem", problem)
		}
	}
	by := map[string]nic.Pool{}
	for _, e := range p.current() {
		pool := e.offer.current()
		devices, missing := List(pool, node)
		for _, m := range missing {
			note(m)
		}
		devices = slices.DeleteFunc(devices, func(d Device) bool {
			first, twice := by[d.ID]
			if twice {
				note(fmt.Sprintf("pools %s and %s both want %s: the first has it", first, pool, d.ID))
				return true
			}
			by[d.ID] = pool
			return false
		})
		if err := p.papers.spec(pool, node, devices); err != nil {
			note(err.Error())
		}
		e.update(devices)
	}
	p.noted = problems
	return true
}

// observe reads the machine.
func (p *Plugin) observe(ctx context.Context) (Node, error) {
	state, err := p.config.Observe(ctx)
	if err != nil {
		return Node{}, fmt.Errorf("observe: %w", err)
	}
	n := Node{State: state, RDMA: map[string]host.RDMADevice{}, Exists: p.config.Exists, Held: p.heldBy()}
	if p.config.RDMA != nil {
		devices, err := p.config.RDMA(ctx)
		if err != nil {
			return Node{}, fmt.Errorf("observe RDMA devices: %w", err)
		}
		for _, d := range devices {
			n.RDMA[d.Name] = d
		}
	}
	if p.config.GPUs != nil && p.wantsGPUs() {
		if n.GPUs, err = p.config.GPUs(ctx); err != nil {
			return Node{}, fmt.Errorf("observe GPUs: %w", err)
		}
	}
	return n, nil
}

func (p *Plugin) wantsGPUs() bool {
	return slices.ContainsFunc(p.current(), func(e *endpoint) bool { return e.offer.current().Prefer == nic.NearGPU })
}

func (p *Plugin) allocated(resource string, took time.Duration, err error) {
	p.config.Allocated(resource, took, err)
}

// hand writes what belongs to an allocation before it is answered.
func (p *Plugin) hand(pool nic.Pool, n Node, g Grant) error {
	poke(p.asked)
	return p.papers.hand(pool, n, g)
}
