package jinja

// Statements.
type (
	textOf  struct{ text string }
	printed struct{ of node }
	forLoop struct {
		target    target
		over      node
		test      node // nil for none
		body      []statement
		otherwise []statement
		recursive bool
	}
	branches struct {
		tests     []node
		bodies    [][]statement
		otherwise []statement
	}
	assignment struct {
		to    target
		value node
	}
	blockAssignment struct {
		to      target
		filters node // of the text, nil for none
		body    []statement
	}
	macro struct {
		name       string
		parameters []string
		defaults   []node // of the last parameters
		body       []statement

		varargs, kwargs bool // whether it says what to do with further arguments
	}
	callBlock struct {
		of     call
		caller *macro
	}
	filterBlock struct {
		filters node
		body    []statement
	}
	scoped struct { // with, and what models are trained on
		targets []target
		values  []node
		body    []statement
	}
	leave struct{ again bool } // break, continue
)

type statement any

// target is what is assigned to: one name, an attribute of a namespace, or several in turn.
type target struct {
	name, attribute string
	several         []target
}

// until reads statements up to a tag of one of the names, and takes the name.
func (p *parser) until(names ...string) (body []statement, end string) {
	defer p.deeper()()
	for {
		switch now := p.next(); now.kind {
		case textToken:
			body = append(body, textOf{now.value})
		case beginPrint:
			body = append(body, printed{p.tuple(true, false)})
			p.expectKind(endPrint, "end of print statement")
		case beginBlock:
			for _, name := range names {
				if p.skip(name) {
					return body, name
				}
			}
			body = append(body, p.statement())
			p.expectKind(endBlock, "end of statement block")
		default:
			if len(names) == 0 {
				return body, ""
			}
			p.fail("Unexpected end of template. The innermost block that needs to be closed wants '%s'", names[0])
		}
	}
}

// block reads the end of a tag, and statements up to a tag of the name.
func (p *parser) block(end string) []statement {
	p.expectKind(endBlock, "end of statement block")
	body, _ := p.until(end)
	return body
}

func (p *parser) statement() statement {
	name := p.expectKind(nameToken, "tag name")
	switch name.value {
	case "for":
		return p.loop()
	case "if":
		return p.condition()
	case "set":
		return p.set()
	case "macro":
		made := &macro{name: p.expectKind(nameToken, "name").value}
		p.expect("(")
		p.parameters(made)
		outside := p.inLoop
		p.inLoop = 0
		from := p.at
		made.body = p.block("endmacro")
		p.inLoop = outside
		for _, taken := range p.tokens[from:p.at] {
			made.varargs = made.varargs || taken.is("varargs")
			made.kwargs = made.kwargs || taken.is("kwargs")
		}
		return made
	case "call":
		return p.callBlock()
	case "filter":
		filters := p.filterChain()
		return filterBlock{filters, p.block("endfilter")}
	case "with":
		made := scoped{}
		for p.current().kind != endBlock {
			if len(made.targets) > 0 {
				p.expect(",")
			}
			made.targets = append(made.targets, p.target())
			p.expect("=")
			made.values = append(made.values, p.expression())
		}
		made.body = p.block("endwith")
		return made
	case "generation":
		return scoped{body: p.block("endgeneration")}
	case "break", "continue":
		if p.inLoop == 0 {
			failAt(name.line, "'%s' outside loop", name.value)
		}
		return leave{again: name.value == "continue"}
	}
	failAt(name.line, "Encountered unknown tag '%s'.", name.value)
	return nil
}

func (p *parser) loop() statement {
	made := &forLoop{target: p.target()}
	p.expect("in")
	made.over = p.tuple(false, false)
	if p.skip("if") {
		made.test = p.expression()
	}
	made.recursive = p.skip("recursive")
	p.expectKind(endBlock, "end of statement block")
	p.inLoop++
	body, end := p.until("endfor", "else")
	p.inLoop--
	made.body = body
	if end == "else" {
		made.otherwise = p.block("endfor")
	}
	return made
}

func (p *parser) condition() statement {
	made := branches{}
	for {
		made.tests = append(made.tests, p.tuple(false, false))
		p.expectKind(endBlock, "end of statement block")
		body, end := p.until("elif", "else", "endif")
		made.bodies = append(made.bodies, body)
		switch end {
		case "else":
			made.otherwise = p.block("endif")
			return made
		case "endif":
			return made
		}
	}
}

func (p *parser) set() statement {
	to := p.target()
	if p.skip("=") {
		return assignment{to, p.tuple(true, false)}
	}
	made := blockAssignment{to: to}
	if p.skip("|") {
		made.filters = p.filterChain()
	}
	made.body = p.block("endset")
	return made
}

// filterChain is filters of the text of a block.
func (p *parser) filterChain() node {
	made := p.filter(nil)
	for length := 0; p.skip("|"); length++ {
		p.chained(length)
		made = p.filter(made)
	}
	return made
}

// target reads what is assigned to.
func (p *parser) target() target {
	var made []target
	comma := false
	for {
		if p.skip("(") {
			made = append(made, p.target())
			p.expect(")")
		} else {
			one := target{name: p.expectKind(nameToken, "name").value}
			if _, taken := constants[one.name]; taken {
				p.fail("can't assign to '%s'", one.name)
			}
			if p.skip(".") {
				one.attribute = p.expectKind(nameToken, "name").value
			}
			made = append(made, one)
		}
		if !p.skip(",") {
			break
		}
		comma = true
		if now := p.current(); now.is("in") || now.is("=") || now.is(")") {
			break
		}
	}
	if len(made) == 1 && !comma {
		return made[0]
	}
	return target{several: made}
}

// parameters are those of a macro, and the bracket after them.
func (p *parser) parameters(made *macro) {
	for !p.skip(")") {
		if len(made.parameters) > 0 {
			p.expect(",")
		}
		made.parameters = append(made.parameters, p.expectKind(nameToken, "name").value)
		if p.skip("=") {
			made.defaults = append(made.defaults, p.expression())
		} else if len(made.defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
	}
}

func (p *parser) callBlock() statement {
	made := callBlock{caller: &macro{name: "caller"}}
	if p.skip("(") {
		p.parameters(made.caller)
	}
	of, ok := p.expression().(call)
	if !ok {
		p.fail("expected call")
	}
	made.of = of
	made.caller.body = p.block("endcall")
	return made
}
