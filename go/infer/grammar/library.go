package grammar

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "loader.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/beside"
)

// LibraryVariable names the environment variable with the path of libllguidance. When it is set nothing else is tried.
const LibraryVariable = "NNCUDA_LLGUIDANCE"

const (
	libraryFile = "libllguidance.so"
	// versions is what the version of a library begins with whose functions are those that this package calls.
	versions = "llguidance@1."
)

// LibraryError says that there is no libllguidance, or none that can be used: the places that were tried, and what to do.
type LibraryError struct{ Problem string }

func (e *LibraryError) Error() string { return e.Problem }

var loaded struct {
	once    sync.Once
	version string
	err     error
}

// Load finds and opens libllguidance, once in a process; everything that needs the library calls it. It is looked for in
// these places, and the first file that there is counts:
//
//  1. the file that NNCUDA_LLGUIDANCE names; when it is set, no other place is tried;
//  2. beside the program: libllguidance.so in the folder of the executable, or in ../lib from there;
//  3. beside the libnncuda.so that [cuda.Load] found;
//  4. libllguidance.so as the system's loader finds it.
//
// The error is a [*LibraryError].
func Load() error {
	loaded.once.Do(func() { loaded.version, loaded.err = load(candidates()) })
	return loaded.err
}

// Version is that of the library, such as "llguidance@1.9.1 derivre@0.3.13". Equal versions allow the same tokens.
func Version() (string, error) {
	err := Load()
	return loaded.version, err
}

// candidates are the places in the order in which they are tried: files, or a name for the system's loader.
func candidates() []string {
	if path := os.Getenv(LibraryVariable); path != "" {
		return []string{path}
	}
	places := beside.Places(beside.Program(), libraryFile)
	if path, err := cuda.LibraryPath(); err == nil && filepath.Base(path) != path {
		places = append(places, filepath.Join(filepath.Dir(path), libraryFile))
	}
	return append(places, libraryFile)
}

func load(places []string) (version string, err error) {
	tried := make([]string, len(places))
	for at, place := range places {
		found := errors.New("does not exist")
		if _, missing := os.Stat(place); missing == nil || filepath.Base(place) == place {
			var opened bool
			if version, opened, found = open(place); found == nil || opened {
				return version, found // a file of that name with the wrong content: another place would hide it
			}
		}
		tried[at] = "  " + place + ": " + found.Error()
	}
	return "", &LibraryError{libraryFile + " was not found:\n" + strings.Join(tried, "\n") + "\nBuild it (`make llguidance` in " +
		"the source tree) and set " + LibraryVariable + " to the file"}
}

// open opens a library; opened says whether there was one at all.
func open(path string) (version string, opened bool, err error) {
	name, beginning := C.CString(path), C.CString(versions)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(beginning))
	var text [1024]byte
	outcome := C.nn_llg_load(name, beginning, (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text)))
	words, _, _ := strings.Cut(string(text[:]), "\x00")
	switch outcome {
	case C.NN_LLG_LOADED:
		return words, true, nil
	case C.NN_LLG_NOT_OPENED:
		return "", false, errors.New(words)
	case C.NN_LLG_OTHER_VERSION:
		return "", true, &LibraryError{fmt.Sprintf("%s is %s; it must be a version 1.x", path, words)}
	default:
		return "", true, &LibraryError{path + " lacks the function " + words + ": it must be llguidance's library, version 1.9 or later"}
	}
}
