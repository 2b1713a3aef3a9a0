package plan

import (
	"slices"

	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// kept is what a block keeps, by what becomes of it in backward.
type kept struct {
	attention  []*block // norm's input and output, qkv, heads, lse, rstd
	middle     *block
	postNormed *block
	postRstd   *block
	routing    []*block
	inside     *inside
	y          *block
}

// inside is what lies inside the experts: rows, gate and up, what W2 takes in.
type inside struct{ rows, gateUp, active *block }

// walk is the calls of a model on `tokens` tokens of `batch` sequences.
type walk struct {
	memory    *ledger
	config    model.Config
	precision model.Precision
	width     int // bytes of an activation
	batch     int
	tokens    int
	capacity  int // of the cache that one token a sequence looks at; 0: sequences look at themselves
	slots     int
	stream    int // bytes of the residual stream
	q, qkv    int // columns of queries, and of queries, keys and values
	shape     heads
}

func newWalk(
	memory *ledger, config model.Config, precision model.Precision, batch, tokens, capacity int,
) *walk {
	width := precisionWidth(precision)
	q := config.NumHeads * config.HeadDim
	return &walk{
		memory: memory, config: config, precision: precision, width: width, batch: batch, tokens: tokens,
		capacity: capacity, slots: tokens * config.ExpertsPerToken, stream: width * tokens * config.HiddenSize,
		q: q, qkv: q + 2*config.NumKVHeads*config.HeadDim,
		shape: heads{batch, tokens / batch, config.NumHeads, config.NumKVHeads, config.HeadDim},
	}
}

func precisionWidth(precision model.Precision) int {
	if precision == model.F32 {
		return 4
	}
	return 2
}

func (w *walk) take(size int, kind Kind) *block { return w.memory.take(size, kind) }

func (w *walk) product(p product) {
	p.precision = w.precision
	if p.count == 0 {
		p.count = 1
	}
	if p.longest == 0 {
		p.longest = p.k
	}
	w.memory.call(p.scratch(w.memory.machine))
}

// linear is the forward call of a linear layer.
func (w *walk) linear(inputs, outputs, rows int, wide bool) {
	w.product(product{m: rows, n: outputs, k: inputs, wide: wide || w.width == 4, transB: true})
}

func (w *walk) linearBackward(inputs, outputs, rows int, beta float64, accumulate bool) {
	w.product(product{m: outputs, n: inputs, k: rows, wide: true, transA: true, beta: beta})
	into := 0.0
	if accumulate {
		into = 1.0
	}
	w.product(product{m: rows, n: inputs, k: outputs, wide: w.width == 4, beta: into})
}

func (w *walk) experts(inputs, outputs int, transB bool) {
	w.product(product{
		m: w.slots, n: outputs, k: inputs, wide: w.width == 4, transB: transB, count: w.config.NumExperts, ragged: "m",
	})
}

func (w *walk) expertsGradient(inputs, outputs int, beta float64) {
	longest := w.tokens
	if most := w.config.Capacity(w.tokens); most > 0 {
		longest = min(longest, most)
	}
	w.product(product{
		m: outputs, n: inputs, k: w.slots, wide: true, transA: true, count: w.config.NumExperts, ragged: "k",
		longest: longest, beta: beta,
	})
}

// attended is what attention leaves: what it keeps, the stream behind it, its norm, and that one's rstd.
type attended struct {
	kept                         []*block
	middle, postNormed, postRstd *block
}

// attend follows the attention half of a block.
func (w *walk) attend(keep bool, kind Kind, lse bool) attended {
	memory, c := w.memory, w.config
	normed := w.take(w.stream, kind)
	left := attended{kept: []*block{normed}}
	if keep {
		left.kept = append(left.kept, w.take(4*w.tokens, kind))
	}
	qkv := w.take(w.width*w.tokens*w.qkv, kind)
	w.linear(c.HiddenSize, w.qkv, w.tokens, false)
	heads := w.take(w.width*w.tokens*w.q, kind)
	var sums *block
	if lse {
		sums = w.take(4*w.tokens*c.NumHeads, kind)
	}
	if w.capacity > 0 {
		memory.call(memory.machine.attentionDecode(w.batch, w.capacity, c))
	} else {
		memory.call(memory.machine.attention(w.precision, w.shape))
	}
	left.middle = w.take(w.stream, kind)
	w.linear(w.q, c.HiddenSize, w.tokens, false)
	left.kept = append(left.kept, qkv, heads, sums)
	if !keep {
		memory.give(qkv, heads, sums)
	}
	left.postNormed = w.take(w.stream, kind)
	if keep {
		left.postRstd = w.take(4*w.tokens, kind)
	} else {
		memory.give(normed)
	}
	return left
}

// route follows the router: what backward needs of it, and the counts and choices that are watched.
func (w *walk) route(kind Kind) (needed, seen []*block) {
	t, k, experts := w.tokens, w.config.ExpertsPerToken, w.config.NumExperts
	logits := w.take(4*t*experts, Transient)
	w.linear(w.config.HiddenSize, experts, t, true)
	weights, indices := w.take(4*t*k, kind), w.take(4*t*k, kind)
	probs := w.take(4*t*experts, kind)
	counts, offsets := w.take(4*experts, kind), w.take(4*(experts+1), kind)
	needed = []*block{weights, probs, offsets, w.take(4*t*k, kind), w.take(4*t*k, kind)}
	w.memory.call(routing(t, k, experts))
	w.memory.give(logits)
	return needed, []*block{counts, indices}
}

// insideExperts follows what is computed inside the experts.
func (w *walk) insideExperts(kind Kind) *inside {
	hidden, ffn := w.config.HiddenSize, w.config.FFNSize
	rows := w.take(w.width*w.slots*hidden, kind)
	gateUp := w.take(w.width*w.slots*2*ffn, kind)
	w.experts(hidden, 2*ffn, true)
	return &inside{rows, gateUp, w.take(w.width*w.slots*ffn, kind)}
}

// expertsForward gives the outputs of the experts, and what backward needs beside them.
func (w *walk) expertsForward(keep, keepInside bool, kind Kind) (y *block, within *inside) {
	of := func(keep bool) Kind {
		if keep {
			return kind
		}
		return Transient
	}
	within = w.insideExperts(of(keepInside))
	y = w.take(w.width*w.slots*w.config.HiddenSize, of(keep))
	w.experts(w.config.FFNSize, w.config.HiddenSize, true)
	if keepInside {
		return y, within
	}
	w.memory.give(within.rows, within.gateUp, within.active)
	return y, nil
}

// forward follows a block that keeps nothing, forward, prefill or decode: its output. `watched` is replaced.
func (w *walk) forward(watched *[]*block, lse bool) *block {
	left := w.attend(false, Transient, lse)
	routing, seen := w.route(Transient)
	w.watch(watched, seen)
	y, _ := w.expertsForward(false, false, Transient)
	result := w.take(w.stream, Transient)
	w.memory.give(routing...)
	w.memory.give(y, left.middle, left.postNormed)
	return result
}

// trained follows the forward call of a block in training: its output, and what it keeps unless it is recomputed.
func (w *walk) trained(x *block, watched *[]*block, recomputed, keepInside bool) (*block, *kept) {
	kind := Kept
	if recomputed {
		kind = Transient
	}
	left := w.attend(!recomputed, kind, true)
	routing, seen := w.route(kind)
	w.watch(watched, seen)
	y, within := w.expertsForward(!recomputed, keepInside, kind)
	result := w.take(w.stream, Kept)
	if !recomputed {
		return result, &kept{
			append([]*block{x}, left.kept...), left.middle, left.postNormed, left.postRstd, routing, within, y,
		}
	}
	w.memory.give(routing...)
	w.memory.give(y, left.middle, left.postNormed)
	return result, nil
}

func (w *walk) watch(watched *[]*block, seen []*block) {
	w.memory.give(*watched...)
	*watched = seen
}

// again is what a recomputed block has right before its backward call, and its counts and choices, which nobody sees.
func (w *walk) again(x *block) (*kept, []*block) {
	left := w.attend(true, Transient, true)
	routing, seen := w.route(Transient)
	y, within := w.expertsForward(true, true, Transient)
	return &kept{
		append([]*block{x}, left.kept...), left.middle, left.postNormed, left.postRstd, routing, within, y,
	}, seen
}

// blockBackward follows the backward call of a block: the gradient of its input. `dout` is the caller's.
func (w *walk) blockBackward(k *kept, beta float64) *block {
	memory, c := w.memory, w.config
	within := k.inside
	if within == nil {
		within = w.insideExperts(Transient)
	}
	dweights := w.take(4*w.slots, Transient)
	w.expertsGradient(c.FFNSize, c.HiddenSize, beta)
	memory.give(within.active)
	dactive := w.take(w.width*w.slots*c.FFNSize, Transient)
	w.experts(c.HiddenSize, c.FFNSize, false)
	memory.give(k.y, dactive)
	w.expertsGradient(c.HiddenSize, 2*c.FFNSize, beta)
	w.experts(2*c.FFNSize, c.HiddenSize, false)
	dx := w.take(w.stream, Transient)
	dprobs := w.take(4*w.tokens*c.NumExperts, Transient)
	dlogits := w.take(w.width*w.tokens*c.NumExperts, Transient)
	w.linearBackward(c.HiddenSize, c.NumExperts, w.tokens, beta, true)
	memory.give(dprobs, dlogits)
	memory.give(k.routing...)
	memory.give(within.rows, within.gateUp, dweights, k.postNormed)
	memory.call(rowsApart(w.tokens, c.HiddenSize))
	memory.give(k.middle, k.postRstd)
	dheads := w.take(w.width*w.tokens*w.q, Transient)
	w.linearBackward(w.q, c.HiddenSize, w.tokens, beta, false)
	dqkv := w.take(w.width*w.tokens*w.qkv, Transient)
	memory.call(memory.machine.attentionBackward(w.precision, w.shape))
	dnormed := w.take(w.stream, Transient)
	w.linearBackward(c.HiddenSize, w.qkv, w.tokens, beta, false)
	memory.give(dheads, dqkv)
	memory.give(k.attention...)
	memory.give(dx)
	return dnormed
}

// chunks are the rows of each chunk of logits that is walked.
func (w *walk) chunks() []int { return pieces(w.tokens, w.config.LogitsRows()) }

// loss follows the cross-entropy and its gradient, chunk by chunk.
func (w *walk) loss(beta float64) {
	vocab, hidden := w.config.VocabSize, w.config.HiddenSize
	var lse *block
	for piece, rows := range w.chunks() {
		logits := w.take(4*rows*vocab, Logits)
		w.linear(hidden, vocab, rows, true)
		made := w.take(4*rows, Logits)
		w.memory.give(lse)
		lse = made
		w.memory.call([]int{8 * rows})
		if w.width == 2 {
			rounded := w.take(2*rows*vocab, Logits)
			w.memory.give(logits)
			logits = rounded
		}
		if piece > 0 {
			beta = 1
		}
		w.linearBackward(hidden, vocab, rows, beta, false)
		w.memory.give(logits)
	}
	w.memory.give(lse)
}

// forwardBackward follows the forward and the backward call of a micro-batch, the first of an update or not.
func (w *walk) forwardBackward(options train.Config, watched [][]*block, first bool) {
	type layer struct {
		x    *block
		kept *kept
	}
	memory, every, beta := w.memory, options.ActivationCheckpointing, 1.0
	if first {
		beta = 0
	}
	x, stack := w.take(w.stream, Kept), make([]layer, 0, len(watched))
	for at := range watched {
		recomputed := every > 0 && (at+1)%every == 0
		out, kept := w.trained(x, &watched[at], recomputed, !recomputed && !options.RecomputeExperts)
		stack = append(stack, layer{x, kept})
		x = out
	}
	dx, rstd := w.take(w.stream, Transient), w.take(4*w.tokens, Transient)
	w.loss(beta)
	memory.call(rowsApart(w.tokens, w.config.HiddenSize))
	memory.give(rstd, x)
	for _, layer := range slices.Backward(stack) {
		kept, unseen := layer.kept, []*block(nil)
		if kept == nil {
			kept, unseen = w.again(layer.x)
		}
		below := w.blockBackward(kept, beta)
		memory.give(dx)
		memory.give(unseen...)
		dx = below
	}
	memory.call(memory.machine.scattered(w.tokens))
	memory.give(dx)
}

// evaluate follows an evaluation, whose inputs come from the host.
func (w *walk) evaluate(watched [][]*block) {
	ids, targets := w.take(4*w.tokens, Evaluation), w.take(4*w.tokens, Evaluation)
	x := w.take(w.stream, Evaluation)
	for at := range watched {
		out := w.forward(&watched[at], true)
		w.memory.give(x)
		x = out
	}
	normed := w.take(w.stream, Transient)
	w.memory.give(x)
	var lse *block
	for _, rows := range w.chunks() {
		logits := w.take(4*rows*w.config.VocabSize, Evaluation)
		w.linear(w.config.HiddenSize, w.config.VocabSize, rows, true)
		made := w.take(4*rows, Evaluation)
		w.memory.give(lse)
		lse = made
		w.memory.call([]int{8 * rows})
		w.memory.give(logits)
	}
	w.memory.give(lse, normed, ids, targets)
}

// pieces are the sizes of the pieces of at most `most` that are walked: from the third on, all find what they take in
// place, unless the last one is smaller.
func pieces(whole, most int) []int {
	count := ceil(whole, most)
	last := whole - (count-1)*most
	sizes := slices.Repeat([]int{most}, min(count-1, 2))
	if count < 3 || last != most {
		sizes = append(sizes, last)
	}
	return sizes
}
