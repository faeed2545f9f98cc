// Package oci writes container images as files that runtimes import.
package oci

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
	"time"
)

// Image is a container image of one layer.
type Image struct {
	Name    string            // with its tag, such as example.com/a:1
	Arch    string            // as Go names it, such as amd64
	Files   map[string]string // path in the image, without /, -> path here
	Links   map[string]string // path in the image, without /, -> target
	Folders []string          // empty ones, without /, with / at the end

	Entrypoint, Cmd, Env []string
	Labels               map[string]string
}

// descriptor says what a blob is (image-spec, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// config is what is run in the image, and how (image-spec, config.md).
type config struct {
	Entrypoint []string          `json:",omitempty"`
	Cmd        []string          `json:",omitempty"`
	Env        []string          `json:",omitempty"`
	Labels     map[string]string `json:",omitempty"`
}

// Archive is the image as an OCI layout (image-spec, image-layout.md) in a tar file
// that depends on nothing but names and contents. An error is of a file that cannot be
// read.
func (i Image) Archive() ([]byte, error) {
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
	conf, err := json.Marshal(map[string]any{
		"architecture": i.Arch, "os": "linux",
		"config": config{i.Entrypoint, i.Cmd, i.Env, i.Labels},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerAt.Digest}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": put("config.v1+json", conf), "layers": []descriptor{layerAt},
	})
	if err != nil {
		return nil, err
	}
	at := put("manifest.v1+json", manifest)
	tag := i.Name[strings.LastIndexByte(i.Name, ':')+1:]
	// containerd names what it imports by the one, others by the other.
	at.Annotations = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": tag}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{at},
	})
	if err != nil {
		return nil, err
	}
	blobs["index.json"] = index
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion": "1.0.0"}`)
	return pack(blobs, nil, nil, 0o644)
}

func (i Image) layer() ([]byte, error) {
	files := map[string][]byte{}
	for name, path := range i.Files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[name] = data
	}
	return pack(files, i.Links, i.Folders, 0o755)
}

func pack(files map[string][]byte, links map[string]string, folders []string, mode int64) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	header := func(kind byte, name, target string, mode int64, size int) error {
		return w.WriteHeader(&tar.Header{
			Typeflag: kind, Name: name, Linkname: target, Mode: mode, Size: int64(size), ModTime: time.Unix(0, 0),
		})
	}
	for _, name := range folders {
		if err := header(tar.TypeDir, name, "", 0o755, 0); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := header(tar.TypeReg, name, "", mode, len(files[name])); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(links)) {
		if err := header(tar.TypeSymlink, name, links[name], 0o777, 0); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
