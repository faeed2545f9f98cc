package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/linux"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// node is the machine that a command works on, with its state folder.
type node struct {
	machine host.Machine
	dir     string
	close   func() error

	// podResources is the socket where kubelet tells which pod has which device; ""
	// it is not asked.
	podResources string

	again  func() (*linux.Machine, error) // opens the machine once more; nil cannot
	beside *linux.Machine                 // that was opened so

	mu       sync.Mutex        // of machine.Keep and what follows: ports are worked on at the same time
	outlived map[string]string // owners by records of VFs and SFs that were not there
	pods     map[string]string // pods by VF or SF that they have by kubelet's last word; nil none yet
	deaf     time.Time         // kubelet is not asked before: it has let somebody wait
}

// open opens the machine that the flags name.
func (o *options) open() (*node, error) {
	dir, err := o.dir()
	if err != nil {
		return nil, err
	}
	if o.sim != "" {
		return openSim(o.sim, dir)
	}
	m, err := linux.Open(linux.Options{})
	if err != nil {
		return nil, err
	}
	n := &node{machine: m.Machine, dir: dir, podResources: deviceplugin.DefaultPodResources}
	n.again = func() (*linux.Machine, error) { return linux.Open(linux.Options{}) }
	n.close = func() error {
		if n.beside != nil {
			return errors.Join(n.beside.Close(), m.Close())
		}
		return m.Close()
	}
	return n, nil
}

// openSim opens the simulated machine kept in dir, or makes it by spec. Each change is
// in the file at once: other commands may work on it at the same time.
func openSim(spec, dir string) (*node, error) {
	made, err := sim.Parse(spec)
	if err != nil {
		return nil, fmt.Errorf("--sim: %w\n%s", err, sim.Usage)
	}
	if err := made.Keep(filepath.Join(dir, "machine.json"), crashed); err != nil {
		return nil, fmt.Errorf("%w; remove it to start from --sim anew", err)
	}
	return &node{machine: made.Machine(), dir: dir, close: func() error { return nil }}, nil
}

// crashed ends the process as kill -9 does, with the exit status that shells give it:
// --sim has a fault with crash=on.
func crashed() { os.Exit(128 + int(syscall.SIGKILL)) }

// simDir is the folder of one simulated machine: each --sim has its own.
func simDir(cache, spec string) string {
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, spec)
	sum := sha256.Sum256([]byte(spec))
	return filepath.Join(cache, "sluice", "sim", fmt.Sprintf("%.32s-%x", word, sum[:4]))
}

// with opens the machine, does f, and closes it whatever f answers.
func (o *options) with(f func(*node) error) error {
	n, err := o.open()
	if err != nil {
		return err
	}
	return errors.Join(f(n), n.close())
}

// observe reads the machine, and who holds which VF: from the records, and where there
// is none from kubelet, as VFs on vfio-pci go into pods without a CNI plugin.
func (n *node) observe(ctx context.Context) (nic.State, error) {
	state, err := host.Observe(ctx, n.seam())
	if err != nil {
		return state, err
	}
	n.askKubelet(ctx)
	return state, n.own(&state, n.holder)
}

// own says of each VF and SF who holds it, by its record and holder.
func (n *node) own(state *nic.State, holder func(name, owner string) string) error {
	owners, err := record.Owners(n.dir, n.machine.Boot)
	if err != nil {
		return err
	}
	n.outlive(owners, *state)
	for i := range state.PFs {
		for j := range state.PFs[i].VFs {
			vf := &state.PFs[i].VFs[j]
			vf.Owner = holder(vf.Address, owners[vf.Address])
		}
		for j := range state.PFs[i].SFs {
			sf := &state.PFs[i].SFs[j]
			sf.Owner = holder(sf.Device, owners[sf.Device])
		}
	}
	return nil
}

// seam is the machine as it is asked now.
func (n *node) seam() host.Machine {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.machine
}

// quick is the machine over sockets of its own: who has one thing to ask does not wait
// for lists that others are reading.
func (n *node) quick() (host.Machine, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.again == nil {
		return n.machine, nil
	}
	if n.beside == nil {
		var err error
		if n.beside, err = n.again(); err != nil {
			return host.Machine{}, err
		}
	}
	return n.beside.Machine, nil
}

// keep makes addresses count as ways that the host needs.
func (n *node) keep(addresses []netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machine.Keep = addresses
}

// outlive notes whose VF or SF is not there. Records outlive a boot, which ends what
// they are of: they say nothing of a VF that is made under the same address later.
func (n *node) outlive(owners map[string]string, state nic.State) {
	there := map[string]bool{}
	for _, pf := range state.PFs {
		for _, vf := range pf.VFs {
			there[vf.Address] = true
		}
		for _, sf := range pf.SFs {
			there[sf.Device] = true
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, owner := range owners {
		if there[name] {
			continue
		}
		if n.outlived == nil {
			n.outlived = map[string]string{}
		}
		n.outlived[name] = owner
	}
}

// holder is owner, who holds a VF or SF by its record, unless it had not been there;
// else the pod that has it by kubelet's word.
func (n *node) holder(name, owner string) string {
	if owner := n.recorded(name, owner); owner != "" {
		return owner
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[name]
}

// recorded is holder by the record alone.
func (n *node) recorded(name, owner string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.outlived[name] == owner {
		return ""
	}
	return owner
}

// refresh reads one VF again, and who holds it.
func (n *node) refresh(ctx context.Context, state *nic.State, id nic.VFID, what host.Part) error {
	if err := host.Refresh(ctx, n.seam(), state, id, what); err != nil {
		return err
	}
	vf := &state.PF(id.PF).VFs[id.Index]
	vf.Owner = n.holder(vf.Address, record.In(n.dir).Owner(vf.Address, n.machine.Boot))
	return nil
}

// runner changes the machine; progress may be nil.
func (n *node) runner(progress func(apply.Event)) *apply.Runner {
	return &apply.Runner{
		Machine:  n.seam(),
		Journal:  n.journal(),
		Observe:  n.observe,
		Refresh:  n.refresh,
		Hold:     n.hold,
		Parallel: true,
		Boot:     n.machine.Boot,
		Progress: progress,
	}
}

// hold locks VFs and SFs as the CNI does for each attachment, in an order that all keep to.
func (n *node) hold(ctx context.Context, vfs []string) (map[string]string, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store, owners := record.In(n.dir), map[string]string{}
	var locks []func()
	release := func() {
		for _, unlock := range locks {
			unlock()
		}
	}
	for _, vf := range slices.Sorted(slices.Values(vfs)) {
		unlock, err := store.Lock(ctx, vf)
		if err != nil {
			release()
			return nil, nil, err
		}
		locks = append(locks, unlock)
		if owner := n.holder(vf, store.Owner(vf, n.machine.Boot)); owner != "" {
			owners[vf] = owner
		}
	}
	return owners, release, nil
}

func (n *node) journal() *apply.Journal {
	return &apply.Journal{Dir: filepath.Join(n.dir, "journal")}
}
