package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
	"sluice.dev/sluice/pkg/policy"
)

// lines is a log that is read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

// The agent keeps what a document wants of Open vSwitch's settings, or says what
// differs.
func TestKeepSwitch(t *testing.T) {
	o := ovsdbtest.InProcess(t)
	c := o.Connect(t)
	o.Transact(t, ovsdb.Mutate("Open_vSwitch", ovsdb.All(), ovsdb.Mutation{Column: "other_config", Mutator: "insert",
		Value: ovsdb.Map{"hw-offload": "true", "tc-policy": "skip_hw"}}))
	want := policy.Switch{HWOffload: true, MaxIdle: 30 * time.Second}
	keep := func(drift policy.Drift, says ...string) {
		t.Helper()
		log := &lines{}
		a := &agentRun{ovsdb: o.Endpoint, log: slog.New(slog.NewTextHandler(log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		keeping.Go(func() {
			a.keepSwitch(ctx, &wanted{wish: &wish{conduct: policy.Conduct{Switch: want, Drift: drift}}})
		})
		for _, text := range says {
			for begun := time.Now(); !log.has(text); time.Sleep(5 * time.Millisecond) {
				if time.Since(begun) > 20*time.Second {
					t.Errorf("%s: no %q in\n%s", drift, text, log.b.String())
					break
				}
			}
		}
		stop()
		keeping.Wait()
	}
	keep(policy.DriftReport, "not set as wanted", "tc-policy removed", "max-idle=30000")
	if s, err := offload.ReadSettings(t.Context(), c); err != nil || s.TCPolicy != "skip_hw" || s.MaxIdle != "" {
		t.Errorf("it was only to report: %+v, %v", s, err)
	}
	keep(policy.DriftMend, "must be started again", "tc-policy removed (it was skip_hw)", "Open vSwitch is set", "max-idle=30000")
	if s, err := offload.ReadSettings(t.Context(), c); err != nil || s.TCPolicy != "none" || s.MaxIdle != "30000" {
		t.Errorf("%+v, %v", s, err)
	}
	o.StopDatabase(t)
	keep(policy.DriftMend, "not known to hold")
}
