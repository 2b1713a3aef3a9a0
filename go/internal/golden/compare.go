package golden

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/safetensors"
)

// Compare gives the part of the tolerance that was used, and in words what is wrong, if anything is. NaN and infinities
// must be where they are expected, and with zeros so must zeros. Whole numbers are equal or wrong.
func Compare(
	got []byte, dtype cuda.DType, expected safetensors.Tensor, tolerance float64, zeros bool,
) (share float64, problem string) {
	count := elements(expected)
	if len(got) != count*dtype.Size() {
		return math.Inf(1), fmt.Sprintf("there are %d bytes, not %d elements", len(got), count)
	}
	if isWhole(dtype) {
		for i := range count {
			if g, e := whole(got, i, dtype.Size()), whole(expected.Bytes, i, expected.DType.Size()); g != e {
				return math.Inf(1), fmt.Sprintf("element %d is %d, not %d", i, g, e)
			}
		}
		return 0, ""
	}
	largest, at := 0.0, 0
	for i := range count {
		wanted := float64(math.Float32frombits(binary.LittleEndian.Uint32(expected.Bytes[4*i:])))
		if e := difference(float(got, i, dtype), wanted, zeros); e > largest {
			largest, at = e, i
		}
	}
	if largest > 0 {
		share = largest / tolerance
	}
	if largest <= tolerance {
		return share, ""
	}
	wanted := math.Float32frombits(binary.LittleEndian.Uint32(expected.Bytes[4*at:]))
	return share, fmt.Sprintf("element %d is %.9g, expected %.9g: off by %.3g, tolerance %.3g", at,
		float(got, at, dtype), wanted, largest, tolerance)
}

// difference is the error of one element, infinite where none is allowed.
func difference(got, wanted float64, zeros bool) float64 {
	switch {
	case math.IsNaN(wanted) || math.IsInf(wanted, 0):
		if got == wanted || math.IsNaN(got) && math.IsNaN(wanted) {
			return 0
		}
		return math.Inf(1)
	case math.IsNaN(got), zeros && wanted == 0 && got != 0:
		return math.Inf(1)
	}
	return math.Abs(got - wanted)
}

// whole is element i of whole numbers of that many bytes.
func whole(bytes []byte, i, size int) int64 {
	switch size {
	case 1:
		return int64(int8(bytes[i]))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(bytes[4*i:])))
	}
	return int64(binary.LittleEndian.Uint64(bytes[8*i:]))
}

// float is element i, widened.
func float(bytes []byte, i int, dtype cuda.DType) float64 {
	if dtype == cuda.F32 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:])))
	}
	bits := uint32(binary.LittleEndian.Uint16(bytes[2*i:]))
	if dtype == cuda.BF16 {
		return float64(math.Float32frombits(bits << 16))
	}
	sign, exponent, fraction := 1.0, int(bits>>10&31), float64(bits&1023)
	if bits>>15 == 1 {
		sign = -1
	}
	switch {
	case exponent == 31 && fraction != 0:
		return math.NaN()
	case exponent == 31:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}
