// Command sluice-cni is the CNI plugin: it attaches a VF to a pod and its
// representor to an Open vSwitch bridge. Container runtimes run it; docs/cni.md
// describes its configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"sluice.dev/sluice/cni"
	"sluice.dev/sluice/pkg/host/linux"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:    on(ctx, (*cni.Plugin).Add),
		Del:    on(ctx, (*cni.Plugin).Del),
		Check:  on(ctx, (*cni.Plugin).Check),
		GC:     on(ctx, (*cni.Plugin).GC),
		Status: on(ctx, (*cni.Plugin).Status),
	}, version.PluginSupports(cni.Versions()...), "sluice-cni attaches VFs to pods, see docs/cni.md")
}

// on runs a verb on this machine.
func on(ctx context.Context, verb func(*cni.Plugin, context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) (err error) {
		m, err := linux.Open(linux.Options{Brief: true})
		if err != nil {
			return types.NewError(cni.ErrKernel, err.Error(), "")
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		p := &cni.Plugin{
			Host: m.Machine, Switch: cni.OpenSwitch, IPAM: cni.Delegate{},
			Out: os.Stdout, Limits: cni.DefaultLimits(),
		}
		t := measure(p)
		err = verb(p, ctx, args)
		// Who measures and cannot write has no reason to fail a pod.
		if werr := t.write(args); werr != nil {
			fmt.Fprintln(os.Stderr, timesFile+":", werr)
		}
		return err
	}
}
