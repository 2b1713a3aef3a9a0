package serve

import (
	"strconv"

	"github.com/nncuda/nncuda/go/formats"
)

// How answers are written, to the byte, so that all servers write the same: compact JSON in UTF-8, keys in their order,
// and events. docs/serving.md, "Bytes", has the rules.

// member is an entry of an object.
type member struct {
	key   string
	value any
}

// object is a JSON object whose keys stand in this order.
type object []member

// list is a JSON array.
type list []any

// appendJSON appends the JSON of a value: object, list, whole numbers, float32, and what [formats.AppendJSON] takes.
func appendJSON(to []byte, value any) []byte {
	switch value := value.(type) {
	case int:
		return strconv.AppendInt(to, int64(value), 10)
	case int32:
		return strconv.AppendInt(to, int64(value), 10)
	case float32:
		return strconv.AppendFloat(to, float64(value), 'f', -1, 32)
	case object:
		to = append(to, '{')
		for at, one := range value {
			if at > 0 {
				to = append(to, ',')
			}
			to = appendJSON(append(formats.AppendJSONString(to, one.key), ':'), one.value)
		}
		return append(to, '}')
	case list:
		to = append(to, '[')
		for at, one := range value {
			if at > 0 {
				to = append(to, ',')
			}
			to = appendJSON(to, one)
		}
		return append(to, ']')
	}
	return formats.AppendJSON(to, value)
}

func jsonOf(value any) []byte { return appendJSON(nil, value) }

// appendEvent appends a server-sent event that holds a value.
func appendEvent(to []byte, value any) []byte {
	return append(appendJSON(append(to, "data: "...), value), "\n\n"...)
}

// endOfEvents is the event after the last one.
const endOfEvents = "data: [DONE]\n\n"
