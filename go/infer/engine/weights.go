package engine

import (
	"fmt"
	"slices"

	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// gated is a feed-forward network: down (act(gate x) * (up x)).
type gated struct{ gate, up, down weight }

// mixture is a mixture of experts: their matrices one below the other, and the expert that every token goes to, or nil. Its
// gate has a second row of zeros, and is nil where nothing weighs it.
type mixture struct {
	router, w1, w3, w2 weight
	biases             *expertBiases // or nil; with them, gates are clipped
	shared             *gated
	sharedGate         *weight
}

// expertBiases are what the products of a mixture have added, f32: of the router [experts], of gate and up [experts, ffn]
// each, and of down [experts, hidden].
type expertBiases struct{ router, w1, w3, w2 *tensor.Tensor }

// storedLayer is a block's weights; the norms, the biases and the sinks of heads are f32.
type storedLayer struct {
	inputNorm *tensor.Tensor
	q, k, v   weight
	qkvBias   *tensor.Tensor // or nil
	qNorm     *tensor.Tensor // or nil
	kNorm     *tensor.Tensor // or nil
	sinks     *tensor.Tensor // or nil
	o         weight
	oBias     *tensor.Tensor // or nil
	// attentionNorm and ffnNorm are behind these parts, or nil.
	attentionNorm, ffnNorm *tensor.Tensor
	postNorm               *tensor.Tensor
	gated                  *gated   // or
	mixture                *mixture // in a model with experts
}

// Weights are all weights of a model by the layers that they are of.
type Weights struct {
	// InMemory says whether the weights were copied. Ternary ones always are, so of such a model this is about the embedding
	// and the head alone.
	InMemory bool

	config                   stored.LlamaConfig
	embedding, head          weight
	layers                   []storedLayer
	ternary                  []ternaryLayer
	norm                     *tensor.Tensor
	commonBytes, expertBytes int64
	adapters                 *adapters
}

// newWeights brings a model's weights to the device; the options' place and adapters are theirs.
func newWeights(p *layer.Pass, keep *store, model *stored.Model, options Options) *Weights {
	read := newWeightReader(p, keep, model, options.Weights)
	config := model.Config
	w := &Weights{InMemory: read.inMemory, config: config}
	w.adapters = newAdapters(p, keep, &config, read.order, options.Adapter, options.Adapters)
	const table = "model.embed_tokens.weight"
	w.embedding = read.table(p, table, config.TieEmbeddings)
	if config.Ternary {
		w.ternary = ternaryLayers(p, keep, model, w.adapters)
		p.Check(p.Context().Trim()) // what was needed to pack them
	} else {
		for number := range config.NumLayers {
			w.layers = append(w.layers, w.layer(p, read, number))
		}
	}
	w.norm = read.vector(p, "model.norm.weight")
	if config.TieEmbeddings {
		w.head = read.tiedHead(p, table, w.embedding)
	} else {
		w.head = read.matrix(p, "lm_head.weight")
	}
	w.count()
	return w
}

// count adds up the bytes.
func (w *Weights) count() {
	w.commonBytes = w.head.data.Bytes()
	for _, layer := range w.layers {
		for _, matrix := range []weight{layer.q, layer.k, layer.v, layer.o} {
			w.commonBytes += matrix.data.Bytes()
		}
		if layer.mixture != nil {
			w.commonBytes += layer.mixture.router.data.Bytes()
			for _, matrix := range []weight{layer.mixture.w1, layer.mixture.w3, layer.mixture.w2} {
				w.expertBytes += matrix.data.Bytes()
			}
			if shared := layer.mixture.shared; shared != nil {
				w.commonBytes += shared.gate.data.Bytes() + shared.up.data.Bytes() + shared.down.data.Bytes()
			}
			if gate := layer.mixture.sharedGate; gate != nil {
				w.commonBytes += gate.data.Bytes()
			}
			continue
		}
		for _, matrix := range []weight{layer.gated.gate, layer.gated.up, layer.gated.down} {
			w.commonBytes += matrix.data.Bytes()
		}
	}
	for _, layer := range w.ternary {
		for _, matrix := range slices.Concat(layer.qkv, layer.gateUp, []ternaryWeight{layer.o, layer.down}) {
			w.commonBytes += matrix.bytes()
		}
	}
}

// Bytes are the bytes of all matrices, of a tied embedding once, and of all adapters.
func (w *Weights) Bytes() int64 {
	bytes := w.commonBytes + w.expertBytes
	for _, added := range w.adapters.bytes {
		bytes += added
	}
	if w.config.TieEmbeddings {
		return bytes
	}
	return bytes + w.embedding.data.Bytes()
}

// bytesPerStep are the bytes that so many tokens need at least in one call: a row of the embedding each, and every matrix,
// of the experts' as many as the tokens meet if none meets another's; and the adapters with these numbers.
func (w *Weights) bytesPerStep(tokens int, adapters map[int]bool) int64 {
	bytes := w.commonBytes + int64(tokens*w.embedding.data.Dim(1))
	if experts := w.config.NumExperts; experts > 0 {
		met := min(tokens*w.config.ExpertsPerToken, experts)
		bytes += w.expertBytes / int64(experts) * int64(met)
	}
	for number := range adapters {
		bytes += w.adapters.bytes[number]
	}
	return bytes
}

func (w *Weights) layer(p *layer.Pass, read *weightReader, number int) storedLayer {
	block := fmt.Sprintf("model.layers.%d.", number)
	projection := func(name string) weight {
		name = block + name + "_proj.weight"
		matrix := read.matrix(p, name)
		matrix.lowRank = w.adapters.of(name)
		return matrix
	}
	made := storedLayer{
		inputNorm: read.vector(p, block+"input_layernorm.weight"),
		q:         projection("self_attn.q"), k: projection("self_attn.k"), v: projection("self_attn.v"),
		o:        projection("self_attn.o"),
		postNorm: read.vector(p, block+"post_attention_layernorm.weight"),
	}
	bias := func(name string) string { return block + "self_attn." + name + "_proj.bias" }
	if w.config.QKVBias {
		made.qkvBias = read.vector(p, bias("q"), bias("k"), bias("v"))
	}
	if w.config.OBias {
		made.oBias = read.vector(p, bias("o"))
	}
	if w.config.QKNorm != stored.NoNorm {
		made.qNorm = read.vector(p, block+"self_attn.q_norm.weight")
		made.kNorm = read.vector(p, block+"self_attn.k_norm.weight")
	}
	if w.config.Sinks {
		made.sinks = read.vector(p, block+"self_attn.sinks.weight")
	}
	if w.config.PostNorms {
		made.attentionNorm = read.vector(p, block+"self_attn.post_norm.weight")
		made.ffnNorm = read.vector(p, block+"mlp.post_norm.weight")
	}
	network := func(prefix string) *gated {
		return &gated{projection(prefix + "gate"), projection(prefix + "up"), projection(prefix + "down")}
	}
	if w.config.NumExperts == 0 {
		made.gated = network("mlp.")
		return made
	}
	expert := func(name string) weight { return read.matrix(p, block+"block_sparse_moe."+name+".weight") }
	made.mixture = &mixture{router: expert("gate"), w1: expert("w1"), w3: expert("w3"), w2: expert("w2")}
	if w.config.BiasedExperts {
		added := func(name string) *tensor.Tensor { return read.vector(p, block+"block_sparse_moe."+name+".bias") }
		each := func(name string) *tensor.Tensor { return p.View(added(name), w.config.NumExperts, -1) }
		made.mixture.biases = &expertBiases{added("gate"), each("w1"), each("w3"), each("w2")}
	}
	if w.config.SharedFFNSize > 0 {
		made.mixture.shared = network("block_sparse_moe.shared.")
	}
	if w.config.SharedGate {
		gate := read.besideZeros(p, block+"block_sparse_moe.shared_gate.weight")
		made.mixture.sharedGate = &gate
	}
	return made
}
