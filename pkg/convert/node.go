package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// nodeSet is a SriovNetworkPoolConfig that was read.
type nodeSet struct {
	spec           *object
	name           string
	nodes          *metav1.LabelSelector
	maxUnavailable *intstr.IntOrString
	rdma           string
}

// node reads the labels of the node that is asked for.
func (s *set) node(o *object) {
	meta := s.metadata(o)
	o.who = "Node " + meta.String()
	for _, name := range []string{"spec", "status"} {
		o.ask(name)
	}
	o.done()
	if s.options.Node == "" {
		s.add(Note{Left, o.who, "", "", "it counts with --node alone"})
		return
	}
	if meta.name == s.options.Node {
		s.labels = meta.labels
		if s.labels == nil {
			s.labels = map[string]string{}
		}
	}
}

func (s *set) poolConfig(doc, spec *object) {
	n := &nodeSet{spec: spec, name: s.metadata(doc).name}
	n.nodes = labelSelector(spec)
	n.maxUnavailable = maxUnavailable(spec)
	n.rdma = spec.word("rdmaMode", "shared", "exclusive")
	if n.rdma != "" {
		spec.note(Changed, "rdmaMode", "it is set without a reboot where the kernel allows it, while there is no other network namespace; else the plan says that the node must boot")
	}
	if ovs := spec.object("ovsHardwareOffloadConfig"); ovs != nil {
		if ovs.text("name") != "" {
			ovs.refuse("name", "sluice does not configure Open vSwitch: nearest is other_config:hw-offload=true on each of these nodes, set once; want it left out")
		}
		ovs.done()
	}
	spec.done()
	s.nodes = append(s.nodes, n)
}

// labelSelector reads the nodes of a pool; nil if there is none, which are none.
func labelSelector(spec *object) *metav1.LabelSelector {
	o := spec.object("nodeSelector")
	if o == nil {
		if _, there := spec.lookup("nodeSelector"); !there {
			spec.refuse("nodeSelector", "it is missing, which chooses no node: want labels of nodes, or {} for all nodes")
		}
		return nil
	}
	out := &metav1.LabelSelector{MatchLabels: o.labels("matchLabels")}
	for _, e := range o.objects("matchExpressions") {
		r := metav1.LabelSelectorRequirement{Key: e.text("key")}
		r.Operator = metav1.LabelSelectorOperator(e.word("operator", "In", "NotIn", "Exists", "DoesNotExist"))
		if _, there := e.lookup("values"); there {
			r.Values = e.texts("values")
		}
		e.ask("values")
		e.done()
		out.MatchExpressions = append(out.MatchExpressions, r)
	}
	o.done()
	if _, err := metav1.LabelSelectorAsSelector(out); err != nil {
		spec.refuse("nodeSelector", "%v", err)
	}
	return out
}

// maxUnavailable reads a number or a share. What is left out is all nodes at once
// there, and one here.
func maxUnavailable(spec *object) *intstr.IntOrString {
	v := spec.ask("maxUnavailable")
	switch v {
	case nil:
		spec.note(Changed, "maxUnavailable", "it is left out: one node at a time changes, not all at once")
		return nil
	}
	share, isText := v.(string)
	if isText {
		n, err := strconv.Atoi(strings.TrimSuffix(share, "%"))
		if !strings.HasSuffix(share, "%") || err != nil || n < 1 || n > 100 {
			spec.refuse("maxUnavailable", "want a number of nodes, or a share from 1%% to 100%%")
			return nil
		}
		spec.note(Changed, "maxUnavailable", "it is rounded up, not down")
		return new(intstr.FromString(share))
	}
	n := spec.number("maxUnavailable", 0, 1<<31-1)
	if n == nil {
		return nil
	}
	if *n == 0 {
		spec.refuse("maxUnavailable", "no node would ever change: nearest is no policy yet; want 1 or more")
		return nil
	}
	return new(intstr.FromInt32(int32(*n)))
}

// documents makes documents of everything that was read.
func (s *set) documents() []any {
	s.checkNetworks()
	var out []any
	if s.options.Node != "" {
		for _, n := range s.networks {
			s.add(Note{Left, n.spec.who, "", "", "it is no matter of one node: without --node it becomes a NetworkAttachmentDefinition"})
		}
		return s.nodeNIC()
	}
	out = append(out, s.nicPolicies()...)
	for _, n := range s.networks {
		out = append(out, n.document())
	}
	return out
}

