package deviceplugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/nic"
)

// Where others look for what is told of devices in files.
const (
	DefaultDeviceInfo = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	DefaultCDI        = "/var/run/cdi"
)

// papers keeps those files: device information, one for each device that was given
// to a pod, and CDI specs, one for each pool that gives devices by them. Each is
// replaced whole, so that nobody reads half of one.
type papers struct {
	infos, specs string // folders; "" none are written
	files        string // folder of the devices' folders; "" none are mounted
	log          *slog.Logger

	mu sync.Mutex // of the folders
}

// fresh is how long a device that was given may be missing in the kubelet's list
// of pods: a pod is listed some time after its devices were allocated.
const fresh = time.Minute

// Where containers find what their devices are, and the variable that says so.
const (
	DeviceFilesInPod    = "/run/sluice/devices"
	DeviceFilesVariable = "SLUICE_DEVICES"
)

// folders makes the devices' folders and has them mounted: container runtimes do not all
// make what is to be mounted, and the CNI plugin may come later. The files are its.
func (p *papers) folders(g *Grant) error {
	if p.files == "" || len(g.Infos) == 0 {
		return nil
	}
	if err := os.MkdirAll(p.files, 0o700); err != nil {
		return fmt.Errorf("device files: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(g.Infos)) {
		folder := filepath.Join(p.files, id)
		// The container's user may be anyone; on the machine the folder above is shut.
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
			return fmt.Errorf("device files: %w", err)
		}
		g.Mounts = append(g.Mounts, File{Host: folder, Container: DeviceFilesInPod + "/" + id})
	}
	g.Env[DeviceFilesVariable] = DeviceFilesInPod
	return nil
}

// hand writes what belongs to an allocation.
func (p *papers) hand(pool nic.Pool, n Node, g Grant) error {
	if pool.CDI {
		devices, _ := List(pool, n)
		if err := p.spec(pool, n, devices); err != nil {
			return err
		}
	}
	if p.infos == "" || len(g.Infos) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := os.MkdirAll(p.infos, 0o755); err != nil {
		return fmt.Errorf("device information: %w", err)
	}
	for id, text := range g.Infos {
		// Written also if it is the same: its time says that it is a new one's.
		if err := replace(filepath.Join(p.infos, deviceInfoFile(pool.Resource(), id)), text); err != nil {
			return fmt.Errorf("device information: %w", err)
		}
	}
	return nil
}

// spec writes the CDI spec of a pool if it is another one, and removes that of a
// pool that gives devices in the other way.
func (p *papers) spec(pool nic.Pool, n Node, devices []Device) error {
	if p.specs == "" {
		if pool.CDI {
			return fmt.Errorf("pool %s gives devices by CDI, and no folder is set for its files", pool)
		}
		return nil
	}
	if !pool.CDI {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	path := filepath.Join(p.specs, cdiFile(pool))
	had, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("CDI spec: %w", err)
	}
	var old cdiSpec
	if err := json.Unmarshal(had, &old); err != nil {
		old = cdiSpec{} // none, or torn: nothing of it is worth keeping
	}
	text, err := specOf(pool, n, devices, old).text()
	switch {
	case err != nil:
	case text == nil && had == nil, text != nil && bytes.Equal(text, had):
		return nil
	case text == nil:
		err = os.Remove(path)
	default:
		if err = os.MkdirAll(p.specs, 0o755); err == nil {
			err = replace(path, text)
		}
	}
	if err != nil {
		return fmt.Errorf("CDI spec: %w", err)
	}
	return nil
}

// replace makes path's content text, at once or not at all. Others read it.
func replace(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".sluice-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// tidy removes what is told of devices that no pod has: by the kubelet's word,
// and only what it has had time to know of. Of pools that are offered, and of those
// under our own prefix, nobody else writes such files.
func (p *papers) tidy(h holders, pools []nic.Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	infos, specs := map[string]bool{}, map[string]bool{}
	for resource, ids := range h {
		prefix, name, _ := strings.Cut(resource, "/")
		specs[cdiFile(nic.Pool{Prefix: prefix, Name: name})] = true
		for id := range ids {
			infos[deviceInfoFile(resource, id)] = true
		}
	}
	ours := []string{nic.DefaultPrefix + "-"}
	for _, pool := range pools {
		ours = append(ours, strings.ReplaceAll(pool.Resource(), "/", "-")+"-")
		if pool.CDI {
			specs[cdiFile(pool)] = true
		}
	}
	p.remove(p.infos, ours, "-device.json", infos)
	p.remove(p.specs, []string{cdiFileOf}, ".json", specs)
}

// remove removes files of dir that begin and end so, unless they are to be kept or
// fresh.
func (p *papers) remove(dir string, begin []string, end string, keep map[string]bool) {
	if dir == "" {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // none were written
	}
	for _, e := range entries {
		if keep[e.Name()] || !strings.HasSuffix(e.Name(), end) || !beginsWith(e.Name(), begin) {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < fresh {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			p.log.Warn("a file of devices that no pod has is left", "error", err)
		}
	}
}

func beginsWith(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
