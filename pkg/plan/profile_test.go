package plan

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nic"
)

// TestDriversPage: the page on drivers has the rows of the table, and no others.
func TestDriversPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/drivers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	code, err := os.ReadFile("profile.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^\tcase "([^"]+)":`).FindAllStringSubmatch(string(code), -1) {
		want = append(want, profileOf(nic.PF{Driver: m[1]}).onPage(m[1]))
	}
	want = append(want, profileOf(nic.PF{Driver: "none of them"}).onPage("other"))
	if got := strings.TrimSpace(table); got != strings.Join(want, "\n") {
		t.Errorf("docs/drivers.md has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func (p profile) onPage(driver string) string {
	say := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	return "| " + strings.Join([]string{
		driver, say(p.vfDriver != "", p.vfDriver, "not known"),
		say(p.modeBeforeVFs, "mode first", "VFs first"),
		say(p.modeWithoutVFs, "refused", "changes"),
		say(p.dropsMode, "drops mode", "keeps mode"),
		say(p.rowFollowsVF, "VF's too", "administrator's"),
		say(p.tellsLAG, "yes", "no"),
	}, " | ") + " |"
}
