package controller

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// A cordon goes by the Node as it was read, which the API server is told; it notes that
// the node was unschedulable before, until somebody makes it schedulable: then that is how
// it is to be afterwards.
func TestCordonsAreOfTheNodeAsRead(t *testing.T) {
	patch := func(value any, unschedulable ...any) map[string]any {
		out := map[string]any{"metadata": map[string]any{"resourceVersion": "7", "annotations": map[string]any{v1alpha1.AnnotationCordoned: value}}}
		for _, v := range unschedulable {
			out["spec"] = map[string]any{"unschedulable": v}
		}
		return out
	}
	for name, c := range map[string]struct {
		annotated        string
		unschedulable    bool
		cordon, uncordon map[string]any
	}{
		"open":                          {"", false, patch("2", true), patch(nil, nil)},
		"cordoned by somebody":          {"", true, patch("2/found", true), patch(nil, nil)},
		"cordoned for another":          {"1", true, patch("2", true), patch(nil, nil)},
		"cordoned by somebody before":   {"1/found", true, patch("2/found", true), patch(nil)},
		"opened by somebody since":      {"2", false, patch("2", true), patch(nil, nil)},
		"closed and opened by somebody": {"2/found", false, patch("2", true), patch(nil)},
	} {
		n := &corev1.Node{}
		n.Name, n.ResourceVersion, n.Spec.Unschedulable = "n", "7", c.unschedulable
		if c.annotated != "" {
			n.Annotations = map[string]string{v1alpha1.AnnotationCordoned: c.annotated}
		}
		if d := cmp.Diff(c.cordon, cordonPatch(n, 2)); d != "" {
			t.Errorf("%s, cordon (-want +got):\n%s", name, d)
		}
		if d := cmp.Diff(c.uncordon, uncordonPatch(n)); d != "" {
			t.Errorf("%s, uncordon (-want +got):\n%s", name, d)
		}
		if open := nodeOf(n, nil).Open; open == c.unschedulable {
			t.Errorf("%s: open %v", name, open)
		}
	}
}

// A node that fails puts nobody's next look off, and without one there is the backoff of
// errors.
func TestFailuresPutNoLookOff(t *testing.T) {
	failure := errors.New("no")
	for _, c := range []struct {
		again time.Duration
		err   error
		fails bool
	}{{0, nil, false}, {time.Second, nil, false}, {time.Second, failure, false}, {0, failure, true}} {
		r, err := inTime(t.Context(), c.again, c.err)
		if r.RequeueAfter != c.again || (err != nil) != c.fails {
			t.Errorf("%+v: %v, %v", c, r, err)
		}
	}
}

// What is cut is still text: other bytes come back from the API server as others, and
// would be written anew each time.
func TestClipIsText(t *testing.T) {
	if got := clip(strings.Repeat("ä", 4096)); !utf8.ValidString(got) || len(got) > 4096+4 {
		t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	if got := clip("x" + strings.Repeat("ä", 4096)); !utf8.ValidString(got) {
		t.Error("cut inside a character")
	}
}
