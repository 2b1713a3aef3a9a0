//go:build cgo

package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/internal/beside"
)

// LibraryVariable names the environment variable with the path of the library. When it is set nothing else is tried.
const LibraryVariable = "NNCUDA_LIBRARY"

const libraryFile = "libnncuda.so"

// A place is where the library may be.
type place struct {
	name string // in words
	path string // a file, or a bare name for the system's loader
	err  error  // why there is neither
}

// candidates are the places in the order in which they are tried; see [Load].
func candidates(variable func(string) string, program string) []place {
	if path := variable(LibraryVariable); path != "" {
		return []place{{name: LibraryVariable, path: path}}
	}
	places := []place{{name: LibraryVariable, err: errors.New("is not set")}}
	for _, path := range beside.Places(program, libraryFile) {
		places = append(places, place{name: "beside the program", path: path})
	}
	const python = "the Python environment in use"
	files, err := inPython(variable)
	if err != nil {
		places = append(places, place{name: python, err: err})
	}
	for _, file := range files {
		places = append(places, place{name: python, path: file})
	}
	if tree := sourceTree(); tree != "" {
		places = append(places, place{name: "the source tree", path: filepath.Join(tree, "build", "lib", libraryFile)})
	}
	return append(places, place{name: "the system", path: libraryFile}, place{name: "the system", path: fmt.Sprintf("%s.%d", libraryFile, abiMajor)})
}

// sourceTree is the root of the source tree that this package was compiled from; "" when it is not there, as in the
// module cache, or not known, as with -trimpath.
func sourceTree() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	root := filepath.Join(filepath.Dir(file), "..", "..")
	if _, err := os.Stat(filepath.Join(root, "bindings.h")); err != nil {
		return ""
	}
	return root
}

// inPython gives the library's file in the Python environment in use, where pip puts it. Python is not run.
//
// The environment is that of VIRTUAL_ENV, else of CONDA_PREFIX, else of the first python3 on PATH. Where there is no such
// file, inPython gives the paths of those that could be, with python3* for any version. The error says why there is no
// environment.
func inPython(variable func(string) string) ([]string, error) {
	prefixes := []string{cmp.Or(variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"))}
	if prefixes[0] == "" {
		at := slices.IndexFunc(filepath.SplitList(variable("PATH")), hasPython)
		if at < 0 {
			return nil, errors.New("neither VIRTUAL_ENV nor CONDA_PREFIX is set, and there is no python3 on PATH")
		}
		prefixes = prefixesOf(filepath.SplitList(variable("PATH"))[at], variable("HOME"))
	}
	var found, couldBe []string
	for _, prefix := range prefixes {
		found = append(found, installed(prefix)...)
		couldBe = append(couldBe, filepath.Join(prefix, "lib", "python3*", "site-packages", "nncuda", libraryFile))
	}
	if found == nil {
		return couldBe, nil
	}
	return found, nil
}

func hasPython(folder string) bool {
	return filepath.IsAbs(folder) && isFile(filepath.Join(folder, "python3"))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// prefixesOf gives the prefixes under which the python3 in a folder finds packages, the first first.
func prefixesOf(bin, home string) []string {
	prefix := filepath.Dir(filepath.Clean(bin))
	if isFile(filepath.Join(prefix, "pyvenv.cfg")) {
		return []string{prefix} // a virtual environment that was not activated
	}
	var prefixes []string
	add := func(prefix string) {
		if !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	if home != "" {
		add(filepath.Join(home, ".local")) // of pip install --user
	}
	if prefix == "/usr" {
		add("/usr/local") // where Debian's pip installs
	}
	add(prefix)
	// A link such as /usr/local/bin/python3 leads to another prefix.
	if real, err := filepath.EvalSymlinks(filepath.Join(bin, "python3")); err == nil {
		add(filepath.Dir(filepath.Dir(real)))
	}
	return prefixes
}

// installed gives the library's files below a prefix, that of the newest Python first.
func installed(prefix string) []string {
	type file struct {
		minor int
		path  string
	}
	var files []file
	for _, lib := range []string{"lib", "lib64"} {
		entries, err := os.ReadDir(filepath.Join(prefix, lib))
		if err != nil {
			continue
		}
		for _, entry := range entries {
			version, ok := strings.CutPrefix(entry.Name(), "python3")
			if !ok {
				continue
			}
			minor, err := strconv.Atoi(strings.TrimPrefix(version, "."))
			if err != nil {
				minor = 0 // Debian's python3, of no version
			}
			for _, kind := range []string{"site-packages", "dist-packages"} {
				path := filepath.Join(prefix, lib, entry.Name(), kind, "nncuda", libraryFile)
				if isFile(path) {
					files = append(files, file{minor, path})
				}
			}
		}
	}
	slices.SortStableFunc(files, func(a, b file) int { return cmp.Compare(b.minor, a.minor) })
	var paths []string
	for _, file := range files {
		paths = append(paths, file.path)
	}
	return paths
}
