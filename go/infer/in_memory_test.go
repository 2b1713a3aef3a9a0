package infer_test

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/safetensors"
)

// A model in memory has the bits of its weights in a folder, on a context that stays its own.
func TestAModelInMemory(t *testing.T) {
	for precision, dtype := range map[model.Precision]safetensors.DType{
		model.F32: safetensors.F32, model.BF16: safetensors.BF16, model.F16: safetensors.F16,
	} {
		made := newModelIn(t, 48, precision)
		folder := t.TempDir()
		must.Do(t, formats.WriteJSON(filepath.Join(folder, "config.json"), made.Config.Mixtral()))
		var tensors []safetensors.Tensor
		for _, spec := range made.Weights.Layout.Specs {
			weights := must.Get(made.Weights.Parameter(spec.Name))(t)
			data := make([]byte, weights.Bytes())
			must.Do(t, weights.Download(data))
			tensors = append(tensors, safetensors.Tensor{Name: spec.Name, DType: dtype, Shape: spec.Shape, Bytes: data})
		}
		must.Do(t, safetensors.WriteFolder(folder, tensors, nil, safetensors.DefaultShardBytes))
		ids := []int32{1, 2, 3, 40, 7}
		stored := must.Get(infer.Load(folder, infer.LoadOptions{}))(t)
		expected := must.Get(stored.Logits(context.Background(), infer.Prompt{IDs: ids}))(t)
		must.Do(t, stored.Close())

		running := must.Get(infer.Of(made, nil, engine.Options{Weights: "file"}))(t)
		found := must.Get(running.Logits(context.Background(), infer.Prompt{IDs: ids}))(t)
		if !slices.EqualFunc(found, expected, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Errorf("%s: other logits than of the folder", precision)
		}
		tokens, _, err := continued(context.Background(), running, infer.Generation{Prompts: promptsOf(ids), MaxNewTokens: 9})
		if err != nil || len(tokens[0]) != 9 {
			t.Errorf("%v, %v", tokens, err)
		}
		// A copy: what becomes of the model's weights later is nothing to it.
		first := must.Get(made.Weights.Parameter(made.Weights.Layout.Specs[0].Name))(t)
		must.Do(t, first.Zero())
		if again := must.Get(running.Logits(context.Background(), infer.Prompt{IDs: ids}))(t); !slices.Equal(again, found) {
			t.Errorf("%s: the weights are not a copy", precision)
		}
		must.Do(t, running.Close())
		if made.Context().Closed() {
			t.Error("the model's context was closed")
		}
	}
	made := newModel(t, 48)
	must.Do(t, made.Exclusive(func() error {
		if _, err := infer.Of(made, nil, engine.Options{}); !errors.Is(err, model.ErrInUse) {
			t.Errorf("%v", err)
		}
		return nil
	}))
}
