package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/sluice/pkg/controller"
)

func controllerCommand() *cobra.Command {
	var kubeconfig string
	o := controller.Options{Lead: true}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Make what policies want the NodeNICs of nodes, and let nodes change in turn",
		Long: `Make of all NICPolicies the spec of each node's NodeNIC, let nodes change in turn (as
many at a time as the policies' maxUnavailable says), and where a change takes devices
from pods, empty the node of those pods first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			logTo(o.Log)
			var err error
			if o.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
				return fmt.Errorf("how to reach the API server: %w", err)
			}
			return controller.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "how the API server is reached (default: as pods reach it)")
	f.StringVar(&o.Namespace, "namespace", "sluice-system", "namespace of the lease by which replicas choose who works")
	f.BoolVar(&o.Lead, "leader-elect", true, "work only while holding that lease")
	f.StringVar(&o.Health, "health-address", ":8081", "where /healthz and /readyz answer; 0 for nowhere")
	f.StringVar(&o.Metrics, "metrics-address", "0", "where /metrics answers; 0 for nowhere")
	return cmd
}
