package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
	"sluice.dev/sluice/pkg/probe"
)

// wish is a document with what it comes to on the node as it is.
type wish struct {
	doc     *v1alpha1.NodeNIC
	conduct policy.Conduct
	state   nic.State
	spec    nic.Spec
	beyond  []string // what pools select that is not there
}

// warn says what is no fault and may be a slip.
func (w *wish) warn(out io.Writer) {
	for _, b := range w.beyond {
		fmt.Fprintln(out, "sluice: warning:", b)
	}
}

// wish reads the document at path ("-": standard input) and resolves it. What it
// wants kept within reach counts as the host's own from here on.
func (n *node) wish(ctx context.Context, path string) (*wish, error) {
	raw, err := readDocument(path)
	if err != nil {
		return nil, err
	}
	return n.wishOf(ctx, path, raw)
}

func readDocument(path string) ([]byte, error) {
	switch path {
	case "":
		return nil, status{exitUsage, errors.New("no document: want -f FILE")}
	case "-":
		path = "/dev/stdin"
	}
	return os.ReadFile(path)
}

// wishOf is wish of a document that has been read already.
func (n *node) wishOf(ctx context.Context, path string, raw []byte) (*wish, error) {
	var err error
	w := &wish{}
	if w.doc, err = policy.Decode(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// What is wrong here Resolve says with the rest.
	if w.conduct, err = policy.ConductOf(w.doc); err == nil {
		n.keep(w.conduct.Protect)
	}
	if w.state, err = n.observe(ctx); err != nil {
		return nil, err
	}
	if w.spec, err = policy.Resolve(w.doc, w.state); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	pools, err := policy.Pools(w.doc, w.state, w.spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w.beyond = policy.Beyond(pools, w.state, w.spec)
	return w, nil
}

// probe gives a run the questions that are to be asked after it.
func (n *node) probe(ctx context.Context, r *apply.Runner, c policy.Conduct) error {
	p := probe.Probe{DefaultRoute: c.Probe.DefaultRoute, Ping: c.Probe.Addresses, Dial: c.Probe.Connect, Within: c.Probe.Timeout}
	if p.IsZero() {
		return nil
	}
	var err error
	r.Probe, err = p.Begin(ctx, n.machine.Links)
	return err
}
