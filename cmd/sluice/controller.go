package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/sluice/pkg/controller"
)

func controllerCommand() *cobra.Command {
	var kubeconfig string
	var d doors
	var tell logging
	o := controller.Options{Lead: true}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Make what policies want the NodeNICs of nodes, and let nodes change in turn",
		Long: `Make of all NICPolicies the spec of each node's NodeNIC, let nodes change in turn (as
many at a time as the policies' maxUnavailable says), and where a change takes devices
from pods, empty the node of those pods first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.check(); err != nil {
				return err
			}
			var err error
			if o.Log, err = tell.to(cmd.ErrOrStderr()); err != nil {
				return err
			}
			logTo(o.Log)
			if o.Config, err = reach(kubeconfig); err != nil {
				return err
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(buildMeter())
			o.Registry = registry
			// What its libraries count is in a registry of theirs.
			stop, err := d.open(cmd.Context(), prometheus.Gatherers{registry, metrics.Registry})
			if err != nil {
				return err
			}
			defer stop()
			return controller.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "how the API server is reached (default: as pods reach it)")
	f.StringVar(&o.Namespace, "namespace", "sluice-system", "namespace of the lease by which replicas choose who works")
	f.StringVar(&o.Northbound, "northbound", "", "OVN's northbound database, into which Networks go: unix:PATH or tcp:HOST:PORT, several of a cluster with commas between (default: nowhere)")
	f.BoolVar(&o.Lead, "leader-elect", true, "work only while holding that lease")
	f.StringVar(&o.Health, "health-address", ":8081", "where /healthz and /readyz answer; 0 for nowhere")
	d.bind(f)
	tell.bind(f)
	return cmd
}
