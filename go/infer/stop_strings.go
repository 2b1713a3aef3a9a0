package infer

import (
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/infer/engine"
)

// StopStrings ends a text before the first of some strings, and holds back what may be the beginning of one.
type StopStrings struct {
	strings []string
	held    string
}

// NewStopStrings begins a text. An *engine.OptionError when one of the strings is empty.
func NewStopStrings(ends ...string) (*StopStrings, error) {
	if slices.Contains(ends, "") {
		return nil, &engine.OptionError{Option: "stop", Problem: "a stop string is empty; every text would end at once"}
	}
	return &StopStrings{strings: ends}, nil
}

// Push gives what is certain of the text so far, and whether a string came up in it.
func (s *StopStrings) Push(text string) (certain string, stopped bool) {
	held := s.held + text
	first, begun := len(held), 0
	for _, end := range s.strings {
		if at := strings.Index(held, end); at >= 0 {
			first, stopped = min(first, at), true
		}
		begun = max(begun, beginning(held, end))
	}
	if stopped {
		s.held = ""
		return held[:first], true
	}
	s.held = held[len(held)-begun:]
	return held[:len(held)-begun], false
}

// Flush gives what was held back, when no more text comes.
func (s *StopStrings) Flush() string {
	held := s.held
	s.held = ""
	return held
}

// beginning is how many bytes at the end of a text are the beginning of a string.
func beginning(text, end string) int {
	for length := min(len(text), len(end)-1); length > 0; length-- {
		if strings.HasSuffix(text, end[:length]) {
			return length
		}
	}
	return 0
}
