package nodeapi

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// FieldManager is what the agent is to server-side apply.
const FieldManager = "sluice-agent"

// remote is the NodeNIC of one node at a real API server.
type remote struct {
	node   string
	client client.Client
	cache  cache.Cache
}

// Dial returns the NodeNIC of a node at the API server that config reaches. It asks
// it nothing yet. Nothing but the one object is ever listed or watched.
func Dial(config *rest.Config, node string) (Server, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mapper := fixedMapper()
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	one, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper,
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.NodeNIC{}: {Field: fields.OneTermEqualSelector("metadata.name", node)},
		},
	})
	return &remote{node: node, client: c, cache: one}, err
}

func (r *remote) Watch(ctx context.Context, tell func(*v1alpha1.NodeNIC)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- r.cache.Start(ctx) }()
	informer, err := r.cache.GetInformer(ctx, &v1alpha1.NodeNIC{}, cache.BlockUntilSynced(false))
	if err != nil {
		stop()
		return errors.Join(err, <-ended)
	}
	heard := func(object any) {
		if o, ok := object.(*v1alpha1.NodeNIC); ok {
			tell(o.DeepCopy())
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    heard,
		UpdateFunc: func(_, object any) { heard(object) },
		DeleteFunc: func(any) { tell(nil) },
	})
	if err != nil {
		stop()
		return errors.Join(err, <-ended)
	}
	return <-ended
}

func (r *remote) Write(ctx context.Context, status v1alpha1.NodeNICStatus) error {
	raw, err := json.Marshal(status)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	object.SetAPIVersion(v1alpha1.APIVersion)
	object.SetKind(v1alpha1.KindNodeNIC)
	object.SetName(r.node)
	return r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(FieldManager), client.ForceOwnership)
}
