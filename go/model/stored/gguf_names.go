package stored

import (
	"regexp"
	"strconv"
	"strings"
)

// Names of tensors in GGUF files and in LlamaConfig.Shapes. (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)
var (
	ofModel = map[string]string{
		"token_embd.weight":  embeddingName,
		"output_norm.weight": "model.norm.weight",
		"output.weight":      headName,
	}
	ofLayer = map[string]string{
		"attn_norm":           "input_layernorm",
		"attn_q":              "self_attn.q_proj",
		"attn_k":              "self_attn.k_proj",
		"attn_v":              "self_attn.v_proj",
		"attn_output":         "self_attn.o_proj",
		"attn_qkv":            "self_attn.qkv_proj",
		"attn_q_norm":         "self_attn.q_norm",
		"attn_k_norm":         "self_attn.k_norm",
		"attn_sinks":          "self_attn.sinks",
		"ffn_norm":            "post_attention_layernorm",
		"ffn_gate":            "mlp.gate_proj",
		"ffn_up":              "mlp.up_proj",
		"ffn_down":            "mlp.down_proj",
		"post_attention_norm": "self_attn.post_norm",
		"post_ffw_norm":       "mlp.post_norm",
		"attn_sub_norm":       "self_attn.attn_sub_norm",
		"ffn_sub_norm":        "mlp.ffn_sub_norm",
		"ffn_gate_inp":        "block_sparse_moe.gate",
		"ffn_gate_exps":       "block_sparse_moe.w1",
		"ffn_up_exps":         "block_sparse_moe.w3",
		"ffn_down_exps":       "block_sparse_moe.w2",
		"ffn_gate_inp_shexp":  "block_sparse_moe.shared_gate",
		"ffn_gate_shexp":      "block_sparse_moe.shared.gate_proj",
		"ffn_up_shexp":        "block_sparse_moe.shared.up_proj",
		"ffn_down_shexp":      "block_sparse_moe.shared.down_proj",
	}
	ggufOfModel, ggufOfLayer = reversed(ofModel), reversed(ofLayer)

	ggufLayer = regexp.MustCompile(`^blk\.(\d{1,5})\.(\w+)\.(weight|bias)$`)
	ourLayer  = regexp.MustCompile(`^model\.layers\.(\d{1,5})\.(.+)\.(weight|bias)$`)
)

// Divisors of the rotary embedding's frequencies: Llama 3's, and LongRoPE's two.
const (
	ropeFrequencies = "rope_freqs.weight"
	shortFactors    = "rope_factors_short.weight"
	longFactors     = "rope_factors_long.weight"
)

func reversed(names map[string]string) map[string]string {
	back := make(map[string]string, len(names))
	for theirs, ours := range names {
		back[ours] = theirs
	}
	return back
}

// ggufName is what GGUF files call a tensor of LlamaConfig.Shapes.
func ggufName(name string) string {
	if match := ourLayer.FindStringSubmatch(name); match != nil {
		return "blk." + match[1] + "." + ggufOfLayer[match[2]] + "." + match[3]
	}
	return ggufOfModel[name]
}

// nameOfGGUF is the name in LlamaConfig.Shapes of a tensor of a GGUF file; "" of one that is none of a model.
func nameOfGGUF(name string) string {
	match := ggufLayer.FindStringSubmatch(name)
	if match == nil || ofLayer[match[2]] == "" {
		return ofModel[name]
	}
	layer, _ := strconv.Atoi(match[1]) // five digits at most
	return strings.Join([]string{"model.layers", strconv.Itoa(layer), ofLayer[match[2]], match[3]}, ".")
}
