package jinja

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// percent is `form % values` of Python's texts, for %s, %r, %d, %i, %f and %%, with width and precision.
func (s *state) percent(form string, values []any) string {
	var out strings.Builder
	used := 0
	for form != "" {
		at := strings.IndexByte(form, '%')
		if at < 0 {
			out.WriteString(form)
			break
		}
		out.WriteString(form[:at])
		form = form[at+1:]
		flags := form[:len(form)-len(strings.TrimLeft(form, "-0+ "))]
		form = form[len(flags):]
		width, precision := s.count(&form, 0), -1
		if strings.HasPrefix(form, ".") {
			form = form[1:]
			precision = s.count(&form, 0)
		}
		if form == "" {
			fail("ValueError", "incomplete format")
		}
		kind := form[0]
		form = form[1:]
		if kind == '%' {
			out.WriteByte('%')
			continue
		}
		if used == len(values) {
			fail("TypeError", "not enough arguments for format string")
		}
		written := s.formatted(kind, precision, values[used])
		used++
		number := strings.ContainsRune("dif", rune(kind))
		if number && written[0] != '-' && strings.ContainsAny(flags, "+ ") {
			sign := " "
			if strings.Contains(flags, "+") {
				sign = "+"
			}
			written = sign + written
		}
		s.copied(len(written) + width)
		fill := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(written)))
		switch {
		case strings.Contains(flags, "-"):
			written += fill
		case strings.Contains(flags, "0") && number:
			digits := strings.TrimLeft(written, "+- ")
			written = written[:len(written)-len(digits)] + strings.Repeat("0", len(fill)) + digits
		default:
			written = fill + written
		}
		out.WriteString(written)
	}
	if used < len(values) {
		fail("TypeError", "not all arguments converted during string formatting")
	}
	return out.String()
}

// count takes a number at the start of a form.
func (s *state) count(form *string, otherwise int) int {
	rest := strings.TrimLeft(*form, "0123456789")
	digits := (*form)[:len(*form)-len(rest)]
	*form = rest
	if digits == "" {
		return otherwise
	}
	value, err := strconv.Atoi(digits)
	if err != nil || value > 1000 {
		fail("ValueError", "a format is wider than 1000 characters")
	}
	return value
}

// formatted is one value of a format.
func (s *state) formatted(kind byte, precision int, value any) string {
	switch kind {
	case 's', 'r':
		text := s.text(value)
		if kind == 'r' {
			var out strings.Builder
			s.represent(&out, value, 0)
			text = out.String()
		}
		if letters := []rune(text); precision >= 0 && precision < len(letters) {
			text = string(letters[:precision])
		}
		return text
	case 'd', 'i', 'f':
		whole, fraction, isWhole, ok := number(value)
		switch {
		case !ok:
			fail("TypeError", "%%%c format: a real number is required, not %s", kind, typeName(value))
		case kind == 'f' && precision < 0:
			return strconv.FormatFloat(fraction, 'f', 6, 64)
		case kind == 'f':
			return strconv.FormatFloat(fraction, 'f', precision, 64)
		case precision >= 0 || !isWhole && (fraction >= 1<<63 || fraction < -1<<63 || fraction != fraction):
			fail("ValueError", "a %%%c format is one that this program does not know", kind)
		case !isWhole:
			whole = int64(fraction)
		}
		return strconv.FormatInt(whole, 10)
	}
	fail("ValueError", "unsupported format character '%c'", kind)
	return ""
}

func formatFilter(s *state, value any, given arguments) any {
	if len(given.names) > 0 {
		fail("TypeError", "format takes no names here")
	}
	return s.percent(s.text(value), given.positional)
}

// batchFilter cuts items into lists of so many, the last filled up with a value unless it is None.
func batchFilter(s *state, value any, given arguments) any {
	taken := given.take("batch", "linecount", "fill_with")
	size, fill := wholeArgument("batch", taken[0]), or(taken[1], nil)
	if size < 1 || size > mostRange {
		fail("ValueError", "batch takes a line count of 1 to %d", mostRange)
	}
	made := &list{kind: generator}
	var line *list
	for at, item := range s.items(value) {
		if int64(at)%size == 0 {
			line = &list{}
			made.items = append(made.items, line)
		}
		line.items = append(line.items, item)
	}
	for line != nil && fill != nil && int64(len(line.items)) < size {
		s.spend(1)
		line.items = append(line.items, fill)
	}
	return made
}

// braces is Python's str.format for {}, {0} and {name}; what else braces may have in them is refused.
func braces(s *state, form string, given arguments) any {
	var out strings.Builder
	used, numbered := 0, false
	for form != "" {
		at := strings.IndexAny(form, "{}")
		if at < 0 {
			out.WriteString(form)
			break
		}
		out.WriteString(form[:at])
		mark, rest := form[at], form[at+1:]
		if rest != "" && rest[0] == mark {
			out.WriteByte(mark)
			form = rest[1:]
			continue
		}
		name, after, found := strings.Cut(rest, "}")
		if mark == '}' || !found {
			fail("ValueError", "Single '%c' encountered in format string", mark)
		}
		form = after
		var value any
		place, err := strconv.Atoi(name)
		if name == "" {
			place, err = used, nil
			used++
		} else if err == nil {
			numbered = true
		}
		if numbered && used > 0 {
			fail("ValueError", "cannot switch between automatic field numbering and manual field specification")
		}
		switch named := slices.Index(given.names, name); {
		case err == nil && 0 <= place && place < len(given.positional):
			value = given.positional[place]
		case err == nil:
			fail("IndexError", "Replacement index %d out of range for positional args tuple", place)
		case named >= 0:
			value = given.named[named]
		case strings.ContainsAny(name, ".[:!{"):
			fail("ValueError", "{%s} has more than a name in it, which this program does not format", name)
		default:
			fail("KeyError", "%s", quoted(name))
		}
		text := s.text(value)
		s.copied(len(text))
		out.WriteString(text)
	}
	return out.String()
}
