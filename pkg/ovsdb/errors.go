package ovsdb

import (
	"errors"
	"fmt"
)

// What a caller may want to tell apart, with errors.Is.
var (
	// ErrUnavailable: no server answers at the endpoint, or no longer.
	ErrUnavailable = errors.New("no ovsdb-server")

	// ErrTimedOut: a wait did not come to pass; nothing was changed.
	ErrTimedOut = errors.New("timed out")

	// ErrConstraint: the transaction breaks a rule of the schema, such as the
	// uniqueness of a name; nothing was changed.
	ErrConstraint = errors.New("constraint violation")
)

// OpError is the server's refusal of a transaction, which it dropped as a whole.
type OpError struct {
	Op      string // the operation that failed, as JSON; "" at commit
	Name    string // RFC 7047's word: "constraint violation", "timed out", ...
	Details string
}

func (e *OpError) Error() string {
	s := e.Name
	if e.Details != "" {
		s += ": " + e.Details
	}
	if e.Op != "" {
		s += fmt.Sprintf(" (in %.200s)", e.Op)
	}
	return s
}

// Is sorts the server's words into the sentinels above.
func (e *OpError) Is(target error) bool {
	switch target {
	case ErrTimedOut:
		return e.Name == "timed out"
	case ErrConstraint:
		return e.Name == "constraint violation"
	}
	return false
}
