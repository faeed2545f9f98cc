package host

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// What a machine can answer, whatever the subsystem. Callers test with
// errors.Is; fs.ErrNotExist and fs.ErrExist belong to the same set.
var (
	ErrNotSupported = errors.New("not supported")
	ErrBusy         = errors.New("in use")
	ErrExhausted    = errors.New("used up")
	ErrInvalid      = errors.New("not a value that it takes")

	// ErrNotActive says that hardware does not do what software asks of it: the
	// bond is there, and no LAG.
	ErrNotActive = errors.New("not active in hardware")
)

// Error is a refusal by the machine: what was asked of what, and every word that
// the kernel gave.
type Error struct {
	Op     string        // "set eswitch mode switchdev"
	Object string        // "pci/0000:03:00.0"
	Errno  syscall.Errno // 0 when the cause was no system call
	Ext    string        // NLMSGERR_ATTR_MSG; "" when the kernel said nothing
	Err    error         // the cause when it is not Errno
}

// Fail wraps what the kernel said to op on object. A nil err is nil.
func Fail(op, object string, err error, ext string) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Object: object, Ext: ext}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Errno = errno
	} else {
		e.Err = err
	}
	return e
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op + " of " + e.Object + ": ")
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	} else {
		b.WriteString(e.Errno.Error())
	}
	if e.Ext != "" {
		b.WriteString(": " + e.Ext)
	}
	return b.String()
}

// Unwrap gives the cause, so that errors.Is finds an errno or a context's end.
func (e *Error) Unwrap() error {
	if e.Err != nil {
		return e.Err
	}
	return e.Errno
}

// Is sorts the kernel's errnos into the sentinels above.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotSupported:
		return e.Errno == syscall.EOPNOTSUPP || e.Errno == syscall.ENOTSUP || e.Errno == syscall.ENOSYS
	case ErrBusy:
		return e.Errno == syscall.EBUSY
	case ErrExhausted:
		return e.Errno == syscall.ENOSPC || e.Errno == syscall.ENOMEM
	case ErrInvalid:
		return e.Errno == syscall.EINVAL || e.Errno == syscall.ERANGE
	case fs.ErrNotExist:
		return e.Errno == syscall.ENOENT || e.Errno == syscall.ENODEV
	case fs.ErrExist:
		return e.Errno == syscall.EEXIST
	case context.DeadlineExceeded:
		return e.Errno == syscall.ETIMEDOUT
	}
	return false
}
