package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
)

// component is one module in a CycloneDX document (version 1.6, JSON).
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"` // which of which registry it is
}

// parts lists what the programs are made of, as Go's linker has recorded it in them,
// in a CycloneDX document.
func (i image) parts() ([]byte, error) {
	all := map[component]bool{}
	for _, path := range i.Files {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all[module("framework", "std", strings.TrimPrefix(info.GoVersion, "go"))] = true
		for _, d := range info.Deps {
			all[moduleOf(d)] = true
		}
	}
	components := slices.SortedFunc(maps.Keys(all), func(a, b component) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata":   map[string]any{"component": component{Type: "container", Name: "sluice.dev/sluice", Version: i.version}},
		"components": components,
	}, "", "  ")
}

// setting is what Go noted of the build of all programs; "": nothing.
func (i image) setting(key string) (string, error) {
	all := map[string]bool{}
	for _, path := range i.Files {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return "", err
		}
		value := ""
		for _, s := range info.Settings {
			if s.Key == key {
				value = s.Value
			}
		}
		all[value] = true
	}
	values := slices.Sorted(maps.Keys(all))
	if len(values) != 1 {
		return "", fmt.Errorf("%s of the programs is %q: want one build of all", key, values)
	}
	return values[0], nil
}

func moduleOf(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	return module("library", m.Path, m.Version)
}

func module(kind, path, version string) component {
	return component{Type: kind, Name: path, Version: version, PURL: "pkg:golang/" + path + "@" + version}
}
