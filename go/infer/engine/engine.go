// Package engine runs stored models: weights multiplied as their file has them, keys and values in pages that sequences
// share, requests that come and go while others are decoded.
//
// Activations are f32. A token's result depends on the tokens before it in its own sequence alone, to the bit: not on who
// else is in the call, on the pieces that a prompt is cut into, nor on whether pages were shared, since every kernel that
// is called here gives a row the same bits in any company (bindings.h, sections quant and attention). They are the bits of
// the engines in Python and Rust, which make the same calls in the same order.
//
// Package infer has the model that goroutines share. What is here belongs to one goroutine at a time.
package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

const (
	// firstPositions are the rows of the rotary embedding's tables at first; they double when a sequence goes beyond, with
	// or without a window.
	firstPositions = 4096

	// UsualContext is the tokens of a sequence unless more are asked for: what many models were trained for, and what a
	// cache is cheap for.
	UsualContext = 8192

	// UsualBatch is the most sequences that are decoded together unless another number is given.
	UsualBatch = 32

	usualPiece = 512

	// usualSequences of full length is what the cache has room for by default; shorter ones may be more.
	usualSequences = 4

	// logitsRows are normed at a time, and have their logits made, when those of all tokens are wanted.
	logitsRows = 64
)

// Options are those of an engine. The zero value is a good choice.
type Options struct {
	// Context is the most tokens of a sequence that see one another; 0: the model's, at most 8192. A sequence that continues
	// beyond it drops its oldest tokens, a page of 128 at a time.
	Context int
	// CacheFormat is one of CacheFormats, in which keys and values are kept; "": f16.
	CacheFormat string
	// CacheTokens is the room of the cache for all sequences together; 0: four sequences of full length.
	CacheTokens int
	// MaxBatch is the most sequences that are decoded together; 0: 32.
	MaxBatch int
	// Piece is the most tokens of a prefill call; any number gives the same bits; 0: 512.
	Piece int
	// Weights is one of Places, where the weights lie on a CPU; "": auto. The bits are the same.
	Weights string
	// Adapter is what is added to the weights, which stay as they are stored, for sequences that name no adapter; or nil. It
	// may be closed when the engine is made.
	Adapter *stored.Adapter
	// Adapters are those that a sequence may name; each has the bits that it has alone, whoever else is in a call. They may be
	// closed, too.
	Adapters []NamedAdapter
}

// Part is what a prefill call runs of one sequence: its next ids, and whether the logits after the last are wanted.
type Part struct {
	Sequence *CachedSequence
	IDs      []int32
	Wanted   bool
}

// inputs are a call's tokens on the device: of sequence b those from offsets[b] to offsets[b+1]-1, the last of its
// lengths[b] rows. All are i32.
type inputs struct {
	ids, positions *tensor.Tensor // [tokens]
	offsets        *tensor.Tensor // [batch + 1]
	lengths        *tensor.Tensor // [batch]
	table          *tensor.Tensor // [batch, max pages]
}

// layers run what of a layer lies around its attention; x f32 [tokens, hidden] is the residual stream.
type layers interface {
	// use says which rows of the calls that follow have which adapter.
	use(runs []rowRun)
	// qkv gives queries, keys and values of the normed rows.
	qkv(p *layer.Pass, number int, x *tensor.Tensor) heads
	// attended adds the projection of what attention gave, f32 [tokens, heads * head_dim].
	attended(p *layer.Pass, number int, heads, x *tensor.Tensor)
	// feedForward adds the feed-forward network, or the mixture of experts, of the normed rows.
	feedForward(p *layer.Pass, number int, x *tensor.Tensor)
}

// heads are queries, keys and values: f32 [tokens, heads, head_dim], and twice [tokens, kv_heads, head_dim].
type heads struct{ q, k, v *tensor.Tensor }

