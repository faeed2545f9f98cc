// Command cnibench times CNI plugins on the machine that it runs on, as a runtime calls
// them: ADD and DEL of one pod at a time, then of many at once. It is for a guest of the
// lab (lab/bench-cni), whose namespaces it makes and whose VFs it uses.
//
//	cnibench [FLAG]... NAME PROGRAM CONFIGURATION [NAME PROGRAM CONFIGURATION]...
//
// The first plugin is what the others are measured against. In a configuration,
// @DEVICE@ is the PCI address of a VF that is this pod's alone. A plugin that writes
// what it spent its time with (docs/cni.md, Times) has that told as well.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	b := bench{}
	flag.IntVar(&b.turns, "turns", 100, "ADDs and DELs of each plugin, one at a time")
	flag.IntVar(&b.pods, "at-once", 50, "pods at once; 0 for none")
	flag.IntVar(&b.rounds, "rounds", 2, "times that so many are attached at once")
	flag.StringVar(&b.path, "cni-path", "/run/bin", "where IPAM plugins are")
	flag.Parse()
	if err := b.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "cnibench:", err)
		os.Exit(1)
	}
}

type bench struct {
	turns, pods, rounds int
	path                string

	dir     string
	netns   []string
	vfs     []string
	plugins []*plugin
}

type plugin struct {
	name, program, conf string
	times               string // file

	took   map[string][]time.Duration // by verb, and "VERB/N-at-once"
	failed map[string]int             // likewise
	inside map[string]map[string]float64
}

// spent is a line that a plugin writes of a call.
type spent struct {
	Command string             `json:"command"`
	MS      map[string]float64 `json:"ms"`
}

func (b *bench) run(args []string) (err error) {
	if len(args) == 0 || len(args)%3 != 0 {
		return errors.New("want NAME PROGRAM CONFIGURATION, once or more")
	}
	if b.dir, err = os.MkdirTemp("", "cnibench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	for p := range slices.Chunk(args, 3) {
		conf, err := os.ReadFile(p[2])
		if err != nil {
			return err
		}
		if !json.Valid(conf) {
			return fmt.Errorf("%s: it is no JSON", p[2])
		}
		b.plugins = append(b.plugins, &plugin{
			name: p[0], program: p[1], conf: string(conf), times: filepath.Join(b.dir, p[0]),
			took: map[string][]time.Duration{}, failed: map[string]int{}, inside: map[string]map[string]float64{},
		})
	}
	if b.vfs, err = virtualFunctions(); err != nil {
		return err
	}
	for i := range max(b.pods, 1) {
		name := fmt.Sprint("bench", i)
		if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
			return fmt.Errorf("ip netns add %s: %w: %s", name, err, out)
		}
		b.netns = append(b.netns, name)
		defer func() { _ = exec.Command("ip", "netns", "del", name).Run() }()
	}
	if err := b.oneAtATime(); err != nil {
		return err
	}
	if err := b.atOnce(); err != nil {
		return err
	}
	b.print()
	return nil
}

// virtualFunctions lists the VFs of the machine by PCI address.
func virtualFunctions() ([]string, error) {
	links, err := filepath.Glob("/sys/bus/pci/devices/*/physfn")
	var out []string
	for _, l := range links {
		out = append(out, filepath.Base(filepath.Dir(l)))
	}
	slices.Sort(out)
	return out, err
}

// oneAtATime goes from plugin to plugin, so that all see the machine as it is at the
// time. The first turn is not counted: it looks whether a plugin does what it says.
func (b *bench) oneAtATime() error {
	for turn := range b.turns + 1 {
		for _, p := range b.plugins {
			add, err := b.call(p, "ADD", 0)
			if err != nil {
				return err
			}
			if err := b.proved(p, turn == 0, true); err != nil {
				return err
			}
			del, err := b.call(p, "DEL", 0)
			if err != nil {
				return err
			}
			if err := b.proved(p, turn == 0, false); err != nil {
				return err
			}
			if turn == 0 {
				_ = os.Remove(p.times) // of a plugin that writes none there is none
				continue
			}
			p.took["ADD"], p.took["DEL"] = append(p.took["ADD"], add), append(p.took["DEL"], del)
		}
	}
	return b.collect("")
}

// proved looks for the pod's interface.
func (b *bench) proved(p *plugin, look, there bool) error {
	if !look {
		return nil
	}
	err := exec.Command("ip", "-n", b.netns[0], "link", "show", "net1").Run()
	if there != (err == nil) {
		return fmt.Errorf("%s: the interface is in the pod: %v, want %v", p.name, err == nil, there)
	}
	return nil
}

