package stored_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/safetensors"
)

func open(t testing.TB, path string) *stored.Model {
	t.Helper()
	made := must.Get(stored.Open(path))(t)
	t.Cleanup(func() { must.Do(t, made.Close()) })
	return made
}

func TestFolders(t *testing.T) {
	for _, kind := range storedmodel.Kinds() {
		m := open(t, storedmodel.Folder(t, kind, nil))
		config := m.Config
		if config.Ternary != (kind == "bitnet") || (config.NumExperts > 0) != (kind == "mixtral") ||
			config.Rope.Layout != stored.RopeHalf || config.ExtendedContext != storedmodel.Context {
			t.Errorf("%s: %+v", kind, config)
		}
		parameters := 0
		for _, shape := range config.Shapes() {
			size := 1
			for _, extent := range shape.Sizes {
				size *= extent
			}
			parameters += size
			if matrix := m.Matrices[shape.Name]; matrix != nil {
				if !matrix.IsMaster || len(matrix.Data) != 4*size {
					t.Errorf("%s is %v", shape.Name, matrix)
				}
				continue
			}
			bytes := 0
			for _, part := range m.Parts(shape.Name) {
				bytes += len(part.Data)
			}
			if bytes != 4*size {
				t.Errorf("%s has %d bytes", shape.Name, bytes)
			}
		}
		if parameters != config.NumParameters() || m.Bytes() != int64(4*parameters) {
			t.Errorf("%d parameters, not %d; %d bytes", config.NumParameters(), parameters, m.Bytes())
		}
		if tokens, err := m.Tokenizer(); tokens != nil || err != nil {
			t.Errorf("%v, %v", tokens, err)
		}
	}
}

// Experts are found in a tensor each, or all in one.
func TestFusedExperts(t *testing.T) {
	folder := storedmodel.Folder(t, "mixtral", nil)
	usual, files := open(t, folder), must.Get(safetensors.OpenFolder(folder))(t)
	defer files.Close()
	var fused []safetensors.Tensor
	both, down := map[string][]byte{}, map[string][]byte{}
	for _, name := range files.Names() {
		tensor, _ := files.Tensor(name)
		if !strings.Contains(name, ".experts.") {
			tensor.Name = strings.Replace(name, ".block_sparse_moe.gate.", ".mlp.gate.", 1)
			fused = append(fused, tensor)
		}
	}
	config := usual.Config
	for layer := range config.NumLayers {
		prefix := "model.layers." + string(rune('0'+layer))
		for expert := range config.NumExperts {
			part := func(name string) []byte {
				tensor, _ := files.Tensor(prefix + ".block_sparse_moe.experts." + string(rune('0'+expert)) + "." + name + ".weight")
				return tensor.Bytes
			}
			both[prefix] = append(append(both[prefix], part("w1")...), part("w3")...)
			down[prefix] = append(down[prefix], part("w2")...)
		}
		fused = append(fused,
			safetensors.Tensor{Name: prefix + ".mlp.experts.gate_up_proj", DType: safetensors.F32,
				Shape: []int{config.NumExperts, 2 * config.FFNSize, config.HiddenSize}, Bytes: both[prefix]},
			safetensors.Tensor{Name: prefix + ".mlp.experts.down_proj", DType: safetensors.F32,
				Shape: []int{config.NumExperts, config.HiddenSize, config.FFNSize}, Bytes: down[prefix]})
	}
	other := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(other, "config.json"), must.Get(os.ReadFile(filepath.Join(folder, "config.json")))(t), 0o600))
	must.Do(t, safetensors.WriteFolder(other, fused, nil, safetensors.DefaultShardBytes))
	made := open(t, other)
	for _, shape := range usual.Shapes() {
		var bytes [2][]byte
		for at, m := range []*stored.Model{usual, made} {
			for _, part := range m.Parts(shape.Name) {
				bytes[at] = append(bytes[at], part.Data...)
			}
		}
		if !slices.Equal(bytes[0], bytes[1]) {
			t.Errorf("%s is another in one tensor", shape.Name)
		}
	}
}

