package serve

import (
	"fmt"
	"strconv"
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

// appendJSON appends the JSON of a value: nil, bool, string, whole numbers, float32, object, list.
func appendJSON(to []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(to, "null"...)
	case bool:
		return strconv.AppendBool(to, value)
	case string:
		return appendString(to, value)
	case int:
		return strconv.AppendInt(to, int64(value), 10)
	case int32:
		return strconv.AppendInt(to, int64(value), 10)
	case int64:
		return strconv.AppendInt(to, value, 10)
	case float32:
		return strconv.AppendFloat(to, float64(value), 'f', -1, 32)
	case object:
		to = append(to, '{')
		for at, one := range value {
			if at > 0 {
				to = append(to, ',')
			}
			to = appendJSON(append(appendString(to, one.key), ':'), one.value)
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
	panic(fmt.Sprintf("a %T is nothing that answers hold", value))
}

const hexDigits = "0123456789abcdef"

// appendString escapes quotes, backslashes and control characters only. Bytes that are no UTF-8 become replacement
// characters.
func appendString(to []byte, text string) []byte {
	to = append(to, '"')
	for _, sign := range text {
		switch sign {
		case '"', '\\':
			to = append(to, '\\', byte(sign))
		case '\b':
			to = append(to, '\\', 'b')
		case '\f':
			to = append(to, '\\', 'f')
		case '\n':
			to = append(to, '\\', 'n')
		case '\r':
			to = append(to, '\\', 'r')
		case '\t':
			to = append(to, '\\', 't')
		default:
			if sign < 0x20 {
				to = append(to, '\\', 'u', '0', '0', hexDigits[sign>>4], hexDigits[sign&15])
			} else {
				to = append(to, string(sign)...)
			}
		}
	}
	return append(to, '"')
}

func jsonOf(value any) []byte { return appendJSON(nil, value) }

// appendEvent appends a server-sent event that holds a value.
func appendEvent(to []byte, value any) []byte {
	return append(appendJSON(append(to, "data: "...), value), "\n\n"...)
}

// endOfEvents is the event after the last one.
const endOfEvents = "data: [DONE]\n\n"
