package formats

import (
	"math"
	"strconv"
	"strings"
)

// JSONFloat is an f64 as Python's json module writes it: the fewest digits that give it back, with an exponent below 1e-4
// and from 1e16 on, and NaN, Infinity and -Infinity.
func JSONFloat(value float64) string {
	switch size := math.Abs(value); {
	case math.IsNaN(value):
		return "NaN"
	case math.IsInf(value, 1):
		return "Infinity"
	case math.IsInf(value, -1):
		return "-Infinity"
	case size != 0 && (size < 1e-4 || size >= 1e16):
		return strconv.FormatFloat(value, 'e', -1, 64)
	}
	written := strconv.FormatFloat(value, 'f', -1, 64)
	if !strings.Contains(written, ".") {
		written += ".0"
	}
	return written
}
