// Command kubelet plays the kubelet to device plugins: it serves Registration in
// a folder, connects back, and prints one JSON line for each thing that happens.
// Commands come on standard input, one a line; it ends with the input.
//
//	allocate RESOURCE N       print what a container with N devices would get
//	release RESOURCE ID...    give devices back
//	restart                   end and start again, as after an upgrade
//	kill                      the same with a SIGKILL: the old socket's file stays
//
// Every line has an "event": listening, devices (the list of a resource, when it
// is another one), allocated, released, or refused with its "error".
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/deviceplugin/kubelettest"
)

func main() {
	dir := flag.String("dir", strings.TrimSuffix(api.DevicePluginPath, "/"), "folder of the kubelet's and the plugins' sockets")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "kubelet: %q: want no arguments; commands come on standard input\n", flag.Args())
		os.Exit(2)
	}
	if err := run(context.Background(), *dir, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "kubelet: %v\n", err)
		os.Exit(1)
	}
}

// line is what is printed.
type line struct {
	Event    string            `json:"event"`
	Socket   string            `json:"socket,omitempty"`
	Resource string            `json:"resource,omitempty"`
	Devices  []device          `json:"devices,omitempty"`
	IDs      []string          `json:"ids,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Files    []file            `json:"files,omitempty"`
	Error    string            `json:"error,omitempty"`
}

type device struct {
	ID     string `json:"id"`
	Health string `json:"health"`
	NUMA   *int64 `json:"numa,omitempty"`
}

type file struct {
	Host        string `json:"host"`
	Container   string `json:"container"`
	Permissions string `json:"permissions"`
}

// printer writes lines, from any goroutine.
type printer struct {
	mu    sync.Mutex
	out   *json.Encoder
	lists map[string]string // as last printed, by resource
	err   error
}

func (p *printer) print(l line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = cmp.Or(p.err, p.out.Encode(l))
}

func (p *printer) devices(resource string, list []*api.Device) {
	l := line{Event: "devices", Resource: resource}
	for _, d := range list {
		out := device{ID: d.ID, Health: d.Health}
		if nodes := d.GetTopology().GetNodes(); len(nodes) > 0 {
			out.NUMA = &nodes[0].ID
		}
		l.Devices = append(l.Devices, out)
	}
	slices.SortFunc(l.Devices, func(a, b device) int { return strings.Compare(a.ID, b.ID) })
	key := fmt.Sprint(list)
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, known := p.lists[resource]; known && last == key {
		return
	}
	p.lists[resource] = key
	p.err = cmp.Or(p.err, p.out.Encode(l))
}

func run(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	s := &session{dir: dir, out: &printer{out: json.NewEncoder(out), lists: map[string]string{}}}
	if err := s.start(); err != nil {
		return err
	}
	err := s.obey(ctx, in)
	s.kubelet.Stop()
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return cmp.Or(err, s.out.err)
}

// session is one run of the program: one kubelet after another.
type session struct {
	dir     string
	out     *printer
	kubelet *kubelettest.Kubelet
}

func (s *session) start() error {
	k, err := kubelettest.Start(kubelettest.Options{Dir: s.dir, Changed: s.out.devices})
	if err != nil {
		return err
	}
	s.kubelet = k
	s.out.print(line{Event: "listening", Socket: filepath.Join(s.dir, "kubelet.sock")})
	return nil
}

// obey does commands until the input ends.
func (s *session) obey(ctx context.Context, in io.Reader) error {
	commands := bufio.NewScanner(in)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "restart":
			s.kubelet.Stop()
		case "kill":
			s.kubelet.Kill()
		default:
			s.out.print(answer(ctx, s.kubelet, words))
			continue
		}
		if err := s.start(); err != nil {
			return err
		}
	}
	return commands.Err()
}

// answer does one command about devices.
func answer(ctx context.Context, k *kubelettest.Kubelet, words []string) line {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	switch {
	case words[0] == "allocate" && len(words) == 3:
		n, err := strconv.Atoi(words[2])
		if err != nil {
			return line{Event: "refused", Error: fmt.Sprintf("%q is no number of devices", words[2])}
		}
		ids, r, err := k.Allocate(ctx, words[1], n)
		if err != nil {
			return line{Event: "refused", Resource: words[1], Error: err.Error()}
		}
		l := line{Event: "allocated", Resource: words[1], IDs: ids, Env: r.Envs}
		for _, d := range r.Devices {
			l.Files = append(l.Files, file{d.HostPath, d.ContainerPath, d.Permissions})
		}
		return l
	case words[0] == "release" && len(words) >= 3:
		k.Release(words[1], words[2:])
		return line{Event: "released", Resource: words[1], IDs: words[2:]}
	}
	return line{Event: "refused", Error: fmt.Sprintf("%q: want allocate RESOURCE N, release RESOURCE ID..., restart or kill", strings.Join(words, " "))}
}
