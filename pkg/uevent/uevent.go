// Package uevent hears from the kernel itself of devices that come, go, change or
// are given to another driver (linux: lib/kobject_uevent.c). udev hears the same
// at the same time, so what it does about it (names, permissions) comes later.
package uevent

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// Action is what happened to a device.
type Action string

// The actions that are of interest here; others are carried as the kernel names
// them.
const (
	Add    Action = "add"
	Remove Action = "remove"
	Change Action = "change"
	Move   Action = "move" // it has another name
	Bind   Action = "bind"
	Unbind Action = "unbind"
)

// Event is what happened to one device.
type Event struct {
	Action    Action
	Path      string            // below /sys: /devices/pci0000:00/0000:00:01.0/net/eth0
	Subsystem string            // pci, net, infiniband, auxiliary, vdpa and others
	Env       map[string]string // DRIVER, PCI_SLOT_NAME, INTERFACE, IFINDEX and others, by subsystem
}

// Name is the device's name, the last part of its path.
func (e Event) Name() string { return e.Path[strings.LastIndexByte(e.Path, '/')+1:] }

// kernelGroup is the multicast group in which the kernel speaks; in the other udev
// passes on what it has dealt with.
const kernelGroup = 1

// Monitor hears events.
type Monitor struct{ m *netlink.Monitor }

// Listen starts a monitor in the calling thread's network namespace. Interfaces
// are told of in their own one only, all other devices in every one.
func Listen() (*Monitor, error) {
	m, err := netlink.Listen(unix.NETLINK_KOBJECT_UEVENT, kernelGroup)
	if err != nil {
		return nil, err
	}
	return &Monitor{m}, nil
}

// Close ends the monitor.
func (m *Monitor) Close() error { return m.m.Close() }

// Next waits for an event. netlink.ErrOverrun: some were lost, and everything may
// have changed.
func (m *Monitor) Next(ctx context.Context) (Event, error) {
	for {
		b, err := m.m.Receive(ctx)
		if err != nil {
			return Event{}, err
		}
		if e, ok := parse(b); ok {
			return e, nil
		}
	}
}

// parse reads strings that end with a NUL each: ACTION@PATH, then KEY=VALUE, the
// first ones saying action and path again.
func parse(b []byte) (e Event, ok bool) {
	head, rest, _ := strings.Cut(string(b), "\x00")
	action, path, ok := strings.Cut(head, "@")
	if !ok || action == "" || !strings.HasPrefix(path, "/") {
		return Event{}, false
	}
	e = Event{Action: Action(action), Path: path, Env: map[string]string{}}
	for line := range strings.SplitSeq(rest, "\x00") {
		key, value, ok := strings.Cut(line, "=")
		switch {
		case !ok:
		case key == "SUBSYSTEM":
			e.Subsystem = value
		case key != "ACTION" && key != "DEVPATH" && key != "SEQNUM":
			e.Env[key] = value
		}
	}
	return e, true
}
