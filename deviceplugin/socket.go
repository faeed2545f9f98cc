package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	kubeletSocket = "kubelet.sock"

	// maxSocketPath is sun_path without its closing zero (include/uapi/linux/un.h).
	maxSocketPath = 107

	// A socket's name begins with the pool's, for people; the rest makes it a new
	// one each time.
	nameInSocket = 24
	longName     = "a-name-that-is-cut-off-in-the-name-of-the-socket"
)

func socketName(pool string, unique uint32) string {
	return fmt.Sprintf("sluice-%s-%08x.sock", pool[:min(len(pool), nameInSocket)], unique)
}

// listen makes the socket, for its owner only.
func listen(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// identity tells one socket file from the next of the same path. Inode numbers
// are used again at once by some file systems, so the time of its making, which
// a socket file keeps as its modification time, belongs to it.
type identity struct {
	dev, inode uint64
	made       time.Time
}

// identify returns the identity of the socket at path; zero if there is none.
func identify(path string) identity {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return identity{}
	}
	id := identity{made: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.dev, id.inode = uint64(st.Dev), st.Ino
	}
	return id
}

// removeDead removes sockets of an earlier run that could not do it itself.
// One that still answers is another process's and stays.
func (p *Plugin) removeDead(dir string) {
	old, err := filepath.Glob(filepath.Join(dir, "sluice-*.sock"))
	if err != nil {
		return // the folder's name has pattern characters; a dead socket does no harm
	}
	for _, path := range old {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			conn.Close()
			continue
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			continue
		}
		if err := os.Remove(path); err == nil {
			p.config.Log.Info("removed the socket of an earlier run", "socket", path)
		}
	}
}