// splitHeads gives what lies side by side in rows of (heads + 2 kv_heads) * head_dim.
func splitHeads(p *layer.Pass, config *stored.LlamaConfig, qkv *tensor.Tensor) heads {
	tokens := qkv.Dim(0)
	queries, keyed := config.NumHeads*config.HeadDim, config.NumKVHeads*config.HeadDim
	return heads{
		p.View(p.Narrow(qkv, 1, 0, queries), tokens, config.NumHeads, config.HeadDim),
		p.View(p.Narrow(qkv, 1, queries, keyed), tokens, config.NumKVHeads, config.HeadDim),
		p.View(p.Narrow(qkv, 1, queries+keyed, keyed), tokens, config.NumKVHeads, config.HeadDim),
	}
}

// Engine runs a stored model on a context.
type Engine struct {
	Config   stored.LlamaConfig
	Context  int // the most tokens of a sequence that see one another
	MaxBatch int
	Piece    int
	Weights  *Weights
	Cache    *PagedCache

	ctx    *cuda.Context
	keep   store
	rope   layer.RopeTables
	local  *layer.RopeTables // of layers with a window, where these have tables of their own; or nil
	layers layers
	// Where the steps of a call put their results: made once for the most rows of a call, so that no call allocates.
	x, heads, logits, normed, last, rows *tensor.Tensor
	inputs                               inputs
	rowBytes                             int64
}

// New makes an engine. An *OptionError for an option that does not fit the model, a *formats.Error for weights that are
// wrong, a *cuda.Error when the device fails.
func New(model *stored.Model, ctx *cuda.Context, options Options) (*Engine, error) {
	e := &Engine{Config: model.Config, ctx: ctx}
	options.CacheFormat = cmp.Or(options.CacheFormat, "f16")
	options.Weights = cmp.Or(options.Weights, "auto")
	if err := e.choose(&options); err != nil {
		return nil, err
	}
	err := layer.Run(ctx, func(p *layer.Pass) { e.build(p, model, options) })
	if err != nil {
		_ = e.Close() // the error says what matters
		return nil, err
	}
	return e, nil
}

// choose checks the options and sets those that were left open.
func (e *Engine) choose(options *Options) error {
	config := e.Config
	e.MaxBatch, e.Piece = cmp.Or(options.MaxBatch, UsualBatch), cmp.Or(options.Piece, usualPiece)
	for _, count := range []struct {
		name  string
		value int
	}{{"max_batch", e.MaxBatch}, {"piece", e.Piece}} {
		if count.value < 1 {
			return wrongOption(count.name, "%s is %d; it must be at least 1", count.name, count.value)
		}
	}
	e.Context = cmp.Or(options.Context, min(config.Context, UsualContext))
	if e.Context < 1 || e.Context > config.ExtendedContext {
		return wrongOption("context", "context is %d; this model takes 1 to %d tokens", e.Context, config.ExtendedContext)
	}
	options.CacheTokens = cmp.Or(options.CacheTokens, min(e.MaxBatch, usualSequences)*pagesOf(e.Context)*Page)
	if options.CacheTokens < 1 {
		return wrongOption("cache_tokens", "cache_tokens is %d; it must be at least 1", options.CacheTokens)
	}
	return checkPlace(options.Weights)
}

