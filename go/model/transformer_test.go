package model_test

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/tinymodel"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tensor"
)

var tiny = tinymodel.Config

func newContext(t testing.TB) *cuda.Context {
	t.Helper()
	return withlibrary.Context(t, cuda.WithThreads(1))
}

// stored is tensors by name, as a file has them.
type stored map[string]safetensors.Tensor

func (s stored) Names() (names []string) {
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s stored) Tensor(name string) (safetensors.Tensor, bool) {
	tensor, found := s[name]
	return tensor, found
}

// parametersOf gives a model's parameters as stored tensors.
func parametersOf(t testing.TB, made *model.MoETransformer) stored {
	t.Helper()
	tensors := stored{}
	for _, spec := range made.Layout.Specs {
		view := must.Get(made.Parameters.Parameter(spec.Name))(t)
		bytes := make([]byte, view.Bytes())
		must.Do(t, view.Download(bytes))
		tensors[spec.Name] = safetensors.Tensor{Name: spec.Name, DType: safetensors.F32, Shape: spec.Shape, Bytes: bytes}
	}
	return tensors
}

// load makes a model for inference from stored tensors.
func load(ctx *cuda.Context, config model.Config, tensors stored) (*model.MoETransformer, error) {
	weights, err := model.NewMixtralWeights(tensors, false)
	if err != nil {
		return nil, err
	}
	return model.Load(ctx, config, weights, model.F32, false)
}

var prompt = []int32{1, 2, 3, 40, 5, 6, 7, 8}

func logitsOf(t testing.TB, made *model.MoETransformer) []float32 {
	t.Helper()
	logits := must.Get(made.Logits(prompt, 2))(t)
	values, err := tensor.Read[float32](logits)
	must.Do(t, errors.Join(err, logits.Close()))
	return values
}

func TestWeightsOfEveryKind(t *testing.T) {
	ctx := newContext(t)
	made := must.Get(model.New(ctx, tiny(), model.F32, 5))(t)
	defer made.Close()
	wanted, whole := logitsOf(t, made), parametersOf(t, made)
	for name, tensors := range map[string]stored{
		"f32": whole, "f64": widened(whole), "experts in one tensor": fused(whole),
	} {
		read := must.Get(load(ctx, tiny(), tensors))(t)
		if !slices.Equal(logitsOf(t, read), wanted) {
			t.Errorf("weights as %s give other logits", name)
		}
		if read.Gradients != nil {
			t.Error("a model for inference has gradients")
		}
		must.Do(t, read.Close())
	}
	// 16 bits: what is stored is what is computed with.
	for dtype, round := range map[safetensors.DType]func(float32) uint16{
		safetensors.BF16: func(value float32) uint16 { return uint16(math.Float32bits(value) >> 16) },
		safetensors.F16: func(value float32) uint16 { // 1/16 with the value's sign
			return uint16(math.Float32bits(value)>>16&0x8000 | 0x2C00)
		},
	} {
		tensors := stored{}
		for name, tensor := range whole {
			var bytes []byte
			for at := 0; at < len(tensor.Bytes); at += 4 {
				value := math.Float32frombits(binary.LittleEndian.Uint32(tensor.Bytes[at:]))
				bytes = binary.LittleEndian.AppendUint16(bytes, round(value))
			}
			tensors[name] = safetensors.Tensor{Name: name, DType: dtype, Shape: tensor.Shape, Bytes: bytes}
		}
		read := must.Get(load(ctx, tiny(), tensors))(t)
		spec := read.Layout.Specs[0]
		view := must.Get(read.Parameters.Parameter(spec.Name))(t)
		values := must.Get(tensor.Read[float32](view))(t)
		original := math.Float32frombits(binary.LittleEndian.Uint32(whole[spec.Name].Bytes))
		first := math.Float32frombits(math.Float32bits(original) &^ 0xFFFF)
		if dtype == safetensors.F16 {
			first = float32(math.Copysign(0.0625, float64(original)))
		}
		if values[0] != first {
			t.Errorf("%s: %v became %v, not %v", dtype, original, values[0], first)
		}
		must.Do(t, read.Close())
	}
}

// widened stores the same values in 64 bits.
func widened(tensors stored) stored {
	wide := stored{}
	for name, tensor := range tensors {
		var bytes []byte
		for at := 0; at < len(tensor.Bytes); at += 4 {
			value := math.Float32frombits(binary.LittleEndian.Uint32(tensor.Bytes[at:]))
			bytes = binary.LittleEndian.AppendUint64(bytes, math.Float64bits(float64(value)))
		}
		wide[name] = safetensors.Tensor{Name: name, DType: safetensors.F64, Shape: tensor.Shape, Bytes: bytes}
	}
	return wide
}

