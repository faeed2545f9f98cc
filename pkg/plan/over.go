package plan

import (
	"cmp"

	"sluice.dev/sluice/pkg/nic"
)

// Over answers what is wanted of a PF after both wishes have been reached, the
// later one second: what later leaves out stays as earlier wanted it, as far as it
// outlived the steps. VFs of another count are new, and settings of the other mode
// are gone.
func Over(earlier, later nic.PFSpec) nic.PFSpec {
	out := later
	out.Named = earlier.Named || later.Named
	out.Eswitch = cmp.Or(later.Eswitch, earlier.Eswitch)
	if out.VFCount == nil {
		out.VFCount = earlier.VFCount
	}
	if out.Autoprobe == nil {
		out.Autoprobe = earlier.Autoprobe
	}
	if out.Bond == nil {
		out.Bond = earlier.Bond
	}
	if out.SFs == nil && out.Eswitch != nic.Legacy {
		out.SFs = earlier.SFs
	}
	out.Settings = over(inMode(ofPF, out.Eswitch, earlier.Settings), later.Settings)
	if later.VFCount != nil && (earlier.VFCount == nil || *later.VFCount != *earlier.VFCount) {
		return out
	}
	out.VFs = nil
	for i := range max(len(earlier.VFs), len(later.VFs)) {
		out.VFs = append(out.VFs, overVF(earlier.VF(i), later.VF(i), out.Eswitch))
	}
	return out
}

func overVF(earlier, later nic.VFSpec, mode nic.Eswitch) nic.VFSpec {
	out := later
	out.Driver = cmp.Or(later.Driver, earlier.Driver)
	if out.MAC == nil {
		out.MAC = earlier.MAC
	}
	if out.LinkMAC == nil && later.MAC == nil {
		out.LinkMAC = earlier.LinkMAC
	}
	out.MTU = cmp.Or(later.MTU, earlier.MTU)
	if mode != nic.Legacy {
		out.RepMTU = cmp.Or(later.RepMTU, earlier.RepMTU)
	}
	out.Settings = over(inMode(ofVF, mode, earlier.Settings), later.Settings)
	if out.Driver != "" && out.Driver != nic.DriverKernel {
		// Of a netdev that there no longer is.
		out.LinkMAC, out.MTU = later.LinkMAC, later.MTU
		out.Settings = over(lostBy(ofVF, true, out.Driver, inMode(ofVF, mode, earlier.Settings)), later.Settings)
	}
	return out
}

// inMode is lasting in a mode that is known; where nobody has said which it is,
// everything is.
func inMode(k kind, mode nic.Eswitch, have nic.Settings) nic.Settings {
	if mode == "" {
		return have
	}
	return lasting(k, mode, have)
}
