package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// object is one object of a document that is being read. Who reads it asks for its
// members by name and at the end calls done, which refuses those that nobody has
// asked for.
type object struct {
	report *report
	who    string // the document, for notes
	path   string // of the object within the document; "" the document itself
	fold   bool   // case does not matter in names of members, as for Go's JSON decoder

	members map[string]any
	asked   []string
}

// at is the path of a member.
func (o *object) at(name string) string {
	return strings.TrimPrefix(o.path+"."+name, ".")
}

// note says something of a member, with its value if it is there.
func (o *object) note(v Verdict, name, format string, args ...any) {
	n := Note{Verdict: v, Object: o.who, Field: o.at(name), Text: fmt.Sprintf(format, args...)}
	if value, ok := o.lookup(name); ok {
		n.Value = shown(value)
	}
	o.report.add(n)
}

func (o *object) refuse(name, format string, args ...any) { o.note(Refused, name, format, args...) }

// refuseAt is refuse of one value of a list.
func (o *object) refuseAt(name string, i int, value any, format string, args ...any) {
	o.report.add(Note{Refused, o.who, fmt.Sprintf("%s[%d]", o.at(name), i), shown(value), fmt.Sprintf(format, args...)})
}

// refuseSelf is refuse of the object as a whole.
func (o *object) refuseSelf(text string) {
	o.report.add(Note{Refused, o.who, o.path, shown(o.members), text})
}

// key is the member's name as it is written; "" if it is not there.
func (o *object) key(name string) string {
	if _, ok := o.members[name]; ok {
		return name
	}
	if o.fold {
		for _, k := range slices.Sorted(maps.Keys(o.members)) {
			if strings.EqualFold(k, name) {
				return k
			}
		}
	}
	return ""
}

func (o *object) lookup(name string) (any, bool) {
	k := o.key(name)
	if k == "" {
		return nil, false
	}
	return o.members[k], true
}

// ask returns the member, nil if it is not there or null.
func (o *object) ask(name string) any {
	o.asked = append(o.asked, name)
	v, _ := o.lookup(name)
	return v
}

// done refuses members that nobody has asked for.
func (o *object) done() {
	for _, k := range slices.Sorted(maps.Keys(o.members)) {
		known := slices.ContainsFunc(o.asked, func(a string) bool { return o.key(a) == k })
		if known {
			continue
		}
		words := slices.Sorted(slices.Values(o.asked))
		o.refuse(k, "there is no such field: want %s", either(words))
	}
}

func (o *object) misfit(name, want string) { o.refuse(name, "want %s", want) }

const wantText = "a text (in quotes, if it looks like something else)"

// text reads a string; "" if it is not there.
func (o *object) text(name string) string {
	switch v := o.ask(name).(type) {
	case nil:
		return ""
	case string:
		return v
	}
	o.misfit(name, wantText)
	return ""
}

// word reads one of words, whatever its case if fold says so.
func (o *object) word(name string, words ...string) string {
	v := o.text(name)
	if v != "" && !slices.Contains(words, v) {
		o.misfit(name, either(words))
		return ""
	}
	return v
}

// flag reads a boolean; false if it is not there.
func (o *object) flag(name string) bool {
	switch v := o.ask(name).(type) {
	case nil:
		return false
	case bool:
		return v
	}
	o.misfit(name, "true or false")
	return false
}

// number reads a whole number within bounds, both included; nil if it is not there
// or wrong.
func (o *object) number(name string, least, most int) *int {
	v := o.ask(name)
	if v == nil {
		return nil
	}
	n, isNumber := v.(json.Number)
	i, err := strconv.Atoi(n.String())
	if !isNumber || err != nil || i < least || i > most {
		o.misfit(name, fmt.Sprintf("a whole number, %d to %d", least, most))
		return nil
	}
	return &i
}

// texts reads a list of strings. One that is there and has nothing would not limit
// anything where the list is a selector: it is refused.
func (o *object) texts(name string) []string {
	return o.checked(name, func(string) error { return nil })
}

// checked is texts with a check of each, whose values are those that pass.
func (o *object) checked(name string, check func(string) error) []string {
	v := o.ask(name)
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		o.misfit(name, "a list of texts")
		return nil
	}
	if len(list) == 0 {
		o.refuse(name, "the list is empty, which would choose all: want at least one value, or no list")
	}
	var out []string
	for i, item := range list {
		s, ok := item.(string)
		if !ok || s == "" {
			o.refuseAt(name, i, item, "want %s", wantText)
			continue
		}
		if err := check(s); err != nil {
			o.refuseAt(name, i, s, "%v", err)
			continue
		}
		out = append(out, s)
	}
	return out
}

// object reads an object; nil if it is not there.
func (o *object) object(name string) *object {
	v := o.ask(name)
	if v == nil {
		return nil
	}
	members, ok := v.(map[string]any)
	if !ok {
		o.misfit(name, "an object")
		return nil
	}
	return &object{report: o.report, who: o.who, path: o.at(name), fold: o.fold, members: members}
}

// objects reads a list of objects.
func (o *object) objects(name string) []*object {
	v := o.ask(name)
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		o.misfit(name, "a list of objects")
		return nil
	}
	var out []*object
	for i, item := range list {
		members, ok := item.(map[string]any)
		if !ok {
			o.refuseAt(name, i, item, "want an object")
			continue
		}
		out = append(out, &object{
			report: o.report, who: o.who, path: fmt.Sprintf("%s[%d]", o.at(name), i), fold: o.fold, members: members,
		})
	}
	return out
}

// labels reads an object whose values are texts.
func (o *object) labels(name string) map[string]string {
	inner := o.object(name)
	if inner == nil {
		return nil
	}
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(inner.members)) {
		out[k] = inner.text(k)
	}
	return out
}

// either lists words as people do: a, b or c.
func either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
