package train

import "math"

// exactSum adds numbers without rounding on the way: the result is the sum's nearest double, whatever the order.
// Values that are not finite give what ordinary addition gives. (Shewchuk 1997, "Adaptive precision floating-point
// arithmetic", grow-expansion; the last rounding as in Python's math.fsum)
func exactSum(values []float64) float64 {
	var partials []float64 // do not overlap, smallest first; their sum is the exact sum so far
	for _, value := range values {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return plainSum(values)
		}
		kept := 0
		for _, partial := range partials {
			if math.Abs(value) < math.Abs(partial) {
				value, partial = partial, value
			}
			// The conversions keep a compiler from contracting or reordering: the error term must be the rounding's own.
			high := float64(value + partial)
			low := float64(partial - float64(high-value))
			if low != 0 {
				partials[kept] = low
				kept++
			}
			value = high
		}
		partials = append(partials[:kept], value)
	}
	return roundPartials(partials)
}

// roundPartials adds partials from the largest down until one changes the rounding; an exact half-way case is decided
// by the sign of what remains below it.
func roundPartials(partials []float64) float64 {
	at := len(partials) - 1
	if at < 0 {
		return 0
	}
	high, low := partials[at], 0.0
	for at > 0 && low == 0 {
		at--
		before, partial := high, partials[at]
		high = float64(before + partial)
		low = float64(partial - float64(high-before))
	}
	if at > 0 && ((low < 0 && partials[at-1] < 0) || (low > 0 && partials[at-1] > 0)) {
		doubled := float64(low * 2)
		if moved := float64(high + doubled); doubled == float64(moved-high) {
			high = moved
		}
	}
	return high
}

func plainSum(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum
}
