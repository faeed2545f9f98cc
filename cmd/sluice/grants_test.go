package main

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	logical "sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/network/slots"
)

// netOf makes or changes a Network; the test is the controller that gives blocks.
func (k *kube) netOf(name, text string, change func(*v1alpha1.Network)) {
	k.t.Helper()
	o := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: name}}
	k.do(yaml.UnmarshalStrict([]byte(text), &o.Spec))
	if err := k.Get(k.t.Context(), client.ObjectKey{Name: name}, &v1alpha1.Network{}); err != nil {
		k.do(k.Create(k.t.Context(), o))
	}
	spec := o.Spec
	k.do(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		k.do(k.Get(k.t.Context(), client.ObjectKey{Name: name}, o))
		o.Spec = spec
		return k.Update(k.t.Context(), o)
	}))
	if change != nil {
		change(o)
		k.do(k.Status().Update(k.t.Context(), o))
	}
}

func gives(node string, block int) func(*v1alpha1.Network) {
	return func(o *v1alpha1.Network) {
		o.Status.Blocks = []v1alpha1.NetworkBlock{{Node: "other", Block: block + 1}, {Node: node, Block: block}}
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsWanted, ObservedGeneration: o.Generation})
	}
}

// An agent brings its node's blocks to where ADDs take addresses from: those that OVN
// has been told of, until the network is gone and the last of its addresses given back.
// What was brought by hand is left alone.
func TestAgentBringsBlocks(t *testing.T) {
	const text = "{layer: 2, subnets: [{cidr: 10.1.0.0/24}], mtu: %MTU%}"
	mtu := func(n string) string { return strings.ReplaceAll(text, "%MTU%", n) }
	k := newKube(t)
	k.node("n1")
	m := newMachine(t)
	s := slots.Open(m.dir)
	k.do(s.Put(slots.Grant{Network: logical.Network{Name: "hand", Layer: 2}, Block: 7}))
	k.netOf("blue", mtu("1500"), gives("n1", 2))
	k.netOf("red", mtu("1500"), gives("n2", 2)) // another node's
	agent := k.agent("n1", m)
	await := func(what string, so func(slots.Grant, error) bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if so(s.Get("blue")) {
				return
			}
		}
		g, err := s.Get("blue")
		t.Fatalf("the node's part of blue does not become: %s: %+v, %v", what, g, err)
	}
	await("block 2", func(g slots.Grant, err error) bool { return err == nil && g.Block == 2 && g.Network.MTU == 1500 })
	if _, err := s.Get("red"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another node's: %v", err)
	}
	_, _, err := s.Take("blue", "pod")
	k.do(err)

	// What OVN has yet to hear of is not in force here; green, which came after, is.
	k.netOf("blue", mtu("9000"), nil)
	k.netOf("green", mtu("1500"), gives("n1", 0))
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := s.Get("green"); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if g, err := s.Get("blue"); err != nil || g.Network.MTU != 1500 {
		t.Errorf("before OVN was told: %+v, %v", g, err)
	}
	k.netOf("blue", mtu("9000"), gives("n1", 2))
	await("MTU 9000", func(g slots.Grant, err error) bool { return err == nil && g.Network.MTU == 9000 })

	// Gone while a pod has an address, and then not.
	k.do(k.Delete(t.Context(), &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}))
	k.do(k.Delete(t.Context(), &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "green"}}))
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := s.Get("green"); errors.Is(err, fs.ErrNotExist) {
			break
		} else if time.Now().After(end) {
			t.Fatal("green stays")
		}
	}
	if leases, err := s.Leases("blue"); err != nil || len(leases) != 1 {
		t.Errorf("in use: %v, %v", leases, err)
	}
	k.do(s.Give("blue", "pod"))
	agent.halt()
	k.agent("n1", m)
	await("nothing", func(_ slots.Grant, err error) bool { return errors.Is(err, fs.ErrNotExist) })
	if _, err := s.Get("hand"); err != nil {
		t.Errorf("brought by hand: %v", err)
	}
}
