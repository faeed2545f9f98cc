package tc_test

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/tc"
)

// inNamespace puts the test into a network namespace of its own, which goes with
// the test's thread. Programs that the test runs are in it as well.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("cannot make a network namespace: %v", err)
	}
	sh(t, "ip link set lo up")
}

// sh runs one program, split at blanks.
func sh(t *testing.T, line string) string {
	t.Helper()
	out, err := trySh(line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

func trySh(line string) (string, error) {
	words := strings.Fields(line)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	return string(out), err
}

func ifindex(t *testing.T, name string) int {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return i.Index
}

// send puts frames onto a netdev: IPv4, UDP, with a payload up to size bytes.
func send(t *testing.T, name string, n, size int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	frame := make([]byte, size)
	copy(frame, []byte{0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 8, 0, // Ethernet
		0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}) // IPv4
	frame[16], frame[17] = byte((size-14)>>8), byte(size-14)
	for range n {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex(t, name), Protocol: 0x0008}); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T) *tc.Conn {
	t.Helper()
	c, err := tc.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
