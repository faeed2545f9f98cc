package nodeapi

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// How long Networks may change on before they are told, for when one node has come all
// of them change; and how often they are told when they have not: what could not be done
// with them then may be possible now.
const (
	networksRest  = time.Second
	networksAgain = time.Minute
)

// Networks tells all Networks of the cluster, first when all are known and then
// whenever one is another, and now and then, until ctx ends. It goes on trying while the API server is
// away, and tells nothing then: nobody takes that for there being none. Which are
// deleted and yet to go is left out.
func Networks(ctx context.Context, config *rest.Config, tell func([]v1alpha1.Network)) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	all, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: fixedMapper()})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- all.Start(ctx) }()
	err = follow(ctx, all, tell)
	stop()
	return errors.Join(err, <-ended)
}

func follow(ctx context.Context, all cache.Cache, tell func([]v1alpha1.Network)) error {
	informer, err := all.GetInformer(ctx, &v1alpha1.Network{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	poke := func(any) {
		select {
		case changed <- struct{}{}:
		default: // not yet seen
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: poke, UpdateFunc: func(any, any) { poke(nil) }, DeleteFunc: poke,
	})
	if err != nil {
		return err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil // ctx has ended
	}
	poke(nil) // there may be none
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(networksAgain):
		}
		var list v1alpha1.NetworkList
		if err := all.List(ctx, &list); err != nil {
			return err
		}
		var out []v1alpha1.Network
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				out = append(out, *list.Items[i].DeepCopy())
			}
		}
		tell(out)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(networksRest):
		}
	}
}
