// Package options reads and writes structs of options: one list of fields serves files, flags and messages.
//
// The name of a field in files and, with dashes, in flags is its tag `name`; a tag `none` is present where "none" is a
// value, which the field holds as the whole number in the tag, as zero where it is empty; a tag `choices` lists the values of a text, which has
// any where there is none. What the values may be and what
// they do is said in a list beside the struct.
package options

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// Words are an option's name, what its value must be, for messages, and what it does, for the help.
type Words [3]string

// Field is one option of a struct.
type Field struct {
	Name, Rule, Help string

	None    bool     // whether "none" is a value
	Choices []string // the values of a text
	Type    reflect.Kind
	none    int64 // what none is held as
	index   int
}

// Fields lists the options of a struct type, in their order. It panics when a field has no words: both stand in one
// file.
func Fields[T any](words []Words) []Field {
	kind := reflect.TypeFor[T]()
	fields := make([]Field, 0, kind.NumField())
	for at := range kind.NumField() {
		field := kind.Field(at)
		name := field.Tag.Get("name")
		place := slices.IndexFunc(words, func(of Words) bool { return of[0] == name })
		if place < 0 {
			panic(fmt.Sprintf("options: the field %s has no words", field.Name))
		}
		held, none := field.Tag.Lookup("none")
		heldAs, err := strconv.ParseInt(cmp.Or(held, "0"), 10, 64)
		if err != nil {
			panic(fmt.Sprintf("options: the tag none of %s is no whole number", field.Name))
		}
		var choices []string
		if list, text := field.Tag.Lookup("choices"); text {
			choices = strings.Split(list, ",")
		}
		fields = append(fields, Field{
			Name: name, Rule: words[place][1], Help: words[place][2],
			None: none, Choices: choices, Type: field.Type.Kind(), none: heldAs, index: at,
		})
	}
	return fields
}

// Get gives a field's value as int64, float64, bool, string, or nil for none.
func (f Field) Get(target any) any {
	value := reflect.ValueOf(target).Elem().Field(f.index)
	if f.None && (f.Type == reflect.Float64 && value.IsZero() || f.Type == reflect.Int && value.Int() == f.none) {
		return nil
	}
	switch f.Type {
	case reflect.Bool:
		return value.Bool()
	case reflect.Float64:
		return value.Float()
	case reflect.String:
		return value.String()
	default:
		return value.Int()
	}
}

// Wrong is the error of a value that breaks the field's rule.
func (f Field) Wrong(value any) error {
	return fmt.Errorf("%s is %s; it must be %s", f.Name, formats.Shown(value), f.Rule)
}

// Bounds are the least and the largest value of numbers by the names of their options.
type Bounds map[string][2]float64

// Check says which number of *target is outside its bounds; none is within them.
func (b Bounds) Check(target any, fields []Field) error {
	for _, field := range fields {
		number, ok := field.Get(target).(float64)
		if bounds := b[field.Name]; ok && !(bounds[0] <= number && number <= bounds[1]) {
			return field.Wrong(number)
		}
	}
	return nil
}

// Number is a value of a file that must be a number within the bounds of an option; `name` is what the file calls it.
func (b Bounds) Number(option, name string, value any) (float64, error) {
	number, ok := value.(float64)
	if whole, isWhole := value.(int64); isWhole {
		number, ok = float64(whole), true
	}
	least, most := b[option][0], b[option][1]
	if !ok || !(least <= number && number <= most) {
		return 0, fmt.Errorf("%s is %s; it must be a number, from %.6g to %.6g", name, formats.Shown(value), least, most)
	}
	return number, nil
}

// Assign sets fields of *target from values by name, checking their types; ranges are for the struct to check. `what`
// names the options in the error of an unknown name: "model", "training".
func Assign[T any](target *T, fields []Field, values *formats.Object, what string) error {
	for _, name := range values.Names() {
		at := slices.IndexFunc(fields, func(field Field) bool { return field.Name == name })
		if at < 0 {
			return Unknown(what, name, fields)
		}
		if !fields[at].set(target, values.Get(name)) {
			return fields[at].Wrong(values.Get(name))
		}
	}
	return nil
}

// set gives a field a value; false when the value's type does not fit. Whole numbers are taken for floating-point ones,
// and so is nil for none, but what the field holds none as is not.
func (f Field) set(target, value any) bool {
	field := reflect.ValueOf(target).Elem().Field(f.index)
	if value == nil {
		if field.SetZero(); f.Type == reflect.Int {
			field.SetInt(f.none)
		}
		return f.None
	}
	if f.Type == reflect.Bool {
		truth, ok := value.(bool)
		field.SetBool(truth)
		return ok
	}
	if f.Type == reflect.String {
		text, ok := value.(string)
		field.SetString(text)
		return ok && (f.Choices == nil || slices.Contains(f.Choices, text))
	}
	number, whole := value.(int64)
	if f.Type == reflect.Float64 {
		decimal, ok := value.(float64)
		if whole {
			decimal = float64(number)
		}
		field.SetFloat(decimal)
		return (ok || whole) && !math.IsNaN(decimal) && !math.IsInf(decimal, 0) && (!f.None || decimal != 0)
	}
	field.SetInt(number)
	return whole && (!f.None || number != f.none)
}
