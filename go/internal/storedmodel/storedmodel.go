// Package storedmodel writes Hugging Face folders of small models with random weights, for the tests of what runs them.
package storedmodel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/safetensors"
)

// Sizes of the models.
const (
	Vocab   = 96
	hidden  = 64
	layers  = 2
	heads   = 4
	kvHeads = 2
	headDim = 16
	ffn     = 96
	experts = 4
	Context = 512
)

// Kinds are the kinds of models, as `model_type` names them.
func Kinds() []string { return []string{"llama", "mixtral", "bitnet"} }

// Folder writes a model of a kind and gives its folder. `change` may change config.json.
func Folder(t testing.TB, kind string, change func(config *formats.Object)) string {
	t.Helper()
	folder := t.TempDir()
	config := formats.NewObject(
		"model_type", kind, "vocab_size", Vocab, "hidden_size", hidden, "num_hidden_layers", layers,
		"num_attention_heads", heads, "num_key_value_heads", kvHeads, "head_dim", headDim, "intermediate_size", ffn,
		"max_position_embeddings", Context, "rms_norm_eps", 1e-5)
	if kind == "mixtral" {
		config.Update(formats.NewObject("num_local_experts", experts, "num_experts_per_tok", 2))
	}
	if change != nil {
		change(config)
	}
	must.Do(t, formats.WriteJSON(filepath.Join(folder, "config.json"), config))
	vocab := config.Get("vocab_size").(int)
	must.Do(t, safetensors.WriteFolder(folder, tensors(kind, vocab), nil, safetensors.DefaultShardBytes))
	return folder
}

// WithTokenizer adds a tokenizer.model to a folder: the one of that name among the fixtures of tests/tokenizer.
func WithTokenizer(t testing.TB, folder, fixture string) {
	t.Helper()
	content := must.Get(os.ReadFile(fixture))(t)
	must.Do(t, os.WriteFile(filepath.Join(folder, "tokenizer.model"), content, 0o600))
}

// Adapter writes a LoRA adapter of a model of kind llama as a folder of PEFT and gives it: of the matrices of all layers with
// these names, such as "self_attn.q_proj".
func Adapter(t testing.TB, seed uint64, rank int, targets ...string) string {
	t.Helper()
	folder, random := t.TempDir(), rand.New(rand.NewPCG(seed, 7))
	var made []safetensors.Tensor
	for _, matrix := range tensors("llama", Vocab) {
		module := strings.TrimSuffix(matrix.Name, ".weight")
		if !slices.ContainsFunc(targets, func(target string) bool { return strings.HasSuffix(module, "."+target) }) {
			continue
		}
		for at, shape := range [][]int{{rank, matrix.Shape[1]}, {matrix.Shape[0], rank}} {
			name := fmt.Sprintf("base_model.model.%s.lora_%c.weight", module, 'A'+at)
			factor := safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: shape}
			for range factor.Size() / 4 {
				value := math.Float32bits(float32(0.3 * random.NormFloat64()))
				factor.Bytes = binary.LittleEndian.AppendUint32(factor.Bytes, value)
			}
			made = append(made, factor)
		}
	}
	must.Do(t, safetensors.Write(filepath.Join(folder, "adapter_model.safetensors"), made, nil))
	options := formats.NewObject("peft_type", "LORA", "r", rank, "lora_alpha", 8)
	must.Do(t, formats.WriteJSON(filepath.Join(folder, "adapter_config.json"), options))
	return folder
}

func tensors(kind string, vocab int) []safetensors.Tensor {
	random := rand.New(rand.NewPCG(3, 5))
	var made []safetensors.Tensor
	add := func(name string, shape ...int) {
		tensor := safetensors.Tensor{Name: name + ".weight", DType: safetensors.F32, Shape: shape}
		deviation := 2 / math.Sqrt(float64(shape[len(shape)-1]))
		for range tensor.Size() / 4 {
			value := random.NormFloat64() * deviation
			if strings.HasSuffix(name, "norm") {
				value = 1 + 0.1*random.NormFloat64()
			}
			tensor.Bytes = binary.LittleEndian.AppendUint32(tensor.Bytes, math.Float32bits(float32(value)))
		}
		made = append(made, tensor)
	}
	add("model.embed_tokens", vocab, hidden)
	for layer := range layers {
		block := fmt.Sprintf("model.layers.%d.", layer)
		add(block+"input_layernorm", hidden)
		add(block+"post_attention_layernorm", hidden)
		add(block+"self_attn.q_proj", heads*headDim, hidden)
		add(block+"self_attn.k_proj", kvHeads*headDim, hidden)
		add(block+"self_attn.v_proj", kvHeads*headDim, hidden)
		add(block+"self_attn.o_proj", hidden, heads*headDim)
		if kind == "bitnet" {
			add(block+"self_attn.attn_sub_norm", heads*headDim)
			add(block+"mlp.ffn_sub_norm", ffn)
		}
		if kind != "mixtral" {
			add(block+"mlp.gate_proj", ffn, hidden)
			add(block+"mlp.up_proj", ffn, hidden)
			add(block+"mlp.down_proj", hidden, ffn)
			continue
		}
		add(block+"block_sparse_moe.gate", experts, hidden)
		for expert := range experts {
			for _, part := range []string{"w1", "w3"} {
				add(fmt.Sprintf("%sblock_sparse_moe.experts.%d.%s", block, expert, part), ffn, hidden)
			}
			add(fmt.Sprintf("%sblock_sparse_moe.experts.%d.w2", block, expert), hidden, ffn)
		}
	}
	add("model.norm", hidden)
	add("lm_head", vocab, hidden)
	return made
}

// IDs are ids that are the same for the same seed.
func IDs(seed uint64, count int) []int32 {
	random := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int32, count)
	for at := range ids {
		ids[at] = random.Int32N(Vocab)
	}
	return ids
}

// Joined is one text of several.
func Joined(parts ...[]int32) []int32 { return slices.Concat(parts...) }
