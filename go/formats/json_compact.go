package formats

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// AppendJSON appends a value of [ParseJSON] as JSON without spaces, in which numbers with a fraction are written as Python
// does.
func AppendJSON(to []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(to, "null"...)
	case bool:
		return strconv.AppendBool(to, value)
	case string:
		return AppendJSONString(to, value)
	case int64:
		return strconv.AppendInt(to, value, 10)
	case json.Number:
		return append(to, value...)
	case float64:
		return append(to, JSONFloat(value)...)
	case []any:
		to = append(to, '[')
		for at, one := range value {
			if at > 0 {
				to = append(to, ',')
			}
			to = AppendJSON(to, one)
		}
		return append(to, ']')
	case *Object:
		to = append(to, '{')
		for at, name := range value.names {
			if at > 0 {
				to = append(to, ',')
			}
			to = AppendJSON(append(AppendJSONString(to, name), ':'), value.values[name])
		}
		return append(to, '}')
	}
	panic(fmt.Sprintf("a %T is no value of JSON", value))
}

const hexDigits = "0123456789abcdef"

// AppendJSONString appends a text as JSON. It escapes quotes, backslashes and control characters only. Bytes that are no UTF-8 become replacement
// characters.
func AppendJSONString(to []byte, text string) []byte {
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
