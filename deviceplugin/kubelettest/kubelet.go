// Package kubelettest plays the kubelet's device manager to a device plugin, for
// tests and demonstrations: it registers plugins, connects back to them, keeps
// their device lists, and allocates.
//
// It follows pkg/kubelet/cm/devicemanager of Kubernetes 1.37 where a plugin can
// tell: the order of calls, what is refused, what a lost connection does, and
// which sockets a start removes. With Legacy it treats lost connections as
// kubelets did that knew one plugin a resource. It has no pods: what was
// allocated stays so until Release.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Options of a kubelet.
type Options struct {
	Dir    string // made if it is not there
	Legacy bool   // one connection a resource, whoever ends it: kubelets up to 1.36

	// Registry is the folder of its plugin watcher; "" none. It is made.
	Registry string

	// PodResources is where it serves that API; "" nowhere.
	PodResources string

	Spare bool // remove only kubelet.sock at the start, as when a kubelet listens anew

	// Refuse is why every registration fails; the error names the socket, too, as
	// a kubelet's does.
	Refuse string

	// Changed is called after each list that a plugin sends, and after a
	// connection's end has made devices unhealthy, one call at a time. It must not
	// wait for the Kubelet.
	Changed func(resource string, devices []*api.Device)
}

const socketName = "kubelet.sock"

// Kubelet is a running one.
type Kubelet struct {
	api.UnimplementedRegistrationServer

	options  Options
	listener *net.UnixListener
	server   *grpc.Server
	running  sync.WaitGroup

	unwatch   context.CancelFunc
	resources *grpc.Server // of PodResources; nil none

	telling sync.Mutex // keeps calls of Changed in order

	mu            sync.Mutex
	changed       chan struct{} // closed at each change of what follows
	stopped       bool
	open          map[*client]bool // connections
	clients       map[string][]*client
	endpoints     map[string]*client            // asked for allocations, by resource
	connected     map[string]map[string]*client // by resource and socket
	devices       map[string][]*api.Device
	allocated     map[string]map[string]bool
	registrations map[string]int
	refusals      int
	pods          []Pod
	asked         int  // how often List was
	blind         bool // see Blind
}

// Start removes the sockets in the folder, as every start of a kubelet does, and
// begins to listen on kubelet.sock.
func Start(o Options) (*Kubelet, error) {
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, err
	}
	if err := removeSockets(o.Dir, o.Spare); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(o.Dir, socketName), Net: "unix"})
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		options: o, listener: l, server: grpc.NewServer(grpc.WaitForHandlers(true)),
		changed:       make(chan struct{}),
		open:          map[*client]bool{},
		clients:       map[string][]*client{},
		endpoints:     map[string]*client{},
		connected:     map[string]map[string]*client{},
		devices:       map[string][]*api.Device{},
		allocated:     map[string]map[string]bool{},
		registrations: map[string]int{},
	}
	api.RegisterRegistrationServer(k.server, k)
	k.running.Go(func() { _ = k.server.Serve(l) }) // ends with Stop or Kill
	ctx, cancel := context.WithCancel(context.Background())
	k.unwatch = cancel
	if o.Registry != "" {
		if err := os.MkdirAll(o.Registry, 0o750); err != nil {
			k.Stop()
			return nil, err
		}
		k.running.Go(func() { k.watch(ctx) })
	}
	if o.PodResources != "" {
		if err := k.servePods(); err != nil {
			k.Stop()
			return nil, err
		}
	}
	return k, nil
}

