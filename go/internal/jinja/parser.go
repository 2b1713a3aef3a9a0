package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parts of expressions.
type (
	constant struct{ value any }
	variable struct{ name string }
	listOf   struct {
		items []node
		tuple bool
	}
	dictOf struct{ keys, values []node }
	unary  struct {
		operator string
		of       node
	}
	binary struct {
		operator    string
		left, right node
	}
	joined     struct{ parts []node } // by ~
	comparison struct {
		first     node
		operators []string
		others    []node
	}
	choice    struct{ test, then, otherwise node }
	attribute struct {
		of   node
		name string
	}
	place struct{ of, at node }
	part  struct{ start, stop, step node } // of a list, in brackets
	call  struct {
		of    node
		given callArguments
	}
	filtered struct {
		of    node // nil for the text of a block
		name  string
		given callArguments
	}
	tested struct {
		of    node
		name  string
		given callArguments
	}
)

// node is a part of an expression; nil where there is none.
type node any

type callArguments struct {
	positional []node
	names      []string // of those that follow
	named      []node
	rest       node // *rest
	restNamed  node // **rest
}

// Bounds of a template, and of what it does, in depth: of parts in brackets and blocks, and of parts in a row.
const (
	mostDepth   = 150
	mostChained = 1000
)

type parser struct {
	tokens []token
	at     int
	depth  int
	inLoop int
}

func (p *parser) current() token { return p.tokens[p.at] }

func (p *parser) next() token {
	taken := p.tokens[p.at]
	if taken.kind != endToken {
		p.at++
	}
	return taken
}

// skip takes a token if it is a name or an operator that is written so.
func (p *parser) skip(value string) bool {
	if p.current().is(value) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(value string) {
	if !p.skip(value) {
		p.fail("expected '%s', got '%s'", value, p.shown())
	}
}

func (p *parser) expectKind(kind tokenKind, what string) token {
	if p.current().kind != kind {
		p.fail("expected %s, got '%s'", what, p.shown())
	}
	return p.next()
}

func (p *parser) shown() string {
	switch taken := p.current(); taken.kind {
	case endBlock:
		return "end of statement block"
	case endPrint:
		return "end of print statement"
	case endToken:
		return "end of template"
	default:
		return taken.value
	}
}

func (p *parser) fail(format string, values ...any) { failAt(p.current().line, format, values...) }

// deeper counts how deep parts are nested; it gives what undoes it.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > mostDepth {
		p.fail("the template is nested too deeply")
	}
	return func() { p.depth-- }
}

// chained bounds how many parts stand in a row, of which each holds those before it.
func (p *parser) chained(length int) {
	if length > mostChained {
		p.fail("the template chains too many parts, that is, too deeply")
	}
}

func (p *parser) expression() node {
	defer p.deeper()()
	made := p.either()
	for length := 0; p.skip("if"); length++ {
		p.chained(length)
		test := p.either()
		var otherwise node
		if p.skip("else") {
			otherwise = p.expression()
		}
		made = choice{test, made, otherwise}
	}
	return made
}

// run is a chain of parts between operators, the leftmost done first.
func (p *parser) run(inner func() node, operators ...string) node {
	made := inner()
	for length := 0; ; length++ {
		p.chained(length)
		at := slices.IndexFunc(operators, p.current().is)
		if at < 0 {
			return made
		}
		p.next()
		made = binary{operators[at], made, inner()}
	}
}

func (p *parser) either() node { return p.run(p.both, "or") }
func (p *parser) both() node   { return p.run(p.negation, "and") }

func (p *parser) negation() node {
	if p.skip("not") {
		defer p.deeper()()
		return unary{"not", p.negation()}
	}
	return p.comparison()
}

func (p *parser) comparison() node {
	made := comparison{first: p.sum()}
	for {
		operator := ""
		switch now := p.current(); {
		case now.kind == operatorToken && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, now.value), now.is("in"):
			operator = p.next().value
		case now.is("not") && p.tokens[p.at+1].is("in"):
			p.at += 2
			operator = "not in"
		case len(made.operators) == 0:
			return made.first
		default:
			return made
		}
		made.operators = append(made.operators, operator)
		made.others = append(made.others, p.sum())
	}
}

func (p *parser) sum() node { return p.run(p.joint, "+", "-") }

