package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/convert"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// sriovConfig is a configuration of the SR-IOV network device plugin that an agent
// offers the resources of. The file is followed.
type sriovConfig struct {
	file, prefix string
	log          *slog.Logger

	mu     sync.Mutex
	plugin *convert.Plugin // of the last good file
	before *convert.Plugin // of the one before, to which one that cannot be offered gives way
	seen   os.FileInfo     // as it was when it was last read
}

// read reads the file if it has changed, and says whether it has. One that is wrong
// is an error once, and the last good one stays in force.
func (s *sriovConfig) read() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := os.Stat(s.file)
	if err != nil || alike(now, s.seen) {
		return false, err
	}
	raw, err := os.ReadFile(s.file)
	if err != nil {
		return false, err
	}
	s.seen = now
	plugin, notes, err := convert.ReadPlugin(s.file, raw, s.prefix)
	if err != nil {
		return false, fmt.Errorf("%s cannot be honoured:\n%w", s.file, err)
	}
	for _, n := range notes {
		s.log.Warn("not as with the SR-IOV network device plugin", "what", n.String())
	}
	s.before, s.plugin = s.plugin, plugin
	return true, nil
}

// back takes back what was read last: it cannot be offered.
func (s *sriovConfig) back() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plugin = s.before
}

// on is the last good file's pools on the node.
func (s *sriovConfig) on(state nic.State) []nic.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plugin.Pools(state)
}

// follow offers what the file says when it has changed, until ctx ends.
func (o *offer) follow(ctx context.Context, w *wanted) {
	if o.sriov == nil {
		return
	}
	tick, said := time.NewTicker(o.read), ""
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := o.sriov.read()
		if changed {
			if err = o.update(ctx, w); err != nil {
				o.sriov.back()
			}
		}
		switch {
		case err != nil && ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			o.fault(faultPools, "the resources stay as they were offered", "error", err)
		case changed && err == nil:
			said = ""
			o.log.Info("the resources have changed", "file", o.sriov.file)
		}
	}
}

// pools are those of the document and of the configuration, which has been read
// once, on the node as it is.
func (a *agentRun) pools(doc *v1alpha1.NodeNIC, state nic.State, wanted nic.Spec) ([]nic.Pool, error) {
	pools, err := policy.Pools(doc, state, wanted)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.file, err)
	}
	if a.sriov == nil {
		return pools, nil
	}
	for _, p := range a.sriov.on(state) {
		for i := range p.Select {
			if pf := wanted.PF(p.Select[i].PF); pf != nil {
				p.Select[i].Eswitch = pf.Eswitch
			}
		}
		pools = append(pools, p)
	}
	if err := policy.CheckPools(pools); err != nil {
		return nil, fmt.Errorf("%s: %w", a.sriov.file, err)
	}
	return pools, nil
}

// document reads what the node is to be: nothing in particular, where there are
// only resources to offer.
func (a *agentRun) document() ([]byte, error) {
	switch {
	case a.file != "":
		return readDocument(a.file)
	case a.sriov != nil:
		return []byte("apiVersion: " + v1alpha1.APIVersion + "\nkind: " + v1alpha1.KindNodeNIC + "\n"), nil
	}
	return nil, status{exitUsage, errors.New("no document: want -f FILE, --node NAME or --sriov-config FILE")}
}
