package kubelettest

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// client is one connection to a plugin.
type client struct {
	resource, path string

	plugin  api.DevicePluginClient
	options *api.DevicePluginOptions
	stopped bool // guarded by Kubelet.mu

	stream context.Context // ends the stream
	cancel context.CancelFunc
	begun  chan struct{} // closed with the stream's first list, or its end
	begin  func()

	mu   sync.Mutex
	conn *grpc.ClientConn
}

func newClient(resource, path string) *client {
	c := &client{resource: resource, path: path, begun: make(chan struct{})}
	c.stream, c.cancel = context.WithCancel(context.Background())
	c.begin = sync.OnceFunc(func() { close(c.begun) })
	return c
}

// dial connects before it returns, within 10 seconds.
func (c *client) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.path)
		}))
	if err != nil {
		return err
	}
	conn.Connect()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
		if !conn.WaitForStateChange(ctx, s) {
			conn.Close()
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.plugin = conn, api.NewDevicePluginClient(conn)
	return nil
}

// receive opens the stream and calls got for each list until the stream ends.
func (c *client) receive(got func([]*api.Device)) {
	defer c.begin()
	defer c.cancel()
	stream, err := c.plugin.ListAndWatch(c.stream, &api.Empty{})
	if err != nil {
		return
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		got(r.Devices)
		c.begin()
	}
}

func (c *client) breakStream() {
	<-c.begun
	c.cancel()
}

func (c *client) close() {
	c.begin()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
