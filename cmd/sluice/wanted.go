package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/disk"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// wanted is what an agent keeps its node as: what its document says, and over it
// what others' runs have committed since the document was taken up. So sluice apply
// beside an agent is not undone by it, and a new document has the last word.
type wanted struct {
	*wish
	journal *apply.Journal
	taken   taken

	// drained: whoever had VFs is gone, whatever records say. Of the first run for a
	// document alone.
	drained bool
}

// taken is what an agent remembers of the document that it took up, also over its
// own end (agent.json in the state folder).
type taken struct {
	Document  string   `json:"document"`  // SHA-256 of its text
	Committed nic.Spec `json:"committed"` // what was committed then
}

// want makes out what is wanted on the node as it is.
func (w *wanted) want(state nic.State) (nic.Spec, error) {
	spec, err := policy.Resolve(w.doc, state)
	if err != nil {
		return spec, err
	}
	later, err := w.later()
	if err != nil {
		return spec, err
	}
	return apply.Onto(spec, present(later, state)), nil
}

// later is what others have committed since the document was taken up.
func (w *wanted) later() (nic.Spec, error) {
	committed, err := w.journal.Committed()
	return apply.Later(w.taken.Committed, committed), err
}

// present is what of spec is of ports that are there.
func present(spec nic.Spec, state nic.State) nic.Spec {
	out := nic.Spec{RDMA: spec.RDMA}
	for _, pf := range spec.PFs {
		if state.PF(pf.Handle) != nil {
			out.PFs = append(out.PFs, pf)
		}
	}
	for _, b := range spec.Bonds {
		if allThere(b, state) {
			out.Bonds = append(out.Bonds, b)
		}
	}
	return out
}

func (a *agentRun) takenPath() string { return filepath.Join(a.node.dir, "agent.json") }

// begin brings the node to what is wanted. An interrupted run needs no step of its
// own: this one takes it over.
func (a *agentRun) begin(ctx context.Context) (*wanted, error) {
	if a.cluster != nil {
		return a.cluster.begin(ctx), nil
	}
	w, err := a.lastTaken(ctx)
	if err != nil {
		return nil, err
	}
	result, err := a.change(ctx, w)
	if err != nil {
		return nil, err
	}
	a.log.Info("the node is as wanted", "run", result.ID, "tookOver", result.TookOver)
	return w, nil
}

// lastTaken is the document with what is remembered of it, if it is the one that
// was taken up last.
func (a *agentRun) lastTaken(ctx context.Context) (*wanted, error) {
	raw, err := a.document()
	if err != nil {
		return nil, err
	}
	w, err := a.wanted(ctx, raw)
	if err != nil {
		return nil, err
	}
	var before taken
	text, err := os.ReadFile(a.takenPath())
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	switch {
	case err == nil && before.Document == w.taken.Document:
		w.taken = before
		a.sayLater(w)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		a.log.Warn("what other runs have committed beside the document is not known: the document alone counts", "error", err)
	}
	return w, nil
}

func (a *agentRun) sayLater(w *wanted) {
	if later, err := w.later(); err == nil && len(later.PFs) > 0 {
		a.log.Info("other runs have committed more since the document was taken up", "pfs", later.Handles())
	}
}

// wanted is a new document, with nothing over it.
func (a *agentRun) wanted(ctx context.Context, raw []byte) (*wanted, error) {
	w, err := a.node.wishOf(ctx, a.file, raw)
	if err != nil {
		return nil, err
	}
	out := &wanted{wish: w, journal: a.node.journal()}
	out.taken.Document = digest(raw)
	out.taken.Committed, err = out.journal.Committed()
	return out, err
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// take writes down that a run has taken the document up. What is committed then is
// the agent's own, if nobody else has committed anything before.
func (a *agentRun) take(w *wanted, alone bool, committed nic.Spec) {
	if alone {
		w.taken.Committed = committed
	}
	raw, err := json.Marshal(w.taken)
	if err == nil {
		err = disk.Replace(a.takenPath(), append(raw, '\n'), 0o600)
	}
	if err != nil {
		a.fault(faultState, "an agent that starts again will not know what others commit meanwhile", "error", err)
	}
}

// takeUp brings the node to what a new document wants. One that cannot be reached
// now is what is wanted all the same: the guard goes on trying.
func (a *agentRun) takeUp(ctx context.Context, next *wanted) *wanted {
	a.log.Info("the document has changed", "file", a.file)
	result, err := a.change(ctx, next)
	next.drained = false
	if err != nil {
		a.log.Error("the document's wish is not reached", "file", a.file, "error", err)
	} else {
		a.log.Info("the node is as wanted", "run", result.ID, "tookOver", result.TookOver)
	}
	return next
}

// await waits until the document is another one that is good on this node, and
// answers it; nil when ctx has ended. What is wrong with one is said once. Standard
// input is read once and not followed.
func (a *agentRun) await(ctx context.Context, w *wanted) *wanted {
	if a.cluster != nil {
		return a.cluster.await(ctx)
	}
	var seen, tried os.FileInfo // as it was at the last look, and when it was last read
	said, at := "", time.Time{}
	if a.file == "-" || a.file == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(a.read)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := os.Stat(a.file)
		if err == nil && !now.Mode().IsRegular() { // to read a pipe may take for ever
			err = fmt.Errorf("%s: it is no regular file", a.file)
		}
		// One that changed since the last look may still be being written. One that
		// was refused may be right on a node that has changed meanwhile.
		if err == nil && (!alike(now, seen) || alike(now, tried) && (said == "" || time.Since(at) < a.every)) {
			seen = now
			continue
		}
		var next *wanted
		if err == nil {
			tried, at = now, time.Now()
			next, err = a.other(ctx, w)
		}
		switch {
		case err == nil && next != nil:
			return next
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			a.fault(faultDocument, "the document is refused; the last good one stays in force", "file", a.file, "error", err)
		}
	}
}

// other reads the document; nil if it is the one in force.
func (a *agentRun) other(ctx context.Context, w *wanted) (*wanted, error) {
	raw, err := a.document()
	if err != nil || digest(raw) == w.taken.Document {
		return nil, err
	}
	kept := a.node.seam().Keep
	next, err := a.wanted(ctx, raw)
	if err == nil {
		r := a.node.runner(nil)
		r.Spare = true
		_, _, err = r.Preview(ctx, next.spec)
	}
	if err != nil {
		a.node.keep(kept)
		return nil, err
	}
	return next, nil
}

// alike says that a file is as it was: also one that another was put in the place
// of, as a ConfigMap's volume does.
func alike(a, b os.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
