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
		"attn_norm":     "input_layernorm",
		"attn_q":        "self_attn.q_proj",
		"attn_k":        "self_attn.k_proj",
		"attn_v":        "self_attn.v_proj",
		"attn_output":   "self_attn.o_proj",
		"ffn_norm":      "post_attention_layernorm",
		"ffn_gate":      "mlp.gate_proj",
		"ffn_up":        "mlp.up_proj",
		"ffn_down":      "mlp.down_proj",
		"attn_sub_norm": "self_attn.attn_sub_norm",
		"ffn_sub_norm":  "mlp.ffn_sub_norm",
		"ffn_gate_inp":  "block_sparse_moe.gate",
		"ffn_gate_exps": "block_sparse_moe.w1",
		"ffn_up_exps":   "block_sparse_moe.w3",
		"ffn_down_exps": "block_sparse_moe.w2",
	}
	ggufOfModel, ggufOfLayer = reversed(ofModel), reversed(ofLayer)

	ggufLayer = regexp.MustCompile(`^blk\.(\d{1,5})\.(\w+)\.(weight|bias)$`)
	ourLayer  = regexp.MustCompile(`^model\.layers\.(\d{1,5})\.(.+)\.(weight|bias)$`)
)

const ropeFrequencies = "rope_freqs.weight"

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
