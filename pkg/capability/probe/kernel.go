package probe

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/capability"
)

// largest is what a configuration may have unpacked, in bytes; real ones have
// a third of a megabyte.
const largest = 16 << 20

// Kernel reads what the kernel is, which no boot changes.
func (r Reader) Kernel() capability.Kernel {
	k := capability.Kernel{Release: r.line("/proc/sys/kernel/osrelease")}
	for _, file := range configs(k.Release) {
		options, err := r.config(file)
		if err == nil {
			k.Config, k.Options = file, options
			break
		}
		k.NotRead = append(k.NotRead, file+": "+reason(err))
	}
	k.Modules, k.ModulesFrom = r.modules(k.Release)
	if k.Config == "" {
		k.Symbols = r.symbols()
	}
	return k
}

// configs are the places of the running kernel's configuration. The first is the
// kernel's own word (CONFIG_IKCONFIG_PROC); the others go by the release.
func configs(release string) []string {
	return []string{
		"/proc/config.gz",
		"/boot/config-" + release,
		"/lib/modules/" + release + "/config",
		"/lib/modules/" + release + "/build/.config",
	}
}

func reason(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "not there"
	}
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

func (r Reader) config(file string) (map[string]string, error) {
	b, err := os.ReadFile(r.path(file))
	if err != nil {
		return nil, err
	}
	if path.Ext(file) != ".gz" {
		return parseConfig(b)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	if b, err = io.ReadAll(io.LimitReader(z, largest)); err != nil {
		return nil, err
	}
	return parseConfig(b)
}

// parseConfig reads a configuration as Kconfig writes it: CONFIG_NAME=value, and
// "# CONFIG_NAME is not set", which is "n". Only what the report asks for is kept.
func parseConfig(b []byte) (map[string]string, error) {
	want := capability.Options()
	out := map[string]string{}
	seen := 0
	for line := range bytes.Lines(b) {
		text := strings.TrimSpace(string(line))
		name, value, set := strings.Cut(text, "=")
		if !set {
			off, isOff := strings.CutPrefix(text, "# CONFIG_")
			off, alsoOff := strings.CutSuffix(off, " is not set")
			if !isOff || !alsoOff {
				continue
			}
			name, value = "CONFIG_"+off, "n"
		}
		name, ok := strings.CutPrefix(name, "CONFIG_")
		if !ok {
			continue
		}
		seen++
		if _, found := slices.BinarySearch(want, name); found {
			out[name] = value
		}
	}
	if seen == 0 {
		return nil, errors.New("is no kernel configuration")
	}
	return out, nil
}

// modules are where the wanted modules are; from is "" if the kernel's folder of
// modules cannot be read.
func (r Reader) modules(release string) (out map[string]capability.Module, from string) {
	out = map[string]capability.Module{}
	dir := "/lib/modules/" + release
	if b, err := os.ReadFile(r.path(dir + "/modules.dep")); err == nil {
		from = dir
		note(out, parseModules(b, ":"), capability.Loadable)
	}
	if b, err := os.ReadFile(r.path("/proc/modules")); err == nil {
		note(out, parseModules(b, " "), capability.Loaded)
	}
	if b, err := os.ReadFile(r.path(dir + "/modules.builtin")); err == nil {
		note(out, parseModules(b, ""), capability.BuiltIn)
	}
	return out, from
}

func note(out map[string]capability.Module, names map[string]bool, as capability.Module) {
	for _, name := range capability.Modules() {
		if names[name] {
			out[name] = as
		}
	}
}

// parseModules reads the first word of each line of modules.dep (FILE: FILES),
// modules.builtin (FILE) and proc/modules (NAME ...), which sep ends, as names of
// modules in the kernel's spelling.
func parseModules(b []byte, sep string) map[string]bool {
	out := map[string]bool{}
	for line := range bytes.Lines(b) {
		word := strings.TrimSpace(string(line))
		if sep != "" {
			word, _, _ = strings.Cut(word, sep)
		}
		word, _, _ = strings.Cut(path.Base(word), ".ko")
		if word != "" && word != "." && word != "/" {
			out[strings.ReplaceAll(word, "-", "_")] = true
		}
	}
	return out
}

// symbols looks for symbols in the running kernel, nil if it does not show them.
func (r Reader) symbols() map[string]bool {
	f, err := os.Open(r.path("/proc/kallsyms"))
	if err != nil {
		return nil
	}
	defer f.Close()
	out, err := parseSymbols(f)
	if err != nil {
		return nil
	}
	return out
}

// parseSymbols reads lines of address, kind and name. A list without any is an
// error: it says nothing of what the kernel has.
func parseSymbols(from io.Reader) (map[string]bool, error) {
	out := map[string]bool{}
	for _, name := range capability.Symbols() {
		out[name] = false
	}
	seen := 0
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		words := bytes.Fields(lines.Bytes())
		if len(words) < 3 {
			continue
		}
		seen++
		if _, wanted := out[string(words[2])]; wanted {
			out[string(words[2])] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read symbols: %w", err)
	}
	if seen == 0 {
		return nil, errors.New("read symbols: there are none")
	}
	return out, nil
}
