package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkpoint is as kubelets from 1.20 write it, and one entry as older ones did.
const checkpoint = `{"Data":{"PodDeviceEntries":[
 {"PodUID":"u1","ContainerName":"a","ResourceName":"sluice.dev/fast","DeviceIDs":{"1":["0000:03:00.5"],"0":["0000:03:00.3","0000:03:00.2"]},"AllocResp":"AA=="},
 {"PodUID":"u1","ContainerName":"b","ResourceName":"sluice.dev/fast","DeviceIDs":{"-1":["0000:03:00.4"]},"AllocResp":""},
 {"PodUID":"u1","ContainerName":"b","ResourceName":"sluice.dev/other","DeviceIDs":["0000:03:01.0"],"AllocResp":""},
 {"PodUID":"ended","ContainerName":"b","ResourceName":"sluice.dev/fast","DeviceIDs":{"0":["0000:03:00.5","0000:03:00.7"]},"AllocResp":""}
],"RegisteredDevices":{"sluice.dev/fast":["0000:03:00.2"]}},"Checksum":1234}`

func read(t *testing.T, text string) (Allocations, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubelet_internal_checkpoint"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(dir)
}

func TestRead(t *testing.T) {
	a, err := read(t, checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pod, resource string
		want          []string
	}{
		{"u1", "sluice.dev/fast", []string{"0000:03:00.2", "0000:03:00.3", "0000:03:00.4", "0000:03:00.5"}},
		{"u1", "sluice.dev/other", []string{"0000:03:01.0"}},
		{"u1", "sluice.dev/no", nil},
		{"u2", "sluice.dev/fast", nil},
	} {
		if d := cmp.Diff(c.want, a.Of(c.pod, c.resource)); d != "" {
			t.Errorf("%s, %s (-want +got):\n%s", c.pod, c.resource, d)
		}
	}
	for device, want := range map[string]bool{"0000:03:00.5": false, "0000:03:00.7": true, "0000:03:00.9": false} {
		if got := a.Others("u1", device); got != want {
			t.Errorf("%s is another pod's: %v, want %v", device, got, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	if _, err := Read(t.TempDir()); !None(err) {
		t.Errorf("no file: %v", err)
	}
	for _, text := range []string{"", "{", `{"Data":[]}`, `{"Data":{"PodDeviceEntries":[{"DeviceIDs":7}]}}`} {
		if _, err := read(t, text); err == nil || None(err) || !strings.Contains(err.Error(), "kubelet_internal_checkpoint: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
