// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package tensor

import "github.com/nncuda/nncuda/go/cuda"

// Digest calls cuda_digest.
//
// Adds up a digest of memory that hangs on each of its bits and on where it is, in whole numbers modulo 2^64, so that
// parts may be taken in any order, by anyone, and their sums added. With j = first + i and b the bits of element i as a
// number: z = ((j mod 2^32) 2^32 + b) + (1 + floor(j / 2^32)) 0x9e3779b97f4a7c15 z ^= z >> 30, z *= 0xbf58476d1ce4e5b9,
// z ^= z >> 27, z *= 0x94d049bb133111eb, z ^= z >> 31; sums[0] += z z ^= z >> 32, z *= 0xd6e8feb86659fd93, z ^= z >>
// 32; sums[1] += z Each step can be undone, so that a change within one element always changes both sums; changes of
// several elements leave both as they were by a chance of about 2^-128. It finds faults: who wants to can make other
// memory with the same sums. (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", with the
// constants of Stafford 2011, variant 13)
//
//   - x, in u8 [n, width]: elements, one after the other
//   - sums, acc i64 [2]: both sums
//   - first, usually 0: index of the first element; must be at least 0
func Digest(x, sums *Tensor, first int64) error {
	check := begin("digest", "n and width from x")
	if !check.required("x", x, 2, dense) ||
		!check.required("sums", sums, 1, dense) {
		return check.err
	}
	n := x.extent(2, 0)
	width := x.extent(2, 1)
	check.dtype("x", x, cuda.U8)
	check.dtype("sums", sums, cuda.I64)
	check.shape("x", x, "[n, width]", n, width)
	check.shape("sums", sums, "[2]", 2)
	if check.err != nil {
		return check.err
	}
	return check.ctx.Digest(x.memory(), sums.memory(), int64(n), int64(width), first)
}
