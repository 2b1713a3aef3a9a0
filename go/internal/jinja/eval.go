package jinja

import (
	"math"
	"math/bits"
	"slices"
	"strings"
)

// arguments are those that a function gets.
type arguments struct {
	positional []any
	names      []string
	named      []any
}

// missing stands for an argument that was not given.
type missing struct{}

// take gives the arguments by their names, missing where one was not given. Others are an error.
func (a arguments) take(function string, names ...string) []any {
	taken := make([]any, len(names))
	if len(a.positional) > len(names) {
		fail("TypeError", "%s() takes %d arguments but %d were given", function, len(names), len(a.positional))
	}
	for at := range taken {
		taken[at] = missing{}
	}
	copy(taken, a.positional)
	for at, name := range a.names {
		place := slices.Index(names, name)
		if place < 0 {
			fail("TypeError", "%s() got an unexpected keyword argument '%s'", function, name)
		}
		if place < len(a.positional) {
			fail("TypeError", "%s() got multiple values for argument '%s'", function, name)
		}
		taken[place] = a.named[at]
	}
	return taken
}

// or is an argument, or another value where it was not given.
func or(given, otherwise any) any {
	if _, none := given.(missing); none {
		return otherwise
	}
	return given
}

func (s *state) arguments(given callArguments) arguments {
	var made arguments
	for _, one := range given.positional {
		made.positional = append(made.positional, s.eval(one))
	}
	if given.rest != nil {
		made.positional = append(made.positional, s.items(s.eval(given.rest))...)
	}
	made.names = slices.Clone(given.names)
	for _, one := range given.named {
		made.named = append(made.named, s.eval(one))
	}
	if given.restNamed != nil {
		value := s.eval(given.restNamed)
		rest, ok := value.(*dict)
		if !ok {
			fail("TypeError", "argument after ** must be a mapping, not %s", typeName(value))
		}
		for _, key := range rest.keys {
			value, _ := rest.get(key)
			made.names, made.named = append(made.names, s.text(key)), append(made.named, value)
		}
	}
	return made
}

func (s *state) eval(of node) any {
	s.spend(1)
	switch of := of.(type) {
	case constant:
		return of.value
	case variable:
		if value, found := s.names.find(of.name); found {
			return value
		}
		return &undefined{"'" + of.name + "' is undefined"}
	case listOf:
		made := &list{}
		if of.tuple {
			made.kind = tuple
		}
		for _, item := range of.items {
			made.items = append(made.items, s.eval(item))
		}
		return made
	case dictOf:
		made := newDict()
		for at, key := range of.keys {
			s.spend(4)
			made.set(s.eval(key), s.eval(of.values[at]))
		}
		return made
	case unary:
		return s.unary(of)
	case binary:
		left := s.eval(of.left)
		switch {
		case of.operator == "and" && !truth(left), of.operator == "or" && truth(left):
			return left
		case of.operator == "and", of.operator == "or":
			return s.eval(of.right)
		}
		return s.arithmetic(of.operator, left, s.eval(of.right))
	case joined:
		var text strings.Builder
		for _, part := range of.parts {
			piece := s.text(s.eval(part))
			s.copied(len(piece))
			text.WriteString(piece)
		}
		return text.String()
	case comparison:
		left := s.eval(of.first)
		for at, operator := range of.operators {
			right := s.eval(of.others[at])
			if !s.compare(operator, left, right) {
				return false
			}
			left = right
		}
		return true
	case choice:
		if truth(s.eval(of.test)) {
			return s.eval(of.then)
		}
		if of.otherwise == nil {
			return &undefined{"the inline if-expression evaluated to false and no else section was defined."}
		}
		return s.eval(of.otherwise)
	case attribute:
		return s.attribute(s.eval(of.of), of.name)
	case place:
		whole := s.eval(of.of)
		if cut, ok := of.at.(part); ok {
			return s.part(whole, cut)
		}
		return s.item(whole, s.eval(of.at))
	case call:
		return s.call(s.eval(of.of), s.arguments(of.given))
	case filtered:
		return filterFunctions[of.name](s, s.eval(of.of), s.arguments(of.given))
	case tested:
		return testFunctions[of.name](s, s.eval(of.of), s.arguments(of.given))
	}
	fail("TemplateRuntimeError", "a part of the template is of an unknown kind")
	return nil
}

