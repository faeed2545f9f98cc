package capability

// openVSwitch: vswitchd/vswitch.xml, Open_vSwitch other_config. hw-offload going
// from false to true is taken up at once; the way back, and tc-policy, only when
// ovs-vswitchd starts again.
func openVSwitch(f Facts) []Finding {
	s := f.Switch
	if f.Simulated {
		return []Finding{{Answer: No, What: s.Error, Change: "look on a real one"}}
	}
	out := f.Kernel.built("OPENVSWITCH")
	if s.Error != "" {
		return append(out, Finding{
			Answer: No, What: s.Error,
			Change: "start Open vSwitch: systemctl start openvswitch-switch",
		})
	}
	if !s.HWOffload {
		out = append(out, Finding{
			Answer: No, What: "other_config:hw-offload is not true", From: s.Endpoint,
			Change: "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true",
		})
	} else {
		out = append(out, Finding{Answer: Yes, What: "other_config:hw-offload=true", From: s.Endpoint})
	}
	if s.TCPolicy == "skip_hw" {
		out = append(out, Finding{
			Answer: No, What: "other_config:tc-policy=skip_hw keeps the rules out of the NIC", From: s.Endpoint,
			Change: "ovs-vsctl set Open_vSwitch . other_config:tc-policy=none, then " + restart,
		})
	}
	return append(out, daemon(s)...)
}

const restart = "systemctl restart openvswitch-switch"

func daemon(s Switch) []Finding {
	if s.DaemonError != "" {
		return []Finding{{
			Answer: Unknown, What: s.DaemonError, From: "ovs-vswitchd", Change: "start ovs-vswitchd, and look as root",
		}}
	}
	out := []Finding{{Answer: Yes, What: "ovs-vswitchd " + s.Version + " runs", From: "version"}}
	switch {
	case s.Offloading == nil: // before 3.7 there is no question for it
	case *s.Offloading:
		out = append(out, Finding{Answer: Yes, What: "it offloads", From: "dpif/offload/show"})
	default:
		found := Finding{Answer: No, What: "it does not offload at present", From: "dpif/offload/show"}
		if s.HWOffload {
			found.Change = restart
		} else {
			found.Change = "set hw-offload first"
		}
		out = append(out, found)
	}
	for _, name := range []string{"Recirc", "CT state", "CT zone", "CT mark"} {
		if s.Datapath[name] == "No" {
			out = append(out, Finding{
				Answer: No, What: "the datapath cannot " + name, From: "dpif/show-dp-features",
				Change: "run a newer kernel, with the openvswitch module of its own",
			})
		}
	}
	return out
}
