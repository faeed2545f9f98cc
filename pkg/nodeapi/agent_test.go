package nodeapi

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// served is an object at a server whose watch is late.
type served struct {
	mu     sync.Mutex
	object *v1alpha1.NodeNIC
	tell   func(*v1alpha1.NodeNIC)
	late   time.Duration
	writes int
	owned  bool // by somebody else, who keeps what it says
}

func (s *served) Watch(ctx context.Context, tell func(*v1alpha1.NodeNIC)) error {
	s.mu.Lock()
	s.tell = tell
	s.mu.Unlock()
	tell(s.object.DeepCopy())
	<-ctx.Done()
	return nil
}

func (s *served) Write(_ context.Context, status v1alpha1.NodeNICStatus) error {
	s.mu.Lock()
	s.writes++
	owned := s.owned
	s.mu.Unlock()
	if !owned {
		s.put(status)
	}
	return nil
}

// put makes status the object's, whoever says so.
func (s *served) put(status v1alpha1.NodeNICStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object.Status = asTold(status)
	o, tell := s.object.DeepCopy(), s.tell
	time.AfterFunc(s.late, func() { tell(o) })
}

func (s *served) now() (v1alpha1.NodeNICStatus, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.object.Status.DeepCopy(), s.writes
}

// still is a node that is as its document wants it.
type still struct{ doc *v1alpha1.NodeNIC }

func (e still) Current() *v1alpha1.NodeNIC { return e.doc }
func (e still) Preview(context.Context, *v1alpha1.NodeNIC) (Outlook, error) {
	return Outlook{}, nil
}
func (e still) Take(*v1alpha1.NodeNIC, bool)      {}
func (e still) See(context.Context) (Seen, error) { return Seen{AsWanted: true}, nil }

// What somebody writes over the agent's status (an object that was restored from a
// backup) is put right at once, also where the watch tells of both at one time, and a
// status that another owner keeps is not written for ever. The agent's own words that come
// back late are no news.
func TestStatusThatSomebodyWritesOver(t *testing.T) {
	for _, late := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			doc := &v1alpha1.NodeNIC{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Generation: 1}}
			s := &served{object: doc.DeepCopy(), late: late}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				if err := New(s, still{doc}, "v1", slog.New(slog.DiscardHandler)).Run(ctx); err != nil {
					t.Error(err)
				}
			})
			defer func() { stop(); running.Wait() }()
			isReady := func() bool {
				is, _ := s.now()
				return meta.IsStatusConditionTrue(is.Conditions, v1alpha1.Ready) && is.Version == "v1"
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if _, n := s.now(); !isReady() || n > 2 {
				t.Fatalf("late by %v: ready %v after %d writes", late, isReady(), n)
			}
			old := v1alpha1.NodeNICStatus{Version: "v0", ObservedGeneration: 1}
			for range 2 { // the same backup twice
				s.put(old)
				time.Sleep(time.Minute)
				synctest.Wait()
				if !isReady() {
					is, n := s.now()
					t.Fatalf("late by %v: after %d writes it says %+v", late, n, is)
				}
			}
			_, before := s.now()
			s.mu.Lock()
			s.owned = true
			s.mu.Unlock()
			s.put(old)
			time.Sleep(time.Hour)
			synctest.Wait()
			if _, n := s.now(); n-before > 2 {
				t.Errorf("late by %v: %d writes that change nothing", late, n-before)
			}
		})
	}
}
