package jinja

import (
	"fmt"
	"strconv"
	"strings"
)

// The longest range, as in Jinja's sandbox.
const mostRange = 100000

// globals are the functions that every template has.
var globals = map[string]any{
	"range":           &function{"range", rangeOf},
	"dict":            &function{"dict", dictOfNames},
	"namespace":       &function{"namespace", func(s *state, given arguments) any { return &namespace{dictOfNames(s, given).(*dict)} }},
	"raise_exception": &function{"raise_exception", raise},
	"strftime_now":    &function{"strftime_now", timeNow},
}

func raise(s *state, given arguments) any {
	fail("TemplateError", "%s", s.text(or(given.take("raise_exception", "message")[0], "")))
	return nil
}

func rangeOf(s *state, given arguments) any {
	var bounds []int64
	for _, value := range given.positional {
		bounds = append(bounds, wholeArgument("range", value))
	}
	start, stop, step := int64(0), int64(0), int64(1)
	switch len(bounds) {
	case 1:
		stop = bounds[0]
	case 2:
		start, stop = bounds[0], bounds[1]
	case 3:
		start, stop, step = bounds[0], bounds[1], bounds[2]
	default:
		fail("TypeError", "range expected 1 to 3 arguments, got %d", len(bounds))
	}
	if step == 0 {
		fail("ValueError", "range() arg 3 must not be zero")
	}
	made := &list{kind: numbers}
	for at := start; step > 0 && at < stop || step < 0 && at > stop; at += step {
		if len(made.items) == mostRange {
			fail("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", mostRange)
		}
		s.spend(1)
		made.items = append(made.items, at)
		if next := at + step; (next > at) != (step > 0) {
			break
		}
	}
	return made
}

func dictOfNames(s *state, given arguments) any {
	made := newDict()
	if len(given.positional) > 1 {
		fail("TypeError", "dict expected at most 1 argument, got %d", len(given.positional))
	}
	for _, value := range given.positional {
		if other, ok := value.(*dict); ok {
			for _, pair := range s.pairs(other) {
				made.set(pair.(*list).items[0], pair.(*list).items[1])
			}
			continue
		}
		for _, item := range s.items(value) {
			s.spend(4)
			pair := s.items(item)
			if len(pair) != 2 {
				fail("ValueError", "dictionary update sequence element has length %d; 2 is required", len(pair))
			}
			made.set(pair[0], pair[1])
		}
	}
	for at, name := range given.names {
		made.set(name, given.named[at])
	}
	return made
}

// timeNow writes the time as C's strftime does in English.
func timeNow(s *state, given arguments) any {
	form := textArgument("strftime_now", given.take("strftime_now", "format")[0])
	s.copied(16 * len(form))
	now := s.now()
	var out strings.Builder
	for at := 0; at < len(form); at++ {
		if form[at] != '%' || at+1 == len(form) {
			out.WriteByte(form[at])
			continue
		}
		at++
		bare := form[at] == '-' && at+1 < len(form) // numbers without zeros before them
		if bare {
			at++
		}
		written, known := "", true
		switch form[at] {
		case '%':
			written = "%"
		case 'j':
			written = fmt.Sprintf("%03d", now.YearDay())
		case 'w':
			written = strconv.Itoa(int(now.Weekday()))
		case 'e':
			written = fmt.Sprintf("%2d", now.Day())
		case 'f':
			written = fmt.Sprintf("%06d", now.Nanosecond()/1000)
		default:
			var layout string
			layout, known = timeLayouts[form[at]]
			written = now.Format(layout)
		}
		if !known {
			fail("ValueError", "strftime_now has %%%c, which this program does not know", form[at])
		}
		if bare {
			if rest := strings.TrimLeft(written, "0 "); rest != "" {
				written = rest
			} else {
				written = "0"
			}
		}
		out.WriteString(written)
	}
	return out.String()
}

var timeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'D': "01/02/06",
	'F': "2006-01-02", 'H': "15", 'h': "Jan", 'I': "03", 'm': "01", 'M': "04", 'p': "PM", 'R': "15:04", 'S': "05",
	'T': "15:04:05", 'x': "01/02/06", 'X': "15:04:05", 'y': "06", 'Y': "2006",
}
