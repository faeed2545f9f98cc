package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/agent"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/disk"
	"sluice.dev/sluice/pkg/network/slots"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/nodeapi"
	"sluice.dev/sluice/pkg/plan"
	"sluice.dev/sluice/pkg/policy"
)

// cluster is where an agent's documents come from in Kubernetes: the node's NodeNIC.
// What was taken up last lies in node.json of the state folder, so that an agent
// starts from it whether or not the API server is there.
type cluster struct {
	*agentRun
	agent   *nodeapi.Agent
	name    string // the node's
	config  *rest.Config
	options *options
	orders  chan order

	mu      sync.Mutex
	current *v1alpha1.NodeNIC
	wanted  *wanted // as current was made out last
	offer   *offer
	pods    []v1alpha1.PodOffload // where their traffic runs
	offload nodeapi.Answer
	able    []v1alpha1.Capability
	asked   time.Time // when these two were
}

// order is a document that the node is to be brought to.
type order struct {
	raw     []byte
	drained bool
}

// join makes the NodeNIC of that name what a follows.
func (a *agentRun) join(o *options, name, kubeconfig string) error {
	logTo(a.log)
	config, err := reach(kubeconfig)
	if err != nil {
		return err
	}
	server, err := nodeapi.Dial(config, name)
	if err != nil {
		return err
	}
	a.file = filepath.Join(a.node.dir, "node.json")
	a.cluster = &cluster{agentRun: a, name: name, config: config, options: o, orders: make(chan order, 1)}
	a.cluster.agent = nodeapi.New(countedServer{server, a.meters}, a.cluster, version(), a.log)
	return nil
}

// reach is how the API server is reached: as the file says, or, without one, as pods
// reach it.
func reach(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("how to reach the API server: --kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("how to reach the API server: this runs in no pod, where Kubernetes would say it: want --kubeconfig FILE")
	case err != nil:
		return nil, fmt.Errorf("how to reach the API server, as pods do: %w: want a service account in the pod, or --kubeconfig FILE", err)
	}
	return config, nil
}

// logTo makes Kubernetes' libraries write where the command does.
func logTo(log *slog.Logger) {
	l := logr.FromSlogHandler(log.Handler())
	klog.SetLogger(l)
	ctrl.SetLogger(l)
}

// begin takes up what was taken up last. One that cannot be reached, or be made out
// at all, is kept to all the same: the guard goes on trying.
func (c *cluster) begin(ctx context.Context) *wanted {
	if err := c.make(); err != nil {
		c.fault(faultState, "what was taken up last is not known", "error", err)
	}
	w, err := c.lastTaken(ctx)
	if err != nil {
		w = c.bare(ctx, err)
	}
	c.remember(w)
	if err == nil {
		w.drained = c.wasDrained(w.doc)
		if result, err := c.change(ctx, w); err == nil {
			c.log.Info("the node is as it was taken up last", "generation", w.doc.Generation, "run", result.ID, "tookOver", result.TookOver)
		} else {
			c.log.Error("the node is not as it was taken up last", "generation", w.doc.Generation, "error", err)
		}
		w.drained = false
	}
	return w
}

