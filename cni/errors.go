package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/ovsdb"
)

// Error codes of this plugin, from the range that the specification leaves to
// plugins. All other codes are the specification's.
const (
	ErrNode   uint = 100 // the node is not as an attachment needs it: no VF, no switchdev, no bridge
	ErrKernel uint = 101 // the kernel refused
	ErrSwitch uint = 102 // Open vSwitch refused, or is not there
	ErrDamage uint = 103 // CHECK: the attachment is not as it was made
)

// codedError is an error with its CNI code, for the edge where it becomes a
// types.Error.
type codedError struct {
	code uint
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func coded(code uint, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

func isCoded(err error) bool {
	var c *codedError
	return errors.As(err, &c)
}

// report makes of err what a CNI runtime reads; nil stays nil.
func report(err error) error {
	if err == nil {
		return nil
	}
	return types.NewError(codeOf(err), err.Error(), "")
}

func codeOf(err error) uint {
	var (
		c       *codedError
		plugin  *types.Error
		refused *host.Error
		row     *ovsdb.OpError
	)
	switch {
	case errors.As(err, &c):
		return c.code
	case errors.As(err, &plugin):
		return plugin.Code
	case errors.Is(err, record.ErrLocked), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return types.ErrTryAgainLater
	case errors.Is(err, ovsdb.ErrUnavailable), errors.As(err, &row),
		errors.Is(err, offload.ErrForeign), errors.Is(err, offload.ErrNotTaken), errors.Is(err, offload.ErrNoBridge), errors.Is(err, offload.ErrNotInstalled):
		return ErrSwitch
	case errors.As(err, &refused):
		return ErrKernel
	}
	return types.ErrInternal
}
