// Package model has the MoE transformer: its configuration, its parameters in one arena, training, evaluation, prefill
// and decode; and the names of all of them in the words of Mixtral in Hugging Face transformers.
package model

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// IgnoreIndex as a target says that nothing is to be predicted there.
const IgnoreIndex = -100

// Logits are made and used up in chunks of rows of about this many values, so that they never all exist at once. Sums
// over tokens are cut here, so the number is part of the promise that every language computes the same bits.
const (
	logitsPerChunk = 1 << 21
	minChunkRows   = 256
)

// LogitsRows are the tokens whose logits are there at once.
func (c Config) LogitsRows() int { return max(minChunkRows, logitsPerChunk/c.VocabSize) }

// What calls outside of blocks belong to, in labels of a trace.
const (
	embeddingLabel = "model.embed_tokens"
	normLabel      = "model.norm"
	headLabel      = "lm_head"
)

// PrefillPart is how many tokens of a prompt run at once: a longer one runs in parts of so many, so that its activations
// take no more memory than theirs. Tokens in its last part may so share an expert with fewer others, which shows in the
// last bits of products: the number, too, is part of the promise of the same bits.
const PrefillPart = 6144

// MoETransformer is a decoder-only transformer whose feed-forward networks are mixtures of experts.
//
// Token ids are int32. A model must be closed. Goroutines may share it, but it serves one at a time: a call on a model
// that another goroutine is using is ErrInUse.
// (Micikevicius et al. 2018, section 3)
type MoETransformer struct {
	Config     Config
	Precision  Precision // of Weights and activations
	Layout     *Layout
	Weights    *Arena // what it computes with
	Parameters *Arena // what is trained and saved: Weights itself, or f32 values that Weights are rounded copies of
	Gradients  *Arena // f32; nil for a model that only infers
	// Partitioned is where a pass puts gradients of which this rank keeps a part; nil where Gradients has all.
	Partitioned *PartitionedGradients

	LowRank *LowRank // the adapter that is trained beside weights that stay as they are stored; nil where these are trained
	frozen  frozenTensors

	Experts *layer.ExpertParallel // nil where all experts are here
	Comm    *cuda.Comm            // to the ranks that it trains with; may be nil
	Held    *Held                 // what this rank has of the arenas and updates; nil where it has all

	ctx       *cuda.Context
	rope      *layer.RopeTables
	allRows   *layer.AllRows
	embedding *layer.Embedding
	blocks    []*layer.TransformerBlock
	norm      *layer.RMSNorm
	head      layer.Projection
	separator *int32      // the token that ends a document, where documents do not see one another; or nil
	partition bool        // gradients
	inUse     atomic.Bool // by a goroutine, in Exclusive
}

// An Option changes how a model is made.
type Option func(*MoETransformer)

// New makes a model with random weights from `seed`, ready to train in a precision.
func New(
	ctx *cuda.Context, config Config, precision Precision, seed int64, options ...Option,
) (*MoETransformer, error) {
	return newRandom(ctx, config, precision, seed, true, options)
}

// NewForInference is New for a model that only infers: its weights are made in its precision, and no others.
func NewForInference(ctx *cuda.Context, config Config, precision Precision, seed int64) (*MoETransformer, error) {
	return newRandom(ctx, config, precision, seed, false, nil)
}

func newRandom(
	ctx *cuda.Context, config Config, precision Precision, seed int64, training bool, options []Option,
) (*MoETransformer, error) {
	model, err := newZero(ctx, config, precision, training, options)
	if err != nil {
		return nil, err
	}
	if err := model.set(func(arena *Arena) error { return arena.initialize(config, seed) }); err != nil {
		return nil, err
	}
	return model, nil
}

// set gives a new model its parameters, and closes it when that fails.
func (m *MoETransformer) set(values func(*Arena) error) error {
	err := values(m.Parameters)
	switch {
	case err != nil:
	case m.Held != nil && m.Weights != m.Parameters: // f32 values are here only of what this rank updates
		err = values(m.Weights)
	default:
		err = m.RoundWeights()
	}
	if err != nil {
		err = errors.Join(err, m.Close())
	}
	return err
}

