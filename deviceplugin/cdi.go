package deviceplugin

import (
	"encoding/json"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// cdiVersion is the least version of the Container Device Interface that has what
// is used, so that older runtimes read it too: 0.5.0 brought class names as ours.
const cdiVersion = "0.5.0"

// cdiSpec is a spec file of the Container Device Interface: one kind, its devices
// and what a container gets with each.
type cdiSpec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name  string   `json:"name"`
	Edits cdiEdits `json:"containerEdits"`
}

type cdiEdits struct {
	Nodes []cdiNode `json:"deviceNodes"`
}

type cdiNode struct {
	Path        string `json:"path"` // in the container
	HostPath    string `json:"hostPath,omitempty"`
	Permissions string `json:"permissions"`
}

// cdiKind is vendor/class: a class begins with a letter and has no dots. Names of
// pools that differ in no more than that are refused (policy.CheckPools).
func cdiKind(p nic.Pool) string {
	prefix, name, _ := strings.Cut(p.Resource(), "/")
	return prefix + "/pool-" + strings.ReplaceAll(name, ".", "_")
}

// cdiName is the fully qualified name of a device.
func cdiName(p nic.Pool, id string) string { return cdiKind(p) + "=" + id }

// cdiFile is the name of a pool's spec file.
func cdiFile(p nic.Pool) string {
	return cdiFileOf + strings.ReplaceAll(p.Resource(), "/", "_") + ".json"
}

const cdiFileOf = "sluice-"

// specOf is the spec of p on n, of what pods may get. A device that has no files now,
// or is unhealthy, but in use has those of old: its container may be started again.
func specOf(p nic.Pool, n Node, devices []Device, old cdiSpec) cdiSpec {
	out := cdiSpec{Version: cdiVersion, Kind: cdiKind(p), Devices: []cdiDevice{}}
	for _, d := range devices {
		g, problem := give(p, n, d)
		if problem != "" || !d.Healthy() {
			i := slices.IndexFunc(old.Devices, func(o cdiDevice) bool { return o.Name == d.ID })
			inUse := d.Healthy() || n.Held != nil && n.Held(p.Resource(), d.ID)
			if i >= 0 && inUse {
				out.Devices = append(out.Devices, old.Devices[i])
			}
			continue
		}
		if len(g.files) == 0 {
			continue
		}
		one := cdiDevice{Name: d.ID}
		for _, f := range g.files {
			node := cdiNode{Path: f.Container, Permissions: "rw"}
			if f.Host != f.Container {
				node.HostPath = f.Host
			}
			one.Edits.Nodes = append(one.Edits.Nodes, node)
		}
		out.Devices = append(out.Devices, one)
	}
	return out
}

// text is the file's content; nil for a spec without devices, which no runtime
// needs and some refuse.
func (s cdiSpec) text() ([]byte, error) {
	if len(s.Devices) == 0 {
		return nil, nil
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}
