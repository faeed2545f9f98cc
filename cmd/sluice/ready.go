package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"sluice.dev/sluice/deviceplugin"
)

// readiness is what an agent's /readyz answers. It is ready when it has brought the
// node to what is wanted, or has said why not, and the kubelet has its pools, or there
// is none. That a node is not as wanted makes no agent unready: another one would be no
// better, and an update of agents would stop at that node.
type readiness struct {
	mu    sync.Mutex
	ended bool  // there was a run to what is wanted
	last  error // how it ended
	pools func() []deviceplugin.PoolStatus
}

// ran notes how a run has ended.
func (r *readiness) ran(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.last = true, err
}

// offers notes who tells of the pools.
func (r *readiness) offers(pools func() []deviceplugin.PoolStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pools = pools
}

// look says a line for the node and one for each pool.
func (r *readiness) look() (ready bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready = r.ended && r.pools != nil
	var lines []string
	switch {
	case !r.ended:
		lines = append(lines, "node: the first run to what is wanted has not ended")
	case r.last != nil:
		lines = append(lines, "node: not as wanted: "+r.last.Error())
	default:
		lines = append(lines, "node: as wanted")
	}
	if r.pools == nil {
		return false, strings.Join(append(lines, "pools: none is offered yet"), "\n")
	}
	for _, p := range r.pools() {
		switch {
		case p.Away == nil:
			lines = append(lines, p.Resource+": with the kubelet")
		case errors.Is(p.Away, deviceplugin.ErrNoKubelet):
			lines = append(lines, fmt.Sprintf("%s: %v", p.Resource, p.Away))
		default:
			ready = false
			lines = append(lines, fmt.Sprintf("%s: not with the kubelet: %v", p.Resource, p.Away))
		}
	}
	return ready, strings.Join(lines, "\n")
}

// probes answers /healthz, as long as the process runs at all: a run that takes long is
// no reason to end it, and what hangs in the kernel hangs for the next one too.
func (r *readiness) probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, text := r.look()
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, text)
	})
	return mux
}
