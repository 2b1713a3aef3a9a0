package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

type filterFunction func(s *state, value any, given arguments) any

// filterFunctions are the filters that templates use. Built in init, since map uses them all.
var filterFunctions map[string]filterFunction

func init() {
	length := func(s *state, value any, given arguments) any {
		given.take("length")
		return int64(s.length(value))
	}
	otherwise := func(_ *state, value any, given arguments) any {
		taken := given.take("default", "default_value", "boolean")
		_, lost := value.(*undefined)
		if lost || truth(or(taken[1], false)) && !truth(value) {
			return or(taken[0], "")
		}
		return value
	}
	filterFunctions = map[string]filterFunction{
		"length": length, "count": length, "default": otherwise, "d": otherwise,
		"trim": func(s *state, value any, given arguments) any {
			return textMethods["strip"](s, s.text(value), given)
		},
		"lower": changed(lower), "upper": changed(upper), "capitalize": changed(capitalize), "title": changed(titleFilter),
		"string": changed(func(text string) string { return text }), "safe": changed(func(text string) string { return text }),
		"replace": func(s *state, value any, given arguments) any {
			taken := given.take("replace", "old", "new", "count")
			most := int64(-1)
			if count := or(taken[2], nil); count != nil {
				most = wholeArgument("replace", count)
			}
			return s.replace(s.text(value), s.text(taken[0]), s.text(taken[1]), most)
		},
		"join": joinFilter, "tojson": jsonFilter, "indent": indentFilter, "format": formatFilter, "batch": batchFilter,
		"list": func(s *state, value any, given arguments) any {
			given.take("list")
			return &list{items: slices.Clone(s.items(value))}
		},
		"first": func(s *state, value any, given arguments) any {
			given.take("first")
			if items := s.items(value); len(items) > 0 {
				return items[0]
			}
			return &undefined{"No first item, sequence was empty."}
		},
		"last": func(s *state, value any, given arguments) any {
			given.take("last")
			if made, ok := value.(*list); ok && made.kind == generator {
				fail("TypeError", "'generator' object is not reversible")
			}
			if items := s.items(value); len(items) > 0 {
				return items[len(items)-1]
			}
			return &undefined{"No last item, sequence was empty."}
		},
		"map": mapFilter, "select": selector("select", true, false), "reject": selector("reject", false, false),
		"selectattr": selector("selectattr", true, true), "rejectattr": selector("rejectattr", false, true),
		"items": func(s *state, value any, given arguments) any {
			given.take("items")
			switch value := value.(type) {
			case *undefined:
				return &list{kind: generator}
			case *dict:
				return &list{items: s.pairs(value), kind: generator}
			}
			fail("TypeError", "Can only get item pairs from a mapping.")
			return nil
		},
		"dictsort": dictSort, "sort": sortFilter, "unique": uniqueFilter,
		"reverse": func(s *state, value any, given arguments) any {
			given.take("reverse")
			items := slices.Clone(s.items(value))
			slices.Reverse(items)
			if _, isText := value.(string); isText {
				return joinTexts(s, "", arguments{positional: []any{&list{items: items}}})
			}
			return &list{items: items, kind: generator}
		},
		"int": intFilter, "float": floatFilter, "abs": absFilter, "round": roundFilter, "sum": sumFilter,
		"min": extreme("min", -1), "max": extreme("max", 1),
		"attr": func(s *state, value any, given arguments) any {
			name := textArgument("attr", given.take("attr", "name")[0])
			if found, ok := s.own(value, name); ok {
				return found
			}
			return lacks(value, name)
		},
	}
}

func changed(change func(string) string) filterFunction {
	return func(s *state, value any, given arguments) any {
		given.take("the filter")
		text := s.text(value)
		s.copied(len(text))
		return change(text)
	}
}

// titleFilter makes the first letter of each word large: after a space, a minus or an opening bracket.
func titleFilter(text string) string {
	var out strings.Builder
	starts := true
	for _, letter := range text {
		switch {
		case isSpace(letter) || strings.ContainsRune("-({[<", letter):
			out.WriteRune(letter)
			starts = true
			continue
		case starts:
			out.WriteString(upper(string(letter)))
		default:
			out.WriteString(lower(string(letter)))
		}
		starts = false
	}
	return out.String()
}

// path is the attribute of an item by a name with dots, or a place.
func (s *state) path(item, name any) any {
	if whole, _, isWhole, _ := number(name); isWhole {
		return s.item(item, whole)
	}
	for _, step := range strings.Split(textArgument("attribute", name), ".") {
		if at, err := strconv.ParseInt(step, 10, 64); err == nil && at >= 0 {
			item = s.item(item, at)
		} else {
			item = s.item(item, step)
		}
	}
	return item
}

