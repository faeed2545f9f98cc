// Command image makes the container image of sluice of what is in build/bin, as a tar
// file that container runtimes import, and beside it a list of what it is made of.
// The image is what the Dockerfile says. The same programs give the same file.
package main

import (
	"flag"
	"fmt"
	"os"

	"sluice.dev/sluice/lab/oci"
)

func main() {
	bin := flag.String("bin", "build/bin", "folder of the programs")
	version := flag.String("version", "dev", "tag of the image")
	out := flag.String("out", "", "file to write; FILE.cdx.json beside it says what is in it")
	flag.Parse()
	if err := run(*bin, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// image is a container image and what it is made of.
type image struct {
	oci.Image
	version string
}

// sluice is the image that the Dockerfile describes.
func sluice(bin, version string) image {
	return image{version: version, Image: oci.Image{
		Name:       "sluice.dev/sluice:" + version,
		Files:      map[string]string{"sluice": bin + "/sluice", "sluice-cni": bin + "/sluice-cni"},
		Entrypoint: []string{"/sluice"},
		Cmd:        []string{"agent", "-f", "/etc/sluice/node.yaml"},
		Labels:     map[string]string{"org.opencontainers.image.version": version},
	}}
}

func run(bin, version, out string) error {
	i := sluice(bin, version)
	var err error
	if i.Arch, err = i.setting("GOARCH"); err != nil {
		return err
	}
	commit, err := i.setting("vcs.revision")
	if err != nil {
		return err
	}
	if commit != "" {
		i.Labels["org.opencontainers.image.revision"] = commit
	}
	archive, err := i.Archive()
	if err != nil {
		return err
	}
	parts, err := i.parts()
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, archive, 0o644); err != nil {
		return err
	}
	return os.WriteFile(out+".cdx.json", parts, 0o644)
}
