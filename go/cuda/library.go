package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "calls_gen.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// LibraryVariable names the environment variable with the path of the library. When it is set nothing else is tried.
const LibraryVariable = "NNCUDA_LIBRARY"

// loaded is the outcome of the one search for the library that a process makes.
var loaded struct {
	once sync.Once
	path string
	err  error
}

// Load finds and opens libnncuda, once in a process; everything that needs the library calls it. The error says in one
// sentence which places were tried and what to do.
func Load() error {
	loaded.once.Do(func() { loaded.path, loaded.err = load(candidates()) })
	return loaded.err
}

// LibraryPath is the file that [Load] opened, or the name that it gave to the system's loader.
func LibraryPath() (string, error) {
	err := Load()
	return loaded.path, err
}

// A place is where the library may be.
type place struct {
	name string // in words
	path string // a path, or a bare name for the system's loader
}

func candidates() []place {
	if path := os.Getenv(LibraryVariable); path != "" {
		return []place{{"the environment variable " + LibraryVariable, path}}
	}
	var places []place
	// The source tree that this package was compiled from. Built with -trimpath its place is not known.
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		built := filepath.Join(filepath.Dir(file), "..", "..", "build", "lib", "libnncuda.so")
		places = append(places, place{"the source tree", built})
	}
	return append(places, place{"the system", "libnncuda.so"}, place{"the system", "libnncuda.so.1"})
}

func load(places []place) (string, error) {
	var problems []string
	for _, place := range places {
		if filepath.Base(place.path) != place.path {
			if _, err := os.Stat(place.path); err != nil {
				problems = append(problems, place.name+": "+place.path+" does not exist")
				continue
			}
		}
		opened, err := open(place.path)
		if err == nil {
			return place.path, nil
		}
		if opened {
			return place.path, err // the right name with the wrong content: another place would hide it
		}
		problems = append(problems, place.name+": "+err.Error())
	}
	return "", &LibraryError{"libnncuda.so was not found. Tried: " + strings.Join(problems, "; ") +
		". Build it with `make lib` in the source tree, or set " + LibraryVariable + " to the file"}
}

// open fills the table of functions. opened says whether there was a library at all.
func open(path string) (opened bool, err error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var version C.int32_t
	var text [1024]byte
	outcome := C.nn_load(name, &version, (*C.char)(unsafe.Pointer(&text[0])), C.int64_t(len(text)))
	words, _, _ := strings.Cut(string(text[:]), "\x00")
	switch outcome {
	case C.NN_LOADED:
		return true, nil
	case C.NN_NOT_OPENED:
		return false, &LibraryError{words}
	case C.NN_NOT_NNCUDA:
		return true, &LibraryError{path + " is no libnncuda: it has no nncuda_abi_version"}
	case C.NN_OTHER_VERSION:
		return true, &LibraryError{fmt.Sprintf("%s has ABI version %d.%d, but this package was made for %d.%d: the major "+
			"version must be the same and the minor version not lower. Install matching versions of both",
			path, version/1000, version%1000, C.NNCUDA_ABI_MAJOR, C.NNCUDA_ABI_MINOR)}
	default:
		return true, &LibraryError{path + " lacks the function " + words + ": install a whole libnncuda of this version"}
	}
}

// ABIVersion is the version of the contract that the loaded library keeps.
func ABIVersion() (major, minor int, err error) {
	if err := Load(); err != nil {
		return 0, 0, err
	}
	version := int(C.call_nncuda_abi_version())
	return version / 1000, version % 1000, nil
}

// BuildInfo says version, compiler, instruction sets and CUDA architectures of the loaded library, in one line.
func BuildInfo() (string, error) {
	if err := Load(); err != nil {
		return "", err
	}
	return C.GoString(C.call_nncuda_build_info()), nil
}

// DeviceCount is how many devices of a kind this machine offers; 0 CUDA devices when there is no driver or no GPU.
func DeviceCount(device Device) (int, error) {
	if err := Load(); err != nil {
		return 0, err
	}
	var count C.int32_t
	status := Status(C.call_nncuda_device_count(C.int32_t(device), &count))
	return int(count), withoutContext("nncuda_device_count", status)
}

// DescribeDevice is a device in words: its name, instruction sets or compute capability, memory. With
// [ErrNoDevice] the error says why there is none.
func DescribeDevice(device Device, index int) (string, error) {
	if err := Load(); err != nil {
		return "", err
	}
	var text [512]byte
	status := Status(C.call_nncuda_device_describe(C.int32_t(device), C.int32_t(index),
		(*C.char)(unsafe.Pointer(&text[0])), C.int64_t(len(text))))
	words, _, _ := strings.Cut(string(text[:]), "\x00")
	if status == ErrNoDevice && words != "" {
		return "", &Error{Status: status, Function: "nncuda_device_describe", Message: words}
	}
	return words, withoutContext("nncuda_device_describe", status)
}
