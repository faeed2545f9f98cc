package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Verdict says what became of a field.
type Verdict string

// The verdicts. A field without a note means the same as before.
const (
	Changed Verdict = "changed" // it is carried over, and means something else in part
	Left    Verdict = "left"    // it is not carried over, and nothing is lost by it
	Refused Verdict = "refused" // it cannot be honoured
)

// Note is one line of the report.
type Note struct {
	Verdict Verdict `json:"verdict"`
	Object  string  `json:"object"`          // "SriovNetwork default/net-a", "resource intel.com/fast", or a file
	Field   string  `json:"field,omitempty"` // "spec.vlanQoS"; "" of the object as a whole
	Value   string  `json:"value,omitempty"` // as JSON, shortened; "" of the object as a whole
	Text    string  `json:"text"`            // why, and what is the nearest way
}

func (n Note) String() string {
	parts := []string{string(n.Verdict), n.Object}
	for _, p := range []string{n.Field, n.Value} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(append(parts, n.Text), ": ")
}

// report collects notes, each once.
type report struct {
	notes []Note
	said  map[Note]bool
}

func (r *report) add(n Note) {
	if r.said[n] {
		return
	}
	if r.said == nil {
		r.said = map[Note]bool{}
	}
	r.said[n] = true
	r.notes = append(r.notes, n)
}

func (r *report) refused() bool { return r.refusals() > 0 }

func (r *report) refusals() int {
	n := 0
	for _, note := range r.notes {
		if note.Verdict == Refused {
			n++
		}
	}
	return n
}

// shown is value as people wrote it, shortened to a line.
func shown(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	const most = 80
	text := string(raw)
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "..."
	}
	return text
}
