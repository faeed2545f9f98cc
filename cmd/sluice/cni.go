package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/disk"
)

// cniName is the plugin's file, and what the type of a network's configuration says.
const cniName = "sluice-cni"

// onNode refuses a simulated machine: the folder of plugins is the real one's.
func (o *options) onNode() error {
	if o.sim != "" {
		return status{exitUsage, fmt.Errorf("--sim %s: a simulated machine has no container runtime: want the real one, without --sim", o.sim)}
	}
	return nil
}

func installCNICommand(o *options) *cobra.Command {
	var dir, from string
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Put the CNI plugin where container runtimes look for it",
		Long: `Put sluice-cni, which lies beside this program, into the folder where container
runtimes look for CNI plugins. A runtime that starts it meanwhile starts all of the
old one or all of the new one; what a run that was killed has left goes. The plugin
needs no other file: what it is to do is in the network's configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.onNode(); err != nil {
				return err
			}
			if from == "" {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("where sluice-cni lies: %w; name it with --from", err)
				}
				from = filepath.Join(filepath.Dir(self), cniName)
			}
			if err := installCNI(from, dir); err != nil {
				return fmt.Errorf("install sluice-cni: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(dir, cniName))
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "/opt/cni/bin", "folder of CNI plugins")
	cmd.Flags().StringVar(&from, "from", "", "the plugin (default: sluice-cni beside this program)")
	return cmd
}

func uninstallCNICommand(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "uninstall-cni",
		Short: "Take the CNI plugin away",
		Long: `Take sluice-cni out of the folder where container runtimes look for CNI plugins, and
what a killed installation has left there. Pods that are still attached by it cannot be
detached after that: first delete them.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.onNode(); err != nil {
				return err
			}
			if err := uninstallCNI(dir); err != nil {
				return fmt.Errorf("uninstall sluice-cni: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "/opt/cni/bin", "folder of CNI plugins")
	return cmd
}

// installCNI gives the plugin in dir the content of the file from.
func installCNI(from, dir string) error {
	binary, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := removeHalves(dir); err != nil {
		return err
	}
	return disk.Replace(filepath.Join(dir, cniName), binary, 0o755)
}

// uninstallCNI takes the plugin and halves of it out of dir; that they are not there
// is no error.
func uninstallCNI(dir string) error {
	if err := os.Remove(filepath.Join(dir, cniName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return removeHalves(dir)
}

// removeHalves removes what disk.Replace leaves when it is killed.
func removeHalves(dir string) error {
	halves, err := filepath.Glob(filepath.Join(dir, "."+cniName+".*"))
	if err != nil {
		return err
	}
	for _, half := range halves {
		if err := os.Remove(half); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
