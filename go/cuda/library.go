package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "calls_gen.h"
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

	"github.com/nncuda/nncuda/go/internal/beside"
)

// The version of the contract that this package was made for.
const abiMajor, abiMinor = int(C.NNCUDA_ABI_MAJOR), int(C.NNCUDA_ABI_MINOR)

// loaded is the outcome of the one search for the library that a process makes.
var loaded struct {
	once sync.Once
	path string
	err  error
}

// Load finds and opens libnncuda, once in a process; everything that needs the library calls it. It is looked for in
// these places, and the first file that there is counts:
//
//  1. the file that NNCUDA_LIBRARY names; when it is set, no other place is tried;
//  2. beside the program: libnncuda.so in the folder of the executable, or in ../lib from there;
//  3. the Python environment in use, where `pip install nncuda` puts it: that of VIRTUAL_ENV, else of CONDA_PREFIX, else of
//     the first python3 on PATH;
//  4. build/lib of the source tree that this package was compiled from, where `make lib` puts it;
//  5. libnncuda.so and libnncuda.so.2 as the system's loader finds them.
//
// The error, a [*LibraryError], names the places that were tried and what to do.
func Load() error {
	loaded.once.Do(func() { loaded.path, loaded.err = load(candidates(os.Getenv, beside.Program())) })
	return loaded.err
}

// LibraryPath is the file that [Load] opened, or the name that it gave to the system's loader.
func LibraryPath() (string, error) {
	err := Load()
	return loaded.path, err
}

func load(places []place) (string, error) {
	var tried []string
	for _, place := range places {
		err := place.err
		if err == nil && filepath.Base(place.path) != place.path {
			if _, missing := os.Stat(place.path); missing != nil {
				err = errors.New(place.path + " does not exist")
			}
		}
		if err == nil {
			opened, failure := open(place.path, abiMajor, abiMinor)
			if failure == nil || opened {
				return place.path, failure // a file of that name with the wrong content: another place would hide it
			}
			err = failure
		}
		tried = append(tried, "  "+place.name+": "+err.Error())
	}
	remedy := "Install it (`pip install nncuda`, which is found while its environment is active, or `make install` in the " +
		"source tree), or set " + LibraryVariable + " to the file"
	if len(places) == 1 { // only the file that it names is tried alone
		remedy = LibraryVariable + " is set, so no other place is tried: correct it or unset it"
	}
	return "", &LibraryError{libraryFile + " was not found:\n" + strings.Join(tried, "\n") + "\n" + remedy}
}

// open fills the table of functions from a library that has a version of the contract; opened says whether there was a
// library at all.
func open(path string, major, minor int) (opened bool, err error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var version C.int32_t
	var text [1024]byte
	outcome := C.nn_load(name, C.int32_t(major), C.int32_t(minor), &version, (*C.char)(unsafe.Pointer(&text[0])), C.int64_t(len(text)))
	words, _, _ := strings.Cut(string(text[:]), "\x00")
	switch outcome {
	case C.NN_LOADED:
		return true, nil
	case C.NN_NOT_OPENED:
		return false, &LibraryError{words}
	case C.NN_NOT_NNCUDA:
		return true, &LibraryError{path + " is no libnncuda: it has no nncuda_abi_version"}
	case C.NN_OTHER_VERSION:
		return true, &LibraryError{fmt.Sprintf("%s has ABI version %d.%d, but this program was made for %d.%d: the major "+
			"version must be the same and the minor version not lower. Install matching versions of both",
			path, version/1000, version%1000, major, minor)}
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
