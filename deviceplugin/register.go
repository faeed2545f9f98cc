package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	found "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Way says how the kubelet learns of a pool.
type Way string

// The ways. A pool goes one way at a time: on both it would have two connections,
// of which kubelets up to 1.36 take the end of either for the end of the resource.
const (
	// ByRegister calls the kubelet's Register. It is at once, and the kubelet's
	// socket tells when there is another kubelet.
	ByRegister Way = "register"

	// ByWatcher puts a socket where the kubelet's plugin watcher finds it, within a
	// second or so (pluginmanager's loopSleepDuration).
	ByWatcher Way = "watcher"
)

// meeting is where plugins and the kubelet find each other.
type meeting struct {
	dir      string // of the kubelet's socket and ours
	registry string // that the plugin watcher looks at; "" none
	only     Way    // "": whichever there is, ByRegister first
}

func (m meeting) kubelet() identity { return identify(filepath.Join(m.dir, kubeletSocket)) }

// way is how to go now; "" while there is none.
func (m meeting) way(kubelet identity) Way {
	switch {
	case m.only != ByWatcher && kubelet != identity{}:
		return ByRegister
	case m.only == ByRegister || m.registry == "":
		return ""
	}
	// Who has only this folder of the kubelet's has no other way. Who has both waits
	// for the kubelet, which removes all sockets when it starts.
	if info, err := os.Stat(m.registry); err != nil || !info.IsDir() {
		return ""
	}
	if _, err := os.Stat(m.dir); err == nil && m.only == "" {
		return ""
	}
	return ByWatcher
}

// register takes the place with the kubelet of that socket by calling it.
func (e *endpoint) register(ctx context.Context, kubelet identity, t timing) (held bool, err error) {
	// First the kubelet, so that trying for one that is away leaves no trace.
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(e.at.dir, kubeletSocket))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED): // of one that has ended
		return false, fmt.Errorf("%w: %w", ErrNoKubelet, err)
	case err != nil:
		return false, err
	}
	defer conn.Close()
	s, err := e.serve(e.at.dir, nil)
	if err != nil {
		return false, err
	}
	defer s.stop()
	if err := e.call(ctx, conn, t.register); err != nil {
		return false, err
	}
	return true, e.keep(ctx, s, func() error {
		// A kubelet's socket that is missing is one that is about to be made; the
		// stream tells whether its kubelet is still there.
		if now := e.at.kubelet(); now != kubelet && now != (identity{}) {
			return errNewKubelet
		}
		return nil
	}, t)
}

// call tells the kubelet on conn of our socket. The kubelet connects to it and
// asks for the options before it answers.
func (e *endpoint) call(ctx context.Context, conn net.Conn, bound time.Duration) error {
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
		Version: api.Version, Endpoint: e.socket, ResourceName: e.resource, Options: options(),
	})
	if err != nil {
		return fmt.Errorf("register %s with the kubelet: %w", e.resource, err)
	}
	return nil
}

// beFound takes the place by a socket that the kubelet finds. While no kubelet is
// there it waits: the next one looks at what is in the folder.
func (e *endpoint) beFound(ctx context.Context, t timing) (held bool, err error) {
	r := &registration{resource: e.resource, answer: make(chan error, 1)}
	s, err := e.serve(e.at.registry, func(s *grpc.Server) { found.RegisterRegistrationServer(s, r) })
	if err != nil {
		return false, err
	}
	defer s.stop()
	e.stand(fmt.Errorf("%w: none has found the socket yet", ErrNoKubelet))
	e.log.Debug("waits for the kubelet to find the socket", "socket", s.path)
	tick := time.NewTicker(t.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-s.ended:
			return false, s.why()
		case err := <-r.answer:
			if err != nil {
				return false, err
			}
			return true, e.keep(ctx, s, func() error { return nil }, t)
		case <-e.woken:
		case <-tick.C:
		}
		if err := s.removed(); err != nil {
			return false, err
		}
	}
}

// registration answers the kubelet's plugin watcher.
type registration struct {
	found.UnimplementedRegistrationServer
	resource string
	answer   chan error // the kubelet's last word; nil: registered
}

// GetInfo says what is served. Without an endpoint it is under the same socket.
func (r *registration) GetInfo(context.Context, *found.InfoRequest) (*found.PluginInfo, error) {
	return &found.PluginInfo{Type: found.DevicePlugin, Name: r.resource, SupportedVersions: []string{api.Version}}, nil
}

// NotifyRegistrationStatus is told how it ended.
func (r *registration) NotifyRegistrationStatus(_ context.Context, s *found.RegistrationStatus) (*found.RegistrationStatusResponse, error) {
	var err error
	if !s.PluginRegistered {
		err = fmt.Errorf("the kubelet does not register %s: %s", r.resource, s.Error)
	}
	select {
	case <-r.answer: // one that nobody has heard
	default:
	}
	select {
	case r.answer <- err:
	default:
	}
	return &found.RegistrationStatusResponse{}, nil
}
