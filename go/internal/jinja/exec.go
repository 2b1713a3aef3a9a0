package jinja

import (
	"maps"
	"strings"
	"time"
	"unicode/utf8"
)

// state is a template at work.
type state struct {
	out      *strings.Builder
	names    *scope
	depth    int
	left     int // steps
	most     int // characters of the result
	captures int // texts that are being made to be used, and not to be the result
	now      func() time.Time
}

// scope has the names of a part of a template; those around it show through.
type scope struct {
	values map[string]any
	around *scope
}

func (c *scope) find(name string) (any, bool) {
	for ; c != nil; c = c.around {
		if value, found := c.values[name]; found {
			return value, true
		}
	}
	return nil, false
}

// mostSteps bounds what a template may do, in parts of expressions and in eighths of bytes that are written or looked
// through: about a second.
const mostSteps = 1 << 24

func (s *state) spend(steps int) {
	if s.left -= steps; s.left < 0 {
		fail("TimeoutError", "it takes more than %d steps", mostSteps)
	}
}

// copied counts bytes that are written or looked through.
func (s *state) copied(bytes int) { s.spend(1 + bytes/8) }

func (s *state) write(text string) {
	s.copied(len(text))
	s.out.WriteString(text)
	if s.captures == 0 && s.out.Len() > s.most && utf8.RuneCountInString(s.out.String()) > s.most {
		fail("OverflowError", "it writes more than %d characters", s.most)
	}
}

// inside runs something in a scope of its own, with names in it.
func (s *state) inside(around *scope, values map[string]any, run func()) {
	s.spend(16) // what a scope takes
	before := s.names
	s.names = &scope{values: maps.Clone(values), around: around}
	if s.names.values == nil {
		s.names.values = make(map[string]any)
	}
	defer s.deeper()()
	run()
	s.names = before
}

// deeper counts how deep macros, loops and values are nested; it gives what undoes it.
func (s *state) deeper() func() {
	if s.depth++; s.depth > mostDepth {
		fail("RecursionError", "macros, loops or values are nested too deeply")
	}
	return func() { s.depth-- }
}

// captured is the text that something writes.
func (s *state) captured(run func()) string {
	before := s.out
	s.out = &strings.Builder{}
	s.captures++
	run()
	made := s.out.String()
	s.captures--
	s.out = before
	return made
}

// signal is why a body ended: at its end, or for its loop to end or to go on.
type signal uint8

const (
	ended signal = iota
	broken
	continued
)

func (s *state) run(body []statement) signal {
	for _, one := range body {
		s.spend(1)
		if left := s.step(one); left != ended {
			return left
		}
	}
	return ended
}

func (s *state) step(one statement) (left signal) {
	switch one := one.(type) {
	case textOf:
		s.write(one.text)
	case printed:
		s.write(s.text(s.eval(one.of)))
	case *forLoop:
		return s.loop(one, s.eval(one.over), 0)
	case branches:
		for at, test := range one.tests {
			if truth(s.eval(test)) {
				return s.run(one.bodies[at])
			}
		}
		return s.run(one.otherwise)
	case assignment:
		s.assign(one.to, s.eval(one.value))
	case blockAssignment:
		var text any
		s.inside(s.names, nil, func() { text = s.captured(func() { s.run(one.body) }) })
		if one.filters != nil {
			text = s.filterText(one.filters, text)
		}
		s.assign(one.to, text)
	case *macro:
		s.names.values[one.name] = s.function(one)
	case callBlock:
		caller := s.function(one.caller)
		of := s.eval(one.of.of)
		given := s.arguments(one.of.given)
		given.names, given.named = append(given.names, "caller"), append(given.named, caller)
		s.write(s.text(s.call(of, given)))
	case filterBlock:
		var text any
		s.inside(s.names, nil, func() { text = s.captured(func() { s.run(one.body) }) })
		s.write(s.text(s.filterText(one.filters, text)))
	case scoped:
		values := make(map[string]any)
		for at, to := range one.targets {
			s.unpack(to, s.eval(one.values[at]), values)
		}
		s.inside(s.names, values, func() { left = s.run(one.body) })
	case leave:
		if one.again {
			return continued
		}
		return broken
	}
	return left
}

