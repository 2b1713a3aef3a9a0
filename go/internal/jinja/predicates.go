package jinja

import "strings"

type testFunction func(s *state, value any, given arguments) bool

var testFunctions = map[string]testFunction{}

func init() {
	kind := func(is func(any) bool) testFunction {
		return func(_ *state, value any, given arguments) bool {
			given.take("the test")
			return is(value)
		}
	}
	operator := func(name string) testFunction {
		return func(s *state, value any, given arguments) bool {
			return s.compare(name, value, given.take(name, "other")[0])
		}
	}
	isUndefined := func(value any) bool { _, is := value.(*undefined); return is }
	isText := func(value any) bool { _, is := value.(string); return is }
	isWhole := func(value any) bool { _, is := value.(int64); return is }
	isMap := func(value any) bool { _, is := value.(*dict); return is }
	isSequence := func(value any) bool { made, is := value.(*list); return is && made.kind <= tuple }
	isBool := func(value any) bool { _, is := value.(bool); return is }
	for names, test := range map[string]testFunction{
		"defined": kind(func(value any) bool { return !isUndefined(value) }), "undefined": kind(isUndefined),
		"none": kind(func(value any) bool { return value == nil }), "string": kind(isText), "integer": kind(isWhole),
		"float":   kind(func(value any) bool { _, is := value.(float64); return is }),
		"number":  kind(func(value any) bool { _, _, _, ok := number(value); return ok }),
		"boolean": kind(isBool), "mapping": kind(isMap),
		"true":     kind(func(value any) bool { return isBool(value) && truth(value) }),
		"false":    kind(func(value any) bool { return isBool(value) && !truth(value) }),
		"sequence": kind(func(value any) bool { return isText(value) || isMap(value) || isSequence(value) || isUndefined(value) }),
		"iterable": kind(func(value any) bool {
			_, isList := value.(*list)
			return isList || isText(value) || isMap(value) || isUndefined(value)
		}),
		"callable": kind(func(value any) bool { _, is := value.(*function); return is }),
		"lower": kind(func(value any) bool {
			text, is := value.(string)
			return is && text == lower(text) && text != upper(text)
		}),
		"upper": kind(func(value any) bool {
			text, is := value.(string)
			return is && text == upper(text) && text != lower(text)
		}),
		"odd": func(s *state, value any, given arguments) bool {
			given.take("odd")
			return s.equal(s.arithmetic("%", value, int64(2)), int64(1))
		},
		"even": func(s *state, value any, given arguments) bool {
			given.take("even")
			return s.equal(s.arithmetic("%", value, int64(2)), int64(0))
		},
		"divisibleby": func(s *state, value any, given arguments) bool {
			return s.equal(s.arithmetic("%", value, given.take("divisibleby", "num")[0]), int64(0))
		},
		"sameas": func(_ *state, value any, given arguments) bool {
			other := given.take("sameas", "other")[0]
			if typeName(value) == typeName(other) && (isText(value) || isWhole(value) || typeName(value) == "float") {
				fail("TypeError", "whether equal values are one hangs on Python; use == instead of sameas")
			}
			return value == other
		},
		"in": func(s *state, value any, given arguments) bool {
			return s.contains(given.take("in", "seq")[0], value)
		},
		"eq == equalto": operator("=="), "ne !=": operator("!="), "lt < lessthan": operator("<"), "le <=": operator("<="),
		"gt > greaterthan": operator(">"), "ge >=": operator(">="),
	} {
		for _, name := range strings.Fields(names) {
			testFunctions[name] = test
		}
	}
}
