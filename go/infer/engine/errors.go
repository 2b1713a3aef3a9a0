package engine

import (
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
)

// CacheFullError says that the cache has no page left. It stays usable: pages come back when sequences end.
type CacheFullError struct{ Problem string }

func (e *CacheFullError) Error() string { return e.Problem }

func cacheFull(format string, values ...any) error {
	return &CacheFullError{fmt.Sprintf(format, values...)}
}

// OptionError says that an option of an engine or of a request is outside what it may be, and why.
type OptionError struct {
	Option  string // as in messages: "context", "max_new_tokens", "prompt"
	Problem string // the sentence
}

func (e *OptionError) Error() string { return e.Problem }

func wrongOption(option, format string, values ...any) error {
	return &OptionError{option, fmt.Sprintf(format, values...)}
}

// IDError is that of an id which is no token of the vocabulary. It is cuda.ErrOutOfRange, too.
type IDError struct {
	Name      string // what was given: "ids"
	At        int    // which of them
	ID        int32
	VocabSize int
}

func (e *IDError) Error() string {
	return fmt.Sprintf("%s[%d] is %d; it must be 0 to %d", e.Name, e.At, e.ID, e.VocabSize-1)
}

// Is says whether the target is cuda.ErrOutOfRange.
func (e *IDError) Is(target error) bool { return target == cuda.ErrOutOfRange }

// CheckIDs refuses ids that are no tokens of a vocabulary; the error, an *IDError, calls them `name`.
func CheckIDs(ids []int32, vocabSize int, name string) error {
	for at, id := range ids {
		if id < 0 || int(id) >= vocabSize {
			return &IDError{name, at, id, vocabSize}
		}
	}
	return nil
}
