package record

import (
	"encoding/json"
	"fmt"
	"time"

	"sluice.dev/sluice/pkg/nic"
)

// Version is the format that this package writes, and the newest that it reads.
const Version = 1

// Record is one attachment: whose it is, what it is made of, and how everything
// was before.
type Record struct {
	Version int       `json:"version"`
	Started time.Time `json:"started"`
	Boot    string    `json:"boot,omitempty"` // host.Machine.Boot; "" not known

	// The owner.
	Container string `json:"container"`
	IfName    string `json:"ifname"`
	Netns     string `json:"netns"`   // path
	NetnsID   string `json:"netnsID"` // host.NetnsLinks.ID: tells a path that is used again
	Pod       Pod    `json:"pod,omitzero"`
	With      string `json:"with,omitempty"` // interface whose ADD made this one, and whose DEL takes it down; "" its own

	// What it is made of.
	VF          string     `json:"vf"` // PCI address; of an SF its auxiliary device; of a pair PairName
	PF          nic.Handle `json:"pf"`
	Index       int        `json:"index"`               // of the VF among the PF's; of an SF its number
	SF          bool       `json:"sf,omitempty"`        // it is an SF
	Pair        bool       `json:"pair,omitempty"`      // of software interfaces: VF is the host's end
	PairKind    string     `json:"pairKind,omitempty"`  // host.PairKind; "" veth
	OfRep       bool       `json:"ofRep,omitempty"`     // the pod's interface is the representor, and Before is of it
	RepPort     string     `json:"repPort,omitempty"`   // with OfRep: its phys_port_name, by which it is found
	Userspace   bool       `json:"userspace,omitempty"` // a program drives it: it has no netdev
	Representor string     `json:"representor"`         // "" of a PF in legacy mode
	Bridge      string     `json:"bridge"`              // "" in none
	OVSDB       string     `json:"ovsdb"`               // endpoint
	RDMA        []string   `json:"rdma,omitempty"`      // devices that go along: the VF's, in exclusive mode

	// How the attachment was asked for: the network's name; configuration, CNI_ARGS
	// and CNI_PATH, for the IPAM plugin, which releases by what it was called with;
	// and the plugin's name, "" for none.
	Network string          `json:"network,omitempty"`
	Config  json.RawMessage `json:"config"`
	Args    string          `json:"args,omitempty"`
	Path    string          `json:"path,omitempty"`
	IPAM    string          `json:"ipam,omitempty"`

	Before Before `json:"before"`

	// Last is the last entry below the record; zero when there is none.
	Last Entry `json:"-"`
}

// Pod is the Kubernetes pod, as far as the runtime named it.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Before is what the first act found, and what the last one leaves.
type Before struct {
	Name     string  `json:"name"` // of the VF's netdev
	AdminMAC nic.MAC `json:"adminMAC,omitzero"`
	MAC      nic.MAC `json:"mac"`
	MTU      int     `json:"mtu"`
	Up       bool    `json:"up"`
	RepMTU   int     `json:"repMTU"`
	RepUp    bool    `json:"repUp"`

	AltNames []string `json:"altNames,omitempty"` // of the VF's netdev
	Promisc  bool     `json:"promisc,omitempty"`

	// With a GUID that is wanted: the one in effect, by the VF's RDMA device, and the
	// driver, which takes another when it binds.
	GUID   string `json:"guid,omitempty"`
	Driver string `json:"driver,omitempty"`

	// Settings is of those that were asked for, and of those of the netdev that a pod
	// can change.
	Settings nic.Settings `json:"settings,omitempty"`
}

// Entry is one line below a record. Of an act it is written before, with Step
// alone; only when the act failed there is a second one, with Err.
type Entry struct {
	Time time.Time `json:"time"`
	Goal Goal      `json:"goal"`
	Step string    `json:"step,omitempty"`
	Err  string    `json:"err,omitempty"`
	Done bool      `json:"done,omitempty"` // Goal is reached
}

// Goal is what the acts were for.
type Goal string

// The two ends of an attachment.
const (
	Attached Goal = "attached"
	Detached Goal = "detached"
)

// Key is what the record is called: the VF's address but for RepKey.
func (r *Record) Key() string {
	if r.OfRep {
		return RepKey(r.VF)
	}
	return r.VF
}

// Attached says that the attachment was completed and not taken down since.
func (r *Record) Attached() bool { return r.Last.Goal == Attached && r.Last.Done }

// IsOf says that r belongs to this interface of this container.
func (r *Record) IsOf(container, ifname string) bool {
	return r.Container == container && r.IfName == ifname
}

// GoesWith says that r belongs to this interface of this container, or came with it.
func (r *Record) GoesWith(container, ifname string) bool {
	return r.IsOf(container, ifname) || r.With != "" && r.Container == container && r.With == ifname
}

// Outlived says that the boot in which r was made has ended, and the attachment with
// it; boot is the present one, "" for not known.
func (r *Record) Outlived(boot string) bool {
	return r.Boot != "" && boot != "" && r.Boot != boot
}

// Token marks as r's what can carry a mark, such as a row in a database. It is
// unique among the attachments of a node.
func (r *Record) Token() string { return r.Container + "/" + r.IfName }

// Holder says for people who holds the VF.
func (r *Record) Holder() string {
	id := r.Container
	if len(id) > 12 {
		id = id[:12]
	}
	if r.Pod.Name == "" {
		return fmt.Sprintf("container %s (%s)", id, r.IfName)
	}
	return fmt.Sprintf("pod %s/%s (%s of container %s)", r.Pod.Namespace, r.Pod.Name, r.IfName, id)
}

// Progress says for people where the work on r stands.
func (r *Record) Progress() string {
	switch e := r.Last; {
	case e.Goal == "":
		return "not begun"
	case e.Done:
		return string(e.Goal)
	case e.Err != "":
		return fmt.Sprintf("to be %s, stopped at %q: %s", e.Goal, e.Step, e.Err)
	default:
		return fmt.Sprintf("to be %s, at %q", e.Goal, e.Step)
	}
}
