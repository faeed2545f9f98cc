package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/kubelet"
	"sluice.dev/sluice/cni/record"
)

// device settles which VF the interface has. One that is named must not be another
// pod's by the kubelet's word, and with resourceName be this pod's; otherwise it is
// the pod's first of that resource that no other interface of the pod has. Which
// interface has which VF is decided here once: DEL and CHECK go by the record, never
// by the order of a list.
func device(store record.Store, c *Config, args *skel.CmdArgs) error {
	bad := func(format string, a ...any) error {
		return coded(types.ErrInvalidNetworkConfig, "network configuration %q: "+format, append([]any{c.Name}, a...)...)
	}
	if c.software() {
		return c.pair(args)
	}
	if c.VF == "" && c.Resource == "" {
		return bad("deviceID is missing: want %s, or resourceName, for the VF that the kubelet gave to the pod", deviceForm)
	}
	if c.Pod.UID == "" {
		if c.Resource != "" {
			return coded(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: K8S_POD_UID is missing: resourceName = %q needs it (containerd 1.5 and CRI-O 1.20 give it)", c.Resource)
		}
		return nil
	}
	given, err := kubelet.Read(c.KubeletDir)
	if err != nil && c.Resource != "" && !(c.Attach == AttachAny && kubelet.None(err)) {
		return coded(ErrNode, "resourceName = %q: %w: want kubeletDir to be the kubelet's folder of device plugins", c.Resource, err)
	}
	if c.Resource == "" {
		if err == nil && given.Others(c.Pod.UID, c.VF) {
			return bad("deviceID = %q: the kubelet has given it to another pod: want one of this pod's", c.VF)
		}
		return nil
	}
	mine := given.Of(c.Pod.UID, c.Resource)
	switch {
	case len(mine) == 0 && c.Attach == AttachAny && c.VF == "":
		return c.pair(args)
	case len(mine) == 0:
		return bad("resourceName = %q: the kubelet has given pod %s/%s no device of it: want it among the limits of one of the pod's containers",
			c.Resource, c.Pod.Namespace, c.Pod.Name)
	case c.VF != "" && !slices.Contains(mine, c.VF):
		return bad("deviceID = %q: it is not among the pod's devices of resource %s, %q: want one of these", c.VF, c.Resource, mine)
	case c.VF != "":
		return nil
	}
	c.VF, err = choose(store, c.keyOf, mine, args)
	if err == nil && c.VF == "" {
		return bad("resourceName = %q: other interfaces of pod %s/%s have all of its devices, %q: want one more among its limits",
			c.Resource, c.Pod.Namespace, c.Pod.Name, mine)
	}
	return err
}

// choose is the one of a pod's devices that an interface has already, or else the
// first that nobody holds; or else one that an earlier sandbox of the pod has not
// given back. "" when other interfaces of the sandbox have them all.
func choose(store record.Store, key func(string) string, devices []string, args *skel.CmdArgs) (string, error) {
	var free, left []string
	for _, d := range devices {
		switch r, err := store.Load(key(d)); {
		case errors.Is(err, fs.ErrNotExist):
			free = append(free, d)
		case err != nil:
			left = append(left, d)
		case r.IsOf(args.ContainerID, args.IfName):
			return d, nil
		case r.Container != args.ContainerID:
			left = append(left, d)
		}
	}
	if all := append(free, left...); len(all) > 0 {
		return all[0], nil
	}
	return "", nil
}

// deviceStatus says why no pod could be given its device.
func (c *Config) deviceStatus() error {
	if c.Resource == "" {
		return nil
	}
	if _, err := kubelet.Read(c.KubeletDir); err != nil && !kubelet.None(err) {
		return fmt.Errorf("resourceName = %q: %w", c.Resource, err)
	}
	return nil
}
