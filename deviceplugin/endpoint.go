package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// endpoint keeps one pool's place with the kubelet.
type endpoint struct {
	pool    Pool
	dir     string
	offer   *offer
	observe func(context.Context) (Node, error)
	log     *slog.Logger
	woken   chan struct{} // the folder has changed

	socket    string // the name of the last one
	complaint string // the last one that was logged
}

func newEndpoint(pool Pool, dir string, observe func(context.Context) (Node, error), log *slog.Logger) *endpoint {
	return &endpoint{pool: pool, dir: dir, offer: newOffer(), observe: observe, log: log, woken: make(chan struct{}, 1)}
}

// update offers devices, and logs what has become of each.
func (e *endpoint) update(devices []Device) {
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
				e.log.Info("device is healthy again", "device", d.ID, "vf", d.VF)
			}
		case !known || old.Problem != d.Problem:
			e.log.Warn("device is unhealthy", "device", d.ID, "vf", d.VF, "problem", d.Problem)
		}
	}
	if e.offer.set(devices) {
		e.log.Info("devices", "listed", len(devices), "healthy", healthy)
	}
}

// How a place with the kubelet ends, other than by an error of the system.
var (
	errNoKubelet  = errors.New("the kubelet's socket is not there")
	errNewKubelet = errors.New("the kubelet's socket is a new one")
	errRemoved    = errors.New("our socket was removed")
	errNoStream   = errors.New("the kubelet did not open its stream")
	errStreamEnd  = errors.New("the kubelet's stream has ended")
)

// run takes and retakes the place until ctx ends.
func (e *endpoint) run(ctx context.Context, t timing) {
	wait := backoff{first: t.first, most: t.most}
	for {
		kubelet := identify(filepath.Join(e.dir, kubeletSocket))
		held, err := e.hold(ctx, kubelet, t)
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
			if now := identify(filepath.Join(e.dir, kubeletSocket)); now != tried {
				return true
			}
		}
	}
}

// hold serves the pool under a new socket, registers it, and returns when the
// place is lost, with the reason. held says that there was one.
func (e *endpoint) hold(ctx context.Context, kubelet identity, t timing) (held bool, err error) {
	if kubelet == (identity{}) {
		return false, errNoKubelet
	}
	// First the kubelet, so that trying for one that is away leaves no trace.
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(e.dir, kubeletSocket))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	e.socket = socketName(e.pool.Name, rand.Uint32())
	path := filepath.Join(e.dir, e.socket)
	listener, err := listen(path)
	if err != nil {
		return false, err
	}
	s := newService(e.pool, e.offer, e.observe, e.log)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	api.RegisterDevicePluginServer(server, s)
	served := make(chan struct{})
	var failure error
	go func() {
		defer close(served)
		failure = server.Serve(listener)
	}()
	defer func() {
		server.Stop() // closes the listener, which removes the socket
		<-served
	}()
	if err := e.register(ctx, conn, e.socket, t.register); err != nil {
		return false, err
	}
	devices, _ := e.offer.get()
	e.log.Info("registered with the kubelet", "socket", path, "devices", len(devices))
	reason := e.keep(ctx, s, served, path, kubelet, t)
	if reason == nil {
		reason = fmt.Errorf("serve %s: %w", path, failure)
	}
	return true, reason
}

// keep returns when the place is lost, with the reason; nil when the server has
// ended by itself.
func (e *endpoint) keep(ctx context.Context, s *service, served <-chan struct{}, path string, kubelet identity, t timing) error {
	tick := time.NewTicker(t.poll)
	defer tick.Stop()
	late := time.NewTimer(t.listen)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-served:
			return nil
		case <-late.C:
			if _, ever := s.audience(); !ever {
				return errNoStream
			}
		case <-s.counted:
			if open, _ := s.audience(); open == 0 {
				return errStreamEnd
			}
		case <-e.woken:
		case <-tick.C:
		}
		// A kubelet's socket that is missing is one that is about to be made; the
		// stream tells whether its kubelet is still there.
		if now := identify(filepath.Join(e.dir, kubeletSocket)); now != kubelet && now != (identity{}) {
			return errNewKubelet
		}
		if _, err := os.Lstat(path); err != nil {
			return errRemoved
		}
	}
}

// register tells the kubelet on conn of our socket. The kubelet connects to it
// and asks for the options before it answers.
func (e *endpoint) register(ctx context.Context, conn net.Conn, socket string, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	once := make(chan net.Conn, 1)
	once <- conn
	client, err := grpc.NewClient("passthrough:///"+kubeletSocket,
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("the connection to the kubelet has ended")
			}
		}))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = api.NewRegistrationClient(client).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: e.pool.Resource(), Options: options(),
	})
	if err != nil {
		return fmt.Errorf("register %s with the kubelet: %w", e.pool, err)
	}
	return nil
}
