package deviceplugin

import (
	"slices"
	"sync"

	"sluice.dev/sluice/pkg/nic"
)

// offer is one pool and its list, as last observed, for any number of readers.
type offer struct {
	mu      sync.Mutex
	pool    nic.Pool
	devices []Device
	over    bool          // the pool was removed: nothing more is listed
	first   chan struct{} // closed when there is a list
	changed chan struct{} // closed when devices is replaced
}

func newOffer(pool nic.Pool) *offer {
	return &offer{pool: pool, first: make(chan struct{}), changed: make(chan struct{})}
}

// current is the pool as it is now wanted.
func (o *offer) current() nic.Pool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pool
}

// become makes it another pool of the same resource; the list follows with the
// next observation.
func (o *offer) become(pool nic.Pool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pool = pool
}

// set replaces the list. It wakes the readers and answers true only if the
// kubelet would see a difference. It keeps devices.
func (o *offer) set(devices []Device) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return false
	}
	return o.replace(devices)
}

// end lists nothing from here on, so that the kubelet counts none before it loses
// the connection: what it loses with devices it counts for minutes.
func (o *offer) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replace(nil)
	o.over = true
}

func (o *offer) replace(devices []Device) bool {
	same := slices.EqualFunc(devices, o.devices, func(a, b Device) bool {
		return a.ID == b.ID && a.NUMA == b.NUMA && a.Healthy() == b.Healthy()
	})
	o.devices = devices
	select {
	case <-o.first:
	default:
		close(o.first)
	}
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
