package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Input is a file.
type Input struct {
	Name string // for the report
	Text []byte
}

// Options are what the input does not say.
type Options struct {
	// Prefix of resources that name none. "": the default of whose they are,
	// intel.com of the device plugin, openshift.io of the operator.
	Prefix string

	// Bridge is the Open vSwitch bridge of networks that name none.
	Bridge string

	// Suffix of the names of networks, so that old and new ones can stand side by
	// side.
	Suffix string

	// NodeLabel is a label that policies ask of nodes besides, KEY=VALUE, so that a
	// cluster can be taken over node by node.
	NodeLabel string

	// Node is the name of one node, whose NodeNIC is wanted in place of policies.
	// The node's own document must be in the input if a policy chooses nodes by
	// labels.
	Node string
}

// Result is what came of the input.
type Result struct {
	// Documents to apply, in order: v1alpha1.NICPolicy or v1alpha1.NodeNIC, then
	// NetworkAttachmentDefinition. None if a note refuses anything.
	Documents []any
	Notes     []Note
}

// Refused is how many notes refuse something.
func (r Result) Refused() int { return (&report{notes: r.Notes}).refusals() }

// set is everything that is converted together.
type set struct {
	report
	options Options

	configs  []*config
	policies []*nodePolicy
	nodes    []*nodeSet
	networks []*network
	labels   map[string]string // of the node, nil as long as they are not known
	names    map[string]bool   // of documents that were read
}

// The prefixes of whoever names none.
func (s *set) pluginPrefix() string   { return cmp.Or(s.options.Prefix, "intel.com") }
func (s *set) operatorPrefix() string { return cmp.Or(s.options.Prefix, "openshift.io") }

// Convert reads all inputs, and makes documents of them if nothing is refused.
func Convert(inputs []Input, options Options) Result {
	s := &set{options: options, names: map[string]bool{}}
	if options.Prefix != "" {
		if err := resourcePrefix(options.Prefix); err != nil {
			s.add(Note{Refused, "resource prefix", "", shown(options.Prefix), err.Error()})
		}
	}
	if key, value, some := strings.Cut(options.NodeLabel, "="); options.NodeLabel != "" {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if !some || len(problems) > 0 {
			s.add(Note{Refused, "node label", "", shown(options.NodeLabel), "want KEY=VALUE, for example sluice.dev/migrated=true"})
		}
	}
	for _, in := range inputs {
		s.file(in)
	}
	documents := s.documents()
	if s.refused() {
		documents = nil
	}
	return Result{Documents: documents, Notes: s.notes}
}

// file reads one file.
func (s *set) file(in Input) {
	values, err := split(in.Text)
	if err != nil {
		s.add(Note{Verdict: Refused, Object: in.Name, Text: err.Error()})
		return
	}
	if len(values) == 0 {
		s.add(Note{Verdict: Refused, Object: in.Name, Text: "it is empty: want " + wanted})
	}
	for i, v := range values {
		who := in.Name
		if len(values) > 1 {
			who = fmt.Sprintf("%s, document %d", in.Name, i+1)
		}
		s.value(who, v)
	}
}

const wanted = "SriovNetworkNodePolicy, SriovNetworkPoolConfig, SriovNetwork, SriovIBNetwork, OVSNetwork, or a configuration of the SR-IOV network device plugin, alone or in a ConfigMap"

// value reads one document.
func (s *set) value(who string, v any) {
	members, ok := v.(map[string]any)
	if !ok {
		s.add(Note{Refused, who, "", shown(v), "want an object: " + wanted})
		return
	}
	o := &object{report: &s.report, who: who, members: members}
	kind := o.text("kind")
	if kind == "" {
		o.fold = true
		if o.key("resourceList") != "" {
			o.asked = nil
			s.readConfig(o)
			return
		}
	}
	version := o.text("apiVersion")
	switch {
	case kind == "List" && version == "v1":
		o.ask("metadata")
		for i, item := range o.objects("items") {
			s.value(fmt.Sprintf("%s, item %d", who, i+1), item.members)
		}
		o.done()
	case kind == "ConfigMap" && version == "v1":
		s.configMap(o)
	case kind == "Node" && version == "v1":
		s.node(o)
	default:
		s.operatorObject(o, version, kind)
	}
}

const operatorVersion = "sriovnetwork.openshift.io/v1"

// operatorObject reads an object of the SR-IOV network operator.
func (s *set) operatorObject(o *object, version, kind string) {
	read, known := map[string]func(doc, spec *object){
		"SriovNetworkNodePolicy": s.nodePolicy,
		"SriovNetworkPoolConfig": s.poolConfig,
		"SriovNetwork":           s.sriovNetwork,
		"SriovIBNetwork":         s.ibNetwork,
		"OVSNetwork":             s.ovsNetwork,
	}[kind]
	if !known || version != operatorVersion {
		s.add(Note{Refused, o.who, "", "", fmt.Sprintf("apiVersion %q, kind %q: want %s", version, kind, wanted)})
		return
	}
	meta := s.metadata(o)
	o.who = kind + " " + meta.String()
	if s.names[o.who] {
		s.add(Note{Refused, o.who, "", "", "there are two of this name: want one"})
		return
	}
	s.names[o.who] = true
	if len(meta.labels) > 0 {
		s.add(Note{Left, o.who, "metadata.labels", shown(meta.labels), "labels of the object are not carried over"})
	}
	spec := o.object("spec")
	if spec == nil {
		s.add(Note{Refused, o.who, "spec", "", "it is missing: want what is wanted"})
		return
	}
	o.ask("status") // what their operator says
	o.done()
	read(o, spec)
}

// metadata is what is read of an object's metadata; the rest of it is the API
// server's.
type metadata struct {
	name, namespace string
	labels          map[string]string
}

func (m metadata) String() string {
	if m.namespace == "" {
		return m.name
	}
	return m.namespace + "/" + m.name
}

func (s *set) metadata(o *object) metadata {
	meta := o.object("metadata")
	if meta == nil {
		o.refuse("metadata", "it is missing: want a name")
		return metadata{}
	}
	m := metadata{name: meta.text("name"), namespace: meta.text("namespace"), labels: meta.labels("labels")}
	if m.name == "" {
		meta.refuse("name", "it is missing: want a name")
	}
	return m
}

// configMap reads the configuration out of a ConfigMap: the one that it has, or the
// one of the node that is asked for, as the operator writes them.
func (s *set) configMap(o *object) {
	o.who = "ConfigMap " + s.metadata(o).String()
	data := o.labels("data")
	keys := slices.Sorted(maps.Keys(data))
	if _, mine := data[s.options.Node]; mine && s.options.Node != "" {
		keys = []string{s.options.Node}
	}
	o.ask("binaryData")
	o.ask("immutable")
	o.done()
	if len(keys) != 1 {
		o.refuse("data", "it has %d configurations: want one, or --node with the name of the node whose it is", len(keys))
		return
	}
	key := keys[0]
	v, err := parseJSON([]byte(data[key]))
	if err != nil {
		s.add(Note{Refused, o.who, "data." + key, "", err.Error()})
		return
	}
	members, ok := v.(map[string]any)
	if !ok {
		s.add(Note{Refused, o.who, "data." + key, shown(v), "want an object with resourceList"})
		return
	}
	s.readConfig(&object{report: &s.report, who: o.who + " " + key, members: members})
}
