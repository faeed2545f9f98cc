package main

import (
	"context"
	"os"
	"path/filepath"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
)

// whereabouts fills in where the netdevs are that have left the host's namespace:
// what sluice has attached by its record, others by looking into the namespaces that
// have a name in folder. One that is in neither is not found: a namespace may have
// no name at all.
func (n *node) whereabouts(ctx context.Context, s *nic.State, folder string) {
	lost := map[string]*string{} // by parent of the netdev
	store := record.In(n.dir)
	for i := range s.PFs {
		for j := range s.PFs[i].VFs {
			v := &s.PFs[i].VFs[j]
			if r, err := store.Load(v.Address); err == nil && !r.Outlived(n.machine.Boot) {
				v.Netns = r.Netns
			} else if v.Away {
				lost[v.Address] = &v.Netns
			}
		}
		for j := range s.PFs[i].SFs {
			f := &s.PFs[i].SFs[j]
			if r, err := store.Load(f.Device); f.Device != "" && err == nil && !r.Outlived(n.machine.Boot) {
				f.Netns = r.Netns
			} else if f.Away {
				lost[f.Device] = &f.Netns
			}
		}
	}
	if len(lost) == 0 {
		return
	}
	names, err := os.ReadDir(folder)
	if err != nil {
		return // nobody has named any
	}
	for _, name := range names {
		n.look(ctx, filepath.Join(folder, name.Name()), lost)
	}
}

// look notes which of the lost netdevs are in the namespace at path. One that
// cannot be entered keeps what is in it to itself.
func (n *node) look(ctx context.Context, path string, lost map[string]*string) {
	ns, err := n.machine.Netns.Open(ctx, path)
	if err != nil {
		return
	}
	defer ns.Close()
	links, err := ns.Links(ctx)
	if err != nil {
		return
	}
	for _, l := range links {
		if at, ok := lost[l.Parent]; ok && l.Parent != "" {
			*at = path
		}
	}
}