// make writes a document that wants nothing, if there is none.
func (c *cluster) make() error {
	if _, err := os.Stat(c.file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(c.node.dir, 0o700); err != nil {
		return err
	}
	return c.write(&v1alpha1.NodeNIC{})
}

// write puts a document where the next start finds it: what it wants, and which
// generation of which object it is.
func (c *cluster) write(doc *v1alpha1.NodeNIC) error {
	raw, err := textOf(doc)
	if err != nil {
		return err
	}
	return disk.Replace(c.file, raw, 0o600)
}

func textOf(doc *v1alpha1.NodeNIC) ([]byte, error) {
	out := v1alpha1.NodeNIC{Spec: doc.Spec}
	out.APIVersion, out.Kind = v1alpha1.APIVersion, v1alpha1.KindNodeNIC
	out.Name, out.UID, out.Generation = doc.Name, doc.UID, doc.Generation
	raw, err := json.MarshalIndent(out, "", "  ")
	return append(raw, '\n'), err
}

// bare is the document on disk as something that nothing can be made of now, and
// why.
func (c *cluster) bare(ctx context.Context, why error) *wanted {
	w := &wanted{wish: &wish{doc: &v1alpha1.NodeNIC{}}, journal: c.node.journal()}
	if raw, err := os.ReadFile(c.file); err == nil {
		w.taken.Document = digest(raw)
		if doc, err := policy.Decode(raw); err == nil {
			w.doc = doc
		}
	}
	w.conduct.Drift = policy.DriftMend
	if conduct, err := policy.ConductOf(w.doc); err == nil {
		w.conduct = conduct
	}
	if state, err := c.node.observe(ctx); err == nil {
		w.state = state
	}
	c.fault(faultDocument, "what is wanted cannot be made out", "generation", w.doc.Generation, "error", why)
	c.ready.ran(why)
	c.ended(w, apply.Result{Outcome: apply.Refused}, &apply.RefusedError{Err: why})
	return w
}

func (c *cluster) remember(w *wanted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.wanted = w.doc, w
}

// start talks to the API server until what it answers is called.
func (c *cluster) start(ctx context.Context, o *offer) (stop func()) {
	c.mu.Lock()
	c.offer = o
	c.mu.Unlock()
	ctx, end := context.WithCancel(ctx)
	var talking sync.WaitGroup
	talking.Go(func() {
		if err := c.agent.Run(ctx); err != nil && ctx.Err() == nil {
			c.fault(faultAPI, "the API server is not followed any more", "error", err)
		}
	})
	g := &grants{cluster: c, store: slots.Open(c.node.dir)}
	talking.Go(func() {
		if err := nodeapi.Networks(ctx, c.config, g.heard); err != nil && ctx.Err() == nil {
			c.fault(faultAPI, "the cluster's networks are not followed any more", "error", err)
		}
	})
	return func() {
		end()
		talking.Wait()
	}
}

// await waits for a document to be taken up; nil when ctx has ended.
func (c *cluster) await(ctx context.Context) *wanted {
	select {
	case <-ctx.Done():
		return nil
	case o := <-c.orders:
		next, err := c.agentRun.wanted(ctx, o.raw)
		if err != nil {
			next = c.bare(ctx, err)
		}
		next.drained = o.drained
		c.remember(next)
		return next
	}
}

// ended tells how a run has ended.
func (c *cluster) ended(w *wanted, result apply.Result, err error) {
	if err == nil {
		if err := os.Remove(c.drainedPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.fault(faultState, "a drain is not forgotten", "error", err)
		}
	}
	c.agent.Ended(w.doc, result, err)
}

// The file that says for which wish pods have left: who is killed in the middle of
// that change finishes it.
func (c *cluster) drainedPath() string { return filepath.Join(c.node.dir, "node.drained") }

func drainedFor(doc *v1alpha1.NodeNIC) string {
	return string(doc.UID) + " " + strconv.FormatInt(doc.Generation, 10) + "\n"
}

func (c *cluster) wasDrained(doc *v1alpha1.NodeNIC) bool {
	raw, err := os.ReadFile(c.drainedPath())
	return err == nil && string(raw) == drainedFor(doc)
}

// Current is of nodeapi.Engine.
func (c *cluster) Current() *v1alpha1.NodeNIC {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Take is of nodeapi.Engine.
func (c *cluster) Take(doc *v1alpha1.NodeNIC, drained bool) {
	raw, err := textOf(doc)
	if err == nil && drained {
		err = disk.Replace(c.drainedPath(), []byte(drainedFor(doc)), 0o600)
	}
	if err == nil {
		err = disk.Replace(c.file, raw, 0o600)
	}
	if err != nil { // the disk is full: what is not written down is not begun
		c.agent.Ended(doc, apply.Result{Outcome: apply.Refused}, &apply.RefusedError{Err: err})
		return
	}
	c.mu.Lock()
	c.current = doc
	c.mu.Unlock()
	select {
	case <-c.orders: // one that nobody has begun
	default:
	}
	c.orders <- order{raw, drained}
}

// Preview is of nodeapi.Engine.
func (c *cluster) Preview(ctx context.Context, doc *v1alpha1.NodeNIC) (nodeapi.Outlook, error) {
	raw, err := textOf(doc)
	if err != nil {
		return nodeapi.Outlook{}, err
	}
	kept := c.node.seam().Keep
	defer c.node.keep(kept)
	w, err := c.node.wishOf(ctx, doc.Name, raw)
	if err != nil {
		return nodeapi.Outlook{}, err
	}
	state := w.state
	spec := plan.Complete(plan.Spare(w.spec, state), state)
	if problems := plan.Check(spec, free(state)); len(problems) > 0 {
		return nodeapi.Outlook{}, &apply.RefusedError{Problems: problems}
	}
	p, err := plan.Unfold(spec, state)
	if err != nil {
		return nodeapi.Outlook{}, err
	}
	return nodeapi.Outlook{Plan: p, Holders: c.holdersOf(p, state)}, nil
}

// free is state with nobody who uses anything: who does is asked to go before.
func free(state nic.State) nic.State {
	state = state.Clone()
	for i := range state.PFs {
		for j := range state.PFs[i].VFs {
			state.PFs[i].VFs[j].Owner, state.PFs[i].VFs[j].Away = "", false
		}
		for j := range state.PFs[i].SFs {
			state.PFs[i].SFs[j].Owner, state.PFs[i].SFs[j].Away = "", false
		}
	}
	return state
}

// holdersOf lists who has what the plan takes.
func (c *cluster) holdersOf(p plan.Plan, state nic.State) []v1alpha1.Holder {
	addresses := map[string]string{}
	for _, pf := range state.PFs {
		for _, vf := range pf.VFs {
			addresses[nic.VFID{PF: pf.Handle, Index: vf.Index}.String()] = vf.Address
		}
		for _, sf := range pf.SFs {
			addresses[nic.SFID{PF: pf.Handle, Num: sf.Num}.String()] = sf.Device
		}
	}
	var out []v1alpha1.Holder
	for _, u := range plan.Uses(p, state) {
		h := v1alpha1.Holder{Device: u.Object, Pod: c.podOf(addresses[u.Object])}
		if h.Pod == "" {
			h.Why = u.Why
		}
		out = append(out, h)
	}
	return out
}

// podOf is the pod that has a device, as namespace/name, by the record of its
// attachment or by what kubelet says; "" not known.
func (c *cluster) podOf(device string) string {
	if r, err := record.In(c.node.dir).Load(device); err == nil && r.Pod.Name != "" {
		return r.Pod.Namespace + "/" + r.Pod.Name
	}
	return strings.TrimPrefix(c.node.holder(device, ""), "pod ")
}

// See is of nodeapi.Engine.
func (c *cluster) See(ctx context.Context) (nodeapi.Seen, error) {
	state, err := c.node.observe(ctx)
	if err != nil {
		return nodeapi.Seen{}, err
	}
	out := nodeapi.Seen{Inventory: inventoryOf(state), Pools: c.poolsOf(state)}
	out.Offload, out.Inventory.Offload = c.offloads(ctx, state)
	if b := state.RDMA.AtBoot; b != "" && b != state.RDMA.Mode {
		out.Reboot = fmt.Sprintf("RDMA devices are %s to network namespaces until the next boot, and %s then", state.RDMA.Mode, b)
	}
	c.mu.Lock()
	w, current := c.wanted, c.current
	out.Pods = c.pods
	c.mu.Unlock()
	if w == nil || w.doc != current && (w.doc.UID != current.UID || w.doc.Generation != current.Generation) {
		return out, nil // it is being taken up
	}
	spec, err := w.want(state)
	if err != nil {
		return out, nil // the guard says what is wrong
	}
	out.Gone = gone(spec, state)
	if p, err := agent.Missing(spec, state); err == nil {
		out.AsWanted = len(p.Steps) == 0
		if !out.AsWanted && w.conduct.Drift == policy.DriftReport {
			out.Drift = strings.TrimSpace(p.String())
		}
	}
	return out, nil
}

// carry notes where the traffic of pods runs.
func (c *cluster) carry(pods []v1alpha1.PodOffload) {
	c.mu.Lock()
	c.pods = pods
	c.mu.Unlock()
	c.agent.Looked()
}

// gone says which VFs that spec wants went from the bus, and whose VFs keep them away:
// the kernel makes all of a port or none.
func gone(spec nic.Spec, state nic.State) string {
	var out []string
	for _, w := range spec.PFs {
		pf := state.PF(w.Handle)
		if pf == nil || w.VFCount == nil {
			continue
		}
		var away, used []string
		for _, v := range pf.VFs {
			id := nic.VFID{PF: pf.Handle, Index: v.Index}.String()
			if v.Gone {
				away = append(away, id)
			} else if why := v.InUse(); why != "" {
				used = append(used, id+" "+why)
			}
		}
		if len(away) == 0 {
			continue
		}
		text := strings.Join(away, ", ") + " went from the bus"
		if len(used) > 0 {
			text += "; it is made anew, with all of its port, when none of these is in use: " + strings.Join(used, ", ")
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// offloads says whether flows run in hardware here, and what of them networks count on.
// What that hangs on changes seldom, and is read as often.
func (c *cluster) offloads(ctx context.Context, state nic.State) (nodeapi.Answer, []v1alpha1.Capability) {
	c.mu.Lock()
	old, able, last := c.offload, c.able, c.asked
	c.mu.Unlock()
	if old.Status != "" && time.Since(last) < c.every {
		return old, able
	}
	report := c.options.capabilities(ctx, state)
	out := nodeapi.Answer{Status: "Unknown", Reason: "Unknown"}
	if f := report.Get(capability.Flows); f != nil {
		switch f.Answer {
		case capability.Yes:
			out = nodeapi.Answer{Status: string(metav1.ConditionTrue), Reason: "FlowsInHardware"}
		case capability.No:
			out = nodeapi.Answer{Status: string(metav1.ConditionFalse), Reason: "NoFlowsInHardware"}
		}
		var why []string
		for _, m := range f.Missing() {
			why = append(why, m.String())
		}
		out.Message = strings.Join(why, "; ")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offload, c.able, c.asked = out, abilitiesOf(report), time.Now()
	return out, c.able
}
