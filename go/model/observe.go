package model

import (
	"fmt"

	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// What the names of the parameters outside of blocks begin with.
const (
	EmbeddingName = "model.embed_tokens"
	HeadName      = "lm_head"
	normName      = "model.norm"
)

// Observer is shown what the layers of ForwardBackward give, in the order in which they give it: the embedding first,
// of each block "model.layers.L.self_attn", without the residual, and "model.layers.L.block_sparse_moe", with it, the
// last norm and, piece by piece, the head. x [n, width] are the rows of the micro-batch from `first` on. A block that
// is computed twice is shown twice. It must not change x, nor hold on to it.
type Observer func(p *layer.Pass, name string, first int, x *tensor.Tensor)

// Observe has an observer shown what layers give from now on; nil ends that. No step may be captured meanwhile.
func (m *MoETransformer) Observe(observer Observer) {
	m.observer = observer
	for at, block := range m.blocks {
		block.Observe = nil
		if observer != nil {
			block.Observe = func(p *layer.Pass, part string, x *tensor.Tensor) {
				observer(p, fmt.Sprintf("model.layers.%d.%s", at, part), 0, x)
			}
		}
	}
}

func (m *MoETransformer) observe(p *layer.Pass, name string, first int, x *tensor.Tensor) {
	if m.observer != nil {
		m.observer(p, name, first, x)
	}
}
