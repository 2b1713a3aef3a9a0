package grammar

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
)

// What JSON schemas may ask of llguidance. It has limits of its own, but not for everything: how long it takes to find the
// remainders of `multipleOf`, and how often it asks whether expressions can hold at once, can be counted in the schema only.
// The three languages count alike.
const (
	// mostMultiple is of the least common multiple of all `multipleOf`, in units of their last decimal place: llguidance has
	// a state for each remainder, and goes through all of them. Its own arithmetic has 32 bits, which this cannot exceed.
	mostMultiple = 10_000

	// mostCharacters is of all expressions, and of the names of properties that expressions of `patternProperties` are
	// tried on.
	mostCharacters = 8192

	// mostChecks is how often expressions are held against others; each time takes half a millisecond at most, if they are
	// not long.
	mostChecks = 2000

	// mostLevels is of schemas within each other, counted along `$ref`.
	mostLevels = 128

	formatCharacters = 150 // what the expression of a `format` counts
	short            = 100 // shorter expressions count as so many characters
	many             = 1e9 // counts end here
	mostPower        = 5   // of ten: more is beyond mostMultiple
)

// isAnnotation says whether a keyword holds for no text. A `$ref` beside these alone is shared, not held against anything.
func isAnnotation(key string) bool {
	switch key {
	case "$anchor", "$defs", "definitions", "$schema", "$id", "id", "$comment", "title", "description", "default",
		"readOnly", "writeOnly", "examples", "contentMediaType", "contentEncoding":
		return true
	}
	return false
}

// checkCost is an error unless the schemas together stay within the limits. Time in proportion to their size.
func checkCost(schemas []any) error {
	if err := checkMultiples(schemas); err != nil {
		return err
	}
	var checks, characters int64
	for _, schema := range schemas {
		counter := newCostCounter(schema)
		for _, one := range counter.objects {
			own, _ := expressionsOf(one)
			characters += own
			if names, ok := one.Get("properties").(*formats.Object); ok && counter.hasPatterns {
				for _, name := range names.Names() {
					characters += int64(utf8.RuneCountInString(name))
				}
			}
		}
		if characters > mostCharacters {
			return &Error{fmt.Sprintf("its patterns, and the names of properties beside patternProperties, have more than %d"+
				" characters", mostCharacters)}
		}
		for _, one := range counter.objects {
			found, err := counter.checks(one)
			if err != nil {
				return err
			}
			checks += found
		}
	}
	if checks > mostChecks {
		return &Error{fmt.Sprintf("its patterns, formats and patternProperties would be held against each other more than"+
			" %d times", mostChecks)}
	}
	return nil
}

// decimal is number × 10^exponent.
type decimal struct{ number, exponent int64 }

func checkMultiples(schemas []any) error {
	var found []decimal
	var places int64
	for _, schema := range schemas {
		for _, one := range objectsIn(schema) {
			if digits, ok := digitsOf(one.Get("multipleOf")); ok {
				found, places = append(found, digits), max(places, -digits.exponent)
			}
		}
	}
	least := int64(1)
	for _, digits := range found {
		scaled := digits.number
		for range min(places+digits.exponent, mostPower) {
			scaled *= 10
		}
		if scaled <= mostMultiple {
			least = least / divisor(least, scaled) * scaled
		}
		if max(scaled, least) > mostMultiple {
			return &Error{fmt.Sprintf("the least common multiple of its multipleOf, in units of their last decimal place, is"+
				" more than %d", mostMultiple)}
		}
	}
	return nil
}

