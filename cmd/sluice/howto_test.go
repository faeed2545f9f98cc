package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The how-to pages whose first comment names a simulated machine are tried on it:
// their documents are written to files, their commands run in order.
func TestHowto(t *testing.T) {
	pages, err := filepath.Glob("../../docs/howto/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^ *sim: (.*) -->$`).FindStringSubmatch(string(raw))
		if m == nil {
			continue // it is for a kernel, and a scenario of the lab runs its commands
		}
		tried++
		t.Run(filepath.Base(page), func(t *testing.T) { tryPage(t, m[1], string(raw)) })
	}
	if tried == 0 {
		t.Error("no page names a machine")
	}
}

func tryPage(t *testing.T, sim, text string) {
	c := newCLI(t, sim)
	dir := t.TempDir()
	for _, m := range regexp.MustCompile("(?s)`([a-z0-9-]+\\.yaml)`:\n\n```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := 0
	for _, line := range strings.Split(text, "\n") {
		command, ok := strings.CutPrefix(line, "    sluice ")
		if !ok {
			continue
		}
		commands++
		command, note, _ := strings.Cut(command, "#")
		want := exitReached
		if n := regexp.MustCompile(`exit status (\d)`).FindStringSubmatch(note); n != nil {
			want, _ = strconv.Atoi(n[1])
		}
		command, into, _ := strings.Cut(command, " > ")
		args := strings.Fields(command)
		for i, a := range args {
			if strings.HasSuffix(a, ".yaml") {
				args[i] = filepath.Join(dir, a)
			}
		}
		stdout, _ := c.want(want, args...)
		if want == exitReached && stdout == "" {
			t.Errorf("sluice %s says nothing", command)
		}
		if into = strings.TrimSpace(into); into != "" {
			if err := os.WriteFile(filepath.Join(dir, into), []byte(stdout), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if commands == 0 {
		t.Error("the page has no command")
	}
}
