package why

import (
	"fmt"
	"regexp"
	"strings"
)

// term is one word of Open vSwitch's notation of flows, with what its parentheses
// hold: "ct(zone=5)", "pop_vlan", "pf0vf1".
type term struct{ name, args string }

// terms splits a match or a list of actions at the commas that are in no parentheses
// (lib/odp-util.c, format_odp_actions and odp_flow_format). Of parentheses that do
// not close the rest is one term.
func terms(text string) (out []term) {
	depth, begin := 0, 0
	add := func(s string) {
		if s = strings.TrimSpace(s); s == "" {
			return
		}
		name, args, ok := strings.Cut(s, "(")
		if ok {
			args = strings.TrimSuffix(args, ")")
		}
		out = append(out, term{name, args})
	}
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == ',' && depth == 0:
			add(text[begin:i])
			begin = i + 1
		}
	}
	add(text[begin:])
	return out
}

// bare are the actions that have no parentheses; any other word that has none is a
// port to send to.
var bare = map[string]bool{
	"drop": true, "pop_vlan": true, "ct_clear": true, "pop_eth": true, "pop_nsh": true, "ct": true, "push_vlan": true,
	"controller": true, "dec_ttl": true,
}

// output is the port that an action sends to.
func (t term) output() (port string, ok bool) {
	return t.name, t.args == "" && !bare[t.name]
}

// outputs are the ports that a list of actions sends to.
func outputs(actions []term) (out []string) {
	for _, a := range actions {
		if port, ok := a.output(); ok {
			out = append(out, port)
		}
	}
	return out
}

// wild says that a field of a match has no bit that counts: "skb_mark(0/0)", or
// "nd(target=::/::,sll=00:00:00:00:00:00/00:00:00:00:00:00)".
func wild(value string) bool {
	for part := range strings.SplitSeq(value, ",") {
		_, mask, masked := strings.Cut(part, "/")
		if !masked || strings.Trim(strings.TrimPrefix(mask, "0x"), "0:.") != "" {
			return false
		}
	}
	return true
}

// fields are the fields of a match that count, by name.
func fields(match string) map[string]string {
	out := map[string]string{}
	for _, t := range terms(match) {
		if t.args != "" && !wild(t.args) {
			out[t.name] = t.args
		}
	}
	return out
}

// brief is a match without what does not count: fields and parts of fields that are
// wild, and the first recirculation id.
func brief(match string) string {
	var out []string
	for _, t := range terms(match) {
		if t.name == "recirc_id" && id(t.args) == "" || t.name == "in_port" || t.args != "" && wild(t.args) || t.name == "key32" {
			continue
		}
		if t.args == "" {
			out = append(out, t.name)
			continue
		}
		var parts []string
		for part := range strings.SplitSeq(t.args, ",") {
			if !wild(part) {
				parts = append(parts, part)
			}
		}
		out = append(out, t.name+"("+strings.Join(parts, ",")+")")
	}
	return strings.Join(out, ",")
}

// widest is how much of a list of actions a table shows, in bytes.
const widest = 100

// cut is a list of actions for a table: flooding to many ports is a long one.
func cut(actions string) string {
	if len(actions) <= widest {
		return actions
	}
	head := strings.ToValidUTF8(actions[:widest], "")
	if n := len(terms(actions)); n > 1 {
		return fmt.Sprintf("%s... (%d actions)", head, n)
	}
	return head + "..."
}

var (
	recirc    = regexp.MustCompile(`\brecirc\(([^)]+)\)`)
	tunnelDst = regexp.MustCompile(`\btunnel\([^()]*?\b(?:ipv6_)?dst=([0-9a-fA-F.:]+)`)
)

// goesTo are the recirculation ids at which a flow's packets come again.
func goesTo(actions string) (ids []string) {
	for _, m := range recirc.FindAllStringSubmatch(actions, -1) {
		ids = append(ids, id(m[1]))
	}
	return ids
}

// comesFrom is the recirculation id that a flow is for; "" it is the first one.
func comesFrom(match string) string {
	return id(fields(match)["recirc_id"])
}

func id(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), "0x")
	if strings.Trim(s, "0") == "" {
		return ""
	}
	return s
}

// Ends are the addresses of the other ends of tunnels that the flows send into.
func Ends(flows []Flow) (out []string) {
	seen := map[string]bool{}
	for _, f := range flows {
		for _, m := range tunnelDst.FindAllStringSubmatch(f.Actions, -1) {
			if !seen[m[1]] {
				seen[m[1]] = true
				out = append(out, m[1])
			}
		}
	}
	return out
}
