package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

type textMethod func(s *state, text string, given arguments) any

// textMethods are those of Python's str that templates use. Built in init, since some of them are each other's.
var textMethods map[string]textMethod

func init() {
	textMethods = map[string]textMethod{
		"strip": stripper("strip", true, true), "lstrip": stripper("lstrip", true, false),
		"rstrip": stripper("rstrip", false, true),
		"split":  splitText, "rsplit": rsplitText, "splitlines": splitLines,
		"startswith": affix("startswith", strings.HasPrefix), "endswith": affix("endswith", strings.HasSuffix),
		"removeprefix": cutter("removeprefix", strings.TrimPrefix), "removesuffix": cutter("removesuffix", strings.TrimSuffix),
		"replace": replaceText, "join": joinTexts, "format": braces,
		"partition": parted("partition", strings.Index, false), "rpartition": parted("rpartition", strings.LastIndex, true),
		"lower": plain("lower", lower), "upper": plain("upper", upper), "title": plain("title", title),
		"capitalize": plain("capitalize", capitalize),
		"find":       finder("find", strings.Index, false), "rfind": finder("rfind", strings.LastIndex, false),
		"index": finder("index", strings.Index, true), "rindex": finder("rindex", strings.LastIndex, true),
		"count": func(s *state, text string, given arguments) any {
			part := textArgument("count", given.take("count", "sub")[0])
			return int64(strings.Count(text, part))
		},
		"isdigit": every("isdigit", unicode.IsDigit), "isalpha": every("isalpha", unicode.IsLetter),
		"isspace": every("isspace", isSpace), "isdecimal": every("isdecimal", unicode.IsDigit),
		"isalnum": every("isalnum", func(letter rune) bool { return unicode.IsLetter(letter) || unicode.IsNumber(letter) }),
		"islower": func(_ *state, text string, given arguments) any {
			given.take("islower")
			return text == lower(text) && text != upper(text)
		},
		"isupper": func(_ *state, text string, given arguments) any {
			given.take("isupper")
			return text == upper(text) && text != lower(text)
		},
	}
}

func lower(text string) string { return cases.Lower(language.Und).String(text) }
func upper(text string) string { return cases.Upper(language.Und).String(text) }

// title makes the first letter of each run of letters large and the others small.
func title(text string) string {
	var out strings.Builder
	inside := false
	for _, letter := range text {
		if inside {
			out.WriteString(lower(string(letter)))
		} else {
			out.WriteRune(unicode.ToTitle(letter))
		}
		inside = unicode.IsLetter(letter)
	}
	return out.String()
}

func capitalize(text string) string {
	letter, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToTitle(letter)) + lower(text[size:])
}

// textArgument is an argument that must be a text.
func textArgument(function string, value any) string {
	text, ok := value.(string)
	if _, none := value.(missing); none {
		fail("TypeError", "%s() takes at least one argument", function)
	} else if !ok {
		fail("TypeError", "%s() takes a str, not %s", function, typeName(value))
	}
	return text
}

// wholeArgument is an argument that must be a whole number.
func wholeArgument(function string, value any) int64 {
	whole, _, isWhole, _ := number(value)
	if !isWhole {
		fail("TypeError", "%s() takes a whole number, not %s", function, typeName(value))
	}
	return whole
}

func plain(name string, change func(string) string) textMethod {
	return func(s *state, text string, given arguments) any {
		given.take(name)
		s.copied(len(text))
		return change(text)
	}
}

func every(name string, is func(rune) bool) textMethod {
	return func(_ *state, text string, given arguments) any {
		given.take(name)
		return text != "" && !strings.ContainsFunc(text, func(letter rune) bool { return !is(letter) })
	}
}

func stripper(name string, left, right bool) textMethod {
	return func(_ *state, text string, given arguments) any {
		of := isSpace
		if letters := or(given.take(name, "chars")[0], nil); letters != nil {
			set := textArgument(name, letters)
			of = func(letter rune) bool { return strings.ContainsRune(set, letter) }
		}
		if left {
			text = strings.TrimLeftFunc(text, of)
		}
		if right {
			text = strings.TrimRightFunc(text, of)
		}
		return text
	}
}

func affix(name string, has func(text, part string) bool) textMethod {
	return func(_ *state, text string, given arguments) any {
		wanted := given.take(name, "prefix")[0]
		if several, ok := wanted.(*list); ok && several.kind == tuple {
			for _, one := range several.items {
				if has(text, textArgument(name, one)) {
					return true
				}
			}
			return false
		}
		return has(text, textArgument(name, wanted))
	}
}