func (e *Engine) build(p *layer.Pass, model *stored.Model, options Options) {
	config, rows := e.Config, max(e.Piece, e.MaxBatch)
	if e.Weights = newWeights(p, &e.keep, model, options); p.Err() != nil {
		return
	}
	base, ntkAlpha, scale, err := config.RopeOptions(e.Context)
	p.Check(err)
	e.rope = layer.RopeTables{
		HeadDim: config.HeadDim, Base: base, NTKAlpha: ntkAlpha, Scale: scale, Divisors: config.RopeDivisors(e.Context),
		Magnitude: config.Rope.Magnitude, Rotated: config.Rope.Rotated,
	}
	if config.LocalRopeBase > 0 {
		e.local = &layer.RopeTables{HeadDim: config.HeadDim, Base: config.LocalRopeBase, NTKAlpha: 1}
	}
	e.reach(p, firstPositions-1)
	e.Cache, err = newPagedCache(p.Context(), config.NumLayers, config.NumKVHeads, config.HeadDim,
		pagesOf(options.CacheTokens), e.Context, options.CacheFormat)
	if p.Check(err); p.Err() != nil {
		return
	}
	if config.Ternary {
		e.layers = newTernaryLayers(p, &e.keep, config, e.Weights.ternary, rows, e.Weights.adapters.rank)
	} else {
		e.layers = newStoredLayers(p, &e.keep, config, e.Weights.layers, rows, e.Weights.adapters.rank)
	}
	e.x = e.keep.empty(p, cuda.F32, rows, config.HiddenSize)
	e.heads = e.keep.empty(p, cuda.F32, rows, config.NumHeads, config.HeadDim)
	e.logits = e.keep.empty(p, cuda.F32, e.MaxBatch, config.VocabSize)
	e.normed = e.keep.empty(p, cuda.F32, max(e.MaxBatch, logitsRows), config.HiddenSize)
	e.last = e.keep.empty(p, cuda.F32, e.MaxBatch, config.HiddenSize)
	e.rows = e.keep.empty(p, cuda.I32, e.MaxBatch)
	e.inputs = e.newInputs(p, e.Piece, e.MaxBatch)
	e.rowBytes = int64(2 * config.NumLayers * e.Cache.PageBytes / Page)
}

// Close frees what the engine has on the device. Closing twice is fine.
func (e *Engine) Close() error {
	err := e.keep.close()
	if e.Cache != nil {
		err = cmp.Or(err, e.Cache.memory.Close())
	}
	if e.local != nil {
		err = cmp.Or(err, e.local.Close())
	}
	return cmp.Or(err, e.rope.Close())
}

// reach has rotary tables with a row for this position: those in use, or others twice as long.
func (e *Engine) reach(p *layer.Pass, position int) {
	if position >= e.rope.Length() {
		length := max(position+1, 2*e.rope.Length())
		e.rope.Tables(p, length)
		if e.local != nil {
			e.local.Tables(p, length)
		}
	}
}

// Prefill runs the next ids of one or several sequences, at most Piece ids and MaxBatch sequences.
//
// It gives the logits f32 [wanted parts, vocab] after the last id of each part that wants them, which the next call
// overwrites; nil when none does. A *CacheFullError or an *OptionError when a sequence has no room, and an *IDError for an
// id outside the vocabulary, all before anything is run.
func (e *Engine) Prefill(parts []Part) (logits *tensor.Tensor, err error) {
	for _, part := range parts {
		if err := CheckIDs(part.IDs, e.Config.VocabSize, "ids"); err != nil {
			return nil, err
		}
	}
	var last []int32
	end := 0
	for _, part := range parts {
		if end += len(part.IDs); part.Wanted {
			last = append(last, int32(end-1))
		}
	}
	err = layer.Run(e.ctx, func(p *layer.Pass) {
		if e.forwardParts(p, parts); p.Err() != nil || len(last) == 0 {
			return
		}
		rows := p.Narrow(e.rows, 0, 0, len(last))
		p.Check(tensor.Write(rows, last))
		picked := p.Narrow(e.last, 0, 0, len(last))
		p.Check(tensor.Embedding(p.Narrow(e.x, 0, 0, end), rows, picked))
		logits = e.head(p, picked, e.logits)
	})
	if err != nil {
		return nil, err
	}
	return logits, nil
}

// checkWhole refuses ids that cannot be run as a whole, and fewer than `least`, which is 0 or 1.
func (e *Engine) checkWhole(ids []int32, least int) error {
	if err := CheckIDs(ids, e.Config.VocabSize, "ids"); err != nil {
		return err
	}
	if len(ids) < least {
		return wrongOption("ids", "ids is empty; there must be at least one")
	}
	if len(ids) > e.Context {
		return wrongOption("ids", "there are %d ids; the context has room for %d", len(ids), e.Context)
	}
	return nil
}