func removeSockets(dir string, spare bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var problems []error
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 || spare && e.Name() != socketName {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// Stop ends the kubelet in good order: connections, then its socket.
func (k *Kubelet) Stop() { k.end(true) }

// Kill ends it as a SIGKILL does: its socket's file stays and nobody answers it.
func (k *Kubelet) Kill() { k.end(false) }

func (k *Kubelet) end(tidy bool) {
	k.listener.SetUnlinkOnClose(tidy)
	k.mu.Lock()
	k.stopped = true
	open := slices.Collect(maps.Keys(k.open))
	k.mu.Unlock()
	for _, c := range open {
		k.disconnect(c)
	}
	k.unwatch()
	k.server.Stop()
	if k.resources != nil {
		k.resources.Stop()
	}
	k.running.Wait()
}

// Register is the kubelet's side of a registration: it connects to the plugin
// and asks for its options before it answers.
func (k *Kubelet) Register(ctx context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	if !slices.Contains(api.SupportedVersions[:], r.Version) {
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet, which has %q", r.Version, api.SupportedVersions)
	}
	if !isExtendedResource(r.ResourceName) {
		return nil, fmt.Errorf("the resource name %q is invalid", r.ResourceName)
	}
	if k.options.Refuse != "" {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.refusals++
		k.change()
		return nil, fmt.Errorf("%s: %s", r.Endpoint, k.options.Refuse)
	}
	if err := k.meet(ctx, newClient(r.ResourceName, filepath.Join(k.options.Dir, r.Endpoint))); err != nil {
		return nil, err
	}
	return &api.Empty{}, nil
}

// meet connects to a plugin, and takes lists from it until its stream ends.
func (k *Kubelet) meet(ctx context.Context, c *client) error {
	if err := k.admit(c); err != nil {
		return err
	}
	if err := k.connect(ctx, c); err != nil {
		k.mu.Lock()
		k.forget(c)
		k.mu.Unlock()
		c.close()
		return err
	}
	k.running.Go(func() { k.follow(c) })
	return nil
}

func isExtendedResource(name string) bool {
	qualified := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`)
	return qualified.MatchString(name) && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.")
}

func (k *Kubelet) admit(c *client) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return errors.New("the kubelet is stopping")
	}
	if k.options.Legacy {
		k.clients[c.resource] = nil
	}
	k.clients[c.resource] = append(k.clients[c.resource], c)
	return nil
}

// connect dials the plugin and takes it as the one to ask.
func (k *Kubelet) connect(ctx context.Context, c *client) error {
	if err := c.dial(ctx); err != nil {
		return fmt.Errorf("failed to dial device plugin: %w", err)
	}
	options, err := c.plugin.GetDevicePluginOptions(ctx, &api.Empty{})
	if err != nil {
		return fmt.Errorf("failed to get device plugin options: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return errors.New("the kubelet is stopping")
	}
	if !k.options.Legacy && k.connected[c.resource][c.path] != nil {
		return fmt.Errorf("device plugin already connected: %s", c.path)
	}
	c.options = options
	k.open[c] = true
	k.endpoints[c.resource] = c
	if k.connected[c.resource] == nil {
		k.connected[c.resource] = map[string]*client{}
	}
	k.connected[c.resource][c.path] = c
	k.registrations[c.resource]++
	k.change()
	return nil
}

// follow takes lists until the stream ends, then drops the connection: the
// kubelet never opens a second stream by itself.
func (k *Kubelet) follow(c *client) {
	c.receive(func(devices []*api.Device) {
		k.mu.Lock()
		k.devices[c.resource] = devices
		k.change()
		k.mu.Unlock()
		k.tell(c.resource)
	})
	if it := k.current(c); it != nil {
		k.disconnect(it)
	}
	k.mu.Lock()
	delete(k.open, c)
	k.mu.Unlock()
}

// current is the client that the end of c's stream concerns, nil if none: of
// the same socket, or in older kubelets whichever has the resource now.
func (k *Kubelet) current(c *client) *client {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, other := range k.clients[c.resource] {
		if k.options.Legacy || other.path == c.path {
			return other
		}
	}
	return nil
}

func (k *Kubelet) disconnect(c *client) {
	k.mu.Lock()
	k.forget(c)
	k.mu.Unlock()
	c.close()

	k.mu.Lock()
	lost := false
	all := k.connected[c.resource]
	switch {
	case k.options.Legacy:
		if e := k.endpoints[c.resource]; e != nil {
			e.stopped, lost = true, true
		}
	case all[c.path] == nil:
	case len(all) == 1:
		all[c.path].stopped = true
		delete(k.connected, c.resource)
		lost = true
	default:
		all[c.path].stopped = true
		delete(all, c.path)
		for _, other := range all {
			k.endpoints[c.resource] = other
			break
		}
	}
	if lost {
		unhealthy := make([]*api.Device, len(k.devices[c.resource]))
		for i, d := range k.devices[c.resource] {
			unhealthy[i] = &api.Device{ID: d.ID, Health: api.Unhealthy, Topology: d.Topology}
		}
		k.devices[c.resource] = unhealthy
		k.change()
	}
	k.mu.Unlock()
	if lost {
		k.tell(c.resource)
	}
}

// forget removes every client of c's resource and socket. The caller holds mu.
func (k *Kubelet) forget(c *client) {
	k.clients[c.resource] = slices.DeleteFunc(k.clients[c.resource], func(o *client) bool {
		return k.options.Legacy || o.path == c.path
	})
}

// change wakes who waits. The caller holds mu.
func (k *Kubelet) change() {
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *Kubelet) tell(resource string) {
	if k.options.Changed != nil {
		k.telling.Lock()
		defer k.telling.Unlock()
		k.options.Changed(resource, k.Devices(resource))
	}
}

// Devices returns the list of a resource as the kubelet has it.
func (k *Kubelet) Devices(resource string) []*api.Device {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.devices[resource])
}

// Registrations returns how many times the resource was registered.
func (k *Kubelet) Registrations(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registrations[resource]
}

// Socket returns the path of the socket that allocations of a resource go to; ""
// if none has registered.
func (k *Kubelet) Socket(resource string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.endpoints[resource]; c != nil {
		return c.path
	}
	return ""
}

// Wait returns when ok holds of a resource's list and of whether a plugin stands
// behind it, or with an error after limit.
func (k *Kubelet) Wait(resource string, limit time.Duration, ok func(devices []*api.Device, served bool) bool) error {
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		k.mu.Lock()
		e := k.endpoints[resource]
		devices, served, changed := k.devices[resource], e != nil && !e.stopped, k.changed
		k.mu.Unlock()
		if ok(devices, served) {
			return nil
		}
		select {
		case <-changed:
		case <-over.C:
			return fmt.Errorf("%s: after %v the kubelet has the list %v (plugin connected: %v)", resource, limit, devices, served)
		}
	}
}

// WaitRefusals returns when n registrations were refused by Options.Refuse, or
// with an error after limit.
func (k *Kubelet) WaitRefusals(n int, limit time.Duration) error {
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		k.mu.Lock()
		refusals, changed := k.refusals, k.changed
		k.mu.Unlock()
		if refusals >= n {
			return nil
		}
		select {
		case <-changed:
		case <-over.C:
			return fmt.Errorf("%d registrations were refused within %v, want %d", refusals, limit, n)
		}
	}
}

// WaitAsked returns when List was asked n times more, or with an error after limit.
func (k *Kubelet) WaitAsked(n int, limit time.Duration) error {
	k.mu.Lock()
	n += k.asked
	k.mu.Unlock()
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		k.mu.Lock()
		asked, changed := k.asked, k.changed
		k.mu.Unlock()
		if asked >= n {
			return nil
		}
		select {
		case <-changed:
		case <-over.C:
			return fmt.Errorf("who has what was asked %d times within %v, want %d", asked, limit, n)
		}
	}
}

// BreakStreams ends the ListAndWatch streams of a resource, as an error in one
// does. A stream that is about to begin is waited for.
func (k *Kubelet) BreakStreams(resource string) {
	k.mu.Lock()
	clients := slices.Clone(k.clients[resource])
	k.mu.Unlock()
	for _, c := range clients {
		c.breakStream()
	}
}
