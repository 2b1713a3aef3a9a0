// Package must ends a test at an error that should not come, and looks for one that should.
package must

import (
	"errors"
	"strings"
	"testing"
)

// Do ends the test when something failed.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get gives a value, or ends the test: must.Get(os.ReadFile(path))(t).
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Refuse fails the test unless an error is the one that is wanted, such as a status, and has the words.
func Refuse(t testing.TB, err, wanted error, words string) {
	t.Helper()
	if !errors.Is(err, wanted) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v is not %q with %q", err, wanted, words)
	}
}

// Err is the error alone of a call that gives a value too: must.Err(os.ReadFile(path)).
func Err[T any](_ T, err error) error { return err }

// Found gives a value that is there, or ends the test: must.Found(file.Get(key))(t).
func Found[T any](value T, found bool) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if !found {
			t.Fatal("it is not there")
		}
		return value
	}
}