// Adapters are the names of the adapters that a sequence may name.
func (e *Engine) Adapters() []string { return e.Weights.adapters.names }

// CheckAdapter is an *OptionError for a name of an adapter that there is not; "" is none.
func (e *Engine) CheckAdapter(name string) error {
	_, err := e.Weights.adapters.number(name)
	return err
}

// open gives a sequence of so many rows that an adapter of this name computes, which looks for nothing in the cache.
func (e *Engine) open(rows int, adapter string) (*CachedSequence, error) {
	number, err := e.Weights.adapters.number(adapter)
	if err != nil {
		return nil, err
	}
	return e.Cache.openWith(number, nil, rows)
}

// Logits gives the logits after each of the ids, f32 [ids, vocab], row by row; `adapter` is the name of one of the engine's,
// "" for none.
func (e *Engine) Logits(ids []int32, adapter string) ([]float32, error) {
	if err := e.checkWhole(ids, 1); err != nil {
		return nil, err
	}
	sequence, err := e.open(len(ids), adapter)
	if err != nil {
		return nil, err
	}
	defer e.Cache.Close(sequence)
	vocab := e.Config.VocabSize
	found := make([]float32, 0, len(ids)*vocab)
	err = layer.Run(e.ctx, func(p *layer.Pass) {
		// Of its own: with a large vocabulary these are tens of megabytes, which drawing tokens has no use for.
		block := p.Empty(cuda.F32, min(len(ids), logitsRows), vocab)
		for piece := range slices.Chunk(ids, e.Piece) {
			e.forwardParts(p, []Part{{Sequence: sequence, IDs: piece}})
			for first := 0; first < len(piece) && p.Err() == nil; first += block.Dim(0) {
				rows := min(block.Dim(0), len(piece)-first)
				logits := e.head(p, p.Narrow(e.x, 0, first, rows), block)
				found = found[:len(found)+rows*vocab]
				p.Check(tensor.ReadInto(logits, found[len(found)-rows*vocab:]))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Logprobs gives the log-probability of each of the ids after those before it, with so many alternatives; nil for the
// first. The bits are those that a request has for its prompt.
func (e *Engine) Logprobs(ids []int32, alternatives int, adapter string) ([]*TokenLogprobs, error) {
	if err := e.checkWhole(ids, 0); err != nil {
		return nil, err
	}
	if err := e.CheckAdapter(adapter); err != nil || len(ids) == 0 {
		return nil, err
	}
	sequence, err := e.open(len(ids), adapter)
	if err != nil {
		return nil, err
	}
	defer e.Cache.Close(sequence)
	found := []*TokenLogprobs{nil}
	for start := 0; start < len(ids); start += e.Piece {
		piece := ids[start:min(start+e.Piece, len(ids))]
		err := layer.Run(e.ctx, func(p *layer.Pass) { e.forwardParts(p, []Part{{Sequence: sequence, IDs: piece}}) })
		if err != nil {
			return nil, err
		}
		more, err := e.scores(0, ids[start+1:min(start+1+len(piece), len(ids))], alternatives)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// scores gives the log-probabilities of the ids that follow the tokens of the last prefill call from number `first` on.
func (e *Engine) scores(first int, following []int32, alternatives int) ([]*TokenLogprobs, error) {
	var found []*TokenLogprobs
	if len(following) == 0 {
		return nil, nil
	}
	err := layer.Run(e.ctx, func(p *layer.Pass) {
		rows := min(len(following), logitsRows)
		block, places, ids := p.Empty(cuda.F32, rows, e.Config.VocabSize), newScores(p, rows), p.Empty(cuda.I32, rows)
		for part := range slices.Chunk(following, rows) {
			logits := e.head(p, p.Narrow(e.x, 0, first, len(part)), block)
			writeFirst(p, ids, part)
			places.take(p, logits, p.Narrow(ids, 0, 0, len(part)))
			found = append(found, places.read(p, repeated(alternatives, len(part)))...)
			first += len(part)
		}
	})
	return found, err
}

// forwardParts runs the next ids of sequences; the residual stream of all is in e.x then.
func (e *Engine) forwardParts(p *layer.Pass, parts []Part) {
	tokens, empty := 0, false
	for _, part := range parts {
		tokens += len(part.IDs)
		empty = empty || len(part.IDs) == 0
	}
	if tokens > e.Piece || len(parts) > e.MaxBatch || empty {
		p.Check(wrongOption("ids", "a call of %d parts with %d tokens; there may be %d parts of at least one token each and %d "+
			"tokens in all", len(parts), tokens, e.MaxBatch, e.Piece))
	}
	for _, part := range parts {
		if p.Err() != nil {
			return
		}
		_, err := e.Cache.Extend(part.Sequence, len(part.IDs))
		p.Check(err)
	}
	var ids, positions, lengths, table []int32
	offsets, furthest, runs := []int32{0}, 0, []rowRun(nil)
	for _, part := range parts {
		ids = append(ids, part.IDs...)
		for at := range part.IDs {
			positions = append(positions, int32(part.Sequence.Position+at))
		}
		offsets = append(offsets, int32(len(ids)))
		lengths = append(lengths, int32(part.Sequence.Length+len(part.IDs)))
		table = append(table, e.Cache.row(part.Sequence)...)
		furthest = max(furthest, part.Sequence.Position+len(part.IDs)-1)
		runs = appended(runs, part.Sequence.adapter, len(part.IDs))
	}
	if e.reach(p, furthest); p.Err() != nil {
		return
	}
	in := e.inputs.first(p, tokens, len(parts))
	p.Check(tensor.Write(in.ids, ids))
	p.Check(tensor.Write(in.positions, positions))
	p.Check(tensor.Write(in.offsets, offsets))
	p.Check(tensor.Write(in.lengths, lengths))
	p.Check(tensor.Write(in.table, table))
	if e.forward(p, in, false, runs); p.Err() != nil {
		return
	}
	for _, part := range parts {
		e.Cache.Advance(part.Sequence, part.IDs...)
	}
}

// newInputs makes places on the device for a call's tokens.
func (e *Engine) newInputs(p *layer.Pass, tokens, batch int) inputs {
	return inputs{
		e.keep.zeros(p, cuda.I32, tokens), e.keep.zeros(p, cuda.I32, tokens), e.keep.zeros(p, cuda.I32, batch+1),
		e.keep.zeros(p, cuda.I32, batch), e.keep.zeros(p, cuda.I32, batch, e.Cache.MaxPages),
	}
}

// first is the same places, of the first tokens and sequences only.
func (in inputs) first(p *layer.Pass, tokens, batch int) inputs {
	return inputs{
		p.Narrow(in.ids, 0, 0, tokens), p.Narrow(in.positions, 0, 0, tokens), p.Narrow(in.offsets, 0, 0, batch+1),
		p.Narrow(in.lengths, 0, 0, batch), p.Narrow(in.table, 0, 0, batch),
	}
}

// decode gives logits f32 [batch, vocab] after one new token of each sequence, whose adapters `runs` says. The calls read
// nothing on the host, so they can be captured; pages and rotary tables must reach as far as the rows and positions do.
func (e *Engine) decode(p *layer.Pass, in inputs, runs []rowRun) *tensor.Tensor {
	e.forward(p, in, true, runs)
	return e.head(p, p.Narrow(e.x, 0, 0, in.ids.Dim(0)), e.logits)
}

// forward runs all layers; the residual stream is in e.x then.
func (e *Engine) forward(p *layer.Pass, in inputs, decode bool, runs []rowRun) {
	e.layers.use(runs)
	x, table := p.Narrow(e.x, 0, 0, in.ids.Dim(0)), e.Weights.embedding
	p.Check(tensor.EmbeddingQuant(table.data, in.ids, x, table.format))
	scale(p, x, e.Config.EmbeddingScale)
	for number := range e.Config.NumLayers {
		if p.Err() != nil {
			return
		}
		heads := e.attention(p, number, e.layers.qkv(p, number, x), in, decode)
		e.layers.attended(p, number, heads, x)
		e.layers.feedForward(p, number, x)
	}
}

// attention puts a layer's keys and values into the cache and gives its result, f32 [tokens, heads * head_dim].
func (e *Engine) attention(p *layer.Pass, number int, of heads, in inputs, decode bool) *tensor.Tensor {
	config, tokens, q, k, v := e.Config, of.q.Dim(0), of.q, of.k, of.v
	out := p.Narrow(e.heads, 0, 0, tokens)
	rope := &e.rope
	if e.local != nil && config.WindowOf(number) > 0 {
		rope = e.local
	}
	cosine, sine := rope.Tables(p, 1)
	layout := cuda.RopeHalf
	if config.Rope.Layout == stored.RopeInterleaved {
		layout = cuda.RopeInterleaved
	}
	keys, values, format := e.Cache.keys[number], e.Cache.values[number], cuda.Format(e.Cache.Format.Code)
	window, bound := int64(config.WindowOf(number)), float32(config.ScoresCap)
	scale := float32(cmp.Or(config.AttentionScale, 1/math.Sqrt(float64(config.HeadDim))))
	var sinks *tensor.Tensor
	if config.Sinks {
		sinks = e.Weights.layers[number].sinks
	}
	if decode {
		p.Check(tensor.AttentionStepPaged(q, k, v, cosine, sine, in.positions, in.lengths, in.table, sinks, keys, values,
			out, scale, window, bound, layout, format))
	} else {
		p.Check(tensor.RopeQK(q, k, cosine, sine, in.positions, layout))
		p.Check(tensor.KVAppendPaged(k, v, in.offsets, in.lengths, in.table, keys, values, format))
		p.Check(tensor.FlashAttentionPaged(q, keys, values, in.offsets, in.lengths, in.table, sinks, out, config.NumKVHeads,
			scale, window, bound, format))
	}
	return p.View(out, tokens, -1)
}

// head gives the logits of rows of the residual stream, in the first rows of `target`.
func (e *Engine) head(p *layer.Pass, x, target *tensor.Tensor) *tensor.Tensor {
	normed, logits, head := e.finalNorm(p, x), p.Narrow(target, 0, 0, x.Dim(0)), e.Weights.head
	p.Check(tensor.GemmQuant(normed, head.data, nil, nil, nil, logits, cuda.ActivationNone, head.format))
	scale(p, logits, 1/e.Config.LogitsScaling)
	if bound := e.Config.LogitsCap; bound > 0 {
		p.Check(tensor.Softcap(logits, logits, float32(bound)))
	}
	return logits
}

// scale multiplies all elements by a factor.
func scale(p *layer.Pass, x *tensor.Tensor, factor float64) {
	if factor != 1 {
		p.Check(tensor.Scale(x, x, float32(factor)))
	}
}

// finalNorm gives normed rows of the residual stream, which the next call overwrites.
func (e *Engine) finalNorm(p *layer.Pass, x *tensor.Tensor) *tensor.Tensor {
	normed := p.Narrow(e.normed, 0, 0, x.Dim(0))
	p.Check(tensor.RMSNorm(x, e.Weights.norm, normed, nil, float32(e.Config.NormEps)))
	return normed
}

// bytesPerStep are the bytes that one decode step must read at least: each weight once, the adapters with these numbers, and
// the rows of each sequence's cache.
func (e *Engine) bytesPerStep(sequences, rows int, adapters map[int]bool) int64 {
	return e.Weights.bytesPerStep(sequences, adapters) + e.rowBytes*int64(rows)
}