// checkNetworks compares networks with the policies that make their VFs.
func (s *set) checkNetworks() {
	seen := map[string]bool{}
	for _, n := range s.networks {
		if key := n.namespace + "/" + n.name; seen[key] {
			s.add(Note{Refused, n.spec.who, "", "", "there are two networks of this name: want one"})
		} else {
			seen[key] = true
		}
		for _, p := range s.policies {
			if s.operatorPrefix()+"/"+p.pool.resource != n.resource {
				continue
			}
			switch {
			case p.eswitch == "legacy" && !p.external:
				n.spec.refuse("resourceName", "%s has its VFs in legacy mode, and sluice-cni attaches those of switchdev mode: want eSwitchMode: switchdev there, or this network kept with its CNI plugin; the resource keeps its name", p.spec.who)
			case p.pool.driver == vfioDriver:
				n.spec.refuse("resourceName", "%s binds its VFs to vfio-pci, and sluice-cni attaches those that have a netdev: want this network kept with its CNI plugin; the resource keeps its name", p.spec.who)
			}
		}
	}
}

// nodeNIC is the document of one node, nothing if nothing is for it.
func (s *set) nodeNIC() []any {
	doc := v1alpha1.NodeNIC{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNodeNIC},
		ObjectMeta: metav1.ObjectMeta{Name: s.options.Node},
	}
	var policies []*nodePolicy
	for _, p := range s.policies {
		if s.chosen(p.spec, &metav1.LabelSelector{MatchLabels: p.nodes}) {
			policies = append(policies, p)
		}
	}
	doc.Spec = s.spec(policies)
	for _, n := range s.nodes {
		if n.nodes == nil || !s.chosen(n.spec, n.nodes) {
			continue
		}
		if n.maxUnavailable != nil {
			n.spec.note(Left, "maxUnavailable", "it is no matter of one node")
		}
		if n.rdma == "" {
			continue
		}
		if r := doc.Spec.RDMA; r != nil && r.Netns != n.rdma {
			n.spec.refuse("rdmaMode", "another SriovNetworkPoolConfig of this node says %s", r.Netns)
		}
		doc.Spec.RDMA = &v1alpha1.RDMA{Netns: n.rdma}
	}
	for _, c := range s.configs {
		doc.Spec.Pools = append(doc.Spec.Pools, s.resourcePools(c)...)
	}
	s.checkPools(doc.Spec.Pools, map[string]bool{})
	if len(doc.Spec.PFs) == 0 && len(doc.Spec.Pools) == 0 && doc.Spec.RDMA == nil {
		if !s.refused() {
			s.add(Note{Refused, "node " + s.options.Node, "", "", "nothing of the input is for it: want a policy that chooses it, or a configuration of the device plugin"})
		}
		return nil
	}
	return []any{doc}
}

// chosen says whether a selector chooses the node that is asked for.
func (s *set) chosen(spec *object, nodes *metav1.LabelSelector) bool {
	sel, err := metav1.LabelSelectorAsSelector(nodes)
	switch {
	case err != nil:
		spec.refuse("nodeSelector", "%v", err)
		return false
	case sel.Empty():
		return true
	case s.labels == nil:
		spec.refuse("nodeSelector", "the labels of node %s are not known: want the node's own document in the input (kubectl get node %s -o yaml)", s.options.Node, s.options.Node)
		return false
	}
	return sel.Matches(labels.Set(s.labels))
}

// spec is what policies of the same nodes come to.
func (s *set) spec(policies []*nodePolicy) v1alpha1.NodeNICSpec {
	var out v1alpha1.NodeNICSpec
	ports := s.merge(policies)
	for _, q := range ports {
		out.PFs = append(out.PFs, q.pf())
	}
	out.Pools = s.pools(ports)
	return out
}

// checkPools refuses a resource that has been seen, and notes those that are seen.
func (s *set) checkPools(pools []v1alpha1.Pool, seen map[string]bool) {
	for _, p := range pools {
		name := p.Prefix + "/" + p.Name
		if seen[name] {
			s.add(Note{Refused, "resource " + name, "", "", "it is in the input twice, of policies or configurations of the device plugin: want one (their operator makes the configuration out of the policies)"})
		}
		seen[name] = true
	}
}

