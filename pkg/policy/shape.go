package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// misshapen is everything in the JSON text that does not fit the type of into:
// fields that it lacks, values of another type. The decoder itself says the first
// of them only, and in Go's terms.
func misshapen(text []byte, into any) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	var value any
	if err := in.Decode(&value); err != nil {
		return err
	}
	var f form
	f.shape("", value, reflect.TypeOf(into))
	return f.err()
}

// shape compares value, which is at path, with t. Null is nothing given.
func (f *form) shape(path string, value any, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return // nothing is given, or the type itself says what it takes
	}
	switch t.Kind() {
	case reflect.Struct:
		object, ok := value.(map[string]any)
		if !ok {
			f.misfit(path, value, "an object")
			return
		}
		f.fields(path, object, t)
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			f.misfit(path, value, "an object")
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			f.shape(path+"."+name, object[name], t.Elem())
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			f.misfit(path, value, "a list")
			return
		}
		for i, v := range list {
			f.shape(fmt.Sprintf("%s[%d]", path, i), v, t.Elem())
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			f.misfit(path, value, "a text (in quotes, if it looks like something else)")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			f.misfit(path, value, "true or false")
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, _ := value.(json.Number)
		if _, err := strconv.Atoi(n.String()); err != nil {
			f.misfit(path, value, "a whole number")
		}
	}
}

func (f *form) fields(path string, object map[string]any, t reflect.Type) {
	known := map[string]reflect.Type{}
	collect(t, known)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if field, ok := known[name]; ok {
			f.shape(at, object[name], field)
			continue
		}
		names := slices.Sorted(maps.Keys(known))
		if i := slices.IndexFunc(names, func(known string) bool { return alike(known, name) }); i >= 0 {
			f.fail(at, "there is no such field: %s may be meant, of %s", names[i], either(names))
			continue
		}
		f.fail(at, "there is no such field: want %s", either(names))
	}
}

// alike says that one name may be a slip of the other: it differs in case, in signs
// that are no letters or digits, or by one letter too many, too few or wrong.
func alike(a, b string) bool {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				return unicode.ToLower(r)
			}
			return -1
		}, s)
	}
	a, b = plain(a), plain(b)
	if len(a) < len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(b) {
		return len(a)-len(b) <= 1
	}
	return a[i+1:] == b[i:] || a[i+1:] == b[i+1:]
}

// collect puts the fields of t and of what is embedded in it into known, by their
// names in documents.
func collect(t reflect.Type, known map[string]reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			collect(field.Type, known)
			continue
		}
		known[name] = field.Type
	}
}

func (f *form) misfit(path string, value any, want string) {
	text := fmt.Sprint(value)
	switch v := value.(type) {
	case string:
		text = strconv.Quote(v)
	case map[string]any:
		text = "an object"
	case []any:
		text = "a list"
	}
	if path == "" {
		f.problems = append(f.problems, errors.New("the document is "+text+": want "+want))
		return
	}
	f.fail(path, "%s: want %s", text, want)
}
