package deviceplugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/deviceplugin/kubelettest"
)

// The folder in which a CNI plugin writes what a device is, is there when an allocation is
// answered, mounted to be read only, and what the CNI plugin has written before stays. A
// device that no CNI plugin attaches has none.
func TestDeviceFiles(t *testing.T) {
	const r = "sluice.dev/fast"
	files := ""
	b := startWith(t, card(2), func(b *bench, c *Config) {
		everywhere(b, c)
		files = b.beside("devices")
		c.DeviceFiles = files
	}, often, pool("fast", ""))
	early := filepath.Join(files, "0000:10:00.1", "device.json")
	if err := os.MkdirAll(filepath.Dir(early), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(early, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	k := b.kubelet(kubelettest.Options{PodResources: b.beside("p/kubelet.sock")})
	b.wait(k, r, 4, 4)
	_, got, err := k.Allocate(t.Context(), r, 2)
	if err != nil {
		t.Fatal(err)
	}
	var mounts [][2]string
	for _, m := range got.Mounts {
		if !m.ReadOnly {
			t.Errorf("%+v can be written to", m)
		}
		mounts = append(mounts, [2]string{m.HostPath, m.ContainerPath})
	}
	want := [][2]string{
		{filepath.Join(files, "0000:10:00.0"), "/run/sluice/devices/0000:10:00.0"},
		{filepath.Join(files, "0000:10:00.1"), "/run/sluice/devices/0000:10:00.1"},
	}
	if d := cmp.Diff(want, mounts); d != "" || got.Envs["SLUICE_DEVICES"] != "/run/sluice/devices" {
		t.Errorf("%v, mounts (-want +got):\n%s", got.Envs, d)
	}
	if info, err := os.Stat(want[0][0]); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if text, err := os.ReadFile(early); string(text) != "{}" || err != nil {
		t.Errorf("what was there: %q, %v", text, err)
	}
	hca := Grant{Env: map[string]string{}} // without Infos
	if err := (&papers{files: files}).folders(&hca); err != nil || len(hca.Mounts)+len(hca.Env) != 0 {
		t.Errorf("an HCA: %+v, %v", hca, err)
	}
}
