package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host"
)

// acceptDAD has the kernel look for others with an address of its own making.
const acceptDAD = "net.ipv6.conf.IFNAME.accept_dad"

// readSysctls takes settings of the pod's interface and of nothing else. Values are
// numbers, in the form that the kernel gives them back in.
func readSysctls(c *Config, raw json.RawMessage) error {
	var in map[string]string
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		where := fmt.Sprintf("network configuration %q: sysctls", c.Name)
		if _, err := host.SysctlPath(name, "IFNAME"); err != nil {
			return coded(types.ErrInvalidNetworkConfig, "%s: %w", where, err)
		}
		if n, err := strconv.Atoi(in[name]); err != nil || strconv.Itoa(n) != in[name] {
			return coded(types.ErrInvalidNetworkConfig, "%s: %s = %q: want a number", where, name, in[name])
		}
	}
	c.Sysctls = in
	return nil
}

// sysctls is what the pod's interface is to have. An interface of a Network has a MAC
// address that no other has, and so has the link local address made of it: nobody
// needs to be asked, and it can be used at once.
func (c *Config) sysctls() map[string]string {
	out := maps.Clone(c.Sysctls)
	if _, said := out[acceptDAD]; c.Logical != "" && !said {
		if out == nil {
			out = map[string]string{}
		}
		out[acceptDAD] = "0"
	}
	return out
}

// tune makes the sysctls part of j's goal, and refuses names that the kernel does not
// know: what new interfaces of the namespace get has them all.
func (j *job) tune(ctx context.Context, c Config) error {
	j.want.Sysctls = c.sysctls()
	for _, name := range slices.Sorted(maps.Keys(j.want.Sysctls)) {
		_, err := j.pod.Sysctl(ctx, host.DefaultSysctl, name)
		_, asked := c.Sysctls[name]
		switch {
		case errors.Is(err, fs.ErrNotExist) && !asked:
			delete(j.want.Sysctls, name) // a kernel without IPv6
		case errors.Is(err, fs.ErrNotExist):
			return coded(types.ErrInvalidNetworkConfig, "sysctls: the kernel has no %s: want it away, or one that it has", name)
		case err != nil:
			return err
		}
	}
	return nil
}

// setSysctl sees that the kernel has taken the value as it was given.
func (j *job) setSysctl(ctx context.Context, s SetSysctl) error {
	if err := j.pod.SetSysctl(ctx, s.Dev.Ifindex, s.Name, s.Value); err != nil {
		return err
	}
	have, err := j.pod.Sysctl(ctx, s.Dev.Ifindex, s.Name)
	if err == nil && have != s.Value {
		err = coded(types.ErrInvalidNetworkConfig, "sysctls: %s = %q: the kernel has made %s of it: want that, or another", s.Name, s.Value, have)
	}
	return err
}

func (j *job) readSysctls(ctx context.Context) error {
	j.state.Sysctls = nil
	if j.state.Place != InPod || len(j.want.Sysctls) == 0 || j.want.Goal == record.Detached {
		return nil
	}
	defer j.p.span("kernel", "read sysctls")()
	j.state.Sysctls = map[string]string{}
	for name := range j.want.Sysctls {
		value, err := j.pod.Sysctl(ctx, j.state.VF.Ifindex, name)
		if err != nil {
			return err
		}
		j.state.Sysctls[name] = value
	}
	return nil
}

// untuned is the first sysctl that is not as wanted; "" when all are.
func untuned(want, have map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have[name] != want[name] {
			return name
		}
	}
	return ""
}
