package formats

import (
	"maps"
	"slices"
)

// Object is a JSON object that keeps the order of its names, so that what is written back reads as it did.
//
// Values are nil, bool, int64 (json.Number when it does not fit), float64, string, []any and *Object.
type Object struct {
	names  []string
	values map[string]any
}

// NewObject makes an object of names and values in turns: NewObject("step", 1, "loss", 0.5).
func NewObject(pairs ...any) *Object {
	object := &Object{values: make(map[string]any, len(pairs)/2)}
	for at := 0; at+1 < len(pairs); at += 2 {
		object.Set(pairs[at].(string), pairs[at+1])
	}
	return object
}

// Names gives the names in their order.
func (o *Object) Names() []string { return slices.Clone(o.names) }

// SortedNames gives the names in alphabetical order.
func (o *Object) SortedNames() []string { return slices.Sorted(maps.Keys(o.values)) }

// Len is the number of entries.
func (o *Object) Len() int { return len(o.names) }

// Has says whether there is an entry of this name.
func (o *Object) Has(name string) bool {
	_, found := o.values[name]
	return found
}

// Get gives a value, nil where there is none.
func (o *Object) Get(name string) any { return o.values[name] }

// Set gives a name a value; a new name goes to the end.
func (o *Object) Set(name string, value any) {
	if o.values == nil {
		o.values = make(map[string]any)
	}
	if !o.Has(name) {
		o.names = append(o.names, name)
	}
	o.values[name] = value
}

// Update sets all entries of another object.
func (o *Object) Update(other *Object) {
	for _, name := range other.names {
		o.Set(name, other.values[name])
	}
}

// Delete takes an entry away and gives its value, nil where there was none.
func (o *Object) Delete(name string) any {
	value, found := o.values[name]
	if found {
		delete(o.values, name)
		o.names = slices.DeleteFunc(o.names, func(other string) bool { return other == name })
	}
	return value
}

// SaysNo says whether a value asks for nothing: false, null, an empty text, list or object.
func SaysNo(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case *Object:
		return value.Len() == 0
	}
	return false
}

// IsEmpty says whether Python takes a value for false: 0, too.
func IsEmpty(value any) bool { return SaysNo(value) || value == any(int64(0)) || value == any(0.0) }