// Load makes a model with given weights, to compute in a precision, with gradients if it is to be trained. It is an
// error when a name is missing or too many, a shape is another, or a value is no floating-point number.
func Load(
	ctx *cuda.Context, config Config, weights Weights, precision Precision, training bool, options ...Option,
) (*MoETransformer, error) {
	if err := CheckWeights(config, weights); err != nil {
		return nil, err
	}
	model, err := newZero(ctx, config, precision, training, options)
	if err != nil {
		return nil, err
	}
	if err := model.set(func(arena *Arena) error { return arena.Load(weights) }); err != nil {
		return nil, err
	}
	return model, nil
}

// newZero makes a model whose weights are all zero.
func newZero(
	ctx *cuda.Context, config Config, precision Precision, training bool, options []Option,
) (*MoETransformer, error) {
	if err := errors.Join(config.Validate(), precision.Validate()); err != nil {
		return nil, err
	}
	if config.Ternary && precision != F32 {
		return nil, fmt.Errorf("precision is %s; a model with ternary weights, which come of f32, trains in f32", precision)
	}
	model := &MoETransformer{Config: config, Precision: precision, Layout: NewLayout(config), ctx: ctx}
	for _, option := range options {
		option(model)
	}
	err := model.build(training)
	if err != nil {
		return nil, errors.Join(err, model.Close())
	}
	return model, nil
}

// Close frees parameters, gradients and all that the layers hold.
func (m *MoETransformer) Close() error { return m.Exclusive(m.free) }

func (m *MoETransformer) free() error {
	var err error
	if m.rope != nil {
		err = errors.Join(err, m.rope.Close())
	}
	if m.Weights != m.Parameters {
		err = errors.Join(err, m.Weights.Close())
	}
	return errors.Join(err, m.frozen.close(), m.allRows.Close(), m.Gradients.Close(), m.Partitioned.Close(), m.Parameters.Close(), m.Experts.Close())
}

// RoundWeights makes Weights of Parameters, where they are not one: whenever something else than an update set these.
// A model refuses that has a part of the experts, or of the f32 values, alone.
func (m *MoETransformer) RoundWeights() error {
	if m.Weights == m.Parameters {
		return nil
	}
	if m.Experts != nil || !m.Parameters.isAll(m.Parameters.current) {
		return m.partial()
	}
	return tensor.Cast(m.Parameters.Data, m.Weights.Data)
}

// UpToDate says of which elements alone Parameters have the values that are trained, in ascending order and apart: as a
// trainer's step and its gathering leave them.
func (m *MoETransformer) UpToDate(spans []Span) {
	m.Parameters.current, m.Parameters.why = spans, m.partial()
}

// Context is the context that the model lives on.
func (m *MoETransformer) Context() *cuda.Context { return m.ctx }

// Logits gives the logits f32 [batch*length, vocab] of all positions of ids [batch, length], row after row. No expert
// drops a token. The caller closes them.
func (m *MoETransformer) Logits(ids []int32, batch int) (*tensor.Tensor, error) {
	if err := requireRows("ids", ids, batch); err != nil {
		return nil, err
	}
	var logits *tensor.Tensor
	err := m.run(func(p *layer.Pass) {
		x := m.stream(p, upload(p, ids), nil, batch)
		logits = p.Keep(m.logits(p, x))
	})
	return logits, err
}

// Evaluate gives the sum of the cross-entropy over the targets that are not IgnoreIndex, and their number, of ids and
// targets [batch, length], row after row. No expert drops a token.
func (m *MoETransformer) Evaluate(ids, targets []int32, batch int) (total float64, count int64, err error) {
	return m.EvaluateDocuments(ids, targets, nil, batch)
}

