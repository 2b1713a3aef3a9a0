package stored

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
)

// values are options of a file by name, each checked for its type. Of an option there is a value, nil where there is
// none, and how messages show it.
type values struct {
	prefix string // before each name, in the file and in messages
	look   func(name string) (value any, shown string)
}

// ofObject are the options of a JSON object.
func ofObject(object *formats.Object) values {
	return values{"", func(name string) (any, string) {
		value := object.Get(name)
		if big, ok := value.(json.Number); ok { // beyond 64 bits
			if number, err := big.Float64(); err == nil {
				return number, formats.Excerpt(big.String())
			}
		}
		return value, formats.Shown(value)
	}}
}

// ofMetadata are the metadata of a GGUF file. Of one number a layer, the same in all, the number counts.
func ofMetadata(metadata *gguf.Metadata, prefix string) values {
	return values{prefix, func(name string) (any, string) {
		value, found := metadata.Get(name)
		if !found {
			return nil, ""
		}
		uniform := value.Uniform()
		if whole, ok := uniform.Whole(); ok {
			return whole, uniform.String()
		}
		if number, ok := uniform.Number(); ok {
			return number, uniform.String()
		}
		if flag, ok := uniform.Bool(); ok {
			return flag, uniform.String()
		}
		if text, ok := uniform.Text(); ok {
			return text, uniform.String()
		}
		return value, value.String()
	}}
}

// get is an option's value and how messages show it; nil where there is none.
func (v values) get(name string) (any, string) { return v.look(v.prefix + name) }

func (v values) missing(name string) error { return fmt.Errorf("%s%s is missing", v.prefix, name) }

// The defaults of options that must be there.
const required = -1

var requiredNumber = math.NaN()

// whole is a whole number, at least 1, or at least 0 where that is its default.
func (v values) whole(name string, usual int) (int, error) {
	value, shown := v.get(name)
	if value == nil && usual == required {
		return 0, v.missing(name)
	}
	least := 1
	if usual == 0 {
		least = 0
	}
	if value == nil {
		if usual < least || usual > formats.MaxCount {
			return 0, wrongCount(v.prefix+name, fmt.Sprint(usual), least)
		}
		return usual, nil
	}
	number, ok := value.(int64)
	if !ok || number < int64(least) || number > formats.MaxCount {
		return 0, wrongCount(v.prefix+name, shown, least)
	}
	return int(number), nil
}

// number is a finite number.
func (v values) number(name string, usual float64) (float64, error) {
	value, shown := v.get(name)
	if value == nil && math.IsNaN(usual) {
		return 0, v.missing(name)
	}
	if value == nil {
		return usual, nil
	}
	var number float64
	switch value := value.(type) {
	case int64:
		number = float64(value)
	case float64:
		number = value
	default:
		number = math.NaN()
	}
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return 0, fmt.Errorf("%s%s is %s; it must be a finite number", v.prefix, name, shown)
	}
	return number, nil
}

// numbers is a list of finite numbers that must be there, rounded to f32; at most so many.
func (v values) numbers(name string, most int) ([]float32, error) {
	value, shown := v.get(name)
	if value == nil {
		return nil, v.missing(name)
	}
	list, ok := value.([]any)
	ok = ok && len(list) > 0 && len(list) <= most
	found := make([]float32, 0, min(len(list), most))
	for at := 0; ok && at < len(list); at++ {
		switch number := list[at].(type) {
		case int64:
			found = append(found, float32(float64(number)))
		case float64:
			found = append(found, float32(number))
		default:
			ok = false
		}
	}
	if !ok {
		return nil, fmt.Errorf("%s%s is %s; it must be a list of at most %d numbers", v.prefix, name, shown, most)
	}
	return found, nil
}

// flag is true or false.
func (v values) flag(name string, usual bool) (bool, error) {
	value, shown := v.get(name)
	if value == nil {
		return usual, nil
	}
	flag, ok := value.(bool)
	if !ok {
		return false, fmt.Errorf("%s%s is %s; it must be true or false", v.prefix, name, shown)
	}
	return flag, nil
}

// reading reads options one after the other, until one is wrong.
type reading struct {
	values
	err error
}

func (r *reading) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reading) wholeOf(name string, usual int) int {
	value, err := r.whole(name, usual)
	r.keep(err)
	return value
}

func (r *reading) numberOf(name string, usual float64) float64 {
	value, err := r.number(name, usual)
	r.keep(err)
	return value
}

func (r *reading) flagOf(name string, usual bool) bool {
	value, err := r.flag(name, usual)
	r.keep(err)
	return value
}

// windowOfFiles gives Window and WindowPeriod of LlamaConfig for a window; nil is none, and 0, too. An error for one that is
// narrower than the context in a family that has none, and for none in one that needs it.
func windowOfFiles(value any, shown, name string, family *Family, context int) (window, period int, err error) {
	found, whole := value.(int64)
	if period := family.WindowPeriod; period > 0 {
		if !whole || found < 1 || found > formats.MaxCount {
			return 0, 0, wrongCount(name, shown, 1)
		}
		return int(found), period, nil
	}
	if value == nil {
		return 0, 0, nil
	}
	narrow := found != 0 && found < int64(context)
	if !whole || found < 0 || narrow && family.WindowPeriod == 0 {
		return 0, 0, fmt.Errorf("%s is %s; this engine attends to all of the context (%d)", name, shown, context)
	}
	if narrow {
		return int(found), 0, nil
	}
	return 0, 0, nil
}

func (r *reading) numbersOf(name string, most int) []float32 {
	list, err := r.numbers(name, most)
	r.keep(err)
	return list
}
