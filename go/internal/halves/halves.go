// Package halves widens floating-point numbers of 16 bits.
package halves

import "math"

// Float widens an IEEE binary16, which loses nothing.
func Float(half uint16) float32 {
	sign := uint32(half>>15) << 31
	exponent, fraction := uint32(half>>10)&31, uint32(half)&1023
	switch {
	case exponent == 31:
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	case exponent == 0: // subnormal: fraction * 2^-24, which float32 holds
		value := float32(fraction) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(value))
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// OfBrain widens a bfloat16, which loses nothing.
func OfBrain(half uint16) float32 { return math.Float32frombits(uint32(half) << 16) }