// EvaluateDocuments is Evaluate of packed documents, which do not see one another and each begin at position 0: `ends`, of
// the shape of the ids, is 1 at the last token of each and 0 elsewhere. Without `ends` it is Evaluate.
func (m *MoETransformer) EvaluateDocuments(
	ids, targets, ends []int32, batch int,
) (total float64, count int64, err error) {
	if err := requireRows("ids", ids, batch); err != nil {
		return 0, 0, err
	}
	if len(targets) != len(ids) {
		return 0, 0, fmt.Errorf("there are %d targets for %d ids", len(targets), len(ids))
	}
	if ends != nil && len(ends) != len(ids) {
		return 0, 0, fmt.Errorf("there are %d ends of documents for %d ids", len(ends), len(ids))
	}
	err = m.run(func(p *layer.Pass) {
		inputs, wanted := p.View(upload(p, ids), batch, -1), p.View(upload(p, targets), batch, -1)
		var marks *tensor.Tensor
		if ends != nil {
			marks = upload(p, ends)
		}
		total, count = m.EvaluateOn(p, inputs, wanted, marks)
	})
	return total, count, err
}

// EvaluateOn is EvaluateDocuments of ids and targets i32 [batch, length] on the device; `ends`, of as many elements, or nil.
func (m *MoETransformer) EvaluateOn(p *layer.Pass, ids, targets, ends *tensor.Tensor) (total float64, count int64) {
	batch, tokens := ids.Dim(0), ids.Size()
	targets = p.View(targets, tokens)
	x := m.stream(p, p.View(ids, tokens), ends, batch)
	chunks := m.chunks(tokens)
	losses, valid := p.Empty(cuda.F32, len(chunks)), p.Empty(cuda.I32, len(chunks))
	for piece, chunk := range chunks {
		logits := m.logits(p, p.Narrow(x, 0, chunk.start, chunk.rows))
		lse, part := p.Empty(cuda.F32, chunk.rows), p.Narrow(targets, 0, chunk.start, chunk.rows)
		loss, counted := p.Narrow(losses, 0, piece, 1), p.Narrow(valid, 0, piece, 1)
		p.Check(tensor.CrossEntropyForward(logits, part, nil, lse, loss, counted, IgnoreIndex))
		p.Free(logits, lse)
	}
	sum := p.Empty(cuda.F32, 1)
	p.Check(tensor.WeightedMean(losses, nil, sum, 1))
	sums, err := tensor.Read[float32](sum)
	p.Check(err)
	counts, err := tensor.Read[int32](valid)
	if p.Check(err); p.Err() != nil {
		return 0, 0
	}
	for _, number := range counts {
		count += int64(number)
	}
	return float64(sums[0]), count
}

// run runs a pass that has the model to itself.
func (m *MoETransformer) run(pass func(*layer.Pass)) error {
	return m.Exclusive(func() error { return layer.Run(m.ctx, pass) })
}

// logits runs the head over rows of the stream, to f32 in every precision.
func (m *MoETransformer) logits(p *layer.Pass, x *tensor.Tensor) *tensor.Tensor {
	p.Label(headLabel)
	return m.head.Forward(p, x, p.Empty(cuda.F32, x.Dim(0), m.Config.VocabSize))
}

// stream runs ids through embedding, blocks and norm; `ends` as of documents.
func (m *MoETransformer) stream(p *layer.Pass, ids, ends *tensor.Tensor, batch int) *tensor.Tensor {
	documents := m.documents(p, ids, ends, batch)
	p.Label(embeddingLabel)
	x := m.embedding.Forward(p, ids)
	for _, block := range m.blocks {
		x = block.Forward(p, x, batch, documents)
	}
	documents.Free(p)
	p.Label(normLabel)
	normed := m.norm.Forward(p, x)
	p.Free(x)
	return normed
}

// Factors are those of what ForwardBackward differentiates, f32 [1] on the device.
type Factors struct {
	Loss, Aux *tensor.Tensor
}

