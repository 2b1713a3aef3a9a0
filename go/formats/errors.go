// Package formats reads and writes files: JSON as the Python package writes it, and token shards, so that a kill at any
// moment leaves the last whole file. Nothing in here knows a model. Every reader checks a file before it hands anything
// out and says in one sentence what is wrong with it.
package formats

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Error says that a file is corrupt, truncated, or of another kind. The message names the file and what is wrong.
type Error struct {
	Path    string
	Problem string
	Cause   error // what the system or a parser said; may be nil
}

// Error gives the sentence, fit for a terminal: cut where it is long, and without escape sequences of a file's texts.
func (e *Error) Error() string {
	problem := e.Problem
	if length := utf8.RuneCountInString(problem); length > problemCharacters {
		letters := []rune(problem)
		problem = string(letters[:problemCharacters/2]) + " … " + string(letters[length-problemCharacters/2:])
	}
	return e.Path + ": " + Printable(problem)
}

// Printable is a text from a file, fit for a terminal: it spells what is not a printable character, such as the start of
// an escape sequence that clears the screen.
func Printable(text string) string {
	var out strings.Builder
	for _, letter := range text {
		if unicode.IsPrint(letter) {
			out.WriteRune(letter)
		} else {
			quoted := strconv.QuoteRuneToASCII(letter)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return out.String()
}

// Unwrap gives the cause, so that errors.Is(err, fs.ErrNotExist) holds for a file that is missing.
func (e *Error) Unwrap() error { return e.Cause }

// Wrap makes an *Error of `path` from another error's sentence. An error that is an *Error already, and nil, stay.
func Wrap(path string, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Path: path, Problem: err.Error(), Cause: err}
}

// Missing is the error of a file or folder that should hold something which is not there.
func Missing(path, problem string) error {
	return &Error{Path: path, Problem: problem, Cause: fs.ErrNotExist}
}

// CannotRead is the error of a file that the system does not let us read.
func CannotRead(path string, err error) error {
	return &Error{Path: path, Problem: "cannot be read: " + systemReason(err), Cause: err}
}

// systemReason is what the system said, without the name of the call and the path that Go puts before it.
func systemReason(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
