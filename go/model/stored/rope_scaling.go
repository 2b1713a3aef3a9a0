package stored

import "math"

// unrotated is what the frequency of a pair that is not rotated is divided by: its angle is too small to change an f32.
const unrotated float32 = 3e38

// The numbers below are computed in f64 and rounded once to f32, in Python and Rust, too, so that they have the same bits.
// The conversions keep the compiler from fusing a product with a sum.

// yarnDivisors are what YaRN divides the frequencies by, a number a pair, rounded to f32.
//
// Pairs that turn more than `fast` times in the original context stay, those that turn less than `slow` times are stretched by
// the factor, between them the frequency goes over linearly in the pair's number. `truncate` moves both ends to whole
// numbers. (Peng et al. 2023, "YaRN", 3.2, and its reference code)
func yarnDivisors(base float64, headDim int, factor, fast, slow, original float64, truncate bool) []float32 {
	end := func(turns float64) float64 {
		return float64(float64(headDim)*math.Log(original/float64(turns*2*math.Pi))) / float64(2*math.Log(base))
	}
	first, last := end(fast), end(slow)
	if truncate {
		first, last = math.Floor(first), math.Ceil(last)
	}
	first, last = max(first, 0), min(last, float64(headDim-1))
	width := last - first
	if width == 0 {
		width = 0.001
	}
	divisors := make([]float32, headDim/2)
	for pair := range divisors {
		stretched := min(max((float64(pair)-first)/width, 0), 1)
		divisors[pair] = float32(1 / (float64(stretched/factor) + (1 - stretched)))
	}
	return divisors
}

// yarnMagnitude is what YaRN multiplies cosines and sines with. (Peng et al. 2023, eq. 22)
func yarnMagnitude(factor, weight float64) float64 {
	if factor <= 1 {
		return 1
	}
	return float64(0.1*weight*math.Log(factor)) + 1
}

// longropeMagnitude is what LongRoPE multiplies cosines and sines with, rounded to f32. (Ding et al. 2024, "LongRoPE", and
// Phi-3's reference code)
func longropeMagnitude(factor, original float64) float64 {
	if factor <= 1 {
		return 1
	}
	return rounded(math.Sqrt(1 + float64(math.Log(factor)/math.Log(original))))
}

// baseOfPart is the base with which whole heads have the frequencies of their `part` first elements, rounded to f32.
func baseOfPart(base float64, headDim, part int) float64 {
	if part == headDim {
		return base
	}
	return rounded(math.Pow(base, float64(headDim)/float64(part)))
}

func rounded(value float64) float64 { return float64(float32(value)) }
