package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// DefaultDir is where the kubelet listens and looks for plugins. It is fixed in
// the kubelet, below its root folder.
const DefaultDir = "/var/lib/kubelet/device-plugins"

// Config is what a Plugin needs of its surroundings.
type Config struct {
	Dir   string // of the kubelet's socket; "" is DefaultDir
	Pools []Pool

	// Observe reads the machine, with VF.Owner filled in where the caller keeps
	// a record. It is called at the start, after each change, and once for every
	// allocation, from several goroutines at a time.
	Observe func(context.Context) (nic.State, error)

	// RDMA lists RDMA devices; nil: there are none. It is called where Observe is.
	RDMA func(context.Context) ([]host.RDMADevice, error)

	// Exists says whether a device file is there; nil asks the file system.
	Exists func(path string) bool

	Log *slog.Logger // nil: nothing is logged
}

// Plugin offers pools to the kubelet.
type Plugin struct {
	config    Config
	endpoints []*endpoint
	noted     map[string]bool // problems of pools that were logged
	timing    timing
}

// timing is what endpoints and observations wait for. Only tests change it.
type timing struct {
	settle   time.Duration // between the end of a place with the kubelet and the next try
	first    time.Duration // the first wait after a failure, doubled each time
	most     time.Duration // the longest one; the kubelet is found again within it
	poll     time.Duration // how often a place is checked without any event
	register time.Duration // bound of one registration
	listen   time.Duration // how long the kubelet may take to open its stream then
}

func defaultTiming() timing {
	return timing{
		settle: 250 * time.Millisecond, first: 50 * time.Millisecond, most: time.Second,
		poll: time.Second, register: 5 * time.Second, listen: 5 * time.Second,
	}
}

// New checks the configuration: pools as in Validate, and a folder in which a
// socket's path is not too long for the kernel.
func New(c Config) (*Plugin, error) {
	if c.Dir == "" {
		c.Dir = DefaultDir
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("device plugin folder %q: %w", c.Dir, err)
	}
	c.Dir = dir
	if longest := filepath.Join(dir, socketName(longName, ^uint32(0))); len(longest) > maxSocketPath {
		return nil, fmt.Errorf("device plugin folder %q: the path of a socket in it, such as %s, has %d characters: want %d at most", c.Dir, longest, len(longest), maxSocketPath)
	}
	if c.Observe == nil {
		return nil, errors.New("device plugin: Observe is nil: want a function that reads the machine")
	}
	if err := Validate(c.Pools); err != nil {
		return nil, err
	}
	if c.Exists == nil {
		c.Exists = func(path string) bool {
			_, err := os.Stat(path)
			return err == nil
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Plugin{config: c, noted: map[string]bool{}, timing: defaultTiming()}
	for _, pool := range c.Pools {
		p.endpoints = append(p.endpoints, newEndpoint(pool, dir, p.observe, c.Log.With("resource", pool.Resource())))
	}
	return p, nil
}

// Run offers the pools until ctx ends, then removes its sockets and returns nil.
// It observes once before it registers: a first list that is short would make
// the kubelet fail the pods of a node that has just booted. After that it
// observes whenever changes has a value; several at a time count as one. An
// observation that fails is tried again, and the last list stands meanwhile.
//
// Run does not give up: a kubelet that is away or refuses is tried for at
// intervals of a second. It must not be called twice at the same time.
func (p *Plugin) Run(ctx context.Context, changes <-chan struct{}) error {
	wait := backoff{first: p.timing.first, most: p.timing.most}
	for !p.look(ctx) {
		if !pause(ctx, wait.grow()) {
			return nil
		}
	}
	p.removeDead()
	var all sync.WaitGroup
	all.Go(func() { p.watchDir(ctx) })
	for _, e := range p.endpoints {
		all.Go(func() { e.run(ctx, p.timing) })
	}
	p.follow(ctx, changes)
	all.Wait()
	return nil
}

// follow observes after each change, and again for as long as that fails.
func (p *Plugin) follow(ctx context.Context, changes <-chan struct{}) {
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
		case <-retry:
		}
		if p.look(ctx) {
			wait.reset()
			retry = nil
		} else {
			retry = time.After(wait.grow())
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
	for _, e := range p.endpoints {
		devices, missing := List(e.pool, node)
		for _, m := range missing {
			problems[m] = true
			if !p.noted[m] {
				p.config.Log.Warn("a pool selects what is not there", "problem", m)
			}
		}
		e.update(devices)
	}
	p.noted = problems
	return true
}

func (p *Plugin) observe(ctx context.Context) (Node, error) {
	state, err := p.config.Observe(ctx)
	if err != nil {
		return Node{}, fmt.Errorf("observe: %w", err)
	}
	n := Node{State: state, RDMA: map[string][]string{}, Exists: p.config.Exists}
	if p.config.RDMA == nil {
		return n, nil
	}
	devices, err := p.config.RDMA(ctx)
	if err != nil {
		return Node{}, fmt.Errorf("observe RDMA devices: %w", err)
	}
	for _, d := range devices {
		n.RDMA[d.Name] = d.Files
	}
	return n, nil
}
