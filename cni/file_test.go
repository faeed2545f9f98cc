package cni

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/devfile"
	"sluice.dev/sluice/cni/record"
)

// TestDeviceFile tells programs what they were given, in each mode, until DEL.
func TestDeviceFile(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		ask  func(*world, pod) pod
		key  func(string) string
	}{
		"switchdev":      {"mlx5:numvfs=4,mode=switchdev", func(_ *world, p pod) pod { return full(p).with("channels", 4) }, nil},
		"legacy":         {"mlx5:numvfs=4", func(_ *world, p pod) pod { return legacy(p) }, nil},
		"vfio":           {"mlx5:numvfs=4,mode=switchdev", func(w *world, p pod) pod { w.bind(p.vf, "vfio-pci"); return full(p) }, nil},
		"representor":    {freeReps, func(_ *world, p pod) pod { return asRep(p) }, record.RepKey},
		"rdma-exclusive": {"mlx5:numvfs=4,mode=switchdev+machine:rdma=exclusive", func(_ *world, p pod) pod { return p }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, c.spec)
			p := w.pod("c1", w.vf(0, 1))
			p = c.ask(w, p)
			before := w.snap()
			// The device plugin has mounted the folder before, or does after.
			folder := filepath.Join(w.dir, "devices", p.vf)
			if name == "switchdev" {
				if err := errors.Join(os.Mkdir(filepath.Dir(folder), 0o700), os.Mkdir(folder, 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			result := w.mustAdd(p)
			key, file := p.vf, filepath.Join(folder, "device.json")
			if c.key != nil {
				key, file = c.key(p.vf), filepath.Join(folder, "representor.json")
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "device-file-"+name+".json", string(text))
			for path, mode := range map[string]os.FileMode{w.dir + "/devices": 0o700, folder: 0o755, file: 0o644} {
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
					t.Errorf("%s: %v, %v", path, info, err)
				}
			}
			if err := w.check(p, result); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			var e *types.Error
			f, err := devfile.In(w.dir).Read(key)
			if err != nil {
				t.Fatal(err)
			}
			for want, spoil := range map[string]func() error{
				"its device file cannot be read":                func() error { return os.WriteFile(file, []byte("{"), 0o644) },
				"its device file is of net1 of container other": func() error { f.Container = "other"; return devfile.In(w.dir).Write(key, f) },
				"its device file is gone":                       func() error { return os.Remove(file) },
			} {
				if err := spoil(); err != nil {
					t.Fatal(err)
				}
				if err := w.check(p, result); !errors.As(err, &e) || e.Code != ErrDamage || !strings.Contains(e.Msg, want) {
					t.Errorf("CHECK: %v, want %s", err, want)
				}
			}
			w.mustDel(p)
			w.mustBe(before, "after DEL")
			if info, err := os.Stat(folder); err != nil || !info.IsDir() {
				t.Errorf("the folder, which the next pod may have by now: %v", err)
			}
		})
	}
}

// TestStrayDeviceFile is swept with what a killed writer left; a recorded one stays.
func TestStrayDeviceFile(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	w.mustAdd(p)
	before := w.snap()
	files := devfile.In(w.dir)
	if err := errors.Join(files.Write(w.vf(0, 2), devfile.File{}), files.Write(record.RepKey(p.vf), devfile.File{})); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(w.dir, "devices", w.vf(0, 2), ".device.json.tmp")
	if err := os.WriteFile(half, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if swept := w.sweep(); len(swept) != 2 || !strings.Contains(swept[0], "the device file of 0000:03:00.3-rep, of which there is no record, is removed") {
		t.Errorf("swept %v", swept)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", half, err)
	}
	w.mustBe(before, "after a sweep")
}

// TestDeviceFileCannotBeWritten takes the ADD back.
func TestDeviceFileCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	before := w.snap()
	if err := os.MkdirAll(filepath.Join(w.dir, "devices", p.vf, "device.json", "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	var e *types.Error
	if err := w.add(p); !errors.As(err, &e) || e.Code != types.ErrIOFailure || !strings.Contains(e.Msg, "write the device file of VF 0000:03:00.3") {
		t.Errorf("ADD: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(w.dir, "devices", p.vf, "device.json")); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}