// filterText puts the text of a block through filters.
func (s *state) filterText(filters node, text any) any {
	one := filters.(filtered)
	if one.of != nil {
		text = s.filterText(one.of, text)
	}
	return filterFunctions[one.name](s, text, s.arguments(one.given))
}

func (s *state) assign(to target, value any) {
	if to.attribute == "" {
		s.unpack(to, value, s.names.values)
		return
	}
	found, _ := s.names.find(to.name)
	space, ok := found.(*namespace)
	if !ok {
		fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
	}
	space.set(to.attribute, value)
}

// unpack gives names their values.
func (s *state) unpack(to target, value any, values map[string]any) {
	if to.several == nil {
		if to.attribute != "" {
			s.assign(to, value)
			return
		}
		values[to.name] = value
		return
	}
	parts := s.items(value)
	if len(parts) != len(to.several) {
		fail("ValueError", "expected %d values to unpack, got %d", len(to.several), len(parts))
	}
	for at, one := range to.several {
		s.unpack(one, parts[at], values)
	}
}

// loop is what a template knows as `loop`.
type loop struct {
	items   []any
	at      int
	depth   int
	changed []any
	again   *function // for a recursive one
}

func (s *state) loop(one *forLoop, over any, depth int) (left signal) {
	around := s.names
	items := s.items(over)
	if one.test != nil {
		var kept []any
		for _, item := range items {
			values := make(map[string]any)
			s.unpack(one.target, item, values)
			s.inside(around, values, func() {
				if truth(s.eval(one.test)) {
					kept = append(kept, item)
				}
			})
		}
		items = kept
	}
	here := &loop{items: items, depth: depth}
	if one.recursive {
		here.again = &function{"loop", func(s *state, given arguments) any {
			over := given.take("loop", "iterable")[0]
			return s.captured(func() { s.inside(around, nil, func() { s.loop(one, over, depth+1) }) })
		}}
	}
	for at, item := range items {
		s.spend(1)
		here.at = at
		values := map[string]any{"loop": here}
		s.unpack(one.target, item, values)
		s.inside(around, values, func() { left = s.run(one.body) })
		if left == broken {
			break
		}
	}
	if len(items) > 0 {
		return ended
	}
	s.inside(around, nil, func() { left = s.run(one.otherwise) })
	return left
}

// function makes a macro callable.
func (s *state) function(one *macro) *function {
	around := s.names
	return &function{one.name, func(s *state, given arguments) any {
		values := make(map[string]any)
		rest := newDict()
		extra := &list{kind: tuple}
		for at, value := range given.positional {
			if at < len(one.parameters) {
				values[one.parameters[at]] = value
			} else {
				extra.items = append(extra.items, value)
			}
		}
		for at, name := range given.names {
			known := false
			for _, parameter := range one.parameters {
				known = known || parameter == name
			}
			_, twice := values[name]
			switch {
			case known && twice:
				fail("TypeError", "macro '%s' got multiple values for argument '%s'", one.name, name)
			case known || name == "caller":
				values[name] = given.named[at]
			default:
				rest.set(name, given.named[at])
			}
		}
		if len(extra.items) > 0 && !one.varargs {
			fail("TypeError", "macro '%s' takes not more than %d argument(s)", one.name, len(one.parameters))
		}
		if len(rest.keys) > 0 && !one.kwargs {
			fail("TypeError", "macro '%s' takes no keyword argument '%s'", one.name, s.text(rest.keys[0]))
		}
		values["varargs"], values["kwargs"] = extra, rest
		var text string
		s.inside(around, values, func() {
			first := len(one.parameters) - len(one.defaults)
			for at, name := range one.parameters {
				if _, found := s.names.values[name]; found {
					continue
				}
				if at < first {
					s.names.values[name] = &undefined{"parameter '" + name + "' was not provided"}
				} else {
					s.names.values[name] = s.eval(one.defaults[at-first])
				}
			}
			text = s.captured(func() { s.run(one.body) })
		})
		return text
	}}
}
