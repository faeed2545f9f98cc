package rtnl

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

const kindBond = "bond"

// Bond is what a bond does with its members, in the words of
// Documentation/networking/bonding.rst. Members are the links whose Master it is.
type Bond struct {
	Mode     string // active-backup, balance-xor, 802.3ad and others
	MIIMon   int    // ms between looks at a member's carrier; 0 none
	HashBy   string // xmit_hash_policy: layer2, layer3+4 and others
	LACPRate string // slow, fast
	Active   int    // ifindex of the member that is used; 0: none, or a mode without
	AD       *AD    // of 802.3ad with an active aggregator
}

// AD is a bond's active aggregator (802.3ad).
type AD struct {
	Aggregator int
	Ports      int // members in it
	ActorKey   int
	PartnerKey int
	Partner    nic.MAC // zero: nobody answers
}

// Member is what a bond says of a member.
type Member struct {
	Active     bool   // it is used, or would be: no backup
	Carrier    bool   // as the bond sees it
	MAC        []byte // the address that it had before
	Aggregator int    // 802.3ad: the aggregator that it is in; 0 none
}

// BondChange is what to change of a bond; "", nil and 0 are left as they are. The
// mode can be set only of a bond that is down and has no members, the LACP rate
// only of one that is down and in 802.3ad.
type BondChange struct {
	Mode     string
	MIIMon   *int
	HashBy   string
	LACPRate string
	Active   int
}

// words are the kernel's numbers in bonding.rst's words; a number beyond them stays
// a number.
type words []string

func (w words) of(b []byte) string {
	n, ok := netlink.Uint(b)
	switch {
	case !ok:
		return ""
	case n < uint64(len(w)):
		return w[n]
	}
	return strconv.FormatUint(n, 10)
}

func (w words) number(what, word string) (uint8, error) {
	i := slices.Index(w, word)
	if i < 0 {
		return 0, fmt.Errorf("%q is no %s: want one of %q: %w", word, what, w, unix.EINVAL)
	}
	return uint8(i), nil
}

func bondModes() words {
	return words{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
}

func hashPolicies() words {
	return words{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"}
}

func lacpRates() words { return words{"slow", "fast"} }

func parseBond(b []byte) (bond Bond) {
	for kind, v := range netlink.Attrs(b) {
		switch kind {
		case nl.IFLA_BOND_MODE:
			bond.Mode = bondModes().of(v)
		case nl.IFLA_BOND_MIIMON:
			bond.MIIMon = number(v)
		case nl.IFLA_BOND_XMIT_HASH_POLICY:
			bond.HashBy = hashPolicies().of(v)
		case nl.IFLA_BOND_AD_LACP_RATE:
			bond.LACPRate = lacpRates().of(v)
		case nl.IFLA_BOND_ACTIVE_SLAVE:
			bond.Active = number(v)
		case nl.IFLA_BOND_AD_INFO:
			ad := parseAD(v)
			bond.AD = &ad
		}
	}
	return bond
}

func parseAD(b []byte) (ad AD) {
	for kind, v := range netlink.Attrs(b) {
		switch kind {
		case nl.IFLA_BOND_AD_INFO_AGGREGATOR:
			ad.Aggregator = number(v)
		case nl.IFLA_BOND_AD_INFO_NUM_PORTS:
			ad.Ports = number(v)
		case nl.IFLA_BOND_AD_INFO_ACTOR_KEY:
			ad.ActorKey = number(v)
		case nl.IFLA_BOND_AD_INFO_PARTNER_KEY:
			ad.PartnerKey = number(v)
		case nl.IFLA_BOND_AD_INFO_PARTNER_MAC:
			if len(v) == len(ad.Partner) {
				ad.Partner = nic.MAC(v)
			}
		}
	}
	return ad
}

func parseMember(b []byte) (m Member) {
	for kind, v := range netlink.Attrs(b) {
		switch kind {
		case nl.IFLA_BOND_SLAVE_STATE:
			m.Active = number(v) == 0 // BOND_STATE_ACTIVE
		case nl.IFLA_BOND_SLAVE_MII_STATUS:
			m.Carrier = number(v) == 0 // BOND_LINK_UP; others are down and on the way
		case nl.IFLA_BOND_SLAVE_PERM_HWADDR:
			m.MAC = slices.Clone(v)
		case nl.IFLA_BOND_SLAVE_AD_AGGREGATOR_ID:
			m.Aggregator = number(v)
		}
	}
	return m
}

func (c BondChange) attrs() (out []*nl.RtAttr, err error) {
	for _, w := range []struct {
		kind int
		all  words
		what string
		word string
	}{
		{nl.IFLA_BOND_MODE, bondModes(), "bond mode", c.Mode},
		{nl.IFLA_BOND_XMIT_HASH_POLICY, hashPolicies(), "transmit hash policy", c.HashBy},
		{nl.IFLA_BOND_AD_LACP_RATE, lacpRates(), "LACP rate", c.LACPRate},
	} {
		if w.word == "" {
			continue
		}
		n, err := w.all.number(w.what, w.word)
		if err != nil {
			return nil, err
		}
		out = append(out, netlink.Attr(w.kind, nl.Uint8Attr(n)))
	}
	if c.MIIMon != nil {
		out = append(out, netlink.Attr(nl.IFLA_BOND_MIIMON, nl.Uint32Attr(uint32(*c.MIIMon))))
	}
	if c.Active != 0 {
		out = append(out, netlink.Attr(nl.IFLA_BOND_ACTIVE_SLAVE, nl.Uint32Attr(uint32(c.Active))))
	}
	return out, nil
}

func (c BondChange) info() (*nl.RtAttr, error) {
	attrs, err := c.attrs()
	if err != nil {
		return nil, err
	}
	return netlink.Nest(unix.IFLA_LINKINFO,
		netlink.Text(unix.IFLA_INFO_KIND, kindBond), netlink.Nest(unix.IFLA_INFO_DATA, attrs...)), nil
}

// AddBond makes a bond, down and without members, and returns its ifindex. A name
// in use is EEXIST; a kernel without bonding (its module is loaded on demand)
// EOPNOTSUPP.
func (c Conn) AddBond(name string, b BondChange) (ifindex int, err error) {
	info, err := b.info()
	if err != nil {
		return 0, err
	}
	err = c.Do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0, netlink.Text(unix.IFLA_IFNAME, name), info)
	if err != nil {
		return 0, err
	}
	l, err := c.ByName(name)
	return l.Ifindex, err
}

// SetBond changes a bond.
func (c Conn) SetBond(ifindex int, b BondChange) error {
	info, err := b.info()
	if err != nil {
		return err
	}
	return c.Do(unix.RTM_NEWLINK, 0, ifindex, info)
}

// Enslave puts an interface into a bond, or into another master. A bond takes only
// what is down (bond_enslave), so it is taken down before; the bond takes it up.
// When it is refused it is up again as it was.
func (c Conn) Enslave(ifindex, master int) error {
	l, err := c.Get(ifindex)
	if err != nil || l.Master == master {
		return err
	}
	if err := failed("set down", c.SetUp(ifindex, false)); err != nil {
		return err
	}
	err = c.Set(ifindex, netlink.Attr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(master))))
	if err != nil && l.Up {
		_ = c.SetUp(ifindex, true) // the refusal is what matters
	}
	return err
}

// Release takes an interface out of its master. A bond leaves it down, with the
// address and MTU that it had before (__bond_release_one).
func (c Conn) Release(ifindex int) error {
	return c.Set(ifindex, netlink.Attr(unix.IFLA_MASTER, nl.Uint32Attr(0)))
}
