package controller

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// FieldManager is what the controller is to server-side apply; what it says of a
// drain, and of nodes that are away, has managers of its own: who applies one
// condition takes back the others that it had applied.
const (
	FieldManager = "sluice-controller"
	drainManager = "sluice-controller-drain"
	awayManager  = "sluice-controller-away"

	trafficManager = "sluice-controller-traffic" // of pods
)

// Options say where and how the controller runs.
type Options struct {
	Config     *rest.Config
	Namespace  string // of the lease by which replicas choose who works
	Lead       bool   // work only while holding that lease
	Northbound string // OVN's northbound database, where Networks go; "": nowhere
	Health     string // address of /healthz and /readyz; "" or "0": none
	Log        *slog.Logger

	// Registry is where the controller's metrics go; those of its libraries go to
	// controller-runtime's. Nil: nowhere.
	Registry prometheus.Registerer
}

// Run works until ctx ends, or until it loses its lease, which is an error.
func Run(ctx context.Context, o Options) error {
	m, err := manager(o)
	if err != nil {
		return err
	}
	f := newFleet(m)
	if o.Registry != nil {
		if err := f.meters.register(o.Registry); err != nil {
			return err
		}
	}
	if err := m.Add(ctrlmanager.RunnableFunc(f.meters.lead)); err != nil { // of the leader, as are loops
		return err
	}
	for _, add := range []func(ctrl.Manager) error{f.addResolve, f.addPace, f.addTally, (&traffic{theFleet: f}).add} {
		if err := add(m); err != nil {
			return err
		}
	}
	if o.Northbound != "" {
		if err := (&networks{f, o.Northbound, time.Minute}).add(m); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

func manager(o Options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme, eventsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	grace := 10 * time.Second
	// How fast a client may ask is for the API server to say (its priority and
	// fairness): client-go's own bound of 5 requests a second would hold up a wish
	// for 1,000 nodes by minutes.
	config := rest.CopyConfig(o.Config)
	if config.QPS == 0 {
		config.QPS = -1
	}
	again := true // tests run more than one in a process
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Logger: logr.FromSlogHandler(o.Log.Handler()),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: slim}},
		},
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}}}},
		Controller:                    ctrlconfig.Controller{SkipNameValidation: &again},
		LeaderElection:                o.Lead,
		LeaderElectionID:              "sluice-controller",
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        o.Health,
		Metrics:                       server.Options{BindAddress: "0"},
		GracefulShutdownTimeout:       &grace,
	})
	if err != nil {
		return nil, err
	}
	if err := m.AddHealthzCheck("alive", healthz.Ping); err != nil {
		return nil, err
	}
	// Ready when what there is has been heard of, be it as the leader or not.
	return m, m.AddReadyzCheck("caches", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			return errNotSynced
		}
		return nil
	})
}

// slim keeps of a Node what is asked for: its images and addresses are most of it.
func slim(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	n.ManagedFields = nil
	n.Status = corev1.NodeStatus{Conditions: n.Status.Conditions}
	return n, nil
}
