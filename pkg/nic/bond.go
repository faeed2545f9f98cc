package nic

import "slices"

// LAG is what the driver says of link aggregation in hardware (VF-LAG) of a PF.
// "" where nothing says (no such driver, or debugfs is not there).
type LAG string

// The states of VF-LAG.
const (
	LAGActive   LAG = "active"
	LAGInactive LAG = "inactive"
)

// BondMode is a bond's mode by the kernel's name.
type BondMode string

// The modes that hardware takes (mlx5/core/lag/lag.c: active-backup or hash).
const (
	ActiveBackup BondMode = "active-backup"
	BalanceXOR   BondMode = "balance-xor"
	IEEE8023AD   BondMode = "802.3ad"
)

// Bond is a bond of the host's namespace, whoever made it.
type Bond struct {
	Netdev
	Mode     BondMode `json:"mode"`
	Hash     string   `json:"hash,omitempty"`     // xmit_hash_policy: layer2, layer3+4, ...
	Miimon   int      `json:"miimon,omitempty"`   // ms; 0 off
	LACPRate string   `json:"lacpRate,omitempty"` // slow, fast; of 802.3ad

	// Ours says that sluice has made it (by the mark in its alias).
	Ours bool `json:"ours,omitempty"`

	Members []Handle `json:"members,omitempty"` // PFs, ordered by handle
	Others  []string `json:"others,omitempty"`  // names of members that are no PF's uplink
	Active  string   `json:"active,omitempty"`  // name of the active member, of active-backup
}

// BondSpec is a bond that is wanted of PFs of one card. A zero field but Name,
// Mode and Members is left as it is, or to the kernel.
type BondSpec struct {
	Name     string   `json:"name"`
	Mode     BondMode `json:"mode"`
	Hash     string   `json:"hash,omitempty"`
	Miimon   int      `json:"miimon,omitempty"`
	LACPRate string   `json:"lacpRate,omitempty"`
	MTU      int      `json:"mtu,omitempty"` // bytes; its members have the same
	Members  []Handle `json:"members"`

	// Adopt says that somebody else makes the bond and puts its members in
	// (ifupdown, netplan, NetworkManager, systemd-networkd): it is waited for, and
	// VFs are bound when it is in hardware.
	Adopt bool `json:"adopt,omitempty"`

	// Exact says that Miimon is wanted also when it is zero: by who goes back to
	// what was before.
	Exact bool `json:"exact,omitempty"`

	// Absent says that there is to be none, if it is one of ours and empty.
	Absent bool `json:"absent,omitempty"`

	// Software says that hardware need not aggregate the ports: it did not before
	// either.
	Software bool `json:"software,omitempty"`
}

// Bond returns the bond of that name, or nil.
func (s *State) Bond(name string) *Bond {
	for i := range s.Bonds {
		if s.Bonds[i].Name == name {
			return &s.Bonds[i]
		}
	}
	return nil
}

// BondOf returns the bond that the PF's uplink is a member of, or nil.
func (s *State) BondOf(h Handle) *Bond {
	for i := range s.Bonds {
		if slices.Contains(s.Bonds[i].Members, h) {
			return &s.Bonds[i]
		}
	}
	return nil
}

// BondOf returns the wanted bond that has h among its members, or nil.
func (s *Spec) BondOf(h Handle) *BondSpec {
	for i := range s.Bonds {
		if !s.Bonds[i].Absent && slices.Contains(s.Bonds[i].Members, h) {
			return &s.Bonds[i]
		}
	}
	return nil
}
