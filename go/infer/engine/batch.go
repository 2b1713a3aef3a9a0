package engine

import (
	"errors"
	"math"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// row is a sequence, how its tokens are drawn, the last one, which has not been run yet, and whose it is. With `scored` each
// token comes with its log-probability and so many alternatives.
type row struct {
	sequence     *CachedSequence
	drawing      *Drawing
	request      *Request
	token        int32
	scored       bool
	alternatives int
	logprobs     *TokenLogprobs // of the last token; nil where they are not wanted
}

// take takes a token that was drawn.
func (r *row) take(token int32, logprobs *TokenLogprobs) {
	r.token, r.logprobs = token, logprobs
	r.drawing.drawn(token)
}

// drawn is a token that a step has drawn for a row.
type drawn struct {
	row   *row
	token int32
}

// DecodeBatch is sequences that are decoded together, up to Engine.MaxBatch: their state on the device, and the graphs
// that move all of them on by one token.
//
// A row of the batch is one sequence. Rows join and leave between steps; the last one moves to where one left. A graph is
// captured for each number of rows, when there are so many for the first time, and replayed from then on: capturing costs
// the host what calling costs, once, and a batch padded to some larger size would cost every step the products of rows
// that nobody asked for. From step to step only the drawn ids come back; what the host sends is new pages. A step that also
// gives log-probabilities, or changes logits before tokens are drawn, is another graph. So is one of other adapters, or of
// other numbers of rows with each: rows with the same adapter are neighbours.
//
// A batch may run ahead, as it does on a GPU: as the ids that a step reads are on the device already, it can be started
// before the host has read them. Then the device never waits for the host, and a row that ends has run one step for
// nothing. On a CPU there is no time to win, and steps for nothing cost some. While a row has a mask, which the host makes
// from the token before, or wants log-probabilities, it does not. The tokens are the same.
type DecodeBatch struct {
	engine                *Engine
	ahead                 bool
	rows                  []*row
	keep                  store
	state                 *tensor.Tensor // i32 [3, most]: ids, positions, lengths, so that they travel in one copy
	moving                *tensor.Tensor // the last two of them, which go up by one a step
	inputs                inputs
	sampler, firstSampler *RowSampler
	firstIDs              *tensor.Tensor
	scores                *scores        // once a row wants log-probabilities
	given                 *tensor.Tensor // the logits that they are of, where drawing changes them; f32 [most, vocab]
	transfers             transfers
	underWay              []underWay // steps whose ids were not read, at most two
	graphs                map[stepOf]*keptGraph
	mostGraphs            int  // that are kept
	steps                 int  // that were given to the device
	generation            int  // of the sampler, that of the graphs
	tables                int  // how far those of the graphs reach
	changed               bool // whether the rows on the device are not those of rows
}

// mostGraphs are kept. Without adapters there are as many as numbers of rows, kinds of draws apart; which adapters the rows of
// a step may have together is without end.
const mostGraphs = 256

// stepOf is what a captured step does: the number of rows, the calls of its draw, whether it gives log-probabilities, and
// which rows have which adapter, as keyOfRuns says it.
type stepOf struct {
	rows   int
	kind   kind
	scored bool
	runs   string
}

// keptGraph is a captured step, and the number of the step that it was last used for.
type keptGraph struct {
	*cuda.Graph
	used int
}

// underWay is a step that was given to the device.
type underWay struct {
	rows   []*row
	scored bool
}

func newDecodeBatch(e *Engine, ahead bool) (*DecodeBatch, error) {
	b := &DecodeBatch{engine: e, ahead: ahead, graphs: make(map[stepOf]*keptGraph), mostGraphs: mostGraphs, tables: e.rope.Length()}
	most := e.MaxBatch
	err := layer.Run(e.ctx, func(p *layer.Pass) {
		b.state = b.keep.zeros(p, cuda.I32, 3, most)
		of := func(at int) *tensor.Tensor { return p.View(p.Narrow(b.state, 0, at, 1), most) }
		offsets := make([]int32, most+1)
		for at := range offsets {
			offsets[at] = int32(at)
		}
		b.inputs = inputs{
			of(0), of(1), from(&b.keep, p, cuda.I32, offsets), of(2), b.keep.zeros(p, cuda.I32, most, e.Cache.MaxPages),
		}
		b.moving = p.Narrow(b.state, 0, 1, 2)
		vocab := e.Config.VocabSize
		b.sampler, b.firstSampler = NewRowSampler(p, most, vocab), NewRowSampler(p, most, vocab)
		b.firstIDs = b.keep.zeros(p, cuda.I32, most)
	})
	if err == nil && ahead {
		b.transfers, err = newBeside(e.ctx, b.inputs.ids, b.inputs.table)
	} else if err == nil {
		b.transfers = newWaiting(b.inputs.ids, b.inputs.table)
	}
	if err != nil {
		return nil, errors.Join(err, b.sampler.Close(), b.firstSampler.Close(), b.keep.close())
	}
	return b, nil
}

// firstTokens draws the token after each prompt, from the logits that Prefill gave, into the rows and the result.
func (b *DecodeBatch) firstTokens(logits *tensor.Tensor, rows []*row) ([]int32, error) {
	tokens := make([]int32, len(rows))
	var logprobs []*TokenLogprobs
	err := layer.Run(b.engine.ctx, func(p *layer.Pass) {
		b.firstSampler.Assign(p, drawings(rows))
		ids, scored := p.Narrow(b.firstIDs, 0, 0, len(rows)), b.scored(p, rows)
		if b.draw(p, b.firstSampler, logits, ids, scored); p.Err() == nil {
			p.Check(tensor.ReadInto(ids, tokens))
		}
		logprobs = b.readScores(p, rows, scored)
	})
	if err != nil {
		return nil, err
	}
	for at, row := range rows {
		row.take(tokens[at], logprobs[at])
	}
	return tokens, nil
}

// drawings are how the tokens of rows are drawn.
func drawings(rows []*row) []*Drawing {
	found := make([]*Drawing, len(rows))
	for at, row := range rows {
		found[at] = row.drawing
	}
	return found
}

// scored says whether a step of these rows gives log-probabilities; then there is a place for them.
func (b *DecodeBatch) scored(p *layer.Pass, rows []*row) bool {
	if !wantsScores(rows) {
		return false
	}
	if b.scores == nil {
		most := b.engine.MaxBatch
		b.scores = newScores(p, most).keptBy(p, &b.keep)
		b.given = b.keep.empty(p, cuda.F32, most, b.engine.Config.VocabSize)
	}
	return true
}

func wantsScores(rows []*row) bool {
	return slices.ContainsFunc(rows, func(row *row) bool { return row.scored })
}

// draw draws tokens, and takes their log-probabilities if they are wanted.
func (b *DecodeBatch) draw(p *layer.Pass, sampler *RowSampler, logits, ids *tensor.Tensor, scored bool) {
	if !scored || p.Err() != nil {
		sampler.Draw(p, logits, ids)
		return
	}
	given := logits
	if sampler.kind.adjusts() {
		given = p.Narrow(b.given, 0, 0, logits.Dim(0))
		p.Check(given.Copy(logits))
	}
	sampler.Draw(p, logits, ids)
	b.scores.take(p, given, ids)
}

// readScores gives what the last step has given of log-probabilities, nil for a row that wants none.
func (b *DecodeBatch) readScores(p *layer.Pass, rows []*row, scored bool) []*TokenLogprobs {
	found := make([]*TokenLogprobs, len(rows))
	if !scored {
		return found
	}
	alternatives := make([]int, len(rows))
	for at, row := range rows {
		alternatives[at] = row.alternatives
	}
	for at, one := range b.scores.read(p, alternatives) {
		if rows[at].scored {
			found[at] = one
		}
	}
	return found
}

// join adds a row after the others, of which there are fewer than Engine.MaxBatch.
func (b *DecodeBatch) join(row *row) {
	b.rows = append(b.rows, row)
	b.changed = true
}

// leave takes a row out; the last one moves to its place.
func (b *DecodeBatch) leave(row *row) {
	at, last := slices.Index(b.rows, row), len(b.rows)-1
	b.rows[at] = b.rows[last]
	b.rows = b.rows[:last]
	b.changed = true
}

// step runs the last token of each row, of which there is one at least, and draws the next one: it gives each row with it.
//
// With goOn, a batch that runs ahead starts the step after this one, too: every row has room for its token, but for what
// the next tokens say, each is wanted, and none joins before.
func (b *DecodeBatch) step(goOn bool) ([]drawn, error) {
	for {
		if len(b.underWay) == 0 {
			if err := b.start(); err != nil {
				return nil, err
			}
		}
		if goOn && b.ahead && b.canRunAhead() {
			if err := b.start(); err != nil {
				return nil, err
			}
		}
		found, err := b.collect()
		if err != nil || len(found) > 0 { // a step of rows that all have left since gives nothing
			return found, err
		}
	}
}

// close waits for what is under way and frees all that the batch has.
func (b *DecodeBatch) close() error {
	var err error
	for len(b.underWay) > 0 && err == nil {
		_, err = b.collect()
	}
	return errors.Join(err, b.dropGraphs(), b.transfers.close(), b.sampler.Close(), b.firstSampler.Close(), b.keep.close())
}

func (b *DecodeBatch) dropGraphs() error {
	var err error
	for _, graph := range b.graphs {
		err = errors.Join(err, graph.Close())
	}
	clear(b.graphs)
	return err
}

// canRunAhead says whether the step after that under way needs nothing but pages: the same rows, none at the context's
// end or with a mask for its next token, and rotary tables that reach far enough.
func (b *DecodeBatch) canRunAhead() bool {
	if b.changed || len(b.underWay) > 1 || b.sampler.kind.masked || wantsScores(b.rows) {
		return false
	}
	context, positions := b.engine.Cache.Context, b.engine.rope.Length()
	return !slices.ContainsFunc(b.rows, func(row *row) bool {
		return row.sequence.Length+2 > context || row.sequence.Position+1 >= positions
	})
}

// start gives the next step of all rows to the device.
func (b *DecodeBatch) start() error {
	e, before, furthest := b.engine, len(b.underWay), 0
	for at, row := range b.rows {
		sequence := row.sequence
		if before == 0 && e.Cache.MakeRoom(sequence) {
			b.changed = true
		}
		grown, err := e.Cache.Extend(sequence, 1+before)
		if err != nil {
			return err
		}
		if last := len(sequence.Pages) - 1; grown && !b.changed {
			if err := b.transfers.page(at, last, sequence.Pages[last]); err != nil {
				return err
			}
		}
		furthest = max(furthest, sequence.Position)
	}
	step := stepOf{rows: len(b.rows)}
	err := layer.Run(e.ctx, func(p *layer.Pass) {
		if b.changed {
			b.send(p)
		} else if b.sampler.kind.masked {
			b.sampler.renewMasks(p, drawings(b.rows))
		}
		e.reach(p, furthest+before)
		step.kind, step.scored = b.sampler.kind, b.scored(p, b.rows)
	})
	if err != nil {
		return err
	}
	if length := e.rope.Length(); length != b.tables || b.sampler.generation != b.generation {
		b.tables, b.generation = length, b.sampler.generation
		if err := b.dropGraphs(); err != nil {
			return err
		}
	}
	var runs []rowRun
	for _, row := range b.rows {
		runs = appended(runs, row.sequence.adapter, 1)
	}
	step.runs = keyOfRuns(runs)
	graph, err := b.graph(step, runs)
	if err != nil {
		return err
	}
	if err := b.transfers.begin(); err != nil {
		return err
	}
	if err := graph.Launch(); err != nil {
		return err
	}
	if err := b.transfers.end(); err != nil {
		return err
	}
	b.underWay = append(b.underWay, underWay{slices.Clone(b.rows), step.scored})
	return nil
}

// collect reads what the oldest step under way has drawn, for the rows that have not left since.
func (b *DecodeBatch) collect() ([]drawn, error) {
	step := b.underWay[0]
	b.underWay = slices.Delete(b.underWay, 0, 1)
	tokens, err := b.transfers.ids()
	if err != nil {
		return nil, err
	}
	var logprobs []*TokenLogprobs
	err = layer.Run(b.engine.ctx, func(p *layer.Pass) { logprobs = b.readScores(p, step.rows, step.scored) })
	if err != nil {
		return nil, err
	}
	var found []drawn
	for at, row := range step.rows {
		if !slices.Contains(b.rows, row) {
			continue
		}
		b.engine.Cache.Advance(row.sequence, row.token)
		row.take(tokens[at], logprobs[at])
		found = append(found, drawn{row, row.token})
	}
	return found, nil
}

// send puts the rows on the device.
func (b *DecodeBatch) send(p *layer.Pass) {
	// Neighbours stay in their order.
	slices.SortStableFunc(b.rows, func(a, b *row) int { return a.sequence.adapter - b.sequence.adapter })
	most := b.state.Dim(1)
	whole := make([]int32, 3*most)
	var table []int32
	for at, row := range b.rows {
		whole[at], whole[most+at], whole[2*most+at] = row.token, int32(row.sequence.Position), int32(row.sequence.Length+1)
		table = append(table, b.engine.Cache.row(row.sequence)...)
	}
	p.Check(tensor.Write(b.state, whole))
	p.Check(tensor.Write(p.Narrow(b.inputs.table, 0, 0, len(b.rows)), table))
	b.sampler.Assign(p, drawings(b.rows))
	b.changed = p.Err() != nil
}

// graph is the captured step; the one that was not used for longest makes room for it.
func (b *DecodeBatch) graph(step stepOf, runs []rowRun) (*keptGraph, error) {
	e := b.engine
	b.steps++
	if graph := b.graphs[step]; graph != nil {
		graph.used = b.steps
		return graph, nil
	}
	if len(b.graphs) >= b.mostGraphs {
		if err := b.dropOldest(); err != nil {
			return nil, err
		}
	}
	captured, err := e.ctx.Capture(func() error {
		return layer.Run(e.ctx, func(p *layer.Pass) {
			in := b.inputs.first(p, step.rows, step.rows)
			b.draw(p, b.sampler, e.decode(p, in, runs), in.ids, step.scored)
			// All rows, used or not: those of rows that join are set then.
			p.Check(tensor.Increment(b.moving, 1))
		})
	})
	if err != nil {
		return nil, err
	}
	graph := &keptGraph{captured, b.steps}
	b.graphs[step] = graph
	return graph, nil
}

// dropOldest closes the graph that was not used for longest, of which there must be one.
func (b *DecodeBatch) dropOldest() error {
	var oldest stepOf
	used := math.MaxInt
	for step, graph := range b.graphs {
		if graph.used < used {
			oldest, used = step, graph.used
		}
	}
	graph := b.graphs[oldest]
	delete(b.graphs, oldest)
	return graph.Close()
}