// nicPolicies are policies for nodes with the same labels, each put together as
// their operator does on a node, and those of the nodes' RDMA mode.
func (s *set) nicPolicies() []any {
	var out []any
	offered := map[string]bool{}
	for _, group := range byNodes(s.policies) {
		top := slices.MinFunc(group, func(a, b *nodePolicy) int { return cmp.Compare(a.priority, b.priority) })
		if len(group) > 1 {
			for _, p := range group {
				if p != top {
					p.spec.report.add(Note{Changed, p.spec.who, "", "", "it is one policy with " + top.spec.who + ", which is for the same nodes"})
				}
			}
		}
		spec := s.spec(group)
		for _, p := range spec.Pools {
			offered[p.Prefix+"/"+p.Name] = true
		}
		out = append(out, v1alpha1.NICPolicy{
			TypeMeta:   policyType(),
			ObjectMeta: metav1.ObjectMeta{Name: top.name},
			Spec: v1alpha1.NICPolicySpec{
				NodeSelector: s.limit(&metav1.LabelSelector{MatchLabels: top.nodes}),
				// Theirs is heard from 0 to 99, ours from the highest number.
				Priority:    int32(99 - top.priority),
				NodeNICSpec: spec,
			},
		})
	}
	out = append(out, s.nodeSetPolicies()...)
	for i, c := range s.configs {
		name := "device-plugin"
		if i > 0 {
			name = fmt.Sprintf("device-plugin-%d", i+1)
		}
		if s.options.NodeLabel == "" {
			s.add(Note{Changed, "NICPolicy " + name, "spec.nodeSelector", "{}", "it chooses all nodes: want the labels of those on which the plugin ran, or --node-label"})
		}
		pools := s.resourcePools(c)
		s.checkPools(pools, offered)
		out = append(out, v1alpha1.NICPolicy{
			TypeMeta:   policyType(),
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.NICPolicySpec{
				NodeSelector: s.limit(&metav1.LabelSelector{}),
				NodeNICSpec:  v1alpha1.NodeNICSpec{Pools: pools},
			},
		})
	}
	s.checkPolicyNames(out)
	return out
}

// limit adds the label that all policies ask for to a selector.
func (s *set) limit(nodes *metav1.LabelSelector) *metav1.LabelSelector {
	key, value, some := strings.Cut(s.options.NodeLabel, "=")
	if !some {
		return nodes
	}
	out := nodes.DeepCopy()
	if out.MatchLabels == nil {
		out.MatchLabels = map[string]string{}
	}
	out.MatchLabels[key] = value
	return out
}

func (s *set) nodeSetPolicies() []any {
	var out []any
	for _, n := range s.nodes {
		if n.nodes == nil {
			continue // it was refused
		}
		doc := v1alpha1.NICPolicy{
			TypeMeta:   policyType(),
			ObjectMeta: metav1.ObjectMeta{Name: n.name},
			Spec:       v1alpha1.NICPolicySpec{NodeSelector: s.limit(n.nodes), MaxUnavailable: n.maxUnavailable},
		}
		if n.rdma != "" {
			doc.Spec.RDMA = &v1alpha1.RDMA{Netns: n.rdma}
		}
		out = append(out, doc)
	}
	return out
}

func (s *set) checkPolicyNames(documents []any) {
	seen := map[string]bool{}
	for _, d := range documents {
		name := d.(v1alpha1.NICPolicy).Name
		if seen[name] {
			s.add(Note{Refused, "NICPolicy " + name, "", "", "there would be two of this name: want other names in the input"})
		}
		seen[name] = true
	}
}

func policyType() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNICPolicy}
}

// byNodes groups policies by the nodes that they choose, in the order of the input.
func byNodes(policies []*nodePolicy) [][]*nodePolicy {
	var out [][]*nodePolicy
	for _, p := range policies {
		i := slices.IndexFunc(out, func(g []*nodePolicy) bool { return labels.Equals(g[0].nodes, p.nodes) })
		if i < 0 {
			out = append(out, []*nodePolicy{p})
			continue
		}
		out[i] = append(out[i], p)
	}
	return out
}
