package policy

import (
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// NoPFError says that a name has the right form and no PF has it.
type NoPFError struct {
	Name string

	// Handle is what Name stands for where it is an address or a devlink handle,
	// which a PF may have later; zero for a netdev name, which is no identity.
	Handle nic.Handle

	have string // the PFs that there are
}

func (e *NoPFError) Error() string {
	return fmt.Sprintf("there is no PF %q: want a PCI address, a devlink handle or the name of an uplink netdev; this node has %s", e.Name, e.have)
}

// FindPF returns the PF that name means: PCI address, devlink handle or exact
// name of the uplink netdev. A name that nothing has matches nothing, and is a
// *NoPFError; every other error is of a name that has no PF on any node.
func FindPF(state nic.State, name string) (*nic.PF, error) {
	if name == "" {
		return nil, fmt.Errorf(`"" names no PF: want a PCI address, a devlink handle or the name of an uplink netdev; this node has %s`, listPFs(state))
	}
	if err := checkAddress(name); err != nil {
		return nil, err
	}
	h, err := nic.ParseHandle(name)
	if err != nil {
		for i := range state.PFs {
			if state.PFs[i].Uplink.Name == name {
				return &state.PFs[i], nil
			}
		}
		return nil, &NoPFError{Name: name, have: listPFs(state)}
	}
	if pf := state.PF(h); pf != nil {
		return pf, nil
	}
	if id, _ := state.VFAt(h.Name); h.Bus == "pci" && !id.PF.IsZero() {
		return nil, fmt.Errorf("%q is a VF (%s): want its PF, %s", name, id, id.PF)
	}
	return nil, &NoPFError{Name: name, Handle: h, have: listPFs(state)}
}

// checkAddress refuses what is nearly a PCI address: one in upper case, or
// without its domain, matches no device, and no netdev has a colon in its name
// (dev_valid_name).
func checkAddress(name string) error {
	bus, address, isHandle := strings.Cut(name, "/")
	if !isHandle {
		bus, address = "", name
	}
	if bus != "pci" && bus != "" || isHandle && bus == "" || nic.IsPCIAddress(address) {
		return nil
	}
	lower := strings.ToLower(address)
	for _, right := range []string{lower, "0000:" + lower} {
		if nic.IsPCIAddress(right) {
			if isHandle {
				right = "pci/" + right
			}
			return fmt.Errorf("%q is no PCI address as the kernel writes it: want %q", name, right)
		}
	}
	if isHandle || strings.Contains(address, ":") {
		return fmt.Errorf("%q is no PCI address: want domain:bus:device.function in hexadecimal, for example 0000:03:00.0", name)
	}
	return nil
}

// label names a PF to people: its handle, and its netdev where it has one.
func label(pf *nic.PF) string {
	if pf.Uplink.Name == "" {
		return pf.Handle.String()
	}
	return fmt.Sprintf("%s (%s)", pf.Handle, pf.Uplink.Name)
}

func listPFs(state nic.State) string {
	if len(state.PFs) == 0 {
		return "no PF at all"
	}
	var names []string
	for i := range state.PFs {
		names = append(names, label(&state.PFs[i]))
	}
	return strings.Join(names, ", ")
}
