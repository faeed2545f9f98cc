package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unpack reads a tar file whose entries carry no time.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 {
			t.Errorf("%s is of %s: want the beginning of time", h.Name, h.ModTime)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// descriptor says what a blob is (image-spec, descriptor.md).
type descriptor struct {
	Digest      string
	Size        int
	Annotations map[string]string
}

func decode(t *testing.T, raw []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
}

// From the index every blob is found with the digest and the size that is said, and
// the layer has the programs.
func TestImage(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"sluice", "sluice-cni"} {
		if err := os.WriteFile(filepath.Join(dir, name), program, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var made [2][]byte
	for i := range made {
		out := filepath.Join(t.TempDir(), "image.tar")
		if err := run(dir, "1.2.3", out); err != nil {
			t.Fatal(err)
		}
		if made[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
		var list struct{ Components []component }
		raw, err := os.ReadFile(out + ".cdx.json")
		if err != nil {
			t.Fatal(err)
		}
		decode(t, raw, &list)
		if !slices.ContainsFunc(list.Components, func(c component) bool { return c.Name == "std" && c.Version != "" }) {
			t.Errorf("no standard library in %s", raw)
		}
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("the same programs make different images")
	}

	files := unpack(t, made[0])
	blob := func(d descriptor) []byte {
		t.Helper()
		data, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if !ok || len(data) != d.Size || d.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(data)) {
			t.Fatalf("%+v: there %v, %d bytes", d, ok, len(data))
		}
		return data
	}
	var index struct{ Manifests []descriptor }
	decode(t, files["index.json"], &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "sluice.dev/sluice:1.2.3" {
		t.Fatalf("index: %+v", index)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(t, blob(index.Manifests[0]), &manifest)
	var config struct {
		Architecture string
		Config       struct{ Entrypoint []string }
		RootFS       struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(t, blob(manifest.Config), &config)
	if len(manifest.Layers) != 1 || !slices.Equal(config.RootFS.DiffIDs, []string{manifest.Layers[0].Digest}) {
		t.Errorf("layers %+v, of the configuration %v", manifest.Layers, config.RootFS.DiffIDs)
	}
	if config.Architecture == "" || !slices.Equal(config.Config.Entrypoint, []string{"/sluice"}) {
		t.Errorf("configuration: %+v", config)
	}
	layer := unpack(t, blob(manifest.Layers[0]))
	if len(layer) != 2 || !bytes.Equal(layer["sluice"], program) || !bytes.Equal(layer["sluice-cni"], program) {
		t.Errorf("the layer has %d files", len(layer))
	}
}

// The image and the Dockerfile say the same.
func TestImageIsWhatTheDockerfileSays(t *testing.T) {
	raw, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	i := sluice("bin", "dev")
	for path := range i.Files {
		if !strings.Contains(string(raw), "\nCOPY build/bin/"+path+" /"+path+"\n") {
			t.Errorf("the Dockerfile does not copy %s", path)
		}
	}
	if n := strings.Count(string(raw), "\nCOPY "); n != len(i.Files) {
		t.Errorf("the Dockerfile copies %d files: want %d", n, len(i.Files))
	}
	for word, want := range map[string][]string{"ENTRYPOINT": i.Entrypoint, "CMD": i.Cmd} {
		_, rest, _ := strings.Cut(string(raw), "\n"+word+" ")
		line, _, _ := strings.Cut(rest, "\n")
		var got []string
		decode(t, []byte(line), &got)
		if !slices.Equal(got, want) {
			t.Errorf("%s %q: the image has %q", word, got, want)
		}
	}
}
