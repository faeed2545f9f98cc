package main

import (
	"fmt"
	"io"
	"net"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/bench"
)

func benchCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure streams, round trips and datagrams between two pods or machines",
	}
	cmd.AddCommand(benchServeCommand(), benchRunCommand(o))
	return cmd
}

func benchServeCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Be the other end of sluice bench run, until ended",
		Long: fmt.Sprintf(`Take streams, messages and datagrams from sluice bench run and count them: %d
connections at a time at most, none for more than %d seconds. Whoever reaches the port can
measure.`, bench.MaxConnections, bench.MaxSeconds),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var lc net.ListenConfig
			l, err := lc.Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen %s: %w", listen, err)
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "listens on", l.Addr())
			return bench.Serve(cmd.Context(), l.(*net.TCPListener))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":5201", "address and port, of TCP; datagrams go to others that are free")
	return cmd
}

func benchRunCommand(o *options) *cobra.Command {
	b := bench.Options{}
	cmd := &cobra.Command{
		Use:   "run HOST:PORT",
		Short: "Measure to a sluice bench serve",
		Long: `Send streams over one and more connections, messages that come back one after the other,
and datagrams as fast as they go, and say what arrived by the other end's count. What an
end's processor spent is that of this process alone: what the kernel does for it elsewhere
(interrupts) is not in it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.Address = args[0]
			if err := b.Check(); err != nil {
				return status{exitUsage, err}
			}
			r, err := bench.Run(cmd.Context(), b)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), r, func(w io.Writer) { benchTable(w, r) })
		},
	}
	f := cmd.Flags()
	f.IntVar(&b.Seconds, "seconds", 5, "of each measurement")
	f.IntSliceVar(&b.Connections, "connections", []int{1, 4, 16, 64}, "streams at a time")
	f.IntSliceVar(&b.Sizes, "sizes", []int{1, 64, 1024, 65536}, "bytes of messages that come back")
	f.IntVar(&b.Datagram, "datagram", 64, "bytes of datagrams; 0 for none")
	return cmd
}

func benchTable(w io.Writer, r bench.Report) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	if len(r.Streams) > 0 {
		fmt.Fprintln(t, "STREAMS\tGBIT/S\tRETRANSMITS\tPROCESSOR")
		for _, f := range r.Streams {
			fmt.Fprintf(t, "%d\t%.3f\t%d\t%.0f %%\n", f.Connections, f.Rate()/1e9, f.Retransmits, 100*f.Processor/f.Seconds)
		}
	}
	if len(r.Latency) > 0 {
		fmt.Fprintln(t, "ROUND TRIPS\tPER SECOND\tP50\tP99\tMAX")
		for _, l := range r.Latency {
			fmt.Fprintf(t, "%d B\t%.0f\t%s\t%s\t%s\n", l.Size, float64(l.Count)/l.Seconds, micro(l.P50), micro(l.P99), micro(l.Max))
		}
	}
	if d := r.Datagram; d != nil {
		fmt.Fprintln(t, "DATAGRAMS\tSENT PER SECOND\tRECEIVED\tLOST\tPROCESSOR")
		lost := 0.0
		if d.Sent > 0 {
			lost = 100 * (1 - float64(d.Received)/float64(d.Sent))
		}
		fmt.Fprintf(t, "%d B\t%.0f\t%.0f\t%.1f %%\t%.0f %%\n", d.Size, float64(d.Sent)/d.Seconds, float64(d.Received)/d.Seconds, lost, 100*d.Processor/d.Seconds)
	}
}

func micro(d time.Duration) string { return fmt.Sprintf("%.1f us", float64(d)/1e3) }
