// Package kubelet reads which devices the kubelet has allocated to which pod, from the
// file that it keeps for its own restart. A CNI plugin runs before the pod's containers
// do and for a few milliseconds only: a file needs no connection, knows pods by their
// UID, and is written before the pod's sandbox is made (devicemanager,
// allocateContainerResources).
package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// DefaultDir is where the kubelet keeps its device plugins' things.
const DefaultDir = "/var/lib/kubelet/device-plugins"

// Allocations is what the kubelet has allocated.
type Allocations struct{ entries []entry }

// entry is one container's devices of one resource.
type entry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     ids
}

// ids is lists by NUMA node, or from before 1.20 one list.
type ids []string

func (i *ids) UnmarshalJSON(text []byte) error {
	var byNode map[string][]string
	if err := json.Unmarshal(text, &byNode); err != nil {
		return json.Unmarshal(text, (*[]string)(i))
	}
	for _, list := range byNode {
		*i = append(*i, list...)
	}
	return nil
}

// Read reads the checkpoint in the kubelet's folder of device plugins; fs.ErrNotExist
// where the kubelet has never allocated anything.
func Read(dir string) (Allocations, error) {
	path := filepath.Join(dir, "kubelet_internal_checkpoint")
	text, err := os.ReadFile(path)
	if err != nil {
		return Allocations{}, fmt.Errorf("what the kubelet has allocated: %w", err)
	}
	var file struct {
		Data struct{ PodDeviceEntries []entry }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return Allocations{}, fmt.Errorf("what the kubelet has allocated: %s: %w", path, err)
	}
	return Allocations{file.Data.PodDeviceEntries}, nil
}

// Of lists the devices of a resource that a pod has in any of its containers, sorted:
// the kubelet's own order means nothing.
func (a Allocations) Of(podUID, resource string) []string {
	var out []string
	for _, e := range a.entries {
		if e.PodUID == podUID && e.ResourceName == resource {
			out = append(out, e.DeviceIDs...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Others says whether a device is allocated, and to other pods only. The kubelet
// forgets a pod that has ended when it next allocates, so a device may be listed for
// it and for the pod that has the device now.
func (a Allocations) Others(podUID, device string) bool {
	others := false
	for _, e := range a.entries {
		switch has := slices.Contains(e.DeviceIDs, device); {
		case has && e.PodUID == podUID:
			return false
		case has:
			others = true
		}
	}
	return others
}

// None says that an error of Read is that the kubelet has allocated nothing.
func None(err error) bool { return errors.Is(err, fs.ErrNotExist) }
