package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
)

// doors are the addresses where a command answers over HTTP; "" and "0" are nowhere.
type doors struct {
	metrics string // /metrics
	pprof   string // /debug/pprof/, on loopback alone
}

func (d *doors) bind(f *pflag.FlagSet) {
	f.StringVar(&d.metrics, "metrics-address", "0", "where /metrics answers, for example 127.0.0.1:9108; 0 for nowhere")
	f.StringVar(&d.pprof, "pprof-address", "0", "where /debug/pprof/ answers, on loopback only, for example 127.0.0.1:6060; 0 for nowhere")
}

// check refuses an address of which others could read the process's memory.
func (d *doors) check() error {
	if shut(d.pprof) {
		return nil
	}
	name, _, err := net.SplitHostPort(d.pprof)
	if err == nil && name == "localhost" {
		return nil
	}
	if ip, e := netip.ParseAddr(name); err == nil && e == nil && ip.IsLoopback() {
		return nil
	}
	return status{exitUsage, fmt.Errorf("--pprof-address %q: want an address of loopback, for example 127.0.0.1:6060: profiles show what is in memory", d.pprof)}
}

// open answers at the addresses until what it returns is called.
func (d *doors) open(ctx context.Context, from prometheus.Gatherer) (stop func(), err error) {
	metrics := http.NewServeMux()
	metrics.Handle("/metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{}))
	shutMetrics, err := answer(ctx, "metrics", d.metrics, metrics)
	if err != nil {
		return nil, err
	}
	profiles := http.NewServeMux()
	profiles.HandleFunc("/debug/pprof/", pprof.Index)
	profiles.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	profiles.HandleFunc("/debug/pprof/profile", pprof.Profile)
	profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	profiles.HandleFunc("/debug/pprof/trace", pprof.Trace)
	shutProfiles, err := answer(ctx, "pprof", d.pprof, profiles)
	if err != nil {
		shutMetrics()
		return nil, err
	}
	return func() {
		shutProfiles()
		shutMetrics()
	}, nil
}

func shut(address string) bool { return address == "" || address == "0" }

// answer has h answer at address until stop is called.
func answer(ctx context.Context, what, address string, h http.Handler) (stop func(), err error) {
	if shut(address) {
		return func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s-address %s: %w", what, address, err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // it ends with Close, and only then
	return func() {
		_ = s.Close()
		serving.Wait()
	}, nil
}
