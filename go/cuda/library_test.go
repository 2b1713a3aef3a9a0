package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build makes a shared library of C source. A C compiler is there wherever cgo is.
func build(t *testing.T, source string) string {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "library.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
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
		"another major version": {version("2000"), "has ABI version 2.0, but this package was made for 1."},
		"a lower minor version": {version("1000"), "has ABI version 1.0, but this package was made for 1."},
		"no nncuda":             {"int something(void) { return 0; }", "is no libnncuda: it has no nncuda_abi_version"},
		"a part of it":          {version("1999"), "lacks the function nncuda_build_info"},
	} {
		t.Run(name, func(t *testing.T) {
			path := build(t, test.source)
			_, err := load([]place{{"the test", path}, {"never tried", "/none"}})
			if err == nil || !strings.HasPrefix(err.Error(), path+" ") || !strings.Contains(err.Error(), test.words) {
				t.Errorf("%v does not say %q", err, test.words)
			}
		})
	}
	if major, _, err := ABIVersion(); err != nil || major != 1 { // what was loaded before is as it was
		t.Errorf("ABI version %d (%v)", major, err)
	}
}

func TestMissingLibraryIsOneSentence(t *testing.T) {
	folder := t.TempDir()
	broken := filepath.Join(folder, "libnncuda.so")
	if err := os.WriteFile(broken, []byte("no ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(folder, "none.so")
	_, err := load([]place{{"here", none}, {"there", broken}, {"the system", "libnncuda-none.so"}})
	if err == nil {
		t.Fatal("it was loaded")
	}
	for _, words := range []string{"libnncuda.so was not found. Tried: here: ", "none.so does not exist; there: ",
		"; the system: libnncuda-none.so", "`make lib`", LibraryVariable} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not say %q", err, words)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}

func TestVariableIsTheOnlyPlace(t *testing.T) {
	t.Setenv(LibraryVariable, "/some/where.so")
	if places := candidates(); len(places) != 1 || places[0].path != "/some/where.so" {
		t.Errorf("places %v", places)
	}
	t.Setenv(LibraryVariable, "")
	places := candidates()
	if len(places) != 3 || !strings.HasSuffix(places[0].path, filepath.Join("build", "lib", "libnncuda.so")) {
		t.Errorf("places %v", places)
	}
}
