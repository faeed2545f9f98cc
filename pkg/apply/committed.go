package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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

// commit adds what a run has reached. It replaces the file whole: who reads it
// after a power cut finds the old or the new one.
func (j *Journal) commit(reached nic.Spec) error {
	have, err := j.Committed()
	if err != nil {
		// What cannot be read is worth less than what is known now.
		have = nic.Spec{}
	}
	all := merge(have, reached)
	if err == nil && same(all, have) {
		return nil
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return spaceError(replaceFile(j.committedPath(), append(raw, '\n')))
}

func (r *Runner) commit(asked nic.Spec, scopes []scope, results []ScopeResult) error {
	if r.Uncommitted {
		return nil
	}
	return r.Journal.commit(reached(asked, scopes, results))
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

// replaceFile writes beside the file and renames, and returns when both are on
// disk.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}
