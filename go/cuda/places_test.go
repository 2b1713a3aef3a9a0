package cuda

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
)

// environment is a lookup of the given variables: names and values in turn.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for at := 0; at < len(pairs); at += 2 {
			if pairs[at] == name {
				return pairs[at+1]
			}
		}
		return ""
	}
}

func makeFile(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte("no library"), 0o700))
	return path
}

func TestVariableIsTheOnlyPlace(t *testing.T) {
	places := candidates(environment(LibraryVariable, "/some/where.so"), "/opt/it/bin/program")
	if len(places) != 1 || places[0].path != "/some/where.so" {
		t.Errorf("places %v", places)
	}
	_, err := load(places)
	if err == nil || !strings.HasSuffix(err.Error(), "NNCUDA_LIBRARY: /some/where.so does not exist\n"+
		"NNCUDA_LIBRARY is set, so no other place is tried: correct it or unset it") {
		t.Error(err)
	}
}

func TestPlacesInOrder(t *testing.T) {
	folder := t.TempDir()
	var names, paths []string
	for _, place := range candidates(environment("VIRTUAL_ENV", folder), "/opt/it/bin/program") {
		names, paths = append(names, place.name), append(paths, place.path)
	}
	wanted := []string{LibraryVariable, "beside the program", "beside the program", "the Python environment in use",
		"the source tree", "the system", "the system"}
	if !slices.Equal(names, wanted) {
		t.Errorf("places %q", names)
	}
	pattern := filepath.Join(folder, "lib/python3*/site-packages/nncuda/libnncuda.so")
	if wanted := []string{"/opt/it/bin/libnncuda.so", "/opt/it/lib/libnncuda.so", pattern}; !slices.Equal(paths[1:4], wanted) {
		t.Errorf("paths %q", paths)
	}
	if wanted := []string{"libnncuda.so", "libnncuda.so.2"}; !slices.Equal(paths[5:], wanted) {
		t.Errorf("paths %q", paths)
	}
	if !strings.HasSuffix(paths[4], filepath.Join("build", "lib", "libnncuda.so")) {
		t.Errorf("paths %q", paths)
	}
}

func TestAPythonEnvironmentIsFoundWithoutPython(t *testing.T) {
	root := t.TempDir()
	at := func(path string) string { return filepath.Join(root, path) }
	library := func(prefix, packages string) string {
		return makeFile(t, at(prefix), packages, "nncuda", "libnncuda.so")
	}
	ofVenv := library("venv", "lib/python3.12/site-packages")
	ofOldConda := library("conda", "lib/python3.9/site-packages")
	ofNewConda := library("conda", "lib64/python3.10/dist-packages")
	ofUser := library("home/.local", "lib/python3.12/site-packages")
	ofOpt := library("opt", "lib/python3.12/site-packages")
	makeFile(t, at("venv/bin/python3"))
	makeFile(t, at("venv/pyvenv.cfg"))
	makeFile(t, at("opt/bin/python3"))
	must.Do(t, os.MkdirAll(at("usr/bin"), 0o700))
	must.Do(t, os.Symlink(at("opt/bin/python3"), at("usr/bin/python3")))
	for name, test := range map[string]struct {
		variables func(string) string
		files     []string
	}{
		"an active one":                 {environment("VIRTUAL_ENV", at("venv"), "CONDA_PREFIX", at("conda")), []string{ofVenv}},
		"conda's, the newer one first":  {environment("CONDA_PREFIX", at("conda")), []string{ofNewConda, ofOldConda}},
		"one on PATH, not activated":    {environment("PATH", at("none")+":"+at("venv/bin"), "HOME", at("home")), []string{ofVenv}},
		"the user's and that of a link": {environment("PATH", at("usr/bin"), "HOME", at("home")), []string{ofUser, ofOpt}},
	} {
		if files, err := inPython(test.variables); err != nil || !slices.Equal(files, test.files) {
			t.Errorf("%s: %q, %v", name, files, err)
		}
	}
	if files, err := inPython(environment("PATH", root)); err == nil || files != nil {
		t.Errorf("without any: %q", files)
	}
}
