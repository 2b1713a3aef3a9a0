// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// RandomBits calls cuda_random_bits.
//
// The generator's own 32-bit words.
//
//   - y, out i32 [n]: words, as bits
//   - seed: key
//   - stream, usually 0: upper half of the counter
//   - offset, usually 0: block of the first element
func RandomBits(y *Tensor, seed, stream, offset int64) error {
	check := begin("random_bits", "n from y")
	if !check.required("y", y, 1, dense) {
		return check.err
	}
	n := y.extent(1, 0)
	check.dtype("y", y, cuda.I32)
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.RandomBits(y.memory(), int64(n), seed, stream, offset)
}

// Uniform calls cuda_uniform.
//
// Uniform numbers: y = low + (high - low) * (word >> 8) * 2^-24, so low <= y, and y < high before rounding.
//
//   - y, out dtype [n]: numbers
//   - low, usually 0: lower end; must be finite
//   - high, usually 1: upper end; must be at least low
//   - seed: key
//   - stream, usually 0: upper half of the counter
//   - offset, usually 0: block of the first element
func Uniform(y *Tensor, low, high float32, seed, stream, offset int64) error {
	check := begin("uniform", "n from y")
	if !check.required("y", y, 1, dense) {
		return check.err
	}
	n := y.extent(1, 0)
	dtype := y.dtype
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Uniform(y.memory(), int64(n), low, high, seed, stream, offset, dtype)
}

// Normal calls cuda_normal.
//
// Normal numbers by Box and Muller (1958): each pair of words (a, b) with u = ((a >> 8) + 1) * 2^-24, w = (b >> 8) *
// 2^-24 gives r*cos(2 pi w) and r*sin(2 pi w), r = sqrt(-2 log u); y = mean + std * that.
//
//   - y, out dtype [n]: numbers
//   - mean, usually 0: mean; must be finite
//   - std, usually 1: standard deviation; must be finite and at least 0
//   - seed: key
//   - stream, usually 0: upper half of the counter
//   - offset, usually 0: block of the first element
func Normal(y *Tensor, mean, std float32, seed, stream, offset int64) error {
	check := begin("normal", "n from y")
	if !check.required("y", y, 1, dense) {
		return check.err
	}
	n := y.extent(1, 0)
	dtype := y.dtype
	check.shape("y", y, "[n]", n)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Normal(y.memory(), int64(n), mean, std, seed, stream, offset, dtype)
}
