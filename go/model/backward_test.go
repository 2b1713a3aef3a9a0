package model_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// withParts is a dense model with biases, whose head is the table of embeddings.
func withParts() model.Config {
	config := tiny()
	config.NumExperts, config.ExpertsPerToken, config.CapacityFactor = 0, 0, 0
	config.NormTopKProb, config.AuxAlpha = model.Default().NormTopKProb, model.Default().AuxAlpha
	config.QKVBias, config.TieEmbeddings = true, true
	return config
}

// withHeadNorms is a dense model with norms of heads.
func withHeadNorms() model.Config {
	config := withParts()
	config.QKVBias, config.TieEmbeddings, config.QKNorm = false, false, true
	return config
}

func TestPiecesOfABackwardPassAreAllElementsOnce(t *testing.T) {
	wanted := []string{
		"lm_head.weight", "model.layers.2.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight",
		"model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
	}
	requirePieces(t, tiny(), wanted)
	requirePieces(t, withParts(), wanted[1:])
	requirePieces(t, withHeadNorms(), wanted)
}

// requirePieces checks the first parameter of each piece of a model with three layers.
func requirePieces(t *testing.T, config model.Config, wanted []string) {
	t.Helper()
	config.NumLayers = 3
	must.Do(t, config.Validate())
	layout := model.NewLayout(config)
	if layout.Size != config.NumParameters() {
		t.Errorf("%d elements of %d parameters", layout.Size, config.NumParameters())
	}
	var names []string // of the first parameter of each piece
	taken := make([]int, layout.Size)
	for _, piece := range layout.BackwardPieces() {
		first := slices.IndexFunc(layout.Specs, func(spec model.Spec) bool { return spec.Offset == piece.Begin })
		names = append(names, layout.Specs[first].Name)
		for at := piece.Begin; at < piece.End; at++ {
			taken[at]++
		}
	}
	if !slices.Equal(names, wanted) {
		t.Errorf("the pieces begin with %v", names)
	}
	if slices.Min(taken) != 1 || slices.Max(taken) != 1 {
		t.Error("some elements are in no piece, or in two")
	}
}

// TestPiecesAreCompletedInTheirOrder: at each call one more piece has the gradients that it has in the end, and the next
// has not, but for the gains', which the lowest layer completes.
func TestPiecesAreCompletedInTheirOrder(t *testing.T) {
	t.Run("experts", func(t *testing.T) { requireOrder(t, tiny()) })
	t.Run("parts", func(t *testing.T) { requireOrder(t, withParts()) })
	t.Run("norms of heads", func(t *testing.T) { requireOrder(t, withHeadNorms()) })
}

func requireOrder(t *testing.T, config model.Config) {
	t.Helper()
	ctx := newContext(t)
	made := must.Get(model.New(ctx, config, model.F32, 3))(t)
	defer func() { must.Do(t, made.Close()) }()
	pieces, data := made.Layout.BackwardPieces(), made.Gradients.Data
	poison := slices.Repeat([]float32{float32(math.NaN())}, made.Layout.Size)
	must.Do(t, tensor.Write(data, poison))
	var seen [][]float32
	must.Do(t, layer.Run(ctx, func(p *layer.Pass) {
		ids, targets := p.Empty(cuda.I32, 2, 5), p.Empty(cuda.I32, 2, 5)
		p.Check(tensor.Write(ids, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}))
		p.Check(tensor.Write(targets, []int32{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}))
		factor, losses, aux := p.Empty(cuda.F32, 1), p.Empty(cuda.F32, made.LossPieces(10)), p.Empty(cuda.F32, 1)
		p.Check(tensor.Fill(factor, 1))
		uses := made.ForwardBackward(p, ids, targets, nil, model.Factors{Loss: factor, Aux: factor}, losses, aux, false, func() {
			seen = append(seen, must.Get(tensor.Read[float32](data))(t))
		})
		for _, use := range uses {
			p.Check(use.Close())
		}
	}))
	if len(seen) != len(pieces) {
		t.Fatalf("%d calls for %d pieces", len(seen), len(pieces))
	}
	final := must.Get(tensor.Read[float32](data))(t)
	of := func(values []float32, piece model.Span) string {
		var bits []uint32
		for _, value := range values[piece.Begin:piece.End] {
			bits = append(bits, math.Float32bits(value))
		}
		return fmt.Sprint(bits)
	}
	for call, values := range seen {
		for at, piece := range pieces {
			done := at
			if at == len(pieces)-1 {
				done = at - 2
			}
			if complete := of(values, piece) == of(final, piece); complete != (done <= call) {
				t.Errorf("at call %d, is piece %d complete? %v", call, at, complete)
			}
		}
	}
}