func (s *state) call(of any, given arguments) any {
	switch of := of.(type) {
	case *function:
		return of.call(s, given)
	case *loop:
		if of.again != nil {
			return of.again.call(s, given)
		}
		fail("TypeError", "The loop must have the 'recursive' marker to be called recursively.")
	case *undefined:
		fail("UndefinedError", "%s", of.sentence)
	}
	fail("TypeError", "'%s' object is not callable", typeName(of))
	return nil
}

func (s *state) compare(operator string, left, right any) bool {
	switch operator {
	case "==":
		s.looked(left)
		return s.equal(left, right)
	case "!=":
		s.looked(left)
		return !s.equal(left, right)
	case "in":
		return s.contains(right, left)
	case "not in":
		return !s.contains(right, left)
	}
	found := s.order(left, right, operator)
	switch operator {
	case "<":
		return found < 0
	case "<=":
		return found <= 0
	case ">":
		return found > 0
	}
	return found >= 0
}

// looked counts what it takes to look through a value.
func (s *state) looked(value any) {
	switch value := value.(type) {
	case string:
		s.copied(len(value))
	case *list:
		s.spend(len(value.items))
	case *dict:
		s.spend(len(value.keys))
	}
}

func (s *state) unary(of unary) any {
	value := s.eval(of.of)
	if of.operator == "not" {
		return !truth(value)
	}
	if lost, ok := value.(*undefined); ok {
		fail("UndefinedError", "%s", lost.sentence)
	}
	whole, fraction, isWhole, ok := number(value)
	switch {
	case !ok:
		fail("TypeError", "bad operand type for unary %s: '%s'", of.operator, typeName(value))
	case of.operator == "+" && isWhole:
		return whole
	case of.operator == "+":
		return fraction
	case isWhole && whole == math.MinInt64:
		tooLarge()
	case isWhole:
		return -whole
	}
	return -fraction
}

func tooLarge() { fail("OverflowError", "a whole number is beyond 64 bits") }

func (s *state) arithmetic(operator string, left, right any) any {
	for _, value := range []any{left, right} {
		if lost, ok := value.(*undefined); ok {
			fail("UndefinedError", "%s", lost.sentence)
		}
	}
	x, a, wholeX, okX := number(left)
	y, b, wholeY, okY := number(right)
	switch {
	case okX && okY && wholeX && wholeY:
		return wholes(operator, x, y)
	case okX && okY:
		return fractions(operator, a, b)
	case operator == "*" && okY && wholeY:
		return s.repeat(left, y)
	case operator == "*" && okX && wholeX:
		return s.repeat(right, x)
	case operator == "%" && typeName(left) == "str":
		if values, ok := right.(*list); ok && values.kind == tuple {
			return s.percent(left.(string), values.items)
		}
		return s.percent(left.(string), []any{right})
	case operator == "+":
		if one, ok := left.(string); ok {
			if other, ok := right.(string); ok {
				s.copied(len(one) + len(other))
				return one + other
			}
		}
		if one, ok := left.(*list); ok {
			if other, ok := right.(*list); ok && one.kind == other.kind && one.kind <= tuple {
				s.spend(len(one.items) + len(other.items))
				return &list{items: slices.Concat(one.items, other.items), kind: one.kind}
			}
		}
	}
	fail("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", operator, typeName(left), typeName(right))
	return nil
}

func wholes(operator string, x, y int64) any {
	switch operator {
	case "+":
		if sum := x + y; (sum > x) == (y > 0) {
			return sum
		}
		tooLarge()
	case "-":
		if difference := x - y; (difference < x) == (y > 0) {
			return difference
		}
		tooLarge()
	case "*":
		return product(x, y)
	case "/":
		if y == 0 {
			fail("ZeroDivisionError", "division by zero")
		}
		return float64(x) / float64(y)
	case "//", "%":
		if y == 0 {
			fail("ZeroDivisionError", "division or modulo by zero")
		}
		if x == math.MinInt64 && y == -1 {
			tooLarge()
		}
		quotient, rest := x/y, x%y
		if rest != 0 && (rest < 0) != (y < 0) { // Python rounds towards minus infinity
			quotient, rest = quotient-1, rest+y
		}
		if operator == "%" {
			return rest
		}
		return quotient
	}
	if y < 0 {
		return fractions("**", float64(x), float64(y))
	}
	power := int64(1)
	for range min(y, 64) {
		power = product(power, x)
	}
	if y > 64 && x != 0 && x != 1 && x != -1 {
		tooLarge()
	}
	if x == -1 && y > 64 && y%2 != 0 {
		return int64(-1)
	}
	return power
}