// ForwardBackward gives the gradients of factors.Loss * (sum of cross-entropies) + factors.Aux * (load-balancing loss),
// into Gradients; with `accumulate` they are added to what is there. ids and targets are i32 [batch, length] on the
// device. Without the factors, the sums of cross-entropies go to `losses` f32 [LossPieces(tokens)], and the
// load-balancing loss is added to `aux` f32 [1]. `completed`, unless it is nil, is called when the gradients of each of
// Layout.BackwardPieces are complete. It gives how each layer's experts were used, which is the caller's to close. With
// `ends`, i32 of the shape of the ids, they are packed documents as of EvaluateDocuments; nil: they are none.
func (m *MoETransformer) ForwardBackward(
	p *layer.Pass, ids, targets, ends *tensor.Tensor, factors Factors, losses, aux *tensor.Tensor, accumulate bool,
	completed func(),
) []layer.ExpertUse {
	if completed == nil {
		completed = func() {}
	}
	batch, tokens := ids.Dim(0), ids.Size()
	ids, targets = p.View(ids, tokens), p.View(targets, tokens)
	beta := float32(1)
	if !accumulate {
		beta = 0
		m.clearGains(p)
	}
	documents := m.documents(p, ids, ends, batch)
	x, uses, kept := m.forwardKeeping(p, ids, batch, documents, aux)
	p.Label(normLabel)
	normed, rstd := m.norm.ForwardKeeping(p, x)
	m.loss(p, normed, targets, factors.Loss, losses, beta)
	if !m.Config.TieEmbeddings {
		completed()
	}
	p.Label(layer.BackwardLabel, normLabel)
	dx := m.norm.Backward(p, normed, x, rstd, nil)
	p.Free(x)
	for at := len(m.blocks) - 1; at >= 0; at-- {
		dx = m.blocks[at].Backward(p, dx, kept[at], factors.Aux, beta)
		completed()
	}
	p.Label(layer.BackwardLabel, embeddingLabel)
	if !accumulate && !m.Config.TieEmbeddings && m.embedding.Grad != nil {
		p.Check(tensor.ZeroGrad(p.View(m.embedding.Grad, m.embedding.Grad.Size())))
	}
	m.embedding.Backward(p, dx, ids)
	completed()
	completed() // the vectors' are
	p.Label()
	documents.Free(p)
	p.Free(dx)
	return uses
}

// ForwardKeeping gives the stream after the last block of `batch` sequences, ids i32 [tokens], how each layer's experts
// were used, and what the backward of each block needs. It adds the load-balancing loss to `aux` f32 [1].
func (m *MoETransformer) ForwardKeeping(
	p *layer.Pass, ids *tensor.Tensor, batch int, aux *tensor.Tensor,
) (x *tensor.Tensor, uses []layer.ExpertUse, kept []*layer.BlockKept) {
	return m.forwardKeeping(p, ids, batch, m.documents(p, ids, nil, batch), aux)
}

func (m *MoETransformer) forwardKeeping(
	p *layer.Pass, ids *tensor.Tensor, batch int, documents *layer.Documents, aux *tensor.Tensor,
) (x *tensor.Tensor, uses []layer.ExpertUse, kept []*layer.BlockKept) {
	capacity := m.Config.Capacity(ids.Size())
	p.Label(embeddingLabel)
	x = m.embedding.Forward(p, ids)
	uses, kept = make([]layer.ExpertUse, len(m.blocks)), make([]*layer.BlockKept, len(m.blocks))
	for at, block := range m.blocks {
		x, uses[at], kept[at] = block.ForwardKeeping(p, x, batch, documents, capacity, aux)
	}
	if m.Config.NumExperts == 0 {
		uses = nil
	}
	return x, uses, kept
}

// Recompute chooses what ForwardBackward does not keep but computes twice, with the same bits: of every `every`-th
// block (0: of none) all but its input; with `experts`, of the other blocks what the experts' products take in and give
// between, but not of the last `keep` of all, which the gradients come to first.
func (m *MoETransformer) Recompute(every int, experts bool, keep int) {
	for at, block := range m.blocks {
		block.Recompute = every > 0 && (at+1)%every == 0
		block.MoE.Recompute = experts && at < len(m.blocks)-keep
	}
}

