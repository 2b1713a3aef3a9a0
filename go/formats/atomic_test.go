package formats_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
)

// names lists what is in a folder.
func names(t testing.TB, folder string) (found []string) {
	t.Helper()
	entries := must.Get(os.ReadDir(folder))(t)
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

func TestFilesAreReplacedInOneStep(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "x")
	for _, content := range []string{"first", "second"} {
		must.Do(t, formats.WriteFile(path, []byte(content)))
		if found, err := os.ReadFile(path); err != nil || string(found) != content {
			t.Errorf("%q (%v), not %q", found, err, content)
		}
	}
	must.Do(t, os.Mkdir(filepath.Join(folder, "taken"), 0o777))
	must.Do(t, os.WriteFile(filepath.Join(folder, "taken", "y"), nil, 0o666))
	if err := formats.WriteFile(filepath.Join(folder, "taken"), nil); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if found := names(t, folder); len(found) != 2 {
		t.Errorf("something was left: %v", found)
	}
}

func TestFoldersAppearWhole(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "made")
	fill := func(folder string) error {
		if len(names(t, root)) != 1 || names(t, root)[0] == "made" {
			t.Error("it has its name before it is whole:", names(t, root))
		}
		if err := os.Mkdir(filepath.Join(folder, "inner"), 0o777); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, "inner", "x"), []byte("x"), 0o666)
	}
	failure := errors.New("the body failed")
	err := formats.WriteFolder(path, func(folder string) error { return errors.Join(fill(folder), failure) })
	if !errors.Is(err, failure) || len(names(t, root)) != 0 {
		t.Errorf("%v, and %v is left", err, names(t, root))
	}
	must.Do(t, formats.WriteFolder(path, fill))
	if found, err := os.ReadFile(filepath.Join(path, "inner", "x")); err != nil || string(found) != "x" {
		t.Errorf("%q, %v", found, err)
	}
	if err := formats.WriteFolder(path, func(string) error { return nil }); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a whole folder was written over: %v", err)
	}
	must.Do(t, os.Mkdir(filepath.Join(root, ".partial-1-other"), 0o777))
	must.Do(t, os.WriteFile(filepath.Join(root, ".partial-2-file"), nil, 0o666))
	must.Do(t, formats.RemoveLeftovers(root))
	if found := names(t, root); len(found) != 1 || found[0] != "made" {
		t.Error("left are", found)
	}
	must.Do(t, formats.RemoveFolder(path))
	if found := names(t, root); len(found) != 0 {
		t.Error("left are", found)
	}
}
