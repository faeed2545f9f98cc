package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// image is a container image of one layer.
type image struct {
	name, version   string
	files           map[string]string // path in the image, without /, -> path here
	entrypoint, cmd []string
}

// descriptor says what a blob is (image-spec, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive is the image as an OCI layout (image-spec, image-layout.md) in a tar file.
func (i image) archive() ([]byte, error) {
	arch, err := i.architecture()
	if err != nil {
		return nil, err
	}
	layer, err := i.layer()
	if err != nil {
		return nil, err
	}
	blobs := map[string][]byte{}
	put := func(kind string, data []byte) descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		blobs["blobs/sha256/"+sum] = data
		return descriptor{MediaType: "application/vnd.oci.image." + kind, Digest: "sha256:" + sum, Size: len(data)}
	}
	layerAt := put("layer.v1.tar", layer)
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux",
		"config": map[string]any{
			"Entrypoint": i.entrypoint, "Cmd": i.cmd,
			"Labels": map[string]string{"org.opencontainers.image.version": i.version},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerAt.Digest}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": put("config.v1+json", config), "layers": []descriptor{layerAt},
	})
	if err != nil {
		return nil, err
	}
	at := put("manifest.v1+json", manifest)
	// containerd names what it imports by the one, others by the other.
	at.Annotations = map[string]string{"io.containerd.image.name": i.name, "org.opencontainers.image.ref.name": i.version}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{at},
	})
	if err != nil {
		return nil, err
	}
	blobs["index.json"] = index
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion": "1.0.0"}`)
	return pack(blobs, 0o644)
}

func (i image) layer() ([]byte, error) {
	files := map[string][]byte{}
	for name, path := range i.files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[name] = data
	}
	return pack(files, 0o755)
}

// architecture is the one that all programs are for.
func (i image) architecture() (string, error) {
	all := map[string]bool{}
	for _, path := range i.files {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return "", err
		}
		for _, s := range info.Settings {
			if s.Key == "GOARCH" {
				all[s.Value] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(all))
	if len(names) != 1 {
		return "", fmt.Errorf("the programs are for %q: want one architecture", names)
	}
	return names[0], nil
}

// pack makes a tar file that depends on nothing but names and contents.
func pack(files map[string][]byte, mode int64) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: mode, Size: int64(len(files[name])), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
