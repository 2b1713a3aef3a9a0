package formats

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What has this prefix was not whole when its writer was killed. Everything is written under such a name on the same
// file system, synced to the disk, then renamed, which POSIX makes one step; the folder that holds the name is synced
// too, so that the rename itself survives a power cut.
const temporaryPrefix = ".partial-"

func temporaryName(path, mark string) string { return temporaryOf(path, mark, os.Getpid()) }

func temporaryOf(path, mark string, process int) string {
	name := fmt.Sprintf("%s%d-%s%s", temporaryPrefix, process, mark, filepath.Base(path))
	return filepath.Join(filepath.Dir(path), name)
}

// TemporaryFolder is the folder that WriteFolder fills in another process, for `path`.
func TemporaryFolder(path string, process int) string { return temporaryOf(path, "", process) }

// syncPath makes the content of a file, or the names inside a folder, durable.
func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// WriteFile replaces `path` by a file that holds `data`, in one step.
func WriteFile(path string, data []byte) error {
	return WriteFileWith(path, func(file *os.File) error {
		_, err := file.Write(data)
		return err
	})
}

// WriteFileWith replaces `path` by what `write` puts into a file, in one step; when it fails, nothing is left.
func WriteFileWith(path string, write func(*os.File) error) error {
	temporary := temporaryName(path, "")
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return syncPath(filepath.Dir(path))
}

// WriteFolder calls `fill` with an empty folder beside `path`, which then becomes `path` in one step. A folder that
// exists is never overwritten: the error is fs.ErrExist. When `fill` fails, nothing is left.
func WriteFolder(path string, fill func(folder string) error) error {
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: "write", Path: path, Err: fs.ErrExist}
	}
	temporary := temporaryName(path, "")
	err := os.RemoveAll(temporary)
	if err == nil {
		err = os.MkdirAll(temporary, 0o777)
	}
	if err == nil {
		err = fill(temporary)
	}
	if err == nil {
		err = syncTree(temporary)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	return syncPath(filepath.Dir(path))
}

func syncTree(folder string) error {
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
}

// RemoveFolder removes a folder so that a kill half-way leaves no half folder under its name: it is renamed first.
func RemoveFolder(path string) error {
	doomed := temporaryName(path, "old-")
	if err := os.RemoveAll(doomed); err != nil {
		return err
	}
	if err := os.Rename(path, doomed); err != nil {
		return err
	}
	return os.RemoveAll(doomed)
}

// RemoveLeftovers removes what killed writers left in `folder`. Call it only where nobody else is writing.
func RemoveLeftovers(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(entry fs.DirEntry) bool {
		return !strings.HasPrefix(entry.Name(), temporaryPrefix)
	})
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
