package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/convert"
)

// conversion is one call of sluice convert.
type conversion struct {
	*options
	how    convert.Options
	report string // where the notes go: a file, - standard output, "" standard error
}

func convertCommand(o *options) *cobra.Command {
	c := &conversion{options: o}
	cmd := &cobra.Command{
		Use:   "convert [FILE...]",
		Short: "Turn manifests of the SR-IOV operator and device plugin into sluice's",
		Long: `Turn SriovNetworkNodePolicy, SriovNetworkPoolConfig, SriovNetwork, SriovIBNetwork and
OVSNetwork manifests and configurations of the SR-IOV network device plugin into
NICPolicy and NetworkAttachmentDefinition (with --node into the NodeNIC of one node).
Without FILE, or where it is -, standard input is read. What changed in meaning is
told on standard error, a line for each field. What cannot be honoured is told there
too; then nothing else is printed, and the exit status is 1.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.how.Prefix, "resource-prefix", "", "prefix of resources that name none (default openshift.io of the operator's, intel.com of the device plugin's)")
	f.StringVar(&c.how.Bridge, "bridge", "", "Open vSwitch bridge of networks that name none")
	f.StringVar(&c.how.Suffix, "network-suffix", "", "put behind the names of networks, so that they can stand beside those that there are")
	f.StringVar(&c.how.NodeLabel, "node-label", "", "KEY=VALUE that policies ask of nodes besides, to take over a cluster node by node")
	f.StringVar(&c.how.Node, "node", "", "make the NodeNIC of this node; its own document must be among the files if policies choose nodes by labels")
	f.StringVar(&c.report, "report", "", "write what changed in meaning to this file, - for standard output in place of the documents")
	return cmd
}

func (c *conversion) run(files []string, stdin io.Reader, stdout, stderr io.Writer) error {
	inputs, err := readInputs(files, stdin)
	if err != nil {
		return err
	}
	result := convert.Convert(inputs, c.how)
	if err := c.tell(result.Notes, stdout, stderr); err != nil {
		return err
	}
	if n := result.Refused(); n > 0 {
		return fmt.Errorf("%d of what the input asks for cannot be honoured, so that nothing was converted", n)
	}
	if c.report == "-" {
		return nil
	}
	if c.output == "json" {
		return printJSON(stdout, result.Documents)
	}
	return printYAML(stdout, result.Documents)
}

func readInputs(files []string, stdin io.Reader) ([]convert.Input, error) {
	if len(files) == 0 {
		files = []string{"-"}
	}
	var out []convert.Input
	for _, file := range files {
		in := convert.Input{Name: file}
		var err error
		if file == "-" {
			in.Name = "standard input"
			in.Text, err = io.ReadAll(stdin)
		} else {
			in.Text, err = os.ReadFile(file)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}

// tell writes the notes, a line each, or as a list where they are what is printed.
func (c *conversion) tell(notes []convert.Note, stdout, stderr io.Writer) error {
	w := stderr
	switch c.report {
	case "":
	case "-":
		if c.output != "table" {
			return c.print(stdout, orEmpty(notes), nil)
		}
		w = stdout
	default:
		f, err := os.Create(c.report)
		if err != nil {
			return err
		}
		defer f.Close() // each write is checked
		w = f
	}
	for _, n := range notes {
		if _, err := fmt.Fprintln(w, n); err != nil {
			return err
		}
	}
	return nil
}

// printYAML writes documents with separators, as kubectl apply takes them.
func printYAML(w io.Writer, documents []any) error {
	for i, d := range documents {
		raw, err := yaml.Marshal(d)
		if err != nil {
			return err
		}
		if i > 0 {
			raw = append([]byte("---\n"), raw...)
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}

// printJSON writes one document as it is, and any other number as a List.
func printJSON(w io.Writer, documents []any) error {
	var v any = struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Items      []any  `json:"items"`
	}{"v1", "List", orEmpty(documents)}
	if len(documents) == 1 {
		v = documents[0]
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
