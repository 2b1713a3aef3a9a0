package train

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestSumsAreExact: the sum is the double nearest to the sum in numbers of any length.
func TestSumsAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		values := make([]float64, random.IntN(12))
		wanted := new(big.Float).SetPrec(3000)
		for at := range values {
			values[at] = math.Ldexp(random.Float64()-0.5, random.IntN(120)-60)
			if at > 0 && random.IntN(3) == 0 {
				values[at] = -values[random.IntN(at)] // sums that nearly vanish
			}
			wanted.Add(wanted, new(big.Float).SetFloat64(values[at]))
		}
		if nearest, _ := wanted.Float64(); exactSum(values) != nearest {
			t.Fatalf("%v sum to %v, not %v", values, exactSum(values), nearest)
		}
	}
	for _, test := range []struct {
		values []float64
		wanted float64
	}{
		{nil, 0}, {[]float64{0.1, 0.2, -0.3}, 2.7755575615628914e-17}, {[]float64{1e16, 1, 1e-16}, 10000000000000002},
		{[]float64{1, 1e100, 1, -1e100}, 2}, {[]float64{math.Inf(1), 1}, math.Inf(1)},
	} {
		if found := exactSum(test.values); found != test.wanted {
			t.Errorf("%v sum to %v, not %v", test.values, found, test.wanted)
		}
	}
	if found := exactSum([]float64{1, math.NaN()}); !math.IsNaN(found) {
		t.Error(found)
	}
}