func joinFilter(s *state, value any, given arguments) any {
	taken := given.take("join", "d", "attribute")
	by, name := s.text(or(taken[0], "")), or(taken[1], nil)
	var out strings.Builder
	for at, item := range s.items(value) {
		if at > 0 {
			s.copied(len(by))
			out.WriteString(by)
		}
		if name != nil {
			item = s.path(item, name)
		}
		part := s.text(item)
		s.copied(len(part))
		out.WriteString(part)
	}
	return out.String()
}

// indentFilter puts spaces, or another text, before the lines after the first.
func indentFilter(s *state, value any, given arguments) any {
	taken := given.take("indent", "width", "first", "blank")
	by, isText := or(taken[0], int64(4)).(string)
	if !isText {
		by = s.repeat(" ", wholeArgument("indent", or(taken[0], int64(4)))).(string)
	}
	first, blank := truth(or(taken[1], false)), truth(or(taken[2], false))
	text := s.text(value) + "\n" // so that a last line end counts
	lines := splitLines(s, text, arguments{}).(*list).items
	var out strings.Builder
	for at, line := range lines {
		line := line.(string)
		if at > 0 {
			out.WriteByte('\n')
		}
		if at > 0 && (blank || line != "") || at == 0 && first {
			s.copied(len(by))
			out.WriteString(by)
		}
		out.WriteString(line)
	}
	return out.String()
}

func mapFilter(s *state, value any, given arguments) any {
	made := &list{kind: generator}
	at := slices.Index(given.names, "attribute")
	if len(given.positional) == 0 && at >= 0 {
		otherwise := any(missing{})
		for place, name := range given.names {
			switch name {
			case "attribute":
			case "default":
				otherwise = given.named[place]
			default:
				fail("FilterArgumentError", "Unexpected keyword argument '%s'", name)
			}
		}
		for _, item := range s.items(value) {
			found := s.path(item, given.named[at])
			if _, lost := found.(*undefined); lost {
				found = or(otherwise, found)
			}
			made.items = append(made.items, found)
		}
		return made
	}
	if len(given.positional) == 0 {
		fail("FilterArgumentError", "map requires a filter argument")
	}
	name := textArgument("map", given.positional[0])
	filter, known := filterFunctions[name]
	if !known {
		fail("TemplateRuntimeError", "No filter named '%s'.", name)
	}
	given.positional = given.positional[1:]
	for _, item := range s.items(value) {
		made.items = append(made.items, filter(s, item, given))
	}
	return made
}

// selector keeps items, or those whose attribute, for which a test holds or does not; without a test, those that are true.
func selector(name string, wanted, byAttribute bool) filterFunction {
	return func(s *state, value any, given arguments) any {
		of := func(item any) any { return item }
		if byAttribute {
			if len(given.positional) == 0 {
				fail("FilterArgumentError", "Missing parameter for attribute name")
			}
			path := given.positional[0]
			given.positional = given.positional[1:]
			of = func(item any) any { return s.path(item, path) }
		}
		holds := func(item any) bool { return truth(item) }
		if len(given.positional) > 0 {
			testName := textArgument(name, given.positional[0])
			test, known := testFunctions[testName]
			if !known {
				fail("TemplateRuntimeError", "No test named '%s'.", testName)
			}
			given.positional = given.positional[1:]
			holds = func(item any) bool { return test(s, item, given) }
		}
		made := &list{kind: generator}
		for _, item := range s.items(value) {
			if holds(of(item)) == wanted {
				made.items = append(made.items, item)
			}
		}
		return made
	}
}

// sorted sorts items by a key of each, stable.
func (s *state) sorted(items []any, reverse bool, key func(item any) any) []any {
	type keyed struct{ key, item any }
	var pairs []keyed
	for _, item := range items {
		pairs = append(pairs, keyed{key(item), item})
	}
	slices.SortStableFunc(pairs, func(a, b keyed) int {
		s.spend(1)
		s.looked(a.key)
		if reverse {
			return s.order(b.key, a.key, "<")
		}
		return s.order(a.key, b.key, "<")
	})
	var made []any
	for _, pair := range pairs {
		made = append(made, pair.item)
	}
	return made
}

// caseless is a key by which large and small letters are the same, unless they are to differ.
func caseless(sensitive bool) func(any) any {
	return func(key any) any {
		if text, ok := key.(string); ok && !sensitive {
			return lower(text)
		}
		return key
	}
}

func sortFilter(s *state, value any, given arguments) any {
	taken := given.take("sort", "reverse", "case_sensitive", "attribute")
	fold, name := caseless(truth(or(taken[1], false))), or(taken[2], nil)
	return &list{items: s.sorted(s.items(value), truth(or(taken[0], false)), func(item any) any {
		if name != nil {
			item = s.path(item, name)
		}
		return &list{items: []any{fold(item)}} // a list, as in Jinja: values without an order may be equal
	})}
}

