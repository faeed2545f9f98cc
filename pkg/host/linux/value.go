package linux

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/rtnl"
)

// The texts of values, as pkg/nic names them.

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// ethertype of the outer tag of two, for which drivers have a protocol to set.
const (
	protocol8021Q  = 0x8100
	protocol8021AD = 0x88a8
)

// vlanText writes ID[/QOS][/802.1ad].
func vlanText(v rtnl.VLAN) string {
	out := strconv.Itoa(v.ID)
	if v.QoS != 0 {
		out += "/" + strconv.Itoa(v.QoS)
	}
	if v.ID != 0 && v.Protocol == protocol8021AD {
		out += "/802.1ad"
	}
	return out
}

// parseVLAN reads what vlanText writes.
func parseVLAN(s string) (rtnl.VLAN, bool) {
	v := rtnl.VLAN{Protocol: protocol8021Q}
	rest, double := strings.CutSuffix(s, "/802.1ad")
	if double {
		v.Protocol = protocol8021AD
	}
	id, qos, hasQoS := strings.Cut(rest, "/")
	var ok bool
	if v.ID, ok = parseNumber(id, 0, 4094); !ok {
		return v, false
	}
	if hasQoS {
		if v.QoS, ok = parseNumber(qos, 1, 7); !ok {
			return v, false
		}
	}
	return v, v.ID != 0 || !hasQoS && !double
}

// parseNumber reads a decimal number in its one form.
func parseNumber(s string, least, most int) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= least && n <= most && strconv.Itoa(n) == s
}

// parseGUID reads eight octets, lower case and colon-separated.
func parseGUID(s string) (n uint64, ok bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 8 {
		return 0, false
	}
	for _, p := range parts {
		b, err := strconv.ParseUint(p, 16, 8)
		if err != nil || fmt.Sprintf("%02x", b) != p {
			return 0, false
		}
		n = n<<8 | b
	}
	return n, true
}

// maxRate bounds rates so that bytes a second fit the kernel's numbers.
const maxRate = 1<<31 - 1

// checkValue says what is wrong with a value: that it is none of its setting, or
// over the object's limit.
func checkValue(name nic.Setting, value string, limits nic.Limits) error {
	want := wrongForm(name, value)
	if want == "" {
		if most, limited := limits[name]; limited {
			if n, _ := strconv.Atoi(value); n > most {
				want = fmt.Sprintf("at most %d", most)
			}
		}
	}
	if want != "" {
		return fmt.Errorf("want %s: %w", want, host.ErrInvalid)
	}
	return nil
}

// wrongForm answers the right form of a setting's value if value is not of it.
func wrongForm(name nic.Setting, value string) string {
	word := func(words ...string) string {
		if slices.Contains(words, value) {
			return ""
		}
		return strings.Join(words, " or ")
	}
	number := func(least, most int, unit string) string {
		if _, ok := parseNumber(value, least, most); ok {
			return ""
		}
		return fmt.Sprintf("%d to %d %s", least, most, unit)
	}
	switch name {
	case nic.InlineMode:
		return word("none", "link", "network", "transport")
	case nic.EncapMode:
		return word("none", "basic")
	case nic.SteeringMode:
		return word("dmfs", "smfs", "hmfs")
	case nic.TCOffload, nic.RoCE, nic.Trust, nic.SpoofCheck:
		return word("on", "off")
	case nic.AdminLink:
		return word("up", "down")
	case nic.LinkState:
		return word("auto", "enable", "disable")
	case nic.VDPA:
		return word("none", "vhost", "virtio")
	case nic.LinkMTU:
		return number(68, 1<<16-1, "bytes")
	case nic.EventQueues:
		return number(0, 1<<16-1, "queues")
	case nic.MinRate, nic.MaxRate:
		return number(0, maxRate, "Mbit/s")
	case nic.Channels, nic.RxRing, nic.TxRing:
		return number(1, 1<<20, "")
	case nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4:
		return number(1, maxSize, "bytes")
	case nic.VLAN:
		if _, ok := parseVLAN(value); !ok {
			return "0, or ID[/QOS][/802.1ad] with an ID of 1 to 4094 and a QOS of 1 to 7"
		}
	case nic.NodeGUID, nic.PortGUID:
		if _, ok := parseGUID(value); !ok {
			return "eight octets, colon-separated"
		}
	}
	return ""
}
