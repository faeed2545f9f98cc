package nic

import (
	"fmt"
	"strings"
)

// SFID names an SF: its PF and its number among the PF's SFs (sfnum), which
// whoever makes it chooses.
type SFID struct {
	PF  Handle `json:"pf"`
	Num int    `json:"num"`
}

func (id SFID) String() string { return fmt.Sprintf("%s sf %d", id.PF, id.Num) }

// IsSFDevice says whether a name has the form of SFs' auxiliary devices, DRIVER.sf.N
// (drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c). It can be a file's name.
func IsSFDevice(name string) bool {
	driver, number, ok := strings.Cut(name, ".sf.")
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}
	return ok && driver != "" && len(driver) <= 56 && !strings.ContainsFunc(driver, bad) &&
		number != "" && len(number) <= 10 && strings.Trim(number, "0123456789") == ""
}

// SF is one subfunction of a PF in switchdev mode.
type SF struct {
	Num  int    `json:"num"`
	Port uint32 `json:"port"` // devlink port index on its PF's handle

	// Active is the port function's state, Attached its opstate: the function has
	// a driver's device.
	Active   bool `json:"active"`
	Attached bool `json:"attached"`

	// Device is its auxiliary device, mlx5_core.sf.4; "" before it is attached.
	// The number in it is not Num.
	Device string `json:"device,omitempty"`

	MAC      MAC      `json:"mac,omitzero"` // administrative, as of a VF
	Netdev   Netdev   `json:"netdev,omitzero"`
	Away     bool     `json:"away,omitempty"`
	Owner    string   `json:"owner,omitempty"`
	Drained  string   `json:"-"`               // as of a VF
	Netns    string   `json:"netns,omitempty"` // as of a VF
	Rep      Netdev   `json:"rep,omitzero"`
	RDMA     []string `json:"rdma,omitempty"`
	Settings Settings `json:"settings,omitempty"`
	Limits   Limits   `json:"limits,omitempty"`

	Failing []string `json:"failing,omitempty"` // as of a VF
}

// InUse says why an SF must not be taken away; "" if it is free.
func (f SF) InUse() string { return inUse(f.Owner, f.Away) }

// SFSpec is the wanted state of one SF, which is to be active. A zero field is
// left as it is.
type SFSpec struct {
	Num      int      `json:"num"`
	MAC      *MAC     `json:"mac,omitempty"`
	MTU      int      `json:"mtu,omitempty"`    // of the netdev, bytes
	RepMTU   int      `json:"repMTU,omitempty"` // of the representor, bytes
	Settings Settings `json:"settings,omitempty"`

	// Inactive: it is there and not active. Nobody wishes for it but who goes
	// back to what was before.
	Inactive bool `json:"inactive,omitempty"`
}

// SF returns the SF of that number, or nil.
func (p *PF) SF(num int) *SF {
	for i := range p.SFs {
		if p.SFs[i].Num == num {
			return &p.SFs[i]
		}
	}
	return nil
}

// SF returns the entry for the SF of that number, or nil.
func (p *PFSpec) SF(num int) *SFSpec {
	if p.SFs == nil {
		return nil
	}
	for i := range *p.SFs {
		if (*p.SFs)[i].Num == num {
			return &(*p.SFs)[i]
		}
	}
	return nil
}