// divisor is the greatest that two positive numbers have in common.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// digitsOf is a positive number as a whole number without zeros at its end, and a power of ten; others llguidance refuses.
func digitsOf(value any) (decimal, bool) {
	var text string
	switch value := value.(type) {
	case float64:
		if !(value > 0) || math.IsInf(value, 0) {
			return decimal{}, false
		}
		text = strconv.FormatFloat(value, 'e', -1, 64)
	case int64, fmt.Stringer: // a json.Number, where it does not fit
		text = fmt.Sprint(value)
	}
	if text == "" || text[0] == '-' {
		return decimal{}, false
	}
	mantissa, power, _ := strings.Cut(text, "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	kept := strings.TrimRight(digits, "0")
	exponent, _ := strconv.ParseInt(power, 10, 64)
	exponent += int64(len(whole) - len(kept))
	number, err := strconv.ParseInt(kept, 10, 64)
	if err != nil && kept == "" {
		return decimal{}, false
	}
	if err != nil {
		number = mostMultiple
	}
	// More digits than the limit has are beyond it, whatever they are.
	return decimal{min(number, mostMultiple+1), exponent}, true
}

// objectsIn are all objects in a JSON value.
func objectsIn(value any) []*formats.Object {
	var found []*formats.Object
	for waiting := []any{value}; len(waiting) > 0; {
		last := len(waiting) - 1
		value, waiting = waiting[last], waiting[:last]
		switch value := value.(type) {
		case *formats.Object:
			found = append(found, value)
			for _, name := range value.Names() {
				waiting = append(waiting, value.Get(name))
			}
		case []any:
			waiting = append(waiting, value...)
		}
	}
	return found
}

// expressionsOf is how many characters the expressions of one schema have, and how many of them are names in
// patternProperties.
func expressionsOf(schema *formats.Object) (characters, names int64) {
	if pattern, ok := schema.Get("pattern").(string); ok {
		characters = int64(utf8.RuneCountInString(pattern))
	}
	if named, ok := schema.Get("patternProperties").(*formats.Object); ok {
		for _, name := range named.Names() {
			characters += int64(utf8.RuneCountInString(name))
		}
		names = int64(named.Len())
	}
	return characters, names
}

// ownCharacters is how many characters the expressions of one schema count, with that of its format.
func ownCharacters(schema *formats.Object) int64 {
	characters, _ := expressionsOf(schema)
	if _, ok := schema.Get("format").(string); ok {
		characters += formatCharacters
	}
	return characters
}

// size is what a schema is when references in it are followed: it holds if one of `ways` holds. In each way, properties
// have so many places as `named` says, and what has no name, items too, has `rest`. At no place hold more than
// `expressions` characters of expressions at once, and `patterns` of patternProperties.
type size struct {
	ways, rest, expressions, patterns int64
	named                             map[string]int64
}

// anything is the size of a schema without anything in it.
func anything() *size { return &size{ways: 1} }

func (s *size) places() int64 {
	inner := 1 + s.rest
	for _, places := range s.named {
		inner += places
	}
	return times(s.ways, inner)
}

// times is a product, or where counts end.
func times(a, b int64) int64 {
	if a, b = min(a, many), min(b, many); a*b < many { // far below 63 bits
		return a * b
	}
	return many
}

func (s *size) either(other *size) *size {
	named := maps.Clone(s.named)
	for name, places := range other.named {
		if named == nil {
			named = map[string]int64{}
		}
		named[name] = max(named[name], places)
	}
	return &size{min(s.ways+other.ways, many), max(s.rest, other.rest), max(s.expressions, other.expressions),
		max(s.patterns, other.patterns), named}
}

// both: ways of one meet those of the other, and properties meet those of the same name, or what has none.
func (s *size) both(other *size) *size {
	named := make(map[string]int64, len(s.named)+len(other.named))
	for name, places := range s.named {
		named[name] = times(places, max(other.rest, 1))
	}
	for name, places := range other.named {
		mine, ok := s.named[name]
		if !ok {
			mine = max(s.rest, 1)
		}
		named[name] = times(mine, places)
	}
	rest := int64(0)
	if s.rest > 0 || other.rest > 0 {
		rest = times(max(s.rest, 1), max(other.rest, 1))
	}
	return &size{times(s.ways, other.ways), rest, min(s.expressions+other.expressions, many),
		min(s.patterns+other.patterns, many), named}
}

// allOf is what holds where all of these do.
func allOf(parts []*size) *size {
	met := anything()
	for _, part := range parts {
		met = met.both(part)
	}
	return met
}

// costCounter counts how often the expressions of one document are held against others.
type costCounter struct {
	root        any
	objects     []*formats.Object
	sizes       map[*formats.Object]*size
	hasPatterns bool
	nested      bool // below another id, references would begin there
	free        bool // of expressions
}

func newCostCounter(root any) *costCounter {
	counter := &costCounter{root: root, objects: objectsIn(root), sizes: map[*formats.Object]*size{}, free: true}
	for at, one := range counter.objects {
		_, ok := one.Get("patternProperties").(*formats.Object)
		counter.hasPatterns = counter.hasPatterns || ok
		counter.free = counter.free && ownCharacters(one) == 0
		for _, key := range []string{"$id", "id"} {
			_, ok := one.Get(key).(string)
			counter.nested = counter.nested || ok && at > 0
		}
	}
	return counter
}

// checks are those for the schema at one place, were it the only one.
func (c *costCounter) checks(schema *formats.Object) (int64, error) {
	if c.free {
		return 0, nil
	}
	parts, err := c.parts(schema, 0)
	if err != nil {
		return 0, err
	}
	met := anything()
	if len(parts) == 1 { // only its own patternProperties are held against each other
		if met.expressions, met.patterns = expressionsOf(schema); met.patterns < 2 {
			return 0, nil
		}
	} else {
		met = allOf(parts)
	}
	if met.expressions == 0 {
		return 0, nil
	}
	pairs := 1 + times(met.patterns, met.patterns-1)/2
	// Expressions have less than mostCharacters, and patterns are fewer, but for those that references repeat.
	long := min(max(met.expressions, short), many)
	return times(times(met.places(), pairs), times(long, long)) / (short * short), nil
}

// parts are what all holds at the place of a schema, each by itself.
func (c *costCounter) parts(schema *formats.Object, level int) ([]*size, error) {
	var parts []*size
	for _, key := range schema.Names() {
		switch key {
		case "anyOf", "oneOf", "allOf", "enum", "$ref":
			continue
		}
		if !isAnnotation(key) {
			own, err := c.own(schema, level)
			if err != nil {
				return nil, err
			}
			parts = append(parts, own)
			break
		}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		several, _ := schema.Get(key).([]any)
		var either *size
		for _, one := range several {
			found, err := c.size(one, level)
			if err != nil {
				return nil, err
			}
			if either == nil {
				either = found
			} else {
				either = either.either(found)
			}
		}
		if either != nil {
			parts = append(parts, either)
		}
	}
	if values, ok := schema.Get("enum").([]any); ok {
		parts = append(parts, &size{ways: max(int64(len(values)), 1)})
	}
	several, _ := schema.Get("allOf").([]any)
	for _, one := range several {
		found, err := c.size(one, level)
		if err != nil {
			return nil, err
		}
		parts = append(parts, found)
	}
	if reference, ok := schema.Get("$ref").(string); ok {
		found, err := c.referred(reference, level)
		if err != nil {
			return nil, err
		}
		parts = append(parts, found)
	}
	return parts, nil
}

// own is what a schema says by itself, with those of its properties and items.
func (c *costCounter) own(schema *formats.Object, level int) (*size, error) {
	made := &size{ways: 1, expressions: ownCharacters(schema), named: map[string]int64{}}
	_, made.patterns = expressionsOf(schema)
	add := func(child any, put func(places int64)) error {
		if _, ok := child.(*formats.Object); !ok {
			return nil
		}
		found, err := c.size(child, level)
		if err != nil {
			return err
		}
		made.expressions = max(made.expressions, found.expressions)
		made.patterns = max(made.patterns, found.patterns)
		put(found.places())
		return nil
	}
	rest := func(places int64) { made.rest = min(made.rest+places, many) }
	if named, ok := schema.Get("properties").(*formats.Object); ok {
		for _, name := range named.Names() {
			if err := add(named.Get(name), func(places int64) { made.named[name] = places }); err != nil {
				return nil, err
			}
		}
	}
	if named, ok := schema.Get("patternProperties").(*formats.Object); ok {
		for _, name := range named.Names() {
			if err := add(named.Get(name), rest); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range []string{"items", "prefixItems", "additionalItems", "additionalProperties"} {
		children, ok := schema.Get(key).([]any)
		if !ok {
			children = []any{schema.Get(key)}
		}
		for _, child := range children {
			if err := add(child, rest); err != nil {
				return nil, err
			}
		}
	}
	return made, nil
}

func (c *costCounter) size(value any, level int) (*size, error) {
	schema, ok := value.(*formats.Object)
	if !ok {
		return anything(), nil
	}
	if known := c.sizes[schema]; known != nil {
		return known, nil
	}
	if level == mostLevels {
		return nil, &Error{fmt.Sprintf("it has more than %d schemas within each other, counted along $ref", mostLevels)}
	}
	c.sizes[schema] = anything() // to a schema within itself
	parts, err := c.parts(schema, level+1)
	if err != nil {
		return nil, err
	}
	c.sizes[schema] = allOf(parts)
	return c.sizes[schema], nil
}

// referred is the size of what a reference leads to. One that only llguidance follows may lead to anything.
func (c *costCounter) referred(reference string, level int) (*size, error) {
	if c.nested || reference != "#" && !strings.HasPrefix(reference, "#/") || strings.Contains(reference, "%") {
		return &size{ways: many, expressions: 1}, nil
	}
	place := c.root
	for _, name := range strings.Split(reference, "/")[1:] {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		switch found := place.(type) {
		case *formats.Object:
			place = found.Get(name)
		case []any:
			at, err := strconv.ParseUint(name, 10, 31)
			if err != nil || at >= uint64(len(found)) {
				return anything(), nil
			}
			place = found[at]
		default:
			return anything(), nil
		}
	}
	return c.size(place, level)
}
