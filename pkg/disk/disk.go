// Package disk writes files that outlive a power cut.
package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace gives the file at path a new content and permissions, and returns when
// that is on the disk: whoever reads it, after a crash too, finds all of the old or
// all of the new. The folder must be there. A crash may leave .NAME.NUMBER beside it.
func Replace(path string, content []byte, perm fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir returns when the names in a folder are on the disk: those of files that
// were made, renamed or removed.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
