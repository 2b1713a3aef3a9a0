package stored

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// What Hugging Face folders call the tensors of LlamaConfig.Shapes, family by family, and which of them hold several. Several
// matrices in one tensor lie one below the other: their rows are cut out of it where they are, without a copy.
var (
	layerName   = regexp.MustCompile(`^(model\.layers\.\d{1,5})\.(.+)$`)
	qwensExpert = regexp.MustCompile(`^mlp\.experts\.(\d{1,5})\.(gate|up|down)_proj\.weight$`)
	expertPart  = map[string]string{"gate": "w1", "up": "w3", "down": "w2"}

	// renamed are Qwen's, OLMoE's, Granite's and gpt-oss' names of what is in a tensor of its own.
	renamed = map[string]string{
		"mlp.gate.weight":                      "block_sparse_moe.gate.weight",
		"block_sparse_moe.router.layer.weight": "block_sparse_moe.gate.weight",
		"mlp.shared_expert.gate_proj.weight":   "block_sparse_moe.shared.gate_proj.weight",
		"mlp.shared_expert.up_proj.weight":     "block_sparse_moe.shared.up_proj.weight",
		"mlp.shared_expert.down_proj.weight":   "block_sparse_moe.shared.down_proj.weight",
		"shared_mlp.output_linear.weight":      "block_sparse_moe.shared.down_proj.weight",
		"mlp.shared_expert_gate.weight":        "block_sparse_moe.shared_gate.weight",
		"mlp.router.weight":                    "block_sparse_moe.gate.weight",
		"mlp.router.bias":                      "block_sparse_moe.gate.bias",
		"self_attn.sinks":                      "self_attn.sinks.weight",
	}
	// normsOfGemma are its names of norms: those that others have in front of the feed-forward network, and those behind parts.
	normsOfGemma = map[string]string{
		"pre_feedforward_layernorm.weight":  "post_attention_layernorm.weight",
		"post_attention_layernorm.weight":   "self_attn.post_norm.weight",
		"post_feedforward_layernorm.weight": "mlp.post_norm.weight",
	}
)

// ownNames gives a tensor of a folder under the names of LlamaConfig.Shapes, that of an expert alone under Mixtral's. An error
// when it holds several matrices and its shape is not the one that the configuration makes it.
func (m *Model) ownNames(name string, tensor formats.StoredTensor) (map[string][]formats.StoredTensor, error) {
	one := func(name string) (map[string][]formats.StoredTensor, error) {
		return map[string][]formats.StoredTensor{name: {tensor}}, nil
	}
	match := layerName.FindStringSubmatch(name)
	if match == nil {
		return one(name)
	}
	layer, part := match[1], match[2]
	if expert := qwensExpert.FindStringSubmatch(part); expert != nil {
		return one(layer + ".block_sparse_moe.experts." + expert[1] + "." + expertPart[expert[2]] + ".weight")
	}
	hidden, experts, ffn := m.Config.HiddenSize, m.Config.NumExperts, m.Config.FFNSize
	if part == "mlp.shared_expert_gate.weight" && slices.Equal(tensor.Shape, []int{1, hidden}) {
		tensor.Shape = tensor.Shape[1:]
	}
	if own := normsOfGemma[part]; own != "" && m.Config.PostNorms {
		return one(layer + "." + own)
	}
	if own := renamed[part]; own != "" {
		return one(layer + "." + own)
	}
	if m.Config.BiasedExperts {
		if own, err := m.expertsOfGPTOSS(layer, part, tensor); own != nil || err != nil {
			return own, err
		}
	}
	mixture := layer + ".block_sparse_moe."
	switch part {
	case "mlp.experts.down_proj", "block_sparse_moe.output_linear.weight":
		if err := m.checkShape(tensor, experts, hidden, ffn); err != nil {
			return nil, err
		}
		return one(mixture + "w2.weight")
	case "mlp.experts.gate_up_proj", "block_sparse_moe.input_linear.weight": // gate and up of each expert after the other
		if err := m.checkShape(tensor, experts, 2*ffn, hidden); err != nil {
			return nil, err
		}
		found := make(map[string][]formats.StoredTensor)
		for at := range 2 * experts {
			own := mixture + []string{"w1.weight", "w3.weight"}[at%2]
			found[own] = append(found[own], rowsOf(tensor, at*ffn, ffn))
		}
		return found, nil
	}
	return m.cutRows(name, tensor)
}

// cutRows gives a tensor with the rows of several matrices as these, any other as it is; errors as of ownNames.
func (m *Model) cutRows(name string, tensor formats.StoredTensor) (map[string][]formats.StoredTensor, error) {
	config := m.Config
	queries, keys := config.NumHeads*config.HeadDim, config.NumKVHeads*config.HeadDim
	type rows struct {
		name  string
		count int
	}
	var cut []rows
	if layer, fused := strings.CutSuffix(name, "self_attn.qkv_proj.weight"); fused {
		attention := layer + "self_attn."
		cut = []rows{{attention + "q_proj.weight", queries}, {attention + "k_proj.weight", keys}, {attention + "v_proj.weight", keys}}
	} else if layer, fused := strings.CutSuffix(name, "mlp.gate_up_proj.weight"); fused {
		cut = []rows{{layer + "mlp.gate_proj.weight", config.FFNSize}, {layer + "mlp.up_proj.weight", config.FFNSize}}
	} else if layer, fused := strings.CutSuffix(name, "shared_mlp.input_linear.weight"); fused {
		shared := layer + "block_sparse_moe.shared."
		cut = []rows{{shared + "gate_proj.weight", config.SharedFFNSize}, {shared + "up_proj.weight", config.SharedFFNSize}}
	} else {
		return map[string][]formats.StoredTensor{name: {tensor}}, nil
	}
	whole := 0
	for _, part := range cut {
		whole += part.count
	}
	if err := m.checkShape(tensor, whole, config.HiddenSize); err != nil {
		return nil, err
	}
	found, first := make(map[string][]formats.StoredTensor), 0
	for _, part := range cut {
		found[part.name] = []formats.StoredTensor{rowsOf(tensor, first, part.count)}
		first += part.count
	}
	return found, nil
}

func (m *Model) checkShape(tensor formats.StoredTensor, right ...int) error {
	if !slices.Equal(tensor.Shape, right) {
		return wrong(m.Path, "tensor %s has shape %s; the configuration makes it %s", tensor.Name, sizes(tensor.Shape), sizes(right))
	}
	return nil
}

// rowsOf is a matrix of some rows of a tensor.
func rowsOf(tensor formats.StoredTensor, first, count int) formats.StoredTensor {
	size := tensor.RowBytes()
	part := tensor
	part.Shape, part.Data = []int{count, tensor.Columns()}, tensor.Data[first*size:(first+count)*size:(first+count)*size]
	return part
}
