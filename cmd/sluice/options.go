package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// options are the flags of every command.
type options struct {
	sim      string
	stateDir string
	output   string
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

// orEmpty makes a list that has nothing [] in JSON, where nil would be null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// print writes v in the wanted format; table draws the human one.
func (o *options) print(w io.Writer, v any, table func(io.Writer)) error {
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
