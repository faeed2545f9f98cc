package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
)

// What the agent counts is answered over HTTP, and is what docs/metrics.md lists.
func TestMetrics(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m := newMeters()
	stop, err := m.serve(t.Context(), address, func() []deviceplugin.PoolStatus {
		return []deviceplugin.PoolStatus{{
			Resource: "sluice.dev/fast",
			Devices:  []deviceplugin.Device{{ID: "a"}, {ID: "b", Problem: "gone"}, {ID: "c"}},
			Pods:     map[string]deviceplugin.Holder{"a": {}},
		}}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	m.looked(nic.State{PFs: []nic.PF{{VFs: make([]nic.VF, 3)}, {}}}, nil)
	m.looked(nic.State{}, errors.New("no"))
	m.event(apply.Event{Kind: apply.EventFailed})
	m.runs.WithLabelValues(string(apply.RolledBack)).Inc()
	m.mends.WithLabelValues(resultOf(nil)).Inc()

	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`sluice_functions{kind="pf"} 2`, `sluice_functions{kind="vf"} 3`,
		`sluice_looks_total{result="ok"} 1`, `sluice_looks_total{result="error"} 1`,
		`sluice_steps_total{result="error"} 1`, `sluice_runs_total{outcome="rolled back"} 1`,
		`sluice_pool_devices{resource="sluice.dev/fast"} 3`,
		`sluice_pool_healthy_devices{resource="sluice.dev/fast"} 2`,
		`sluice_pool_allocated_devices{resource="sluice.dev/fast"} 1`,
	} {
		if !strings.Contains(string(raw), want+"\n") {
			t.Errorf("no %s in\n%s", want, raw)
		}
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	list := func(pattern string, text []byte) (out []string) {
		for _, found := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			out = append(out, string(found[1]))
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(list("(?m)^# TYPE (\\S+) ", raw), list("(?m)^\\| `(sluice_\\w+)` ", page)); diff != "" {
		t.Errorf("answered (-) and in docs/metrics.md (+):\n%s", diff)
	}
}
