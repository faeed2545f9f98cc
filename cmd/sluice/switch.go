package main

import (
	"context"
	"time"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/policy"
)

// switchEvery is how often Open vSwitch's settings are looked at.
const switchEvery = 30 * time.Second

// keepSwitch keeps what w wants of Open vSwitch's settings until ctx ends. With drift:
// report they are only compared. What is the same as at the last look is not said again.
func (a *agentRun) keepSwitch(ctx context.Context, w *wanted) {
	want := offload.Wish(w.conduct.Switch)
	if want.IsZero() || a.ovsdb == "" {
		return
	}
	tick := time.NewTicker(switchEvery)
	defer tick.Stop()
	said := ""
	for {
		changes, err := settings(ctx, a.ovsdb, want, w.conduct.Drift == policy.DriftMend)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != said:
			said = err.Error()
			a.log.Warn("what is wanted of Open vSwitch's settings is not known to hold", "error", err)
		case err == nil && inLines(changes) != said:
			said = inLines(changes)
			a.saySettings(changes, w.conduct.Drift)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *agentRun) saySettings(changes []offload.Change, drift policy.Drift) {
	for _, c := range changes {
		switch {
		case drift != policy.DriftMend:
			a.log.Warn("Open vSwitch is not set as wanted", "want", c.String())
		case c.Restart:
			a.log.Warn("Open vSwitch is set, and must be started again", "set", c.String())
		default:
			a.log.Info("Open vSwitch is set", "set", c.String())
		}
	}
}

func inLines(changes []offload.Change) (s string) {
	for _, c := range changes {
		s += c.String() + "\n"
	}
	return s
}

// settings compares Open vSwitch's settings with what is wanted, and sets them if it
// may; what it answers was, or is to be, changed.
func settings(ctx context.Context, endpoint string, want offload.Wish, set bool) ([]offload.Change, error) {
	ctx, stop := context.WithTimeout(ctx, switchEvery)
	defer stop()
	c, err := ovsdb.Connect(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if set {
		return offload.KeepSettings(ctx, c, want)
	}
	s, err := offload.ReadSettings(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.Missing(want), nil
}
