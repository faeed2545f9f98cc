package pci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// GPU is one function that displays or computes, in the terms of host.GPU.
type GPU struct {
	Address string
	NUMA    int
	Path    string
}

// GPUs lists the functions of classes 03 (display) and 12 (processing accelerator)
// by address. Every function is looked at, so this is for who asks once.
func (s *Sys) GPUs(ctx context.Context) ([]GPU, error) {
	var r reader
	devices, err := openDir(s.path("devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.path("devices"), err)
	}
	defer devices.close()
	names, err := r.list(devices)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", s.path("devices"), err)
	}
	slices.Sort(names)
	var out []GPU
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// One file of each, since nearly all are something else.
		if class, ok := r.read(devices, name+"/class"); ok && isGPU(class) {
			out = append(out, GPU{Address: name, NUMA: r.number(devices, name+"/numa_node", -1), Path: r.place(devices, name)})
		}
	}
	return out, nil
}

// isGPU reads the class as sysfs has it: 0x030200.
func isGPU(class []byte) bool {
	return bytes.HasPrefix(class, []byte("0x03")) || bytes.HasPrefix(class, []byte("0x12"))
}

// place gives the bridges above a function: its link leads to
// ../../../devices/pci0000:00/0000:00:01.0/0000:03:00.0. A host bridge that is the
// child of another device (VMD, a card's own) has what is above it too.
func (r *reader) place(devices dir, address string) string {
	n, err := unix.Readlinkat(int(devices), address, r.buf[:])
	if err != nil {
		return ""
	}
	return placeOf(string(r.buf[:n]))
}

func placeOf(target string) string {
	words := strings.Split(target, "/")
	at := slices.IndexFunc(words, isHostBridge)
	if at < 0 || at == len(words)-1 {
		return ""
	}
	return strings.Join(words[at:len(words)-1], "/")
}

// isHostBridge knows "pci0000:00" (drivers/pci/probe.c, pci_register_host_bridge).
func isHostBridge(word string) bool {
	domain, bus, ok := strings.Cut(strings.TrimPrefix(word, "pci"), ":")
	return ok && strings.HasPrefix(word, "pci") && len(domain) >= 4 && len(bus) == 2
}
