package apply

import (
	"errors"
	"fmt"
	"syscall"

	"sluice.dev/sluice/pkg/plan"
)

// explain adds to what the kernel says of VFs that it does not make what can be
// done about it: its three answers are no more than a number.
func explain(a plan.SetVFs, err error) error {
	what := fmt.Sprintf("%d VFs", a.To)
	switch {
	case a.To == 0:
		return err
	case errors.Is(err, syscall.EBUSY):
		// drivers/pci/iov.c, sriov_numvfs_store: "%d VFs already enabled. Disable
		// before enabling %d VFs"
		return fmt.Errorf("%w; somebody else has made VFs meanwhile: want them removed (0), which the count goes through, or the wish to be their number", err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w; the card has no interrupt vectors (MSI-X) or functions left for %s: want fewer, or more of them in its firmware", err, what)
	case errors.Is(err, syscall.ENOMEM):
		// sriov_enable: "not enough MMIO resources for SR-IOV", "bus ... out of range of"
		return fmt.Errorf("%w; the machine has no address space or bus numbers for %s: want fewer, or SR-IOV and large BARs enabled in its firmware, or the kernel started with pci=realloc", err, what)
	}
	return err
}
