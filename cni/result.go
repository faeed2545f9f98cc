package cni

import (
	"io"

	current "github.com/containernetworking/cni/pkg/types/100"

	"sluice.dev/sluice/pkg/nic"
)

// printResult writes a result in the version that the runtime speaks.
func printResult(out io.Writer, version string, answer *current.Result) error {
	if version != current.ImplementedSpecVersion {
		// The conversion leaves in what is new in 1.1.
		for _, f := range answer.Interfaces {
			f.Mtu, f.PciID = 0, ""
		}
	}
	r, err := answer.GetAsVersion(version)
	if err != nil {
		return err
	}
	return r.PrintTo(out)
}

// answer is the result of an attachment: the representor, where there is one, and the
// pod's interface, in this order, below what plugins before us have made. What a
// program drives is told as the interface that it would be.
func (j *job) answer(c Config) *current.Result {
	out := &current.Result{CNIVersion: current.ImplementedSpecVersion, DNS: c.DNS}
	if c.Prev != nil {
		out.Interfaces, out.IPs, out.Routes = c.Prev.Interfaces, c.Prev.IPs, c.Prev.Routes
		if out.DNS.IsEmpty() {
			out.DNS = c.Prev.DNS
		}
	}
	if j.want.plugged() {
		out.Interfaces = append(out.Interfaces, result(j.state.Rep))
	}
	if j.want.Userspace {
		out.Interfaces = append(out.Interfaces, result(nic.Netdev{Name: j.rec.IfName, MAC: j.state.AdminMAC, MTU: c.MTU}))
	} else {
		out.Interfaces = append(out.Interfaces, result(j.state.VF))
	}
	index := len(out.Interfaces) - 1
	pod := out.Interfaces[index]
	pod.Sandbox = j.rec.Netns
	if !j.want.Pair && !j.rec.SF { // an SF is no PCI device
		pod.PciID = j.rec.VF
	}
	if j.result == nil {
		return out
	}
	for _, ip := range j.result.IPs {
		ip.Interface = &index
		out.IPs = append(out.IPs, ip)
	}
	out.Routes = append(out.Routes, j.result.Routes...)
	if out.DNS.IsEmpty() {
		out.DNS = j.result.DNS
	}
	return out
}

func result(n nic.Netdev) *current.Interface {
	f := &current.Interface{Name: n.Name, Mtu: n.MTU}
	if !n.MAC.IsZero() {
		f.Mac = n.MAC.String()
	}
	return f
}