func cutter(name string, cut func(text, part string) string) textMethod {
	return func(_ *state, text string, given arguments) any {
		return cut(text, textArgument(name, given.take(name, "part")[0]))
	}
}

// finder gives the place of a part, in characters; -1, or an error, where there is none.
func finder(name string, find func(text, part string) int, must bool) textMethod {
	return func(_ *state, text string, given arguments) any {
		at := find(text, textArgument(name, given.take(name, "sub")[0]))
		if at < 0 && must {
			fail("ValueError", "substring not found")
		} else if at < 0 {
			return int64(-1)
		}
		return int64(utf8.RuneCountInString(text[:at]))
	}
}

// parted is a text before a part, the part, and the text after it.
func parted(name string, find func(text, part string) int, last bool) textMethod {
	return func(s *state, text string, given arguments) any {
		by := textArgument(name, given.take(name, "sep")[0])
		if by == "" {
			fail("ValueError", "empty separator")
		}
		at := find(text, by)
		switch {
		case at >= 0:
			return &list{items: []any{text[:at], by, text[at+len(by):]}, kind: tuple}
		case last:
			return &list{items: []any{"", "", text}, kind: tuple}
		}
		return &list{items: []any{text, "", ""}, kind: tuple}
	}
}

func (s *state) texts(parts []string) *list {
	s.spend(len(parts))
	made := &list{}
	for _, part := range parts {
		made.items = append(made.items, part)
	}
	return made
}

func splitText(s *state, text string, given arguments) any {
	taken := given.take("split", "sep", "maxsplit")
	most := wholeArgument("split", or(taken[1], int64(-1)))
	if or(taken[0], nil) == nil {
		return s.texts(splitSpace(text, most))
	}
	by := textArgument("split", taken[0])
	if by == "" {
		fail("ValueError", "empty separator")
	}
	if most < 0 || most > int64(len(text)) {
		return s.texts(strings.Split(text, by))
	}
	return s.texts(strings.SplitN(text, by, int(most)+1))
}

// splitSpace cuts at runs of space, at most so many times; always, below 0.
func splitSpace(text string, most int64) []string {
	var parts []string
	rest := strings.TrimLeftFunc(text, isSpace)
	for rest != "" {
		end := strings.IndexFunc(rest, isSpace)
		if most == 0 || end < 0 {
			parts = append(parts, rest)
			break
		}
		parts = append(parts, rest[:end])
		rest = strings.TrimLeftFunc(rest[end:], isSpace)
		most--
	}
	return parts
}

func rsplitText(s *state, text string, given arguments) any {
	taken := given.take("rsplit", "sep", "maxsplit")
	most := wholeArgument("rsplit", or(taken[1], int64(-1)))
	by := textArgument("rsplit", taken[0])
	if by == "" {
		fail("ValueError", "empty separator")
	}
	parts := strings.Split(text, by)
	if most >= 0 && int64(len(parts)) > most+1 {
		kept := len(parts) - int(most)
		parts = append([]string{strings.Join(parts[:kept], by)}, parts[kept:]...)
	}
	return s.texts(parts)
}

func splitLines(s *state, text string, given arguments) any {
	keep := truth(or(given.take("splitlines", "keepends")[0], false))
	var parts []string
	for text != "" {
		end := strings.IndexAny(text, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if end < 0 {
			parts = append(parts, text)
			break
		}
		_, size := utf8.DecodeRuneInString(text[end:])
		if strings.HasPrefix(text[end:], "\r\n") {
			size = 2
		}
		if keep {
			parts = append(parts, text[:end+size])
		} else {
			parts = append(parts, text[:end])
		}
		text = text[end+size:]
	}
	return s.texts(parts)
}

func replaceText(s *state, text string, given arguments) any {
	taken := given.take("replace", "old", "new", "count")
	old, instead := textArgument("replace", taken[0]), textArgument("replace", taken[1])
	return s.replace(text, old, instead, wholeArgument("replace", or(taken[2], int64(-1))))
}

func (s *state) replace(text, old, instead string, most int64) string {
	times := strings.Count(text, old)
	if most >= 0 {
		times = int(min(int64(times), most))
	}
	if len(instead) > 0 && times > mostSteps/len(instead)*8 {
		fail("MemoryError", "a text is replaced %d times", times)
	}
	s.copied(len(text) + times*len(instead))
	return strings.Replace(text, old, instead, times)
}

func joinTexts(s *state, text string, given arguments) any {
	var out strings.Builder
	for at, item := range s.items(given.take("join", "iterable")[0]) {
		part := textArgument("join", item)
		if at > 0 {
			out.WriteString(text)
			s.copied(len(text))
		}
		s.copied(len(part))
		out.WriteString(part)
	}
	return out.String()
}