func TestWrongConfigurations(t *testing.T) {
	set := func(name string, value any) func(*formats.Object) {
		return func(config *formats.Object) { config.Set(name, value) }
	}
	rope := func(pairs ...any) func(*formats.Object) { return set("rope_scaling", formats.NewObject(pairs...)) }
	for words, change := range map[string]func(*formats.Object){
		"the model_type is 'gpt2'; this program runs":                                        set("model_type", "gpt2"),
		"hidden_size is missing":                                                             func(config *formats.Object) { config.Delete("hidden_size") },
		"num_hidden_layers is '2'; it must be a whole number":                                set("num_hidden_layers", "2"),
		"num_attention_heads is 0; it must be a whole number, from":                          set("num_attention_heads", 0),
		"num_kv_heads is 3; it must be a divisor of num_heads (4)":                           set("num_key_value_heads", 3),
		"head_dim is 20; it must be a multiple of 8, at most 256":                            set("head_dim", 20),
		"has 21 tensors; the configuration makes it 9000 layers":                             set("num_hidden_layers", 9000),
		"hidden_act is 'gelu'; this engine has 'silu'":                                       set("hidden_act", "gelu"),
		"mlp_bias is true; this engine has false":                                            set("mlp_bias", true),
		"partial_rotary_factor is 0.5; this engine rotates whole heads":                      set("partial_rotary_factor", 0.5),
		"sliding_window is 16; this engine attends to all":                                   set("sliding_window", 16),
		"rms_norm_eps is 'x'; it must be a finite number":                                    set("rms_norm_eps", "x"),
		"tie_word_embeddings is 1; it must be true or false":                                 set("tie_word_embeddings", 1),
		"rope.base is 0.5; it must be a number, from 1 to 1e+12":                             set("rope_theta", 0.5),
		"rotary embedding of type 'xpos'; this engine has":                                   rope("rope_type", "xpos"),
		"rotary embedding of yarn with factor 0.5":                                           rope("rope_type", "yarn", "factor", 0.5),
		"the rotary embedding of type 'linear' has the option 'beta_fast', which is unknown": rope("rope_type", "linear", "factor", 2.0, "beta_fast", 3),
		"'clip_qkv' is 8; this engine does not know that option of model_type 'llama'":       set("clip_qkv", 8),
		"; this engine has 'full_attention' in all":                                          set("layer_types", []any{"sliding_attention"}),
		"factor is missing": rope("rope_type", "linear"),
		"rope.factor is 10000000.0; it must be a number, from 1e-06": rope("rope_type", "linear", "factor", 1e7),
		"rotary embedding of llama3 with base 10000, factor 0.5":     rope("rope_type", "llama3", "factor", 0.5, "low_freq_factor", 1.0, "high_freq_factor", 4.0, "original_max_position_embeddings", 64),
		"the options under 'nncuda' must be among extended_context":  set("nncuda", formats.NewObject("speed", 1)),
		"extended_context of a model whose rotary embedding is scaled already (linear)": func(config *formats.Object) {
			config.Set("nncuda", formats.NewObject("extended_context", 4096))
			config.Set("rope_scaling", formats.NewObject("type", "linear", "factor", 2))
		},
		"lacks the tensor model.layers.0.self_attn.q_proj.bias": set("attention_bias", true),
		"tensor model.embed_tokens.weight has shape [96, 64]; the configuration makes it [97, 64]": func(config *formats.Object) {
			config.Set("vocab_size", 96) // what the weights are made of
		},
	} {
		folder := storedmodel.Folder(t, "llama", nil)
		path := filepath.Join(folder, "config.json")
		config := must.Get(formats.ReadJSON(path))(t)
		if change(config); strings.Contains(words, "[97, 64]") {
			config.Set("vocab_size", 97)
		}
		must.Do(t, formats.WriteJSON(path, config))
		_, err := stored.Open(folder)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
}

func TestRopeOptions(t *testing.T) {
	m := open(t, storedmodel.Folder(t, "llama", func(config *formats.Object) {
		config.Set("nncuda", formats.NewObject("extended_context", 2048, "ntk_alpha", 4.0))
	}))
	for positions, alpha := range map[int]float64{512: 1, 513: 4, 2048: 4} {
		base, found, scale, err := m.Config.RopeOptions(positions)
		if err != nil || base != 10000 || found != alpha || scale != 1 {
			t.Errorf("%d: %v, %v, %v, %v", positions, base, found, scale, err)
		}
	}
	if _, _, _, err := m.Config.RopeOptions(2049); err == nil || err.Error() != "2049 positions; this model has at most 2048" {
		t.Errorf("%v", err)
	}
}

// A GGUF file by hand: the smallest Llama, whose rows of queries and keys are in GGUF's order.
func TestGGUF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	for _, given := range []struct {
		more  func(*image)
		count uint64
		words string
	}{
		{func(*image) {}, 0, ""},
		{func(b *image) { b.put("llama.rope.scaling.type", 8, "xpos") }, 1, "llama.rope.scaling.type is 'xpos'; this engine has"},
		{func(b *image) { b.put("llama.rope.dimension_count", 4, uint32(4)) }, 1, "llama.rope.dimension_count is 4; it must be the size of a head (8)"},
		{func(b *image) { b.put("llama.expert_count", 4, uint32(2)) }, 1, "llama.expert_used_count is missing"},
		{func(b *image) { b.put("llama.attention.sliding_window", 4, uint32(8)) }, 1, "llama.attention.sliding_window is 8; this engine attends to all of the context (64)"},
	} {
		b := &image{}
		b.WriteString("GGUF")
		b.put(3, uint64(11), 8+given.count, "general.architecture", 8, "llama", "llama.block_count", 4, uint32(1),
			"llama.context_length", 4, uint32(64), "llama.embedding_length", 4, uint32(16), "llama.feed_forward_length", 4, uint32(8),
			"llama.attention.head_count", 4, uint32(2), "llama.attention.layer_norm_rms_epsilon", 6, float32(1e-5),
			"llama.vocab_size", 4, uint32(12))
		given.more(b)
		offset := uint64(0)
		for _, tensor := range []struct {
			name  string
			sizes []uint64
		}{
			{"token_embd", []uint64{16, 12}}, {"output", []uint64{16, 12}}, {"output_norm", []uint64{16}},
			{"blk.0.attn_norm", []uint64{16}}, {"blk.0.ffn_norm", []uint64{16}}, {"blk.0.attn_q", []uint64{16, 16}},
			{"blk.0.attn_k", []uint64{16, 16}}, {"blk.0.attn_v", []uint64{16, 16}}, {"blk.0.attn_output", []uint64{16, 16}},
			{"blk.0.ffn_gate", []uint64{16, 8}}, {"blk.0.ffn_up", []uint64{16, 8}},
		} {
			b.put(tensor.name+".weight", len(tensor.sizes))
			bytes := uint64(4)
			for _, size := range tensor.sizes {
				b.put(size)
				bytes *= size
			}
			b.put(0, offset)
			offset += bytes
		}
		b.Write(make([]byte, int(offset)+31-(b.Len()+31)%32))
		must.Do(t, os.WriteFile(path, b.Bytes(), 0o600))
		_, err := stored.Open(path)
		words := given.words
		if words == "" {
			words = "lacks the tensor model.layers.0.mlp.down_proj.weight of shape [16, 8]"
		}
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
}

// image is a file in the making.
type image struct{ strings.Builder }

func (b *image) Bytes() []byte { return []byte(b.String()) }

func (b *image) put(values ...any) {
	for _, value := range values {
		switch value := value.(type) {
		case string:
			b.put(uint64(len(value)))
			b.WriteString(value)
		case int:
			b.Write(binary.LittleEndian.AppendUint32(nil, uint32(value)))
		case uint32:
			b.Write(binary.LittleEndian.AppendUint32(nil, value))
		case uint64:
			b.Write(binary.LittleEndian.AppendUint64(nil, value))
		case float32:
			b.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(value)))
		}
	}
}

// No config.json makes the reader crash, and what it takes is a configuration that holds.
func FuzzConfigFromFolder(f *testing.F) {
	for _, kind := range storedmodel.Kinds() {
		f.Add(must.Get(os.ReadFile(filepath.Join(storedmodel.Folder(f, kind, nil), "config.json")))(f))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, err := formats.ParseJSON(text)
		object, isObject := value.(*formats.Object)
		if err != nil || !isObject {
			return
		}
		config, err := stored.ConfigFromFolder(object)
		if err == nil {
			err = config.Validate()
			_, _, _, failure := config.RopeOptions(config.ExtendedContext)
			if err != nil || failure != nil {
				t.Error(err, failure)
			}
		}
	})
}
