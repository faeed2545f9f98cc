package cni

import (
	"context"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Span is one piece of the work on an attachment.
type Span struct {
	Kind     string // kernel, ovsdb, ipam, record
	Name     string
	Duration time.Duration
}

// span measures until what it returns is called.
func (p *Plugin) span(kind, name string) func() {
	if p.Trace == nil {
		return func() {}
	}
	start := time.Now()
	return func() { p.Trace(Span{kind, name, time.Since(start)}) }
}

func kindOf(s Step) string {
	switch s.(type) {
	case Plug, Unplug, AwaitFlows:
		return "ovsdb"
	case Lease, Release:
		return "ipam"
	}
	return "kernel"
}

// observing is the name of the span that grows with the node.
const observing = "observe the node"

// observe reads the whole node.
func (p *Plugin) observe(ctx context.Context) (nic.State, error) {
	defer p.span("kernel", observing)()
	return host.Observe(ctx, p.Host)
}

// observeOne reads what the node says of the VF or SF that a command is about.
func (p *Plugin) observeOne(ctx context.Context, function string) (nic.State, error) {
	defer p.span("kernel", observing)()
	return host.ObserveOne(ctx, p.Host, function)
}

// poll calls f until it says true or fails, at growing intervals, for limit at
// the most. Running out of time is false without an error.
func (p *Plugin) poll(ctx context.Context, limit time.Duration, f func(context.Context) (bool, error)) (bool, error) {
	const first, last = 2 * time.Millisecond, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for wait := first; ; wait = min(2*wait, last) {
		if ok, err := f(ctx); ok || err != nil && ctx.Err() == nil {
			return ok, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(wait):
		}
	}
}
