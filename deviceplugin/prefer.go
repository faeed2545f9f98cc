package deviceplugin

import (
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// Prefer picks size of the available devices: those of must, then as few PFs as
// will do, beginning with the PFs of must. Of PFs that would do alone it takes
// the one with the fewest devices left over, so that large requests find room
// later; within a PF it takes the lowest indexes. Devices that are not listed
// count for nothing, unless they are in must.
func Prefer(devices []Device, available, must []string, size int) ([]string, error) {
	if size < len(must) {
		return nil, fmt.Errorf("preferred allocation of %d devices: %d must be among them", size, len(must))
	}
	vfs := make(map[string]nic.VFID, len(devices))
	for _, d := range devices {
		vfs[d.ID] = d.VF
	}
	out := slices.Clone(must)
	begun := map[nic.Handle]bool{}
	for _, id := range must {
		if vf, ok := vfs[id]; ok {
			begun[vf.PF] = true
		}
	}
	free := map[nic.Handle][]string{}
	seen := map[string]bool{}
	for _, id := range available {
		if vf, ok := vfs[id]; ok && !seen[id] && !slices.Contains(must, id) {
			seen[id] = true
			free[vf.PF] = append(free[vf.PF], id)
		}
	}
	var pfs []nic.Handle
	for h, ids := range free {
		pfs = append(pfs, h)
		slices.SortFunc(ids, func(a, b string) int { return vfs[a].Index - vfs[b].Index })
	}
	slices.SortFunc(pfs, nic.Handle.Compare)

	for len(out) < size {
		i := nextPF(pfs, free, begun, size-len(out))
		if i < 0 {
			return nil, fmt.Errorf("preferred allocation of %d devices: only %d are available", size, len(out))
		}
		ids := free[pfs[i]]
		out = append(out, ids[:min(len(ids), size-len(out))]...)
		pfs = slices.Delete(pfs, i, i+1)
	}
	return out, nil
}

// nextPF is the index of the PF to take from when want devices are missing; -1
// when none is left. Taking the largest while none suffices gives the fewest PFs.
func nextPF(pfs []nic.Handle, free map[nic.Handle][]string, begun map[nic.Handle]bool, want int) int {
	best := -1
	for i, h := range pfs {
		if best < 0 || betterPF(begun[h], len(free[h]), begun[pfs[best]], len(free[pfs[best]]), want) {
			best = i
		}
	}
	return best
}

func betterPF(begun bool, n int, otherBegun bool, other, want int) bool {
	switch {
	case begun != otherBegun:
		return begun
	case n >= want && other >= want:
		return n < other
	}
	return n > other
}
