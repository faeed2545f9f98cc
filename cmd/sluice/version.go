package main

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// built is what the Go build recorded of the program.
type built struct {
	Version string `json:"version"`          // the tag, or made of the commit; "unknown" without either
	Commit  string `json:"commit,omitempty"` // left out where the build saw no repository
	Changed bool   `json:"changed"`          // the tree had changes beside the commit
	Go      string `json:"go"`               // version of Go
}

func build() built {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return built{Version: "unknown"}
	}
	b := built{Version: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	if b.Commit != "" && (b.Version == "" || b.Version == "(devel)") {
		b.Version = b.Commit
	}
	return b
}

func version() string { return build().Version }

func versionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which program this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := build()
			return o.print(cmd.OutOrStdout(), b, func(w io.Writer) {
				fmt.Fprintf(w, "version  %s\n", b.Version)
				if b.Commit != "" {
					fmt.Fprintf(w, "commit   %s\n", b.Commit)
				}
				if b.Changed {
					fmt.Fprintln(w, "         with changes beside it")
				}
				fmt.Fprintf(w, "go       %s\n", b.Go)
			})
		},
	}
}
