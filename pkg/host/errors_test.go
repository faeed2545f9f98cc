package host_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host"
)

func TestFail(t *testing.T) {
	if err := host.Fail("set mtu 9000", "eth0", nil, ""); err != nil {
		t.Errorf("of no error it makes %v", err)
	}
	for _, c := range []struct {
		cause error
		ext   string
		want  string
	}{
		{syscall.EBUSY, "", "set mtu 9000 of eth0: device or resource busy"},
		{fmt.Errorf("netlink: %w", syscall.EINVAL), "mtu greater than device maximum", "set mtu 9000 of eth0: invalid argument: mtu greater than device maximum"},
		{context.Canceled, "", "set mtu 9000 of eth0: context canceled"},
	} {
		err := host.Fail("set mtu 9000", "eth0", c.cause, c.ext)
		var e *host.Error
		if err.Error() != c.want || !errors.As(err, &e) || e.Ext != c.ext {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
		root := c.cause
		for next := errors.Unwrap(root); next != nil; next = errors.Unwrap(root) {
			root = next
		}
		if !errors.Is(err, root) {
			t.Errorf("%v: want errors.Is %v", err, root)
		}
	}
}

// TestClasses: each errno is in the classes that callers ask for, and in no other.
func TestClasses(t *testing.T) {
	all := []error{
		host.ErrNotSupported, host.ErrBusy, host.ErrExhausted, fs.ErrNotExist, fs.ErrExist, context.DeadlineExceeded,
	}
	for errno, want := range map[syscall.Errno]error{
		syscall.EOPNOTSUPP: host.ErrNotSupported, syscall.ENOSYS: host.ErrNotSupported,
		syscall.EBUSY:  host.ErrBusy,
		syscall.ENOSPC: host.ErrExhausted, syscall.ENOMEM: host.ErrExhausted,
		syscall.ENOENT: fs.ErrNotExist, syscall.ENODEV: fs.ErrNotExist,
		syscall.EEXIST:    fs.ErrExist,
		syscall.ETIMEDOUT: context.DeadlineExceeded,
		syscall.EINVAL:    nil, syscall.ERANGE: nil,
	} {
		err := host.Fail("do", "it", errno, "")
		var got []error
		for _, class := range all {
			if errors.Is(err, class) {
				got = append(got, class)
			}
		}
		if want == nil && len(got) > 0 || want != nil && !slices.Equal(got, []error{want}) {
			t.Errorf("%v (%s) is %v: want %v", errno, errno.Error(), got, want)
		}
	}
}
