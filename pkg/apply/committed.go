package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sluice.dev/sluice/pkg/disk"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// Committed is the last good state as a Spec: what runs have reached, the last one
// for each PF and bond. A boot converges on it. It is empty when nothing has ever
// been reached.
func (j *Journal) Committed() (nic.Spec, error) {
	raw, err := os.ReadFile(j.committedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nic.Spec{}, nil
	}
	var out nic.Spec
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return nic.Spec{}, fmt.Errorf("the committed state: %w", err)
	}
	return out, nil
}

func (j *Journal) committedPath() string { return filepath.Join(j.Dir, "committed.json") }

// Later is what of committed was not so when base was committed: the PFs and bonds
// that are new or others, and the bonds of those PFs.
func Later(base, committed nic.Spec) nic.Spec {
	var out nic.Spec
	for _, w := range committed.PFs {
		was := base.PF(w.Handle)
		if was == nil || !same(nic.Spec{PFs: []nic.PFSpec{*was}}, nic.Spec{PFs: []nic.PFSpec{w}}) {
			out.PFs = append(out.PFs, w)
		}
	}
	for _, b := range committed.Bonds {
		unchanged := slices.ContainsFunc(base.Bonds, func(was nic.BondSpec) bool {
			return same(nic.Spec{Bonds: []nic.BondSpec{was}}, nic.Spec{Bonds: []nic.BondSpec{b}})
		})
		if !unchanged || slices.ContainsFunc(b.Members, func(h nic.Handle) bool { return out.PF(h) != nil }) {
			out.Bonds = append(out.Bonds, b)
		}
	}
	if committed.RDMA != base.RDMA {
		out.RDMA = committed.RDMA
	}
	return out
}

// Nothing says that a Spec wants nothing.
func Nothing(s nic.Spec) bool { return len(s.PFs) == 0 && len(s.Bonds) == 0 && s.RDMA == "" }

// Onto is wish with what was committed later on top of it.
func Onto(wish, later nic.Spec) nic.Spec {
	if Nothing(later) {
		return wish
	}
	out := merge(wish, later)
	out.RDMAAtBoot = wish.RDMAAtBoot
	return out
}

// commit adds what a run has reached, and answers all that is committed then. It
// replaces the file whole: who reads it after a power cut finds the old or the new
// one.
func (j *Journal) commit(reached nic.Spec) (nic.Spec, error) {
	have, err := j.Committed()
	if err != nil {
		// What cannot be read is worth less than what is known now.
		have = nic.Spec{}
	}
	all := merge(have, reached)
	if err == nil && same(all, have) {
		return all, nil
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return all, err
	}
	return all, spaceError(disk.Replace(j.committedPath(), append(raw, '\n'), 0o600))
}

func (r *Runner) commit(asked nic.Spec, scopes []scope, out *Result) {
	if !r.Uncommitted {
		out.Committed, out.Uncommitted = r.Journal.commit(reached(asked, scopes, out.Scopes))
	}
}

// reached is what of asked is of scopes that are as it wants them.
func reached(asked nic.Spec, scopes []scope, results []ScopeResult) nic.Spec {
	var out nic.Spec
	for i, s := range scopes {
		if s.back || results[i].Outcome != Reached {
			continue
		}
		for _, w := range s.want.PFs {
			if a := asked.PF(w.Handle); a != nil {
				out.PFs = append(out.PFs, *a)
			}
		}
		for _, b := range s.want.Bonds {
			if slices.ContainsFunc(asked.Bonds, func(a nic.BondSpec) bool { return a.Name == b.Name }) {
				out.Bonds = append(out.Bonds, b)
			}
		}
		if s.want.RDMA != "" {
			out.RDMA = asked.RDMA
		}
	}
	return out
}

// merge is what is wanted after both have been reached, now the second (plan.Over).
func merge(before, now nic.Spec) nic.Spec {
	out := nic.Spec{Bonds: now.Bonds, RDMA: now.RDMA, RDMAAtBoot: now.RDMAAtBoot}
	for _, w := range now.PFs {
		if was := before.PF(w.Handle); was != nil {
			w = plan.Over(*was, w)
		}
		out.PFs = append(out.PFs, w)
	}
	for _, w := range before.PFs {
		if now.PF(w.Handle) == nil {
			out.PFs = append(out.PFs, w)
		}
	}
	for _, b := range before.Bonds {
		renewed := slices.ContainsFunc(now.Bonds, func(n nic.BondSpec) bool { return n.Name == b.Name })
		// A bond whose port is spoken of now would be spoken of too, were it wanted.
		taken := slices.ContainsFunc(b.Members, func(h nic.Handle) bool {
			w := now.PF(h)
			return w != nil && w.Bond != nil
		})
		if !renewed && !taken {
			out.Bonds = append(slices.Clone(out.Bonds), b)
		}
	}
	if out.RDMA == "" {
		out.RDMA = before.RDMA
	}
	return out
}
