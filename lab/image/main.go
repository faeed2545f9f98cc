// Command image makes the container image of sluice of what is in build/bin, as a tar
// file that container runtimes import, and beside it a list of what it is made of.
// The image is what the Dockerfile says. The same programs give the same file.
package main

import (
	"flag"
	"fmt"
	"os"
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

// sluice is the image that the Dockerfile describes.
func sluice(bin, version string) image {
	return image{
		name:       "sluice.dev/sluice:" + version,
		version:    version,
		files:      map[string]string{"sluice": bin + "/sluice", "sluice-cni": bin + "/sluice-cni"},
		entrypoint: []string{"/sluice"},
		cmd:        []string{"agent", "-f", "/etc/sluice/node.yaml"},
	}
}

func run(bin, version, out string) error {
	i := sluice(bin, version)
	archive, err := i.archive()
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