func product(x, y int64) int64 {
	high, low := bits.Mul64(magnitude(x), magnitude(y))
	if high != 0 || low > math.MaxInt64 {
		tooLarge()
	}
	return x * y
}

func magnitude(x int64) uint64 {
	if x < 0 {
		return uint64(-(x + 1)) + 1
	}
	return uint64(x)
}

func fractions(operator string, a, b float64) any {
	switch operator {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	}
	if b == 0 && operator != "**" {
		fail("ZeroDivisionError", "float division by zero")
	}
	switch operator {
	case "/":
		return a / b
	case "//":
		return math.Floor(a / b)
	case "%":
		rest := math.Mod(a, b)
		if rest != 0 && (rest < 0) != (b < 0) {
			rest += b
		}
		return rest
	}
	return math.Pow(a, b)
}

func (s *state) repeat(value any, times int64) any {
	times = max(times, 0)
	size := 0
	switch value := value.(type) {
	case string:
		size = len(value)
	case *list:
		size = 8 * len(value.items)
	}
	if size > 0 && times > mostSteps/int64(size)*8 {
		fail("MemoryError", "a text or list is repeated %d times", times)
	}
	s.copied(size * int(times))
	switch value := value.(type) {
	case string:
		return strings.Repeat(value, int(times))
	case *list:
		if value.kind <= tuple {
			return &list{items: slices.Repeat(value.items, int(times)), kind: value.kind}
		}
	}
	fail("TypeError", "can't multiply a %s", typeName(value))
	return nil
}

// part is whole[start:stop:step].
func (s *state) part(whole any, cut part) any {
	var items []any
	text, isText := whole.(string)
	var letters []rune
	size := 0
	switch value := whole.(type) {
	case string:
		s.copied(len(value))
		letters = []rune(text)
		size = len(letters)
	case *list:
		if value.kind > numbers {
			return &undefined{"'" + typeName(whole) + "' object has no parts"}
		}
		items = value.items
		size = len(items)
	case *undefined:
		fail("UndefinedError", "%s", value.sentence)
	default:
		return &undefined{"'" + typeName(whole) + "' object has no parts"}
	}
	start, stop, step := s.bound(cut.start), s.bound(cut.stop), s.bound(cut.step)
	by := 1
	if step != nil {
		if by = *step; by == 0 {
			fail("ValueError", "slice step cannot be zero")
		}
	}
	low, high := 0, size // what places are between
	first, last := 0, size
	if by < 0 {
		low, high = -1, size-1
		first, last = size-1, -1
	}
	limit := func(at int) int {
		if at < 0 {
			at += size
		}
		return max(low, min(high, at))
	}
	if start != nil {
		first = limit(*start)
	}
	if stop != nil {
		last = limit(*stop)
	}
	s.spend(size)
	made := &list{}
	var out strings.Builder
	for at := first; by > 0 && at < last || by < 0 && at > last; at += by {
		if isText {
			out.WriteRune(letters[at])
		} else {
			made.items = append(made.items, items[at])
		}
	}
	if isText {
		return out.String()
	}
	made.kind = whole.(*list).kind
	return made
}

// bound is a place of a part, nil where there is none.
func (s *state) bound(of node) *int {
	if of == nil {
		return nil
	}
	value := s.eval(of)
	if value == nil {
		return nil
	}
	whole, _, isWhole, _ := number(value)
	if !isWhole {
		fail("TypeError", "slice indices must be integers or None")
	}
	at := int(max(-1<<40, min(1<<40, whole)))
	return &at
}
