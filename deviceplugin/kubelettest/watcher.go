package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	found "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// glance is how often the folder of the plugin watcher is looked at. A kubelet is
// told of new sockets and acts within a second.
const glance = 20 * time.Millisecond

// watch registers plugins whose sockets are in the folder, and drops those whose
// sockets are gone, until the kubelet ends.
func (k *Kubelet) watch(ctx context.Context) {
	known := map[string]*client{}
	for ctx.Err() == nil {
		there := socketsIn(k.options.Registry)
		for path, c := range known {
			if !slices.Contains(there, path) {
				if c != nil {
					k.disconnect(c)
				}
				delete(known, path)
			}
		}
		for _, path := range there {
			if _, ok := known[path]; ok {
				continue
			}
			if c, err := k.find(ctx, path); err == nil {
				known[path] = c
			} // one that failed is tried again while its socket is there
		}
		select {
		case <-ctx.Done():
		case <-time.After(glance):
		}
	}
}

func socketsIn(dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 && e.Name()[0] != '.' {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// find asks what is behind a socket, connects to it, and says how that ended, as
// pluginmanager's GenerateRegisterPluginFunc does.
func (k *Kubelet) find(ctx context.Context, path string) (*client, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	registration := found.NewRegistrationClient(conn)
	info, err := registration.GetInfo(ctx, &found.InfoRequest{})
	if err != nil {
		return nil, err
	}
	c, err := k.foundPlugin(ctx, path, info)
	status := &found.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		status.Error = err.Error()
	}
	if _, notified := registration.NotifyRegistrationStatus(ctx, status); notified != nil && c != nil {
		k.disconnect(c)
		return nil, notified
	}
	return c, err
}

func (k *Kubelet) foundPlugin(ctx context.Context, path string, info *found.PluginInfo) (*client, error) {
	if info.Type != found.DevicePlugin {
		return nil, fmt.Errorf("no handler registered for plugin type: %s at socket %s", info.Type, path)
	}
	if !slices.ContainsFunc(info.SupportedVersions, func(v string) bool { return slices.Contains(api.SupportedVersions[:], v) }) {
		return nil, errors.New("plugin validation failed: no supported version")
	}
	if !isExtendedResource(info.Name) {
		return nil, fmt.Errorf("the resource name %q is invalid", info.Name)
	}
	if info.Endpoint != "" {
		path = info.Endpoint
	}
	c := newClient(info.Name, path)
	return c, k.meet(ctx, c)
}
