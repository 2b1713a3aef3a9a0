package model_test

import (
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
)

// wide is a model whose weights outweigh all else that making it could take.
func wide() model.Config {
	config := tiny()
	config.VocabSize, config.HiddenSize, config.NumExperts, config.FFNSize, config.NumLayers = 512, 256, 8, 512, 4
	return config
}

// TestWeightsForInferenceTakeNoMore: made or loaded in 16 bits, a model never has more than one tensor in f32.
func TestWeightsForInferenceTakeNoMore(t *testing.T) {
	trained := must.Get(model.New(newContext(t), wide(), model.F32, 4))(t)
	defer trained.Close()
	weights := must.Get(model.NewMixtralWeights(parametersOf(t, trained), false))(t)
	largest := 0
	for _, spec := range trained.Layout.Specs {
		largest = max(largest, 4*spec.Size())
	}
	for name, of := range map[string]struct {
		beside int
		made   func() (*model.MoETransformer, error)
	}{
		"made": {0, func() (*model.MoETransformer, error) {
			return model.NewForInference(newContext(t), wide(), model.BF16, 4)
		}},
		"loaded": {largest, func() (*model.MoETransformer, error) {
			return model.Load(newContext(t), wide(), weights, model.BF16, false)
		}},
	} {
		made := must.Get(of.made())(t)
		used := must.Get(made.Context().BytesUsed())(t)
		peak := must.Get(made.Context().BytesPeak())(t)
		exact := int64(2 * wide().NumParameters())
		if used != exact || peak > exact+int64(of.beside)+1<<18 { // and a chunk of scratch
			t.Errorf("%s: %d bytes, at most %d; the weights have %d", name, used, peak, exact)
		}
		must.Do(t, made.Close())
	}
}