// fused stores all experts of a layer in two tensors, as transformers 5 holds them.
func fused(tensors stored) stored {
	config, together := tiny(), stored{}
	for name, tensor := range tensors {
		if !strings.Contains(name, ".experts.") {
			name = strings.Replace(name, ".block_sparse_moe.gate.", ".mlp.gate.", 1)
			together[name] = safetensors.Tensor{Name: name, DType: tensor.DType, Shape: tensor.Shape, Bytes: tensor.Bytes}
		}
	}
	for _, layer := range []string{"0", "1"} {
		var gateUp, down []byte
		for _, expert := range []string{"0", "1", "2", "3"} {
			prefix := "model.layers." + layer + ".block_sparse_moe.experts." + expert
			gateUp = append(gateUp, tensors[prefix+".w1.weight"].Bytes...)
			gateUp = append(gateUp, tensors[prefix+".w3.weight"].Bytes...)
			down = append(down, tensors[prefix+".w2.weight"].Bytes...)
		}
		prefix := "model.layers." + layer + ".mlp.experts."
		together[prefix+"gate_up_proj"] = safetensors.Tensor{
			DType: safetensors.F32, Shape: []int{4, 2 * config.FFNSize, config.HiddenSize}, Bytes: gateUp}
		together[prefix+"down_proj"] = safetensors.Tensor{
			DType: safetensors.F32, Shape: []int{4, config.HiddenSize, config.FFNSize}, Bytes: down}
	}
	return together
}

func TestWeightsThatAreRefused(t *testing.T) {
	ctx := newContext(t)
	made := must.Get(model.New(ctx, tiny(), model.F32, 0))(t)
	whole := parametersOf(t, made)
	must.Do(t, made.Close())
	const norm = "model.norm.weight"
	for words, change := range map[string]func(tensors stored){
		"tensors missing: model.norm.weight": func(s stored) { delete(s, norm) },
		"tensors not part of this model: a, b, c and 1 more": func(s stored) {
			s["a"], s["b"], s["c"], s["d"] = s[norm], s[norm], s[norm], s[norm]
		},
		"tensor model.norm.weight has shape [23]; config.json makes it [24]": func(s stored) {
			s[norm] = reshaped(s[norm], 23)
		},
		"tensor model.norm.weight has dtype int32; weights are floating": func(s stored) {
			s[norm] = retyped(s[norm], safetensors.I32)
		},
		"has shape [24]; it must have three dimensions": func(s stored) {
			s["model.layers.0.mlp.experts.down_proj"] = s[norm]
		},
	} {
		tensors := stored{}
		for name, tensor := range whole {
			tensors[name] = tensor
		}
		change(tensors)
		if _, err := load(ctx, tiny(), tensors); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %q", err, words)
		}
		if bytes, err := ctx.BytesUsed(); err != nil || bytes != 0 {
			t.Errorf("%d bytes are still used (%v)", bytes, err)
		}
	}
}

func reshaped(tensor safetensors.Tensor, shape ...int) safetensors.Tensor {
	tensor.Shape = shape
	return tensor
}

func retyped(tensor safetensors.Tensor, dtype safetensors.DType) safetensors.Tensor {
	tensor.DType = dtype
	return tensor
}

func TestSeedsDecideTheWeights(t *testing.T) {
	ctx := newContext(t)
	values := map[int64][]float32{}
	for _, seed := range []int64{1, -1} {
		made := must.Get(model.New(ctx, tiny(), model.F32, seed))(t)
		values[seed] = logitsOf(t, made)
		again := must.Get(model.New(ctx, tiny(), model.F32, seed))(t)
		if !slices.Equal(logitsOf(t, again), values[seed]) {
			t.Errorf("seed %d gives two models", seed)
		}
		must.Do(t, errors.Join(made.Close(), again.Close()))
	}
	if slices.Equal(values[1], values[-1]) {
		t.Error("two seeds give one model")
	}
}

func TestModelsThatCannotBe(t *testing.T) {
	ctx := newContext(t)
	wrong := tiny()
	wrong.NumHeads = 5
	if _, err := model.New(ctx, wrong, model.F32, 0); err == nil ||
		!strings.Contains(err.Error(), "a divisor of num_heads (5)") {
		t.Error(err)
	}
	large := model.Default()
	large.NumLayers, large.FFNSize = 1000, 1<<20
	if _, err := model.New(ctx, large, model.F32, 0); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Error("a model of 50 TB:", err)
	}
	made := must.Get(model.New(ctx, tiny(), model.F32, 0))(t)
	defer made.Close()
	for _, ids := range [][]int32{{}, {1, 2, 3}} {
		if _, err := made.Logits(ids, 2); err == nil || !strings.Contains(err.Error(), "do not make 2 rows") {
			t.Error(err)
		}
	}
	if _, err := made.Logits([]int32{1, 48}, 1); !errors.Is(err, cuda.ErrOutOfRange) {
		t.Error("an id beyond the vocabulary:", err)
	}
	if _, err := made.Cache(1, 65); err == nil || err.Error() != "65 tokens are more than this model takes (64)" {
		t.Error(err)
	}
	must.Do(t, made.Close())
}
