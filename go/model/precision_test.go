package model_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tensor"
)

// mantissa is the bits behind the point of the 16-bit precisions.
var mantissa = map[model.Precision]int{model.BF16: 7, model.F16: 10}

// loadIn makes a model in a precision from stored tensors.
func loadIn(
	t testing.TB, from *model.MoETransformer, tensors stored, precision model.Precision, training bool,
) *model.MoETransformer {
	t.Helper()
	weights := must.Get(model.NewMixtralWeights(tensors, false))(t)
	made := must.Get(model.Load(from.Context(), from.Config, weights, precision, training))(t)
	t.Cleanup(func() { must.Do(t, made.Close()) })
	return made
}

func valuesOf(t testing.TB, of *tensor.Tensor) []float32 {
	t.Helper()
	values := must.Get(of.Floats())(t)
	return values
}

// TestLoadedWeightsAreRoundedOnce: from 32 bits and from 16, to either precision, the nearest value that it has.
func TestLoadedWeightsAreRoundedOnce(t *testing.T) {
	exact := must.Get(model.New(newContext(t), tiny(), model.F32, 4))(t)
	defer exact.Close()
	whole, inHalf := parametersOf(t, exact), stored{}
	for name, of := range whole {
		var bytes []byte
		for at := 0; at < len(of.Bytes); at += 4 {
			bytes = append(bytes, of.Bytes[at+2:at+4]...) // bf16, cut off: any value will do
		}
		inHalf[name] = safetensors.Tensor{Name: name, DType: safetensors.BF16, Shape: of.Shape, Bytes: bytes}
	}
	for name, tensors := range map[string]stored{"f32": whole, "bf16": inHalf} {
		for precision, bits := range mantissa {
			for _, training := range []bool{false, true} {
				made := loadIn(t, exact, tensors, precision, training)
				if (made.Weights == made.Parameters) == training || made.Weights.Data.Bytes()*2 != exact.Weights.Data.Bytes() {
					t.Errorf("%s: %d bytes of weights, trained %v", precision, made.Weights.Data.Bytes(), training)
				}
				read := must.Get(model.NewMixtralWeights(tensors, false))(t)
				weights := valuesOf(t, made.Weights.Data)
				for _, spec := range made.Layout.Specs {
					given := must.Get(read.Floats(spec.Name))(t)
					for at, value := range given {
						if found := weights[spec.Offset+at]; found != nearest(value, precision, bits) {
							t.Fatalf("%s to %s: %v became %v", name, precision, value, found)
						}
					}
				}
			}
		}
	}
}

// nearest rounds to so many bits behind the point, of equals to the even one. Weights have no need of infinity.
func nearest(value float32, precision model.Precision, bits int) float32 {
	if value == 0 {
		return value
	}
	least := -126
	if precision == model.F16 {
		least = -14
	}
	_, exponent := math.Frexp(float64(value))
	unit := math.Ldexp(1, max(exponent-1, least)-bits)
	return float32(math.RoundToEven(float64(value)/unit) * unit)
}

// TestInferenceIn16Bits: weights and cache take 16 bits, logits 32; over the cache a model gives what it gives for the
// whole text.
func TestInferenceIn16Bits(t *testing.T) {
	ctx := newContext(t)
	exact, err := model.New(ctx, tiny(), model.F32, 5) // of seed 4 a token chooses its experts by the rounding
	must.Do(t, err)
	defer exact.Close()
	ids := append(append([]int32(nil), prompt...), 9, 47, 0, 3)
	logits := func(of *model.MoETransformer) []float32 {
		made := must.Get(of.Logits(ids, 1))(t)
		values, err := tensor.Read[float32](made)
		must.Do(t, errors.Join(err, made.Close()))
		return values
	}
	wanted, vocab, cacheBytes := logits(exact), tiny().VocabSize, map[model.Precision]int64{}
	for _, precision := range []model.Precision{model.F32, model.BF16, model.F16} {
		made := loadIn(t, exact, parametersOf(t, exact), precision, false)
		whole := logits(made)
		// Two blocks of some eight roundings each way, of values up to the largest.
		bound := 0.0
		for _, value := range whole {
			bound = max(bound, 16*math.Abs(float64(value))*math.Ldexp(1, -mantissa[precision]))
		}
		if precision == model.F32 {
			bound = 1e-4 // products over other numbers of rows
		} else {
			requireNear(t, string(precision)+" and f32", whole, wanted, bound)
		}
		before := must.Get(ctx.BytesUsed())(t)
		cache := must.Get(made.Cache(1, len(ids)))(t)
		after := must.Get(ctx.BytesUsed())(t)
		cacheBytes[precision] = after - before
		row := must.Get(tensor.New(ctx, exact.Weights.Data.DType(), 1, vocab))(t)
		must.Do(t, made.Prefill(ids[:6], cache, 0, row))
		for at := 6; ; at++ {
			found := must.Get(tensor.Read[float32](row))(t)
			requireNear(t, string(precision)+" over the cache", found, whole[(at-1)*vocab:at*vocab], bound)
			if at == len(ids) {
				break
			}
			next := must.Get(tensor.From(ctx, ids[at:at+1], 1))(t)
			must.Do(t, layer.Run(ctx, func(p *layer.Pass) { made.Decode(p, next, cache, row) }))
			must.Do(t, next.Close())
		}
		must.Do(t, errors.Join(cache.Close(), row.Close()))
	}
	config := tiny()
	half := int64(2 * 2 * config.NumLayers * len(ids) * config.NumKVHeads * config.HeadDim) // of keys and values
	for precision := range mantissa {
		if saved := cacheBytes[model.F32] - cacheBytes[precision]; saved < half-256 || saved > half+256 {
			t.Errorf("%s: a cache of %d bytes, %d in f32", precision, cacheBytes[precision], cacheBytes[model.F32])
		}
	}
}

func requireNear(t testing.TB, what string, found, wanted []float32, bound float64) {
	t.Helper()
	for at := range wanted {
		if off := float64(found[at]) - float64(wanted[at]); !(math.Abs(off) <= bound) {
			t.Fatalf("%s: logit %d is %v, not %v within %v", what, at, found[at], wanted[at], bound)
		}
	}
}

func TestPrecisionsThatAreNone(t *testing.T) {
	for _, wrong := range []model.Precision{"", "f8", "F16"} {
		_, err := model.New(newContext(t), tiny(), wrong, 0)
		if err == nil || !strings.Contains(err.Error(), "'; it must be one of f32, bf16, f16, fp8") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
