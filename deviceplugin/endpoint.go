package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/pkg/nic"
)

// endpoint keeps one pool's place with the kubelet.
type endpoint struct {
	resource string
	at       meeting
	offer    *offer
	desk     desk
	log      *slog.Logger
	woken    chan struct{} // a folder has changed
	doubted  chan struct{} // the kubelet has another list

	cancel context.CancelFunc
	after  <-chan struct{} // closed when an earlier one of this resource has ended; nil none
	ended  chan struct{}   // closed when run has returned

	mu   sync.Mutex
	away error // why the kubelet does not have the pool; nil: it has

	socket    string // the name of the last one
	complaint string // the last one that was logged
	doubts    int    // how often in a row the kubelet's list was another; of who asks it
}

func newEndpoint(pool nic.Pool, at meeting, desk desk, log *slog.Logger) *endpoint {
	return &endpoint{
		resource: pool.Resource(), at: at, offer: newOffer(pool), desk: desk, log: log.With("resource", pool.Resource()),
		woken: make(chan struct{}, 1), doubted: make(chan struct{}, 1), ended: make(chan struct{}), away: errNotTried,
	}
}

func (e *endpoint) stand(away error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = away
}

// standing is why the kubelet does not have the pool; nil: it has.
func (e *endpoint) standing() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.away
}

// update offers devices, and logs what has become of each. It says whether the list is
// another.
func (e *endpoint) update(devices []Device) bool {
	before, _ := e.offer.get()
	was := make(map[string]Device, len(before))
	for _, d := range before {
		was[d.ID] = d
	}
	healthy := 0
	for _, d := range devices {
		old, known := was[d.ID]
		switch {
		case d.Healthy():
			healthy++
			if known && !old.Healthy() {
				e.log.Info("device is healthy again", "device", d.ID, "pf", d.PF, "index", d.Index)
			}
		case !known || old.Problem != d.Problem:
			e.log.Warn("device is unhealthy", "device", d.ID, "pf", d.PF, "index", d.Index, "problem", d.Problem)
		}
	}
	other := e.offer.set(devices)
	if other {
		e.log.Info("devices", "listed", len(devices), "healthy", healthy)
	}
	return other
}

// ErrNoKubelet is that of a pool while no kubelet is there to have it.
var ErrNoKubelet = errors.New("no kubelet listens")

// How a place with the kubelet ends, other than by an error of the system, or has not
// begun.
var (
	errNoSocket   = fmt.Errorf("%w: its socket is not there", ErrNoKubelet)
	errNotTried   = errors.New("not tried yet")
	errNewKubelet = errors.New("the kubelet's socket is a new one")
	errRemoved    = errors.New("our socket was removed")
	errNoStream   = errors.New("the kubelet did not open its stream")
	errStreamEnd  = errors.New("the kubelet's stream has ended")
	errDoubted    = errors.New("the kubelet has another list than it was sent")
)

// run takes and retakes the place until ctx ends, from the first list on: a list
// that is short would make the kubelet fail pods.
func (e *endpoint) run(ctx context.Context, t timing) {
	defer close(e.ended)
	for _, c := range []<-chan struct{}{e.after, e.offer.first} {
		if c == nil {
			continue
		}
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
	wait := backoff{first: t.first, most: t.most}
	for {
		kubelet := e.at.kubelet()
		held, err := e.hold(ctx, kubelet, t)
		e.stand(err)
		if ctx.Err() != nil {
			return
		}
		e.complain(err, held)
		if held {
			// The kubelet may still be busy with the end of the old connection.
			wait.reset()
			if !pause(ctx, t.settle) {
				return
			}
			continue
		}
		if !e.await(ctx, kubelet, wait.grow()) {
			return
		}
	}
}

// complain logs why the place was lost or not got, aloud once and then quietly:
// a kubelet that is away is tried for every second.
func (e *endpoint) complain(err error, held bool) {
	level := slog.LevelWarn
	text := err.Error()
	if e.socket != "" { // which is another one each time
		text = strings.ReplaceAll(text, e.socket, "")
	}
	if !held && text == e.complaint {
		level = slog.LevelDebug
	}
	e.complaint = text
	if held {
		e.complaint = ""
	}
	e.log.Log(context.Background(), level, "not registered with the kubelet", "error", err)
}

// await waits for d, or until the kubelet's socket is another one than tried,
// and answers whether ctx is still alive.
func (e *endpoint) await(ctx context.Context, tried identity, d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			return true
		case <-e.woken:
			if now := e.at.kubelet(); now != tried {
				return true
			}
		}
	}
}

// hold serves the pool under a new socket, makes it known, and returns when the
// place is lost, with the reason. held says that there was one.
func (e *endpoint) hold(ctx context.Context, kubelet identity, t timing) (held bool, err error) {
	switch e.at.way(kubelet) {
	case ByRegister:
		return e.register(ctx, kubelet, t)
	case ByWatcher:
		return e.beFound(ctx, t)
	}
	return false, errNoSocket
}

// server is a server of the pool under one socket.
type server struct {
	*grpc.Server
	path    string
	service *service
	ended   chan struct{}
	failure error // once ended
}

// serve begins to serve under a new socket in dir. more adds to the server.
func (e *endpoint) serve(dir string, more func(*grpc.Server)) (*server, error) {
	e.socket = socketName(e.offer.current().Name, rand.Uint32())
	s := &server{path: filepath.Join(dir, e.socket), service: newService(e.offer, e.desk, e.log), ended: make(chan struct{})}
	listener, err := listen(s.path)
	if err != nil {
		return nil, err
	}
	s.Server = grpc.NewServer(grpc.WaitForHandlers(true))
	api.RegisterDevicePluginServer(s, s.service)
	if more != nil {
		more(s.Server)
	}
	go func() {
		defer close(s.ended)
		s.failure = s.Serve(listener)
	}()
	return s, nil
}

// stop ends the server and its streams, and removes the socket.
func (s *server) stop() {
	s.Stop() // closes the listener, which removes the socket
	<-s.ended
}

// why is the reason that the server has ended by itself.
func (s *server) why() error { return fmt.Errorf("serve %s: %w", s.path, s.failure) }

// keep returns when the place is lost, with the reason. lost is asked now and then
// whether it is by what can be seen of files.
func (e *endpoint) keep(ctx context.Context, s *server, lost func() error, t timing) error {
	devices, _ := e.offer.get()
	e.stand(nil)
	e.log.Info("registered with the kubelet", "socket", s.path, "devices", len(devices))
	select {
	case <-e.doubted: // of an earlier place
	default:
	}
	tick := time.NewTicker(t.poll)
	defer tick.Stop()
	late := time.NewTimer(t.listen)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return s.why()
		case <-late.C:
			if _, ever := s.service.audience(); !ever {
				return errNoStream
			}
		case <-s.service.counted:
			if open, _ := s.service.audience(); open == 0 {
				return errStreamEnd
			}
		case <-e.doubted:
			return errDoubted
		case <-e.woken:
		case <-tick.C:
		}
		if err := cmp.Or(lost(), s.removed()); err != nil {
			return err
		}
	}
}

func (s *server) removed() error {
	if _, err := os.Lstat(s.path); err != nil {
		return errRemoved
	}
	return nil
}
