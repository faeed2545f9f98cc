package fleet

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// said is one policy's value of something.
type said[T any] struct {
	voice
	value T
}

// merge lays the values of one object over each other, field by field: the first
// of list that gives a field is heard, and another of the same priority must not
// say something else. skip names fields that are put together in another way.
func merge[T any](c *conflicts, path string, list []said[T], skip ...string) T {
	var out T
	into := reflect.ValueOf(&out).Elem()
	var values []said[reflect.Value]
	for _, s := range list {
		values = append(values, said[reflect.Value]{s.voice, reflect.ValueOf(s.value)})
	}
	c.fields(path, into, values, skip)
	return out
}

func (c *conflicts) fields(path string, into reflect.Value, list []said[reflect.Value], skip []string) {
	for i := range into.NumField() {
		f := into.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if slices.Contains(skip, name) && name != "" {
			continue
		}
		var mine []said[reflect.Value]
		for _, s := range list {
			mine = append(mine, said[reflect.Value]{s.voice, s.value.Field(i)})
		}
		if f.Anonymous && name == "" {
			c.fields(path, into.Field(i), mine, skip)
			continue
		}
		c.field(path+" "+name, into.Field(i), mine)
	}
}

func (c *conflicts) field(path string, into reflect.Value, list []said[reflect.Value]) {
	var first *said[reflect.Value]
	for i := range list {
		s := &list[i]
		switch {
		case s.value.IsZero():
		case first == nil:
			first = s
			into.Set(s.value)
		case s.priority == first.priority && !reflect.DeepEqual(s.value.Interface(), first.value.Interface()):
			c.differ(first.voice, s.voice, path, text(first.value.Interface()), text(s.value.Interface()))
		}
	}
}

// differ notes that two say different things.
func (c *conflicts) differ(a, b voice, path, says, other string) {
	if a.policy > b.policy {
		a, b, says, other = b, a, other, says
	}
	c.add(a, b, path, fmt.Sprintf("%s and %s", says, other), "the same in both, or different priorities")
}

// text is a value as a document has it.
func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

// join is all values of all lists, each once, in the order of their saying.
func join(lists ...[]string) []string {
	var out []string
	for _, l := range lists {
		for _, s := range l {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// conduct puts together what is not of PFs, bonds or pools. What must hold and what
// must not be cut off adds up.
func (w *wishing) conduct() {
	var rdma []said[v1alpha1.RDMA]
	var probes []said[v1alpha1.Probe]
	var switches []said[v1alpha1.OpenVSwitch]
	var drift []said[v1alpha1.NodeNICSpec]
	for _, p := range w.policies {
		spec := p.value.Spec.NodeNICSpec
		drift = append(drift, said[v1alpha1.NodeNICSpec]{p.voice, v1alpha1.NodeNICSpec{Drift: spec.Drift}})
		if spec.RDMA != nil {
			rdma = append(rdma, said[v1alpha1.RDMA]{p.voice, *spec.RDMA})
		}
		if spec.OpenVSwitch != nil {
			switches = append(switches, said[v1alpha1.OpenVSwitch]{p.voice, *spec.OpenVSwitch})
		}
		if spec.Probe != nil {
			probes = append(probes, said[v1alpha1.Probe]{p.voice, *spec.Probe})
		}
		if spec.Protect != nil {
			if w.spec.Protect == nil {
				w.spec.Protect = &v1alpha1.Protect{}
			}
			w.spec.Protect.RoutesTo = join(w.spec.Protect.RoutesTo, spec.Protect.RoutesTo)
		}
	}
	w.spec.Drift = merge(&w.conflicts, "spec", drift).Drift
	if len(rdma) > 0 {
		all := merge(&w.conflicts, "rdma", rdma)
		w.spec.RDMA = &all
	}
	if len(switches) > 0 {
		all := merge(&w.conflicts, "openVSwitch", switches)
		w.spec.OpenVSwitch = &all
	}
	if len(probes) > 0 {
		all := merge(&w.conflicts, "probe", probes, "addresses", "connect", "defaultRoute")
		for _, p := range probes {
			all.Addresses = join(all.Addresses, p.value.Addresses)
			all.Connect = join(all.Connect, p.value.Connect)
			all.DefaultRoute = all.DefaultRoute || p.value.DefaultRoute
		}
		w.spec.Probe = &all
	}
}
