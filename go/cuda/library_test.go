package cuda

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
)

// build makes a shared library of C source. A C compiler is there wherever cgo is.
func build(t *testing.T, source string) string {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "library.c")
	must.Do(t, os.WriteFile(file, []byte(source), 0o600))
	library := filepath.Join(folder, "libnncuda.so")
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-o", library, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return library
}

// version is a library that has nothing but an ABI version.
func version(number string) string { return "int nncuda_abi_version(void) { return " + number + "; }" }

func TestOtherLibrariesAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ source, words string }{
		"another major version": {version("1004"), "has ABI version 1.4, but this program was made for 2."},
		"no nncuda":             {"int something(void) { return 0; }", "is no libnncuda: it has no nncuda_abi_version"},
		"a part of it":          {version("2999"), "lacks the function nncuda_build_info"},
	} {
		t.Run(name, func(t *testing.T) {
			path := build(t, test.source)
			_, err := load([]place{{name: "the test", path: path}, {name: "never tried", path: "/none"}})
			if err == nil || !strings.HasPrefix(err.Error(), path+" ") || !strings.Contains(err.Error(), test.words) {
				t.Errorf("%v does not say %q", err, test.words)
			}
		})
	}
	if major, _, err := ABIVersion(); err != nil || major != 2 { // what was loaded before is as it was
		t.Errorf("ABI version %d (%v)", major, err)
	}
}

func TestALowerMinorVersionIsRefused(t *testing.T) {
	_, err := open(build(t, version("2002")), 2, 3)
	if words := "has ABI version 2.2, but this program was made for 2.3"; err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%v does not say %q", err, words)
	}
	if _, err := open(build(t, version("2003")), 2, 3); err == nil || !strings.Contains(err.Error(), "lacks the function") {
		t.Errorf("the same minor version: %v", err)
	}
}

func TestAMissingLibraryNamesAllPlaces(t *testing.T) {
	folder := t.TempDir()
	broken := filepath.Join(folder, "libnncuda.so")
	must.Do(t, os.WriteFile(broken, []byte("no ELF"), 0o600))
	none := filepath.Join(folder, "none.so")
	unset := errors.New("is not set")
	_, err := load([]place{{name: LibraryVariable, err: unset}, {name: "here", path: none}, {name: "there", path: broken},
		{name: "the system", path: "libnncuda-none.so"}})
	if err == nil {
		t.Fatal("it was loaded")
	}
	lines := strings.Split(err.Error(), "\n")
	for at, begin := range []string{"libnncuda.so was not found:", "  NNCUDA_LIBRARY: is not set",
		"  here: " + none + " does not exist", "  there: " + broken + ": ", "  the system: libnncuda-none.so: ", "Install it"} {
		if at >= len(lines) || !strings.HasPrefix(lines[at], begin) {
			t.Errorf("line %d of %q does not begin with %q", at, err, begin)
		}
	}
	for _, way := range []string{"`pip install nncuda`", "`make install`", "set NNCUDA_LIBRARY to the file"} {
		if !strings.Contains(lines[len(lines)-1], way) {
			t.Errorf("%q does not say %q", err, way)
		}
	}
}