func dictSort(s *state, value any, given arguments) any {
	taken := given.take("dictsort", "case_sensitive", "by", "reverse")
	whole, ok := value.(*dict)
	place := slices.Index([]string{"key", "value"}, s.text(or(taken[1], "key")))
	if !ok || place < 0 {
		fail("FilterArgumentError", "dictsort takes a mapping, and sorts it by 'key' or 'value'")
	}
	fold := caseless(truth(or(taken[0], false)))
	return &list{items: s.sorted(s.pairs(whole), truth(or(taken[2], false)), func(item any) any {
		return fold(item.(*list).items[place])
	})}
}

func uniqueFilter(s *state, value any, given arguments) any {
	taken := given.take("unique", "case_sensitive", "attribute")
	fold, name := caseless(truth(or(taken[0], false))), or(taken[1], nil)
	seen := make(map[any]bool)
	made := &list{kind: generator}
	for _, item := range s.items(value) {
		key := item
		if name != nil {
			key = s.path(item, name)
		}
		if known := keyOf(fold(key)); !seen[known] {
			seen[known] = true
			made.items = append(made.items, item)
		}
	}
	return made
}

func extreme(name string, sign int) filterFunction {
	return func(s *state, value any, given arguments) any {
		taken := given.take(name, "case_sensitive", "attribute")
		fold, attribute := caseless(truth(or(taken[0], false))), or(taken[1], nil)
		best, bestKey := any(&undefined{"No aggregated item, sequence was empty."}), any(nil)
		for at, item := range s.items(value) {
			key := item
			if attribute != nil {
				key = s.path(item, attribute)
			}
			if key = fold(key); at == 0 || s.order(key, bestKey, "<")*sign > 0 {
				best, bestKey = item, key
			}
		}
		return best
	}
}

func sumFilter(s *state, value any, given arguments) any {
	taken := given.take("sum", "attribute", "start")
	total, name := or(taken[1], int64(0)), or(taken[0], nil)
	for _, item := range s.items(value) {
		if name != nil {
			item = s.path(item, name)
		}
		total = s.arithmetic("+", total, item)
	}
	return total
}

func intFilter(s *state, value any, given arguments) any {
	taken := given.take("int", "default", "base")
	otherwise, base := or(taken[0], int64(0)), wholeArgument("int", or(taken[1], int64(10)))
	if whole, fraction, isWhole, ok := number(value); ok {
		if isWhole {
			return whole
		}
		if math.IsNaN(fraction) || math.IsInf(fraction, 0) {
			return otherwise
		}
		if math.Abs(fraction) >= 1<<63 {
			tooLarge()
		}
		return int64(fraction)
	}
	text, ok := value.(string)
	if !ok || base < 2 || base > 36 {
		return otherwise
	}
	text = strings.ReplaceAll(strings.TrimFunc(text, isSpace), "_", "")
	if whole, err := strconv.ParseInt(text, int(base), 64); err == nil {
		return whole
	}
	if fraction, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(fraction) < 1<<63 {
		return int64(fraction)
	}
	return otherwise
}

func floatFilter(s *state, value any, given arguments) any {
	otherwise := or(given.take("float", "default")[0], 0.0)
	if _, fraction, _, ok := number(value); ok {
		return fraction
	}
	if text, ok := value.(string); ok {
		if fraction, err := strconv.ParseFloat(strings.TrimFunc(text, isSpace), 64); err == nil {
			return fraction
		}
	}
	return otherwise
}

func absFilter(s *state, value any, given arguments) any {
	given.take("abs")
	if whole, fraction, isWhole, ok := number(value); ok {
		switch {
		case isWhole && whole < 0:
			return s.arithmetic("-", int64(0), whole)
		case isWhole:
			return whole
		}
		return math.Abs(fraction)
	}
	fail("TypeError", "bad operand type for abs(): '%s'", typeName(value))
	return nil
}

func roundFilter(s *state, value any, given arguments) any {
	taken := given.take("round", "precision", "method")
	places := wholeArgument("round", or(taken[0], int64(0)))
	_, fraction, isWhole, ok := number(value)
	if !ok || places < 0 || places > 20 {
		fail("TypeError", "round takes a number, and 0 to 20 places")
	}
	switch scale := math.Pow10(int(places)); s.text(or(taken[1], "common")) {
	case "common":
		if isWhole {
			return value
		}
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(fraction, 'f', int(places), 64), 64) // it is a number
		return rounded
	case "ceil":
		return math.Ceil(fraction*scale) / scale
	case "floor":
		return math.Floor(fraction*scale) / scale
	}
	fail("FilterArgumentError", "method must be common, ceil or floor")
	return nil
}
