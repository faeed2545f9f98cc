package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// A network of pods that is sluice-cni's, over the bridge br0 of Open vSwitch.
const offloaded = `{"cniVersion": "1.0.0", "name": "offloaded", "plugins": [{
	"type": "sluice-cni", "resourceName": "sluice.dev/fast", "bridge": "br0",
	"ipam": {"type": "host-local", "dataDir": "/var/lib/cni", "ranges": [[{"subnet": "10.245.1.0/24"}]]}}]}`

// While sluice-cni is what the runtime attaches pods by, a pod's first interface is the
// VF that the kubelet gave to it, and pods reach each other over the switch. When they
// have gone everything is back.
func podsInTheSwitch(t *testing.T, w *world) {
	const conf = "/etc/cni/net.d/05-offloaded.conflist"
	w.sh(t, "ovs && ovs-vsctl add-br br0")
	w.sh(t, "cat >/run/conflist <<'END'\n"+offloaded+"\nEND\nmv /run/conflist "+conf)
	names := []string{"left", "right"}
	for _, name := range names {
		w.make(t, name, asks{fast: 1})
	}
	inside := map[string]string{} // how commands are run in a pod's network namespace
	var vfs, addresses []string
	for _, name := range names {
		h := w.hold(t, name)
		if len(h.vfs) != 1 {
			t.Fatalf("pod %s was given %q: want one VF", name, h.vfs)
		}
		process, _, _ := strings.Cut(h.processes, "/")
		inside[name] = "nsenter -t " + process + " -n "
		if at := w.sh(t, inside[name]+"ethtool -i eth0 | sed -n 's/^bus-info: //p'"); at != h.vfs[0] {
			t.Errorf("eth0 of pod %s is of %q: want its VF %s", name, at, h.vfs[0])
		}
		if n := w.sh(t, inside[name]+"ip -o link show up | grep -c ."); n != "2" {
			t.Errorf("pod %s has %s interfaces that are up: want its VF and lo", name, n)
		}
		vfs, addresses = append(vfs, h.vfs[0]), append(addresses, h.pod.Status.PodIP)
	}
	eventually(t, podTime, "one pod reaches the other", func(ctx context.Context) (bool, string, error) {
		out, err := w.node.sh(ctx, inside["left"]+"ping -c 1 -W 5 "+addresses[1])
		return err == nil, out, err
	})
	if n := w.sh(t, "ovs-vsctl list-ports br0 | grep -c ."); n != "2" {
		t.Errorf("the bridge has %s ports: want the representors of the two VFs", n)
	}
	capacity := w.capacity(t, fast)
	w.heartbeat(t)
	w.offered(t, fast, capacity, capacity)

	for _, name := range names {
		w.end(t, name)
	}
	w.gone(t, names...)
	w.sh(t, "rm "+conf+" && sync") // power may go soon, and bring it back
	for _, vf := range vfs {
		w.sh(t, fmt.Sprintf("ls /sys/bus/pci/devices/%s/net | grep .", vf))
	}
	if ports := w.sh(t, "ovs-vsctl list-ports br0"); ports != "" {
		t.Errorf("the bridge still has ports %q", ports)
	}
}
