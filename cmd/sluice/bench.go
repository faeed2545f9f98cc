package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
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
	cmd.AddCommand(benchServeCommand(), benchRunCommand(o), benchCompareCommand(o))
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
	f.IntSliceVar(&b.Connections, "connections", []int{1, 4, 16, 64}, "streams at a time, and sockets that send datagrams")
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
	if len(r.Datagram) > 0 {
		fmt.Fprintf(t, "DATAGRAMS OF %d B\tSENT PER SECOND\tRECEIVED\tLOST\tPROCESSOR\n", r.Datagram[0].Size)
		for _, d := range r.Datagram {
			lost := 0.0
			if d.Sent > 0 {
				lost = 100 * (1 - float64(d.Received)/float64(d.Sent))
			}
			fmt.Fprintf(t, "%d\t%.0f\t%.0f\t%.1f %%\t%.0f %%\n", d.Connections, float64(d.Sent)/d.Seconds, float64(d.Received)/d.Seconds, lost, 100*d.Processor/d.Seconds)
		}
	}
}

func benchCompareCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "compare BASE.json OTHER.json",
		Short: "Put two runs beside each other, as sluice bench run -o json has printed them",
		Long: `Put the figures that two runs have in common beside each other, with the ratio of the
second to the first: hardware and software, before and after, one network and another.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var reports [2]bench.Report
			for i, name := range args {
				raw, err := os.ReadFile(name)
				if err == nil {
					err = json.Unmarshal(raw, &reports[i])
				}
				if err != nil {
					return status{exitUsage, fmt.Errorf("%s: %w: want what sluice bench run -o json prints", name, err)}
				}
			}
			rows, err := bench.Compare(reports[0], reports[1])
			if err != nil {
				return status{exitUsage, fmt.Errorf("%s and %s: %w", args[0], args[1], err)}
			}
			return o.print(cmd.OutOrStdout(), rows, func(w io.Writer) { compareTable(w, args, rows) })
		},
	}
}

func compareTable(w io.Writer, names []string, rows []bench.Row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintf(t, "\tUNIT\t%s\t%s\tRATIO\n", names[0], names[1])
	for _, r := range rows {
		ratio := "-"
		if r.Base != 0 {
			ratio = fmt.Sprintf("%.2f", r.Ratio)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.What, r.Unit, figure(r.Base), figure(r.Other), ratio)
	}
}

// figure has digits enough to tell small ones apart.
func figure(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.3f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func micro(d time.Duration) string { return fmt.Sprintf("%.1f us", float64(d)/1e3) }