// MaskDocuments makes the documents of a sequence, each of which ends with the token `separator`, not see one another
// in Forward, Evaluate and ForwardBackward, and each begin at position 0. A negative separator ends that.
func (m *MoETransformer) MaskDocuments(separator int) error {
	if separator >= m.Config.VocabSize {
		return fmt.Errorf("document_mask is %d; this model has a vocabulary of %d", separator, m.Config.VocabSize)
	}
	m.separator = nil
	if separator >= 0 {
		id := int32(separator)
		m.separator = &id
	}
	return nil
}

// documents finds those of ids i32 [batch*length], by their `ends` where these are given; nil where none are masked.
func (m *MoETransformer) documents(p *layer.Pass, ids, ends *tensor.Tensor, batch int) *layer.Documents {
	if ends != nil {
		return layer.DocumentsEndedBy(p, 1, p.View(ends, ids.Size()), batch)
	}
	if m.separator == nil {
		return nil
	}
	return layer.DocumentsEndedBy(p, *m.separator, ids, batch)
}

// LossPieces is how many partial sums of the loss ForwardBackward gives for so many tokens.
func (m *MoETransformer) LossPieces(tokens int) int { return len(m.chunks(tokens)) }

// Warm makes the tables of the rotary embedding for a shape of batch: what is made once must not be made inside a
// graph.
func (m *MoETransformer) Warm(p *layer.Pass, batch, length int) {
	m.rope.Tables(p, length)
	m.rope.Positions(p, batch, length)
	if m.Config.NumExperts == 0 {
		m.allRows.Offsets(p, batch*length)
	}
}

// loss gives cross-entropy and its gradient, chunk by chunk; the gradient of `normed` takes its place.
//
// The logits and their gradient are f32; only where it enters the products is the gradient rounded to 16 bits.
func (m *MoETransformer) loss(p *layer.Pass, normed, targets, factor, losses *tensor.Tensor, beta float32) {
	for piece, chunk := range m.chunks(normed.Dim(0)) {
		x := p.Narrow(normed, 0, chunk.start, chunk.rows)
		wanted := p.Narrow(targets, 0, chunk.start, chunk.rows)
		logits := m.logits(p, x)
		lse, count := p.Empty(cuda.F32, chunk.rows), p.Empty(cuda.I32, 1)
		sum := p.Narrow(losses, 0, piece, 1)
		p.Check(tensor.CrossEntropyForward(logits, wanted, nil, lse, sum, count, IgnoreIndex))
		p.Label(layer.BackwardLabel, headLabel)
		p.Check(tensor.CrossEntropyBackward(logits, wanted, lse, factor, logits, IgnoreIndex))
		if piece > 0 {
			beta = 1
		}
		dlogits := logits
		if m.Precision != F32 {
			dlogits = p.Empty(m.Precision.DType(), logits.Shape()...)
			p.Check(tensor.Cast(logits, dlogits))
			p.Free(logits)
		}
		m.head.Backward(p, dlogits, x, x, beta)
		p.Free(dlogits, lse, count)
	}
}

// clearGains sets to zero the gradients to which layers add from the beginning.
func (m *MoETransformer) clearGains(p *layer.Pass) {
	if m.LowRank != nil {
		p.Check(tensor.ZeroGrad(m.frozen.unwanted)) // or they would add up until they are not finite
		return
	}
	gains := m.Layout.NumDecayed
	p.Check(tensor.ZeroGrad(p.Narrow(m.Gradients.Data, 0, gains, m.Layout.Size-gains)))
}

