package nodeapi

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/plan"
)

// How long at least between two writes of the status, between two previews, and the
// longest wait after a write that failed.
const (
	writeEvery   = time.Second
	previewEvery = time.Second
	longest      = time.Minute
	lookAgain    = 5 * time.Second // after a look that failed
)

// Server is the node's NodeNIC at the API server.
type Server interface {
	// Watch tells the object whenever it is another one, nil when there is none,
	// until ctx ends. It goes on trying while the API server is away.
	Watch(ctx context.Context, tell func(*v1alpha1.NodeNIC)) error

	// Write makes status the object's, as far as it is the agent's.
	Write(ctx context.Context, status v1alpha1.NodeNICStatus) error
}

// Agent brings a node to what its NodeNIC wants, when it may.
type Agent struct {
	server  Server
	engine  Engine
	version string
	log     *slog.Logger

	mu      sync.Mutex
	wake    chan struct{}
	object  *v1alpha1.NodeNIC // as last heard; nil not yet, or there is none
	book    book
	stale   bool // the node may be another than at the last look
	written *v1alpha1.NodeNICStatus
	due     time.Time // no write before
	failed  int       // writes in a row
	looked  time.Time // last preview
}

// New returns an agent that has heard nothing yet.
func New(server Server, engine Engine, version string, log *slog.Logger) *Agent {
	return &Agent{
		server: server, engine: engine, version: version, log: log,
		wake: make(chan struct{}, 1), stale: true, book: book{steps: newSteps()},
	}
}

// id tells one wish from another: generations of an object that was made anew begin
// at 1 again.
type id struct {
	uid        types.UID
	generation int64
}

func idOf(o *v1alpha1.NodeNIC) id { return id{o.UID, o.Generation} }

// Run works until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	broken := make(chan error, 1)
	watching.Go(func() { broken <- a.server.Watch(ctx, a.hear) })
	for {
		wait := time.NewTimer(a.turn(ctx))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case err := <-broken:
			wait.Stop()
			return err
		case <-a.wake:
		case <-wait.C:
		}
		wait.Stop()
	}
}

func (a *Agent) nudge() {
	select {
	case a.wake <- struct{}{}:
	default: // it has yet to see the last one
	}
}

func (a *Agent) hear(o *v1alpha1.NodeNIC) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.object == nil || o == nil || a.object.UID != o.UID || asked(o) {
		a.written = nil
	}
	a.object = o
	a.nudge()
}

// asked says that the controller has put something else in the place of what the agent
// had said, while the node was away, and waits for it to be said again.
func asked(o *v1alpha1.NodeNIC) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Ready)
	return c != nil && c.Reason == v1alpha1.ReasonNodeBack
}

// Event is told what goes on in a run.
func (a *Agent) Event(e apply.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.book.event(e)
	a.nudge()
}

// Ended is told how a run for a document has ended.
func (a *Agent) Ended(doc *v1alpha1.NodeNIC, result apply.Result, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.book.ended(idOf(doc), result, err)
	a.stale = true
	a.nudge()
}

// Looked is told that the node may be another.
func (a *Agent) Looked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stale = true
	a.nudge()
}

// idleWait is how long an agent that has nothing to do waits for something to
// happen: a long time, since everything that happens wakes it.
const idleWait = time.Hour

// turn does what is to be done now, and answers how long to wait for more if
// nothing happens.
func (a *Agent) turn(ctx context.Context) time.Duration {
	wait := idleWait
	if !a.look(ctx) {
		wait = lookAgain
	}
	wait = min(wait, a.consider(ctx))
	if w := a.publish(ctx); w > 0 {
		wait = min(wait, w)
	}
	return wait
}

// look sees what there is, if that may be something else than it was; false if it
// cannot.
func (a *Agent) look(ctx context.Context) bool {
	a.mu.Lock()
	due := a.stale
	a.stale = false
	a.mu.Unlock()
	if !due {
		return true
	}
	seen, err := a.engine.See(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			a.log.Error("cannot look at the node", "error", err)
		}
		a.stale = true
		return false
	}
	a.book.see(seen, idOf(a.engine.Current()))
	return true
}

// consider makes out what is wanted and takes it up, if it may.
func (a *Agent) consider(ctx context.Context) time.Duration {
	a.mu.Lock()
	object, running, previewed := a.object, a.book.running, a.book.previewed
	a.mu.Unlock()
	if object == nil || running || idOf(object) == idOf(a.engine.Current()) {
		return idleWait
	}
	if previewed != idOf(object) {
		if soon := previewEvery - time.Since(a.looked); soon > 0 {
			return soon
		}
		a.looked = time.Now()
		outlook, err := a.engine.Preview(ctx, object)
		if ctx.Err() != nil {
			return idleWait
		}
		a.mu.Lock()
		a.book.foresee(object, outlook, err)
		a.mu.Unlock()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.book.refused != "" || !a.may(object) {
		return idleWait
	}
	drained := granted(object, v1alpha1.AnnotationDrained)
	a.book.begin(object)
	a.log.Info("takes up what is wanted", "generation", object.Generation, "drained", drained)
	a.engine.Take(object, drained)
	return idleWait
}

// may says that the node may change for the object now: there is nothing to do to
// it, or the controller has let it go, pods have left if they must, and the plan is
// there to be read.
func (a *Agent) may(object *v1alpha1.NodeNIC) bool {
	p := a.book.plan
	if len(p.Steps) == 0 {
		return true
	}
	if !granted(object, v1alpha1.AnnotationGo) {
		return false
	}
	if p.Impact == plan.Drain.String() && !(granted(object, v1alpha1.AnnotationDrained) && a.heldAsPublished(object)) {
		return false
	}
	public := a.written
	if public == nil {
		public = &object.Status
	}
	return public.Plan != nil && public.Plan.Generation == object.Generation
}

// heldAsPublished says that nobody holds anything of which the controller did not
// know when it said that all had gone.
func (a *Agent) heldAsPublished(object *v1alpha1.NodeNIC) bool {
	if object.Status.Plan == nil {
		return false
	}
	known := map[v1alpha1.Holder]bool{}
	for _, h := range object.Status.Plan.Holders {
		known[h] = true
	}
	for _, h := range a.book.plan.Holders {
		if !known[h] {
			return false
		}
	}
	return true
}

// publish writes the status if it is another, and answers how long to wait until it
// may be tried (again); 0 if there is nothing to write.
func (a *Agent) publish(ctx context.Context) time.Duration {
	a.mu.Lock()
	object := a.object
	if object == nil {
		a.mu.Unlock()
		return 0
	}
	before := own(object.Status)
	if a.written != nil {
		before = *a.written
	}
	now := a.book.status(object, before, idOf(a.engine.Current()))
	now.Version = a.version
	a.mu.Unlock()
	if same(now, before) {
		return 0
	}
	if soon := time.Until(a.due); soon > 0 {
		return soon
	}
	err := a.server.Write(ctx, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed++
		wait := min(time.Second<<min(a.failed-1, 8), longest)
		a.due = time.Now().Add(wait)
		if ctx.Err() == nil {
			a.log.Warn("the status is not written", "error", err, "again", wait)
		}
		return wait
	}
	a.failed = 0
	a.due = time.Now().Add(writeEvery)
	if a.object != nil && a.object.UID == object.UID {
		a.written = &now
	}
	a.nudge() // what waited for the plan to be public may go on
	return 0
}

// granted says that an annotation has the generation that is wanted.
func granted(o *v1alpha1.NodeNIC, key string) bool {
	return o.Annotations[key] == decimal(o.Generation)
}
