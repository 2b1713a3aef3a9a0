package serve

import "strings"

// deepestJSON is how many levels an object may have that is followed; deeper ones are none.
const deepestJSON = 256

const jsonSpaces = " \t\n\r"

// jsonPart is what of the outermost object was written last.
type jsonPart uint8

const (
	betweenMembers jsonPart = iota // its braces, commas, colons and spaces
	inKey
	inValue // of a key
	objectDone
)

type jsonState uint8

const (
	atValue    jsonState = iota
	atElement            // a value, or the end of an empty list
	atFirstKey           // a key, or the end of an empty object
	atKey
	atColon
	afterValue
	inString
	inEscape
	inHex
	inWord
	atMinus
	inZero
	inWhole
	atPoint
	inFraction
	atExponent
	atSigned // an exponent with its sign
	inPower
	atEnd
)

// jsonFollower follows the JSON of an object while it is written, from its first brace to its last one.
type jsonFollower struct {
	part  jsonPart
	state jsonState
	open  []rune // brackets
	left  string // of a word such as true
	hex   int    // digits that an escape still needs
	isKey bool   // whether the string is one
}

// push takes the next character. False when no object goes on so; then this is of no further use.
func (f *jsonFollower) push(sign rune) bool {
	switch f.state {
	case inString:
		return f.string(sign)
	case inEscape:
		if sign == 'u' {
			f.hex, f.state = 4, inHex
			return true
		}
		f.state = inString
		return strings.ContainsRune(`"\/bfnrt`, sign)
	case inHex:
		if f.hex--; f.hex == 0 {
			f.state = inString
		}
		return strings.ContainsRune("0123456789abcdefABCDEF", sign)
	case inWord:
		fits := sign == rune(f.left[0])
		if f.left = f.left[1:]; f.left == "" {
			f.valueEnds()
		}
		return fits
	case atMinus, inZero, inWhole, atPoint, inFraction, atExponent, atSigned, inPower:
		if next, goesOn := inNumber(f.state, sign); goesOn {
			f.state = next
			return true
		}
		switch f.state {
		case inZero, inWhole, inFraction, inPower:
			f.valueEnds()
		default:
			return false
		}
	}
	if strings.ContainsRune(jsonSpaces, sign) {
		return len(f.open) > 0
	}
	return f.between(sign)
}

// inNumber is the state after a character of a number, if that goes on with it.
func inNumber(state jsonState, sign rune) (jsonState, bool) {
	digit, exponent := sign >= '0' && sign <= '9', sign == 'e' || sign == 'E'
	switch {
	case state == atMinus && sign == '0':
		return inZero, true
	case state == atMinus && digit, state == inWhole && digit:
		return inWhole, true
	case (state == inZero || state == inWhole) && sign == '.':
		return atPoint, true
	case (state == inZero || state == inWhole || state == inFraction) && exponent:
		return atExponent, true
	case (state == atPoint || state == inFraction) && digit:
		return inFraction, true
	case state == atExponent && (sign == '+' || sign == '-'):
		return atSigned, true
	case (state == atExponent || state == atSigned || state == inPower) && digit:
		return inPower, true
	}
	return state, false
}

// between takes a character that is neither in a string, a word or a number nor a space.
func (f *jsonFollower) between(sign rune) bool {
	switch f.state {
	case atColon:
		f.state = atValue
		return sign == ':'
	case afterValue:
		if sign != ',' {
			return f.closes(sign)
		}
		if f.state = atValue; f.open[len(f.open)-1] == '{' {
			f.state = atKey
		}
		return true
	case atKey, atFirstKey:
		if sign != '"' {
			return f.state == atFirstKey && f.closes(sign)
		}
		if len(f.open) == 1 {
			f.part = inKey
		}
		f.state, f.isKey = inString, true
		return true
	case atElement:
		if sign == ']' {
			return f.closes(sign)
		}
		return f.valueBegins(sign)
	case atValue:
		return f.valueBegins(sign)
	}
	return false
}

func (f *jsonFollower) valueBegins(sign rune) bool {
	if len(f.open) == 0 && sign != '{' {
		return false
	}
	if len(f.open) == 1 {
		f.part = inValue
	}
	switch {
	case sign == '"':
		f.state, f.isKey = inString, false
	case sign == '{' || sign == '[':
		if len(f.open) == deepestJSON {
			return false
		}
		if f.state = atElement; sign == '{' {
			f.state = atFirstKey
		}
		f.open = append(f.open, sign)
	case sign == 't':
		f.state, f.left = inWord, "rue"
	case sign == 'f':
		f.state, f.left = inWord, "alse"
	case sign == 'n':
		f.state, f.left = inWord, "ull"
	case sign == '-':
		f.state = atMinus
	case sign == '0':
		f.state = inZero
	case sign >= '1' && sign <= '9':
		f.state = inWhole
	default:
		return false
	}
	return true
}

func (f *jsonFollower) valueEnds() {
	f.state = afterValue
	switch len(f.open) {
	case 0:
		f.state, f.part = atEnd, objectDone
	case 1:
		f.part = betweenMembers
	}
}

func (f *jsonFollower) closes(sign rune) bool {
	closing := ']'
	if f.open[len(f.open)-1] == '{' {
		closing = '}'
	}
	if sign != closing {
		return false
	}
	f.open = f.open[:len(f.open)-1]
	f.valueEnds()
	return true
}

func (f *jsonFollower) string(sign rune) bool {
	switch {
	case sign == '\\':
		f.state = inEscape
	case sign == '"' && !f.isKey:
		f.valueEnds()
	case sign == '"':
		if f.state = atColon; len(f.open) == 1 {
			f.part = betweenMembers
		}
	}
	return sign >= ' '
}
