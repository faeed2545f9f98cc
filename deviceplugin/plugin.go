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

	// Heard is called with each answer, as of Holders; nil is fine.
	Heard func(map[string]Holder)

	// DeviceInfo and CDI are folders for what is told of devices in files; "": none
	// are written, and a pool that gives devices by CDI gives none.
	DeviceInfo string
	CDI        string

	// DeviceFiles is a folder of the machine that has one for each device, in which a CNI
	// plugin writes what programs are to know of it; "": none is mounted into containers.
	DeviceFiles string

	// Look reads the machine, with VF.Owner filled in where the caller keeps a record.
	// It is called at the start, some time after each change, and once for every
	// allocation, from several goroutines at a time.
	Look func(context.Context) (Sight, error)

	// GPUs lists what NICs may be near to, where Look is called and a pool asks for
	// them; nil: there are none.
	GPUs func(context.Context) ([]host.GPU, error)

	// Allocated is told how an allocation of a resource went, and how long it took from
	// the kubelet's call to the answer; nil is fine.
	Allocated func(resource string, took time.Duration, err error)

	// Listed is told when a pool's list is another, or there are other pools: what
	// Status answers has changed. Nil is fine. It must not wait.
	Listed func()

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
	calm     time.Duration // how long after the last change that was followed all is looked at
	patience time.Duration // and how long after the first
}

func defaultTiming() timing {
	return timing{
		settle: 250 * time.Millisecond, first: 50 * time.Millisecond, most: time.Second,
		poll: time.Second, register: 5 * time.Second, listen: 5 * time.Second, ask: 10 * time.Second,
		calm: time.Second, patience: 5 * time.Second,
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
	if c.DeviceFiles != "" { // the kubelet wants absolute paths
		abs, err := filepath.Abs(c.DeviceFiles)
		if err != nil {
			return nil, fmt.Errorf("device plugin: folder of device files %q: %w", c.DeviceFiles, err)
		}
		c.DeviceFiles = abs
	}
	if c.Look == nil {
		return nil, errors.New("device plugin: Look is nil: want a function that reads the machine")
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
		papers: &papers{infos: c.DeviceInfo, specs: c.CDI, files: c.DeviceFiles, log: c.Log},
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
	if p.replace(pools) && p.config.Listed != nil {
		p.config.Listed()
	}
	return nil
}

// replace makes pools the ones that are offered, and answers whether they are others.
func (p *Plugin) replace(pools []nic.Pool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
	return changed
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

// Run offers the pools until ctx ends, then removes its sockets and returns nil.
// It observes once before it registers: a first list that is short would make
// the kubelet fail the pods of a node that has just booted. After that it follows
// changes: what one names is read and listed at once, and all is looked at a little
// later, or at once where that is not enough or Look is called. A look that fails is
// tried again, and the last list stands meanwhile.
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
	if seen, ok := p.first(ctx); ok {
		all.Go(func() { p.attend(ctx) })
		p.follow(ctx, seen, changes)
	}
	p.mu.Lock()
	p.run, p.all = nil, nil // nothing is begun any more
	p.mu.Unlock()
	all.Wait()
	return nil
}

func (p *Plugin) wantsGPUs() bool {
	return slices.ContainsFunc(p.current(), func(e *endpoint) bool { return e.offer.current().Prefer == nic.NearGPU })
}

func (p *Plugin) allocated(resource string, took time.Duration, err error) {
	p.config.Allocated(resource, took, err)
}

// hand writes what belongs to an allocation before it is answered.
func (p *Plugin) hand(pool nic.Pool, n Node, g *Grant) error {
	poke(p.asked)
	if err := p.papers.folders(g); err != nil {
		return err
	}
	return p.papers.hand(pool, n, *g)
}
