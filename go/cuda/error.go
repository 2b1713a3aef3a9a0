package cuda

/*
#include "calls_gen.h"
*/
import "C"

import "fmt"

// An Error is what a function of the library, or the check before it, refused.
//
// Compare its status with errors.Is: errors.Is(err, cuda.ErrOutOfRange).
type Error struct {
	Status   Status
	Function string // of bindings.h, such as "cuda_gemm"
	Message  string // one sentence: what was wrong, what it was and what it may be
}

// Error is the sentence.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the status, so that errors.Is finds it.
func (e *Error) Unwrap() error { return e.Status }

// A LibraryError says why libnncuda could not be loaded.
type LibraryError struct{ Message string }

// Error is the sentence.
func (e *LibraryError) Error() string { return e.Message }

// Error is the status in words.
func (s Status) Error() string { return s.String() }

// String is what the status means, in the words of bindings.h.
func (s Status) String() string {
	if text := statusText(s); text != "" {
		return text
	}
	return fmt.Sprintf("unknown status %d", int32(s))
}

// Name is the status as bindings.h calls it, such as "NNCUDA_ERROR_INVALID_SIZE", by the library's own word.
func (s Status) Name() (string, error) {
	if err := Load(); err != nil {
		return "", err
	}
	return C.GoString(C.call_nncuda_status_name(C.int32_t(s))), nil
}

// Advice is what the status means and what to do about it, by the library's own word.
func (s Status) Advice() (string, error) {
	if err := Load(); err != nil {
		return "", err
	}
	return C.GoString(C.call_nncuda_status_string(C.int32_t(s))), nil
}

// withoutContext is the error of a function that has no context to keep a sentence in; nil after a success.
func withoutContext(function string, status Status) error {
	if status == success {
		return nil
	}
	return &Error{Status: status, Function: function,
		Message: function + ": " + C.GoString(C.call_nncuda_status_string(C.int32_t(status)))}
}
