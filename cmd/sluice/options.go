package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// options are the flags of every command.
type options struct {
	sim      string
	stateDir string
	output   string

	printed bool // something of the wanted format is on standard output
}

func (o *options) bind(f *pflag.FlagSet) {
	f.StringVar(&o.sim, "sim", "", "work on a simulated machine, for example mlx5:cards=1,vfs=16; it is kept between commands")
	f.StringVar(&o.stateDir, "state-dir", "", "folder of journal and records (default /var/lib/sluice, with --sim one in the user's cache folder)")
	f.StringVarP(&o.output, "output", "o", "table", "table, json or yaml")
}

const defaultStateDir = "/var/lib/sluice"

// dir answers the state folder in use.
func (o *options) dir() (string, error) {
	switch {
	case o.stateDir != "":
		return filepath.Abs(o.stateDir)
	case o.sim == "":
		return defaultStateDir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("--sim keeps its machine in the user's cache folder: %w; name another with --state-dir", err)
	}
	return simDir(cache, o.sim), nil
}

// check refuses a wrong flag before anything is done.
func (o *options) check() error {
	switch o.output {
	case "table", "json", "yaml":
		return nil
	}
	return status{exitUsage, fmt.Errorf("-o %q: want table, json or yaml", o.output)}
}

// fileByFlag takes no arguments, and says where a document goes that is given as one.
func fileByFlag(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return status{exitUsage, fmt.Errorf("%s takes no argument %q: a document is given with -f %s", cmd.CommandPath(), args[0], args[0])}
}

// orEmpty makes a list that has nothing [] in JSON, where nil would be null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// refusal is what a program reads that asked for JSON or YAML and gets none of what it
// asked for.
type refusal struct {
	Errors     []string `json:"errors"` // one for each thing that is wrong, as on standard error
	ExitStatus int      `json:"exitStatus"`
}

// refuse writes why a command ends with code where nothing has been written yet.
func (o *options) refuse(w io.Writer, err error, code int) error {
	if o.printed {
		return nil
	}
	return o.print(w, refusal{strings.Split(err.Error(), "\n"), code}, func(io.Writer) {})
}

// print writes v in the wanted format; table draws the human one.
func (o *options) print(w io.Writer, v any, table func(io.Writer)) error {
	o.printed = true
	switch o.output {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case "yaml":
		raw, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	}
	table(w)
	return nil
}
