package deviceplugin

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadutils "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/utils"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pods "k8s.io/kubelet/pkg/apis/podresources/v1"

	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/nic"
)

// annotationResource is where OVN-Kubernetes, kube-ovn and Multus look for the resource
// of a NetworkAttachmentDefinition.
const annotationResource = "k8s.v1.cni.cncf.io/resourceName"

// Those who take VFs and SFs of our pools and plug them themselves (Multus, and behind
// it OVN-Kubernetes and kube-ovn) go from the resource that their network names to the
// devices that the kubelet lists for the pod, and from there to the device information,
// which they read by their own library, at the path that is built into it. Each kind of
// device is found, is what the library says it is, and goes through to the CNI's file and
// the pod's status; when the pod has gone there is none any more.
func TestSupplierOfOtherPlugins(t *testing.T) {
	node := withSFs(1)
	vdpa(node.vf(0, 1), "vhost", "/dev/vhost-vdpa-1")
	pick := func(ranges string) []nic.Pick { return ports(ranges)[:1] }
	b := startWith(t, node, everywhere, often,
		nic.Pool{Name: "fast", Select: pick("0"), RDMA: true},
		nic.Pool{Name: "machines", Select: pick("1"), VDPA: nic.VDPAVhost},
		nic.Pool{Name: "scalable", Select: pick("0"), Kind: nic.PoolOfSFs},
	)
	k := b.kubelet(kubelettest.Options{PodResources: b.beside("p/kubelet.sock")})
	vf, other, sf := node.vf(0, 0), node.vf(0, 1), node.State.PFs[0].SFs[0]
	pf := node.State.PFs[0].Handle.Name
	want := map[string]struct {
		id   string
		info nad.DeviceInfo
	}{
		"sluice.dev/fast": {vf.Address, nad.DeviceInfo{Type: nad.DeviceInfoTypePCI, Version: nad.DeviceInfoVersion, Pci: &nad.PciDevice{
			PciAddress: vf.Address, RdmaDevice: vf.RDMA[0], PfPciAddress: pf, RepresentorDevice: vf.Rep.Netdev.Name,
		}}},
		"sluice.dev/machines": {other.Address, nad.DeviceInfo{Type: nad.DeviceInfoTypeVDPA, Version: nad.DeviceInfoVersion, Vdpa: &nad.VdpaDevice{
			ParentDevice: other.VDPA.Name, Driver: "vhost", Path: "/dev/vhost-vdpa-1", PciAddress: other.Address, PfPciAddress: pf, RepresentorDevice: other.Rep.Netdev.Name,
		}}},
		"sluice.dev/scalable": {sf.Device, nad.DeviceInfo{Type: nad.DeviceInfoTypePCI, Version: nad.DeviceInfoVersion, Pci: &nad.PciDevice{
			PfPciAddress: pf, RepresentorDevice: sf.Rep.Name,
		}}},
	}
	given := map[string][]string{}
	for resource := range want {
		b.wait(k, resource, 1, 1)
		ids, _, err := k.Allocate(t.Context(), resource, 1)
		if err != nil {
			t.Fatal(err)
		}
		given[resource] = ids
	}
	k.SetPods(kubelettest.Pod{Namespace: "shop", Name: "web-0", Devices: given})

	listed := listedDevices(t, b.beside("p/kubelet.sock"), "shop", "web-0")
	for resource, w := range want {
		network := nad.NetworkAttachmentDefinition{}
		network.Annotations = map[string]string{annotationResource: resource}
		ids := listed[network.Annotations[annotationResource]]
		if d := cmp.Diff([]string{w.id}, ids); d != "" {
			t.Fatalf("devices of %s, by the kubelet: %s", resource, d)
		}
		var info *nad.DeviceInfo
		var copied nad.DeviceInfo
		asOthersSee(t, b.beside("devinfo"), func() (err error) {
			if info, err = nadutils.LoadDeviceInfoFromDP(resource, ids[0]); err != nil {
				return err
			}
			path := nadutils.GetCNIDeviceInfoPath("multus-" + ids[0])
			if err := nadutils.CopyDeviceInfoForCNIFromDP(path, resource, ids[0]); err != nil {
				return err
			}
			raw, err := os.ReadFile(path)
			return errors.Join(err, json.Unmarshal(raw, &copied))
		})
		if info == nil {
			t.Fatalf("%s %s: their library finds no device information", resource, ids[0])
		}
		if d := cmp.Diff(w.info, *info); d != "" {
			t.Errorf("%s %s (-want +got):\n%s", resource, ids[0], d)
		}
		if d := cmp.Diff(w.info, copied); d != "" {
			t.Errorf("%s %s, handed to the CNI plugin (-want +got):\n%s", resource, ids[0], d)
		}
		result := &current.Result{CNIVersion: "1.0.0", Interfaces: []*current.Interface{{Name: "net1", Mac: "0a:58:0a:f4:00:05", Sandbox: "/run/netns/x"}}}
		status, err := nadutils.CreateNetworkStatus(result, "shop/"+resource, false, info)
		if err != nil || status.DeviceInfo == nil {
			t.Fatalf("%s: status %+v, %v", resource, status, err)
		}
		if d := cmp.Diff(w.info, *status.DeviceInfo); d != "" {
			t.Errorf("%s in the pod's status (-want +got):\n%s", resource, d)
		}
	}

	age(t, b.beside("devinfo"))
	k.SetPods()
	for range 2 { // an answer under way was of before
		if err := k.WaitAsked(3, limit); err != nil {
			t.Fatal(err)
		}
	}
	for resource, w := range want {
		asOthersSee(t, b.beside("devinfo"), func() error {
			if info, err := nadutils.LoadDeviceInfoFromDP(resource, w.id); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %s after the pod: %+v, %v", resource, w.id, info, err)
			}
			return nil
		})
	}
}

// listedDevices are a pod's, by resource, as who asks the kubelet has them.
func listedDevices(t *testing.T, socket, namespace, name string) map[string][]string {
	t.Helper()
	c, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := pods.NewPodResourcesListerClient(c).List(t.Context(), &pods.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range list.PodResources {
		if p.Namespace != namespace || p.Name != name {
			continue
		}
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				out[d.ResourceName] = append(out[d.ResourceName], d.DeviceIds...)
			}
		}
	}
	return out
}

// asOthersSee runs f where dir is at the path that their library reads, in a mount
// namespace of its own.
func asOthersSee(t *testing.T, dir string, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a mount namespace needs root")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
				return err
			}
			const all = "/run/k8s.cni.cncf.io/devinfo" // of which /var/run is the older name
			if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Join(all, "dp"), 0o755); err != nil {
				return err
			}
			if err := unix.Mount(dir, filepath.Join(all, "dp"), "", unix.MS_BIND, ""); err != nil {
				return err
			}
			return f()
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
