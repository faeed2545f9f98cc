package deviceplugin

import (
	"slices"
	"sync"
)

// offer is the list of one pool, as last observed, for any number of readers.
type offer struct {
	mu      sync.Mutex
	devices []Device
	changed chan struct{} // closed when devices is replaced
}

func newOffer() *offer { return &offer{changed: make(chan struct{})} }

// set replaces the list. It wakes the readers and answers true only if the
// kubelet would see a difference. It keeps devices.
func (o *offer) set(devices []Device) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	same := slices.EqualFunc(devices, o.devices, func(a, b Device) bool {
		return a.ID == b.ID && a.NUMA == b.NUMA && a.Healthy() == b.Healthy()
	})
	o.devices = devices
	if same {
		return false
	}
	close(o.changed)
	o.changed = make(chan struct{})
	return true
}

// get returns the list, not to be written to, and a channel that is closed when
// there is another one.
func (o *offer) get() ([]Device, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.devices, o.changed
}
