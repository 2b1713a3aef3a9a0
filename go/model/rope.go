package model

import (
	"fmt"
	"math"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/layer"
)

// ropeTables makes those of the rotary embedding, with an NTK-aware factor of the base, 1 for none.
func (c Config) ropeTables(ntkAlpha float64) *layer.RopeTables {
	tables := &layer.RopeTables{HeadDim: c.HeadDim, Base: c.RopeBase, NTKAlpha: ntkAlpha}
	if c.RopeFactor != 1 {
		tables.Divisors = Llama3Divisors(c.RopeBase, c.HeadDim, c.RopeFactor, c.RopeLow, c.RopeHigh, float64(c.RopeOriginal))
	}
	return tables
}

// RopeOptions are those of the rotary embedding in a config.json: transformers 5 writes rope_parameters, earlier ones wrote
// rope_scaling for stretched models, which stands above the former where both are there. Without them there are none. An
// error says what is no object.
func RopeOptions(values *formats.Object) (*formats.Object, error) {
	for _, name := range []string{"rope_scaling", "rope_parameters"} {
		value := values.Get(name)
		if formats.IsEmpty(value) {
			continue
		}
		options, isObject := value.(*formats.Object)
		if !isObject {
			return nil, fmt.Errorf("%s is %s; it must be an object", name, formats.Shown(value))
		}
		return options, nil
	}
	return formats.NewObject(), nil
}

// Llama3Divisors are what the frequencies of Llama 3.1 are divided by, a number a pair, rounded to f32.
//
// Waves shorter than original/high stay, those longer than original/low are stretched by the factor, between them the
// frequency goes over linearly in original/wavelength. (Dubey et al. 2024, and its reference code;
// https://github.com/meta-llama/llama-models)
//
// They are computed in f64 and rounded once to f32, in Python and Rust, too, so that they have the same bits. The
// conversions keep the compiler from fusing a product with a sum.
func Llama3Divisors(base float64, headDim int, factor, low, high, original float64) []float32 {
	divisors := make([]float32, headDim/2)
	for pair := range divisors {
		power := math.Pow(base, float64(-2*pair)/float64(headDim))
		turns := float64(original*power) / float64(2*math.Pi)
		share := min(max((turns-low)/(high-low), 0), 1)
		divisors[pair] = float32(1 / (float64((1-share)/factor) + share))
	}
	return divisors
}
