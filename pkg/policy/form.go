package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// form collects what is wrong with a document. The zero form is ready.
type form struct {
	problems []error
	said     map[string]bool
}

// fail notes one problem of the field at path, once: an entry that chooses many
// PFs has its faults on each of them.
func (f *form) fail(path, format string, args ...any) {
	text := path + ": " + fmt.Sprintf(format, args...)
	if f.said[text] {
		return
	}
	if f.said == nil {
		f.said = map[string]bool{}
	}
	f.said[text] = true
	f.problems = append(f.problems, errors.New(text))
}

// err is all of it, nil if there is nothing.
func (f *form) err() error { return errors.Join(f.problems...) }

// word checks that value is one of words, or left out.
func (f *form) word(path, value string, words ...string) {
	if value != "" && !slices.Contains(words, value) {
		f.fail(path, "%q: want %s", value, either(words))
	}
}

// number checks that value is within bounds, or left out (nil). It answers the
// value, 0 if it is left out or wrong.
func (f *form) number(path string, value *int, least, most int, unit string) int {
	switch {
	case value == nil:
		return 0
	case *value < least || *value > most:
		f.fail(path, "%d: want %d to %d%s", *value, least, most, unit)
		return 0
	}
	return *value
}

// either lists words as people do: a, b or c.
func either(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// The bounds that hold whatever the device. What it takes of them only it knows.
const (
	minMTU = 68        // ETH_MIN_MTU
	maxMTU = 1<<16 - 1 // ETH_MAX_MTU

	// Segments that are put together make at least a frame, and at most
	// GSO_MAX_SIZE (include/linux/netdevice.h), eight times what an IP length says.
	minGSO = 1500
	maxGSO = 8 * (1<<16 - 1)

	maxQueues = 1<<16 - 1
	maxRing   = 1 << 20
)

// mtu checks an MTU.
func (f *form) mtu(path string, value *int) int {
	return f.number(path, value, minMTU, maxMTU, " bytes")
}

// object reads the fields of one object of the document into settings.
type object struct {
	*form
	path string
	out  nic.Settings
}

func (f *form) object(path string) *object { return &object{form: f, path: path} }

func (o *object) at(field string) string { return o.path + "." + field }

func (o *object) set(name nic.Setting, value string) {
	if o.out == nil {
		o.out = nic.Settings{}
	}
	o.out[name] = value
}

func (o *object) oneOf(name nic.Setting, field, value string, words ...string) {
	o.word(o.at(field), value, words...)
	if value != "" {
		o.set(name, value)
	}
}

func (o *object) onOff(name nic.Setting, value *bool) {
	switch {
	case value == nil:
	case *value:
		o.set(name, "on")
	default:
		o.set(name, "off")
	}
}

func (o *object) count(name nic.Setting, field string, value *int, least, most int, unit string) {
	if value != nil {
		o.set(name, strconv.Itoa(o.number(o.at(field), value, least, most, unit)))
	}
}

// maxRate in Mbit/s is an int everywhere. The VF attributes of a PF could carry
// twice as much (struct ifla_vf_rate).
const maxRate = 1<<31 - 1

// rate reads a rate into whole Mbit/s. It answers -1 if the rate is left out or
// wrong.
func (o *object) rate(name nic.Setting, field, text string) int {
	if text == "" {
		return -1
	}
	n, ok := parseRate(text)
	if !ok {
		o.fail(o.at(field), "%q is no rate: want whole Mbit/s with a unit, for example 500Mbit or 2.5Gbit, or none", text)
		return -1
	}
	o.set(name, strconv.Itoa(n))
	return n
}

// parseRate reads 500Mbit, 2.5Gbit or none into Mbit/s.
func parseRate(text string) (int, bool) {
	if text == "none" {
		return 0, true
	}
	digits, gbit := strings.CutSuffix(text, "Gbit")
	whole, part, dot := digits, "", false
	if gbit {
		whole, part, dot = strings.Cut(digits, ".")
		if dot && (part == "" || len(part) > 3) {
			return 0, false
		}
		part += strings.Repeat("0", 3-len(part))
	} else if whole, gbit = strings.CutSuffix(text, "Mbit"); !gbit {
		return 0, false
	}
	// The digits of the thousandth part of a Gbit are Mbits.
	number := whole + part
	if whole == "" || strings.Trim(number, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 32)
	return int(n), err == nil && n <= maxRate
}
