// Package devfile writes what programs in a pod read about their device: one JSON file
// for each attachment, in a folder for each device that the device plugin mounts into
// the container. The folders stay: a mounted one that was made anew would show its
// container nothing.
package devfile

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sluice.dev/sluice/cni/record"
)

// Version is the format of files.
const Version = 1

// File is what is told of an attachment. What does not apply is left out.
type File struct {
	Version   int    `json:"version"`
	Container string `json:"container"` // of the sandbox
	Network   string `json:"network,omitempty"`
	Interface string `json:"interface"`        // in the pod; of what a program drives, the one that it would be
	Attached  string `json:"attached"`         // netdev, userspace or representor
	Device    string `json:"device"`           // ID: PCI address, of an SF its auxiliary device
	PF        string `json:"pf"`               // PCI address
	Index     int    `json:"index"`            // of the VF among the PF's; of an SF its number
	SF        bool   `json:"sf,omitempty"`     // it is an SF
	Driver    string `json:"driver,omitempty"` // of the VF
	NUMA      int    `json:"numa"`             // -1: the platform does not say

	MAC       string   `json:"mac,omitempty"`
	GUID      string   `json:"guid,omitempty"` // of InfiniBand, one that was wished for
	MTU       int      `json:"mtu,omitempty"`  // bytes
	Addresses []string `json:"addresses,omitempty"`
	RDMA      []string `json:"rdma,omitempty"` // devices
	Queues    *Queues  `json:"queues,omitempty"`
	Switch    *Switch  `json:"switch,omitempty"`
}

// Queues is of the VF's netdev; 0 not known.
type Queues struct {
	Channels int `json:"channels,omitempty"` // combined
	RxRing   int `json:"rxRing,omitempty"`   // entries
	TxRing   int `json:"txRing,omitempty"`
}

// Switch is the other end.
type Switch struct {
	Mode        string `json:"mode"`         // of the PF's eswitch
	ID          string `json:"id,omitempty"` // phys_switch_id
	Representor string `json:"representor,omitempty"`
	Bridge      string `json:"bridge,omitempty"`
	VLAN        int    `json:"vlan,omitempty"`
	Port        string `json:"port,omitempty"` // OVN's logical port
}

// Store is the folders of one state directory.
type Store struct{ dir string }

// In returns the folders below stateDir. Nothing is read or made.
func In(stateDir string) Store { return Store{filepath.Join(stateDir, "devices")} }

// Names of files in a device's folder. The representor's is another: it and the VF may be
// two pods'.
const (
	ofDevice      = "device.json"
	ofRepresentor = "representor.json"
)

// path of the file of an attachment by its record's key.
func (s Store) path(key string) string {
	vf, rep := strings.CutSuffix(key, record.RepKey(""))
	if rep {
		return filepath.Join(s.dir, vf, ofRepresentor)
	}
	return filepath.Join(s.dir, vf, ofDevice)
}

// Write replaces the file of the attachment whose record has that key; the caller holds
// its lock. It is whole for whoever reads it, and need not outlive a power cut, which no
// attachment does. The folder is readable for all, as its container's user may be
// anyone, and the one that it is in for root alone.
func (s Store) Write(key string, f File) error {
	f.Version = Version
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	path := s.path(key)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	err = errors.Join(
		os.MkdirAll(filepath.Dir(path), 0o755), os.Chmod(filepath.Dir(path), 0o755), // whatever the umask
		os.WriteFile(temporary(path), append(text, '\n'), 0o644), os.Chmod(temporary(path), 0o644),
	)
	if err == nil {
		err = os.Rename(temporary(path), path)
	}
	if err != nil {
		return errors.Join(err, absent(os.Remove(temporary(path))))
	}
	return nil
}

// temporary is one name for each file: its writer holds the attachment's lock.
func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}

// Exists says whether there is something of an attachment's file.
func (s Store) Exists(key string) (bool, error) {
	for _, path := range []string{s.path(key), temporary(s.path(key))} {
		if _, err := os.Lstat(path); err == nil {
			return true, nil
		} else if absent(err) != nil {
			return false, err
		}
	}
	return false, nil
}

// Read is the file of an attachment; fs.ErrNotExist for none.
func (s Store) Read(key string) (File, error) {
	var f File
	text, err := os.ReadFile(s.path(key))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	return f, err
}

// Remove takes the file of an attachment away; none is success.
func (s Store) Remove(key string) error {
	return errors.Join(absent(os.Remove(s.path(key))), absent(os.Remove(temporary(s.path(key)))))
}

func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Keys lists the attachments that have a file, in order.
func (s Store) Keys() ([]string, error) {
	folders, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, absent(err)
	}
	var out []string
	for _, f := range folders {
		for _, key := range []string{f.Name(), record.RepKey(f.Name())} {
			there, err := s.Exists(key)
			if err != nil {
				return nil, err
			}
			if there {
				out = append(out, key)
			}
		}
	}
	return out, nil
}