func (b *bench) atOnce() error {
	for range b.rounds {
		if b.pods == 0 {
			return nil
		}
		for _, p := range b.plugins {
			for _, verb := range []string{"ADD", "DEL"} {
				took, errs := make([]time.Duration, b.pods), make([]error, b.pods)
				var all sync.WaitGroup
				begin := time.Now()
				for i := range b.pods {
					all.Go(func() { took[i], errs[i] = b.call(p, verb, i) })
				}
				all.Wait()
				key := b.key(verb)
				p.took[key+"/all"] = append(p.took[key+"/all"], time.Since(begin))
				for i, err := range errs {
					if err == nil {
						p.took[key] = append(p.took[key], took[i])
						continue
					}
					// A runtime would call again. It counts as failed, and for no time.
					fmt.Fprintln(os.Stderr, err)
					p.failed[key]++
					if verb == "DEL" {
						if err := b.again(p, i); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return b.collect(b.suffix())
}

// again calls DEL until it is done, for what comes after.
func (b *bench) again(p *plugin, pod int) (err error) {
	for range 5 {
		if _, err = b.call(p, "DEL", pod); err == nil {
			return nil
		}
	}
	return err
}

func (b *bench) suffix() string         { return fmt.Sprintf("/%d-at-once", b.pods) }
func (b *bench) key(verb string) string { return verb + b.suffix() }

// call calls a plugin as a runtime does, and answers how long that took.
func (b *bench) call(p *plugin, verb string, pod int) (time.Duration, error) {
	conf := p.conf
	if strings.Contains(conf, "@DEVICE@") {
		if pod >= len(b.vfs) {
			return 0, fmt.Errorf("%s: %d VFs are too few", p.name, len(b.vfs))
		}
		conf = strings.ReplaceAll(conf, "@DEVICE@", b.vfs[pod])
	}
	c := exec.Command(p.program)
	var out, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(conf), &out, &stderr
	c.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+b.netns[pod], "CNI_NETNS=/run/netns/"+b.netns[pod],
		"CNI_IFNAME=net1", "CNI_ARGS=", "CNI_PATH="+b.path, "SLUICE_CNI_TIMES="+p.times)
	begin := time.Now()
	err := c.Run()
	took := time.Since(begin)
	if err != nil {
		return took, fmt.Errorf("%s: %s: %w: %s%s", p.name, verb, err, &out, &stderr)
	}
	return took, nil
}

// collect takes what the plugins have written of their time, as means of a call.
func (b *bench) collect(suffix string) error {
	for _, p := range b.plugins {
		data, err := os.ReadFile(p.times)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		calls := map[string]float64{}
		for line := range strings.Lines(string(data)) {
			var s spent
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				return fmt.Errorf("%s: times %q: %w", p.name, line, err)
			}
			key := s.Command + suffix
			if p.inside[key] == nil {
				p.inside[key] = map[string]float64{}
			}
			calls[key]++
			for kind, ms := range s.MS {
				p.inside[key][kind] += ms
			}
		}
		for key, kinds := range p.inside {
			if n := calls[key]; n > 0 {
				for kind := range kinds {
					kinds[kind] /= n
				}
			}
		}
		if err := os.Remove(p.times); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) print() {
	base := b.plugins[0]
	for _, p := range b.plugins {
		for _, verb := range []string{"ADD", "DEL", b.key("ADD"), b.key("DEL")} {
			name, rest, _ := strings.Cut(strings.ToLower(verb), "/")
			if rest != "" {
				rest = "/" + rest
			}
			if n, all := p.failed[verb], b.pods*b.rounds; n > 0 {
				title := "lab/cni/" + p.name + "/" + name
				fmt.Printf("bench: %s-failed%s %d calls (%.2f vs %[1]s-calls%[2]s)\n", title, rest, n, float64(n)/float64(all))
				fmt.Printf("bench: %s-calls%s %d calls (1.00 vs %[1]s-calls%[2]s)\n", title, rest, all)
			}
			if len(p.took[verb]) == 0 || len(base.took[verb]) == 0 {
				continue
			}
			line := func(what string, f func([]time.Duration) float64, key string) {
				title := func(p *plugin) string { return "lab/cni/" + p.name + "/" + name + "-" + what + rest }
				have, against := f(p.took[key]), f(base.took[key])
				fmt.Printf("bench: %s %.1f ms (%.2f vs %s)\n", title(p), have, have/against, title(base))
			}
			line("p50", quantile(0.50), verb)
			line("p99", quantile(0.99), verb)
			line("mean", mean, verb)
			if rest != "" {
				line("all", mean, verb+"/all")
			}
			p.shares(name, rest, verb)
		}
	}
}

// shares tells what a call's time went into: start is what lies outside of what the
// plugin itself can measure, so loading the program; rest is what it has no name for.
func (p *plugin) shares(name, rest, verb string) {
	inside, whole := p.inside[verb], mean(p.took[verb])
	if inside == nil {
		return
	}
	named := inside["kernel"] + inside["ovsdb"] + inside["ipam"] + inside["record"]
	for _, kind := range []struct {
		name string
		ms   float64
	}{
		{"kernel", inside["kernel"]}, {"ovsdb", inside["ovsdb"]}, {"ipam", inside["ipam"]}, {"record", inside["record"]},
		{"start", whole - inside["total"]}, {"rest", inside["total"] - named},
	} {
		fmt.Printf("bench: lab/cni/%s/%s/%s%s %.1f ms (%.2f vs lab/cni/%s/%s-mean%s)\n",
			p.name, name, kind.name, rest, kind.ms, kind.ms/whole, p.name, name, rest)
	}
}

// quantile is the nearest rank.
func quantile(q float64) func([]time.Duration) float64 {
	return func(all []time.Duration) float64 {
		sorted := slices.SortedFunc(slices.Values(all), cmp.Compare[time.Duration])
		return ms(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)])
	}
}

func mean(all []time.Duration) float64 {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return ms(sum) / float64(len(all))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
