package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// ArchitectureKey is the key of the name of a file's model, with which the keys of what is said of that model begin.
const ArchitectureKey = "general.architecture"

// Metadata are a file's entries by key.
type Metadata struct {
	keys   []string
	values map[string]Value
}

// Keys lists the keys in the order of the file.
func (m *Metadata) Keys() []string { return slices.Clone(m.keys) }

// Get is the value of a key, and whether there is one.
func (m *Metadata) Get(key string) (Value, bool) {
	value, found := m.values[key]
	return value, found
}

// Has says whether there is a value of this key.
func (m *Metadata) Has(key string) bool {
	_, found := m.values[key]
	return found
}

// Value is a value of metadata. The zero Value stands for none.
type Value struct {
	// Type is one of u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, bool and string; of an array that of its elements with
	// [] after it; "" of none.
	Type string

	scalar any    // int64, uint64 beyond it, float64, bool, string
	path   string // of the file, for messages
	key    string
	length int
	data   []byte // of an array of numbers or bools: its elements; of strings: the file
	starts []int  // of an array of strings: where each begins
}

// Whole is a whole number that 64 bits with a sign hold.
func (v Value) Whole() (int64, bool) {
	whole, ok := v.scalar.(int64)
	return whole, ok
}

// Number is a number of any type, rounded to float64.
func (v Value) Number() (float64, bool) {
	switch number := v.scalar.(type) {
	case int64:
		return float64(number), true
	case uint64:
		return float64(number), true
	case float64:
		return number, true
	}
	return 0, false
}

// Bool is a truth value.
func (v Value) Bool() (value, ok bool) {
	value, ok = v.scalar.(bool)
	return value, ok
}

// Text is a string.
func (v Value) Text() (string, bool) {
	text, ok := v.scalar.(string)
	return text, ok
}

// IsArray says whether the value is an array.
func (v Value) IsArray() bool { return len(v.Type) > 2 && v.Type[len(v.Type)-2:] == "[]" }

// Len is the number of elements of an array, 0 of another value.
func (v Value) Len() int { return v.length }

// At is the element of an array as a Value of its own. It panics when there is none. An error says that a string is not
// UTF-8.
func (v Value) At(index int) (Value, error) {
	if v.Type == "string[]" {
		text, err := v.TextAt(index)
		return Value{Type: "string", scalar: text}, err
	}
	kind := v.Type[:len(v.Type)-2]
	size := scalarSizes[kind]
	return Value{Type: kind, scalar: scalar(kind, v.data[index*size:(index+1)*size])}, nil
}

// TextAt is a string of an array of strings. It panics when there is none. An error says that it is not UTF-8.
func (v Value) TextAt(index int) (string, error) {
	return text(v.path, v.BytesAt(index), fmt.Sprintf("string %d of %s", index, v.key))
}

// BytesAt is a string of an array of strings as the file has it. It panics when there is none.
func (v Value) BytesAt(index int) []byte {
	start := v.starts[index]
	length := int(binary.LittleEndian.Uint64(v.data[start-8:])) // checked on opening
	return v.data[start : start+length : start+length]
}

// Uniform is the one number or bool that all elements of an array are; other values stay what they are. Files give some
// numbers a layer.
func (v Value) Uniform() Value {
	if !v.IsArray() || v.Type == "string[]" || v.length == 0 {
		return v
	}
	first, _ := v.At(0)
	for at := 1; at < v.length; at++ {
		if next, _ := v.At(at); next.scalar != first.scalar {
			return v
		}
	}
	return first
}

// String is the value as messages show it.
func (v Value) String() string {
	switch {
	case v.Type == "":
		return "None"
	case v.Type == "string[]":
		return formats.Excerpt(fmt.Sprintf("array of %d strings", v.length))
	case v.IsArray():
		values := make([]any, min(v.length, 32))
		for at := range values {
			element, _ := v.At(at)
			values[at] = shownScalar(element.scalar)
		}
		return formats.Excerpt(fmt.Sprintf("array(%v)", values))
	}
	return formats.Excerpt(shownScalar(v.scalar))
}

func shownScalar(value any) string {
	switch value := value.(type) {
	case bool:
		if value {
			return "True"
		}
		return "False"
	case float64:
		switch {
		case math.IsNaN(value):
			return "nan"
		case math.IsInf(value, 0):
			return strings.TrimPrefix(strings.ToLower(fmt.Sprint(value)), "+")
		}
		text := strconv.FormatFloat(value, 'g', -1, 64)
		if value == math.Trunc(value) && math.Abs(value) < 1e16 {
			text = strconv.FormatFloat(value, 'f', 1, 64)
		}
		return text
	case string:
		return formats.Shown(value)
	}
	return fmt.Sprint(value)
}

// scalar reads a number or a bool.
func scalar(kind string, data []byte) any {
	order := binary.LittleEndian
	switch kind {
	case "u8":
		return int64(data[0])
	case "bool":
		return data[0] != 0
	case "i8":
		return int64(int8(data[0]))
	case "u16":
		return int64(order.Uint16(data))
	case "i16":
		return int64(int16(order.Uint16(data)))
	case "u32":
		return int64(order.Uint32(data))
	case "i32":
		return int64(int32(order.Uint32(data)))
	case "f32":
		return float64(math.Float32frombits(order.Uint32(data)))
	case "i64":
		return int64(order.Uint64(data))
	case "f64":
		return math.Float64frombits(order.Uint64(data))
	}
	whole := order.Uint64(data)
	if whole > math.MaxInt64 {
		return whole
	}
	return int64(whole)
}

// Text is a string, and whether there is one of this key.
func (m *Metadata) Text(key string) (string, bool) { return m.values[key].Text() }

// Bool is a truth value, and whether there is one of this key.
func (m *Metadata) Bool(key string) (value, ok bool) { return m.values[key].Bool() }

// Whole is a whole number that 64 bits with a sign hold, and whether there is one of this key.
func (m *Metadata) Whole(key string) (int64, bool) { return m.values[key].Whole() }

// Texts are the strings of an array as the file has them, and whether there is such an array of this key. They need not
// be UTF-8.
func (m *Metadata) Texts(key string) ([]string, bool) {
	value := m.values[key]
	if value.Type != "string[]" {
		return nil, false
	}
	texts := make([]string, value.length)
	for at := range texts {
		texts[at] = string(value.BytesAt(at))
	}
	return texts, true
}

// Wholes are the numbers of an array of an integer type, and whether there is such an array of this key.
func (m *Metadata) Wholes(key string) ([]int64, bool) { return numbersOf[int64](m.values[key]) }

// Floats are the numbers of an array of a floating-point type, and whether there is such an array of this key.
func (m *Metadata) Floats(key string) ([]float64, bool) { return numbersOf[float64](m.values[key]) }

func numbersOf[T int64 | float64](value Value) ([]T, bool) {
	if !value.IsArray() || value.Type == "string[]" || value.Type == "bool[]" {
		return nil, false
	}
	isFloat := value.Type == "f32[]" || value.Type == "f64[]"
	var wanted T
	if _, floats := any(wanted).(float64); floats != isFloat {
		return nil, false
	}
	numbers := make([]T, value.length)
	for at := range numbers {
		element, _ := value.At(at) // no string: never an error
		number, ok := element.scalar.(T)
		if !ok { // beyond 64 bits with a sign
			return nil, false
		}
		numbers[at] = number
	}
	return numbers, true
}

// Shown is the value of a key as messages show it; None for none.
func (m *Metadata) Shown(key string) string { return m.values[key].String() }