func (p *parser) joint() node {
	parts := []node{p.product()}
	for p.skip("~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return joined{parts}
}

func (p *parser) product() node { return p.run(p.power, "*", "/", "//", "%") }

func (p *parser) power() node { return p.run(func() node { return p.signed(true) }, "**") }

func (p *parser) signed(filters bool) node {
	defer p.deeper()()
	var made node
	if now := p.current(); now.kind == operatorToken && (now.value == "-" || now.value == "+") {
		p.next()
		made = unary{now.value, p.signed(false)}
	} else {
		made = p.primary()
	}
	made = p.postfix(made)
	if filters {
		made = p.filters(made)
	}
	return made
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() node {
	taken := p.current()
	switch taken.kind {
	case nameToken:
		p.next()
		if value, known := constants[taken.value]; known {
			return constant{value}
		}
		return variable{taken.value}
	case stringToken:
		var text strings.Builder
		for p.current().kind == stringToken {
			text.WriteString(p.next().value)
		}
		return constant{text.String()}
	case wholeToken:
		value, err := strconv.ParseInt(taken.value, 10, 64)
		if err != nil {
			p.fail("the number %s is too large", taken.value)
		}
		p.next()
		return constant{value}
	case floatToken:
		value, err := strconv.ParseFloat(taken.value, 64)
		if err != nil && !math.IsInf(value, 0) {
			p.fail("the number %s is none", taken.value)
		}
		p.next()
		return constant{value}
	}
	switch {
	case p.skip("("):
		made := p.tuple(true, true)
		p.expect(")")
		return made
	case p.skip("["):
		made := listOf{}
		for !p.skip("]") {
			if len(made.items) > 0 {
				p.expect(",")
			}
			if p.skip("]") {
				break
			}
			made.items = append(made.items, p.expression())
		}
		return made
	case p.skip("{"):
		made := dictOf{}
		for !p.skip("}") {
			if len(made.keys) > 0 {
				p.expect(",")
			}
			if p.skip("}") {
				break
			}
			made.keys = append(made.keys, p.expression())
			p.expect(":")
			made.values = append(made.values, p.expression())
		}
		return made
	}
	p.fail("unexpected '%s'", p.shown())
	return nil
}

// tuple is one expression, or several with commas between. `conditional` lets one be `a if b else c`; with `brackets`
// there may be none.
func (p *parser) tuple(conditional, brackets bool) node {
	made := listOf{tuple: true}
	comma := false
	for {
		now := p.current()
		ends := now.kind == endBlock || now.kind == endPrint || now.is(")") || now.is("in") || now.is("recursive")
		if ends && (len(made.items) > 0 || brackets) {
			break
		}
		if conditional {
			made.items = append(made.items, p.expression())
		} else {
			made.items = append(made.items, p.either())
		}
		if !p.skip(",") {
			break
		}
		comma = true
	}
	if len(made.items) == 1 && !comma {
		return made.items[0]
	}
	return made
}

// postfix is what follows a part: attributes, places in brackets, calls.
func (p *parser) postfix(made node) node {
	for length := 0; ; length++ {
		p.chained(length)
		switch {
		case p.skip("."):
			switch name := p.next(); name.kind {
			case nameToken:
				made = attribute{made, name.value}
			case wholeToken:
				at, _ := strconv.ParseInt(name.value, 10, 64) // digits alone; too many are the largest
				made = place{made, constant{at}}
			default:
				p.at--
				p.fail("expected name or number")
			}
		case p.skip("["):
			made = place{made, p.places()}
		case p.skip("("):
			made = call{made, p.arguments()}
		default:
			return made
		}
	}
}

func (p *parser) places() node {
	var places []node
	for {
		places = append(places, p.placeOrPart())
		if !p.skip(",") {
			break
		}
	}
	p.expect("]")
	if len(places) == 1 {
		return places[0]
	}
	return listOf{items: places, tuple: true}
}

func (p *parser) placeOrPart() node {
	var made part
	if p.skip(":") {
		made.start = nil
	} else {
		first := p.expression()
		if !p.skip(":") {
			return first
		}
		made.start = first
	}
	ends := func() bool { return p.current().is("]") || p.current().is(",") }
	if !ends() && !p.current().is(":") {
		made.stop = p.expression()
	}
	if p.skip(":") && !ends() {
		made.step = p.expression()
	}
	return made
}

// arguments are those of a call, and the bracket after them.
func (p *parser) arguments() callArguments {
	var given callArguments
	for first := true; !p.skip(")"); first = false {
		if !first {
			p.expect(",")
			if p.skip(")") {
				break
			}
		}
		switch {
		case p.skip("*"):
			given.rest = p.expression()
		case p.skip("**"):
			given.restNamed = p.expression()
		case p.current().kind == nameToken && p.tokens[p.at+1].is("="):
			given.names = append(given.names, p.next().value)
			p.next()
			given.named = append(given.named, p.expression())
		default:
			if len(given.named) > 0 || given.rest != nil || given.restNamed != nil {
				p.fail("invalid syntax for function call expression")
			}
			given.positional = append(given.positional, p.expression())
		}
	}
	return given
}

// filters are filters and tests after a part.
func (p *parser) filters(made node) node {
	for length := 0; ; length++ {
		p.chained(length)
		switch {
		case p.skip("|"):
			made = p.filter(made)
		case p.skip("is"):
			made = p.test(made)
		case p.skip("("):
			made = call{made, p.arguments()}
		default:
			return made
		}
	}
}

// filter reads what follows the bar.
func (p *parser) filter(of node) node {
	made := filtered{of: of, name: p.dotted()}
	if _, known := filterFunctions[made.name]; !known {
		p.fail("No filter named '%s'.", made.name)
	}
	if p.skip("(") {
		made.given = p.arguments()
	}
	return made
}

func (p *parser) dotted() string {
	name := p.expectKind(nameToken, "name").value
	for p.skip(".") {
		name += "." + p.expectKind(nameToken, "name").value
	}
	return name
}

func (p *parser) test(of node) node {
	negated := p.skip("not")
	made := tested{of: of, name: p.dotted()}
	if _, known := testFunctions[made.name]; !known {
		p.fail("No test named '%s'.", made.name)
	}
	switch now := p.current(); {
	case p.skip("("):
		made.given = p.arguments()
	case now.is("else"), now.is("or"), now.is("and"):
	case now.is("is"):
		p.fail("You cannot chain multiple tests with is")
	case now.kind == nameToken, now.kind == stringToken, now.kind == wholeToken, now.kind == floatToken, now.is("["), now.is("{"):
		made.given.positional = []node{p.postfix(p.primary())}
	}
	if negated {
		return unary{"not", made}
	}
	return made
}
