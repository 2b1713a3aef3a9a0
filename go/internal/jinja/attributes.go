package jinja

import (
	"strings"
	"unicode/utf8"
)

// attribute is `value.name`: a method or attribute, else an item.
func (s *state) attribute(value any, name string) any {
	if found, ok := s.own(value, name); ok {
		return found
	}
	if whole, ok := value.(*dict); ok {
		if found, ok := whole.get(name); ok {
			return found
		}
	}
	return lacks(value, name)
}

// item is value[at]: an item, else a method or attribute.
func (s *state) item(value, at any) any {
	switch whole := value.(type) {
	case *undefined:
		fail("UndefinedError", "%s", whole.sentence)
	case *dict:
		switch at.(type) {
		case *list, *dict: // which is no key
		default:
			if found, ok := whole.get(at); ok {
				return found
			}
		}
	case *list:
		if place, _, isWhole, _ := number(at); isWhole && whole.kind <= numbers {
			if place < 0 {
				place += int64(len(whole.items))
			}
			if 0 <= place && place < int64(len(whole.items)) {
				return whole.items[place]
			}
		}
	case string:
		if place, _, isWhole, _ := number(at); isWhole {
			s.copied(len(whole))
			if place < 0 {
				place += int64(utf8.RuneCountInString(whole))
			}
			for _, letter := range whole {
				if place == 0 {
					return string(letter)
				}
				place--
			}
		}
	}
	if name, ok := at.(string); ok {
		if found, ok := s.own(value, name); ok {
			return found
		}
		return lacks(value, name)
	}
	return lacks(value, s.text(at))
}

func lacks(value any, name string) *undefined {
	of := "'" + typeName(value) + " object'"
	if value == nil {
		of = "'None'"
	}
	return &undefined{of + " has no attribute '" + name + "'"}
}

// Methods that would change a value, which templates must not.
var changing = map[string]bool{
	"append": true, "clear": true, "extend": true, "insert": true, "pop": true, "popitem": true, "remove": true,
	"reverse": true, "setdefault": true, "sort": true, "update": true,
}

// own is a method or attribute that values of a kind have.
func (s *state) own(value any, name string) (any, bool) {
	if lost, ok := value.(*undefined); ok {
		fail("UndefinedError", "%s", lost.sentence)
	}
	if strings.HasPrefix(name, "_") {
		fail("SecurityError", "access to attribute '%s' of '%s' object is unsafe.", name, typeName(value))
	}
	switch value := value.(type) {
	case *namespace:
		return value.get(name)
	case *loop:
		return value.attribute(name)
	case string:
		if method, found := textMethods[name]; found {
			return &function{name, func(s *state, given arguments) any {
				s.copied(len(value))
				return method(s, value, given)
			}}, true
		}
	case *dict:
		if method, found := dictMethods[name]; found {
			return &function{name, func(s *state, given arguments) any { return method(s, value, given) }}, true
		}
	case *list:
		if method, found := listMethods[name]; found && value.kind <= tuple {
			return &function{name, func(s *state, given arguments) any { return method(s, value, given) }}, true
		}
	}
	switch value.(type) {
	case *list, *dict:
		if changing[name] {
			fail("SecurityError", "access to attribute '%s' of '%s' object is unsafe.", name, typeName(value))
		}
	}
	return nil, false
}

func (l *loop) attribute(name string) (any, bool) {
	size := len(l.items)
	switch name {
	case "index":
		return int64(l.at + 1), true
	case "index0":
		return int64(l.at), true
	case "revindex":
		return int64(size - l.at), true
	case "revindex0":
		return int64(size - l.at - 1), true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == size-1, true
	case "length":
		return int64(size), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.at == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.items[l.at-1], true
	case "nextitem":
		if l.at == size-1 {
			return &undefined{"there is no next item"}, true
		}
		return l.items[l.at+1], true
	case "cycle":
		return &function{name, func(_ *state, given arguments) any {
			if len(given.positional) == 0 {
				fail("TypeError", "no items for cycling given")
			}
			return given.positional[l.at%len(given.positional)]
		}}, true
	case "changed":
		return &function{name, func(s *state, given arguments) any {
			if l.changed != nil && s.equal(&list{items: l.changed}, &list{items: given.positional}) {
				return false
			}
			l.changed = append([]any{}, given.positional...)
			return true
		}}, true
	}
	return nil, false
}

type dictMethod func(s *state, d *dict, given arguments) any

var dictMethods = map[string]dictMethod{
	"get": func(_ *state, d *dict, given arguments) any {
		taken := given.take("get", "key", "default")
		if _, none := taken[0].(missing); none {
			fail("TypeError", "get expected at least 1 argument, got 0")
		}
		if value, found := d.get(taken[0]); found {
			return value
		}
		return or(taken[1], nil)
	},
	"keys": func(s *state, d *dict, given arguments) any {
		given.take("keys")
		s.spend(len(d.keys))
		return &list{items: append([]any{}, d.keys...), kind: view}
	},
	"values": func(s *state, d *dict, given arguments) any {
		given.take("values")
		s.spend(len(d.keys))
		made := &list{kind: view}
		for _, key := range d.keys {
			value, _ := d.get(key)
			made.items = append(made.items, value)
		}
		return made
	},
	"items": func(s *state, d *dict, given arguments) any {
		given.take("items")
		return &list{items: s.pairs(d), kind: view}
	},
	"copy": func(s *state, d *dict, given arguments) any {
		given.take("copy")
		s.spend(len(d.keys))
		made := newDict()
		for _, key := range d.keys {
			value, _ := d.get(key)
			made.set(key, value)
		}
		return made
	},
}

// pairs are the keys of a dictionary, each with its value.
func (s *state) pairs(d *dict) []any {
	s.spend(len(d.keys))
	var made []any
	for _, key := range d.keys {
		value, _ := d.get(key)
		made = append(made, &list{items: []any{key, value}, kind: tuple})
	}
	return made
}

var listMethods = map[string]func(s *state, l *list, given arguments) any{
	"index": func(s *state, l *list, given arguments) any {
		wanted := given.take("index", "value")[0]
		s.spend(len(l.items))
		for at, item := range l.items {
			if s.equal(item, wanted) {
				return int64(at)
			}
		}
		fail("ValueError", "the value is not in list")
		return nil
	},
	"count": func(s *state, l *list, given arguments) any {
		wanted := given.take("count", "value")[0]
		s.spend(len(l.items))
		found := int64(0)
		for _, item := range l.items {
			if s.equal(item, wanted) {
				found++
			}
		}
		return found
	},
	"copy": func(s *state, l *list, given arguments) any {
		given.take("copy")
		s.spend(len(l.items))
		return &list{items: append([]any{}, l.items...)}
	},
}
