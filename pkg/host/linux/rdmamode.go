package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/disk"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
	nldev "sluice.dev/sluice/pkg/rdma"
)

const rdmaObject = "the RDMA subsystem"

func (r rdma) System(ctx context.Context) (nic.RDMA, error) {
	const op = "read the mode"
	if err := begin(ctx, op, rdmaObject); err != nil {
		return nic.RDMA{}, err
	}
	if r.client == nil {
		return nic.RDMA{}, nil
	}
	shared, err := r.client.Shared()
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nic.RDMA{}, nil // no RDMA, or a kernel before namespaces had a part in it
	}
	if err != nil {
		return nic.RDMA{}, fail(op, rdmaObject, err)
	}
	out := nic.RDMA{Mode: nic.RDMAExclusive, AtBoot: r.atBoot(), Fixed: otherNamespaces()}
	if shared {
		out.Mode = nic.RDMAShared
	}
	return out, nil
}

func checkMode(op string, m nic.RDMAMode) error {
	if m == nic.RDMAShared || m == nic.RDMAExclusive {
		return nil
	}
	return refuse(op, rdmaObject, unix.EINVAL, fmt.Errorf("want %s or %s: %w", nic.RDMAShared, nic.RDMAExclusive, unix.EINVAL))
}

func (r rdma) SetMode(ctx context.Context, m nic.RDMAMode) error {
	op := fmt.Sprintf("set the mode %s", m)
	if err := begin(ctx, op, rdmaObject); err != nil {
		return err
	}
	if err := checkMode(op, m); err != nil {
		return err
	}
	if r.client == nil {
		return fail(op, rdmaObject, nldev.ErrNone)
	}
	shared, err := r.client.Shared()
	if err == nil && shared == (m == nic.RDMAShared) {
		return nil
	}
	if err == nil {
		err = r.setShared(ctx, m == nic.RDMAShared)
	}
	if errors.Is(err, unix.EBUSY) {
		return refuse(op, rdmaObject, unix.EBUSY, fmt.Errorf("there are other network namespaces: %w", unix.EBUSY))
	}
	return fail(op, rdmaObject, err)
}

// setShared waits for network namespaces that nobody has any more: the kernel counts
// them until it has cleaned up behind them, which a worker of its own does
// (net/core/net_namespace.c, cleanup_net).
func (r rdma) setShared(ctx context.Context, shared bool) error {
	var refusal error
	err := until(ctx, limit(0), func() (string, error) {
		refusal = r.client.SetShared(shared)
		if errors.Is(refusal, unix.EBUSY) && !otherNamespaces() {
			return "a network namespace is still there", nil
		}
		return "", refusal
	})
	if errors.Is(err, unix.ETIMEDOUT) {
		return refusal
	}
	return err
}

// modeFile is ours among the settings of modprobe(8), whose last word counts. Its
// name sorts behind others'.
const modeFile = "zz-sluice-rdma.conf"

// SetModeAtBoot writes the parameter of ib_core, which is read when it is loaded.
func (r rdma) SetModeAtBoot(ctx context.Context, m nic.RDMAMode) error {
	op := fmt.Sprintf("set the mode %q at boot", string(m))
	if err := begin(ctx, op, rdmaObject); err != nil {
		return err
	}
	if m != "" {
		if err := checkMode(op, m); err != nil {
			return err
		}
	}
	if r.atBoot() == m {
		return nil
	}
	folder := r.etc + "/modprobe.d"
	if err := writeMode(folder, m); err != nil {
		return fail(op, rdmaObject, err)
	}
	if got := r.atBoot(); got != m {
		return refuse(op, rdmaObject, 0, fmt.Errorf("another file in %s says %s, and has the last word: %w", folder, got, host.ErrNotSupported))
	}
	return nil
}

// writeMode writes our file, or for no mode takes it away.
func writeMode(folder string, m nic.RDMAMode) error {
	path := folder + "/" + modeFile
	if m == "" {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	n := 0
	if m == nic.RDMAShared {
		n = 1
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// modprobe reads names that end with .conf only, and so nothing that is half written.
	return disk.Replace(path, fmt.Appendf(nil, "# written by sluice\noptions ib_core netns_mode=%d\n", n), 0o644)
}

// atBoot reads what modprobe would give ib_core: the last word of the files in the
// order of their names.
func (r rdma) atBoot() (m nic.RDMAMode) {
	names, err := readDir(r.etc + "/modprobe.d")
	if err != nil {
		return ""
	}
	slices.Sort(names)
	for _, name := range names {
		if filepath.Ext(name) != ".conf" {
			continue
		}
		b, err := os.ReadFile(r.etc + "/modprobe.d/" + name)
		if err != nil {
			continue
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			if said := modeIn(line); said != "" {
				m = said
			}
		}
	}
	return m
}

// modeIn reads a line such as "options ib_core netns_mode=0".
func modeIn(line string) (m nic.RDMAMode) {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "options" || words[1] != "ib_core" {
		return ""
	}
	for _, w := range words[2:] {
		switch w {
		case "netns_mode=0", "netns_mode=N", "netns_mode=n":
			m = nic.RDMAExclusive
		case "netns_mode=1", "netns_mode=Y", "netns_mode=y", "netns_mode":
			m = nic.RDMAShared
		}
	}
	return m
}

// otherNamespaces says whether there is a network namespace beside ours: one that
// has a name or another mount, one that this process has open, or one that a
// process is in. The kernel has no list of them. One that somebody else keeps open
// and nothing else is missed; the kernel's EBUSY is the last word.
func otherNamespaces() bool {
	own, err := os.Readlink(netlink.ThreadNetns)
	if err != nil {
		return false
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.SplitSeq(string(b), "\n") {
			// id, parent, device, root, mount point: of a namespace the root is its
			// name, net:[4026531840]
			words := strings.Fields(line)
			if len(words) > 4 && strings.HasPrefix(words[3], "net:[") && words[3] != own {
				return true
			}
		}
	}
	if linksElsewhere("/proc/self/fd", "", own) {
		return true
	}
	return linksElsewhere("/proc", "/ns/net", own)
}

// linksElsewhere says whether one of folder's entries, or what is below it, is a
// link to a network namespace other than own.
func linksElsewhere(folder, below, own string) bool {
	f, err := os.Open(folder)
	if err != nil {
		return false
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		target, err := os.Readlink(folder + "/" + name + below)
		if err == nil && strings.HasPrefix(target, "net:[") && target != own {
			return true
		}
	}
	return false
}