// Cache makes an empty cache of keys and values for `batch` sequences of up to `capacity` tokens. With a capacity
// beyond Config.Context the base of its rotary embedding grows by NTKAlpha. It is an error when the model does not
// reach that far.
func (m *MoETransformer) Cache(batch, capacity int) (*layer.KVCache, error) {
	if m.Experts != nil {
		return nil, m.Experts.Alone()
	}
	if capacity > m.Config.ExtendedContext {
		return nil, fmt.Errorf("%d tokens are more than this model takes (%d)", capacity, m.Config.ExtendedContext)
	}
	ntkAlpha := 1.0
	if capacity > m.Config.Context {
		ntkAlpha = m.Config.NTKAlpha
	}
	rope := m.Config.ropeTables(ntkAlpha)
	return layer.NewKVCache(m.ctx, rope, m.Precision.DType(), m.Config.NumLayers, batch, capacity, m.Config.NumKVHeads)
}

// Prefill runs a prompt into row `row` of a cache, which must be empty; a long one in parts. The logits f32 [1, vocab]
// of its last token go to `logits`.
func (m *MoETransformer) Prefill(prompt []int32, cache *layer.KVCache, row int, logits *tensor.Tensor) error {
	return m.Exclusive(func() error { return m.prefill(prompt, cache, row, logits, PrefillPart) })
}

func (m *MoETransformer) prefill(
	prompt []int32, cache *layer.KVCache, row int, logits *tensor.Tensor, most int,
) error {
	if len(prompt) == 0 {
		return errors.New("a prompt must have at least one token")
	}
	if err := cache.RequireEmpty(len(prompt), row); err != nil {
		return err
	}
	for part := range slices.Chunk(prompt, most) {
		last := cache.Used(row)+len(part) == len(prompt)
		err := layer.Run(m.ctx, func(p *layer.Pass) {
			p.Label(embeddingLabel)
			x := m.embedding.Forward(p, upload(p, part))
			for at, block := range m.blocks {
				x = block.Prefill(p, x, cache, at, row)
			}
			cache.AdvanceRow(p, len(part), row)
			if last {
				m.finish(p, p.Narrow(x, 0, len(part)-1, 1), logits)
			}
			p.Label()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Decode appends one token to each sequence of the cache, ids i32 [batch], whose logits f32 [batch, vocab] go to
// `logits`. All that changes from step to step is on the device, so the calls can be captured and replayed. On the host
// they count one step, the graph's first launch; whoever launches it again counts that (KVCache.Count).
func (m *MoETransformer) Decode(p *layer.Pass, ids *tensor.Tensor, cache *layer.KVCache, logits *tensor.Tensor) {
	p.Check(cache.RequireRoom(1))
	p.Label(embeddingLabel)
	x := m.embedding.Forward(p, ids)
	for at, block := range m.blocks {
		x = block.Decode(p, x, cache, at)
	}
	cache.Advance(p, 1)
	m.finish(p, x, logits)
	p.Label()
	p.Free(x)
}

// finish runs the stream after the blocks through norm and head into `logits`.
func (m *MoETransformer) finish(p *layer.Pass, x, logits *tensor.Tensor) {
	p.Label(normLabel)
	normed := m.norm.Forward(p, x)
	p.Label(headLabel)
	m.head.Forward(p, normed, logits)
	p.Free(normed)
}

// chunk is a run of rows.
type chunk struct{ start, rows int }

func (m *MoETransformer) chunks(tokens int) []chunk {
	rows := m.Config.LogitsRows()
	chunks := make([]chunk, 0, (tokens+rows-1)/rows)
	for start := 0; start < tokens; start += rows {
		chunks = append(chunks, chunk{start, min(rows, tokens-start)})
	}
	return chunks
}

func upload(p *layer.Pass, ids []int32) *tensor.Tensor {
	made := p.Empty(cuda.I32, len(ids))
	p.Check(tensor.Write(made, ids))
	return made
}

func requireRows(name string, ids []int32, batch int) error {
	if batch < 1 || len(ids) == 0 || len(ids)%batch != 0 {
		return fmt.Errorf("%d %s do not make %d rows of one length", len(ids), name, batch)
	}
	return nil
}
