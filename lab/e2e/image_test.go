package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// image is a container image of one layer.
type image struct {
	name       string
	files      map[string]string // path in the image -> path here
	links      map[string]string // path in the image -> target
	entrypoint []string
}

// write puts the image into a file, as an OCI layout (image-spec, image-layout.md)
// that `ctr images import` takes.
func (i image) write(path string) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	blobs := map[string][]byte{}
	put := func(kind string, data []byte) map[string]any {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		blobs["blobs/sha256/"+sum] = data
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + sum, "size": len(data)}
	}
	layerAt := put("layer.v1.tar", layer)
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": i.entrypoint, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layerAt["digest"]}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": put("config.v1+json", config), "layers": []any{layerAt},
	})
	if err != nil {
		return err
	}
	at := put("manifest.v1+json", manifest)
	at["annotations"] = map[string]string{"io.containerd.image.name": i.name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{at}})
	if err != nil {
		return err
	}
	blobs["index.json"] = index
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion": "1.0.0"}`)

	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		if err := add(w, name, 0o644, blobs[name]); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

func (i image) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{"bin/", "dev/", "etc/", "proc/", "sys/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.files)) {
		data, err := os.ReadFile(i.files[name])
		if err != nil {
			return nil, err
		}
		if err := add(w, strings.TrimPrefix(name, "/"), 0o755, data); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.links)) {
		header := &tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(name, "/"), Linkname: i.links[name], Mode: 0o777}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func add(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
