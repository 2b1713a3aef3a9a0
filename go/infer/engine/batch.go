package engine

import (
	"errors"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// Row is a sequence, how its tokens are drawn, the last one, which has not been run yet, how many were drawn, and whose it
// is.
type Row struct {
	Sequence *CachedSequence
	Sampling Sampling
	Request  *Request

	token int32
	draws int
}

// drawn is a token that a step has drawn for a row.
type drawn struct {
	row   *Row
	token int32
}

// DecodeBatch is sequences that are decoded together, up to Engine.MaxBatch: their state on the device, and the graphs
// that move all of them on by one token.
//
// A row of the batch is one sequence. Rows join and leave between steps; the last one moves to where one left. A graph is
// captured for each number of rows, when there are so many for the first time, and replayed from then on: capturing costs
// the host what calling costs, once, and a batch padded to some larger size would cost every step the products of rows
// that nobody asked for. From step to step only the drawn ids come back; what the host sends is new pages.
//
// A batch may run ahead, as it does on a GPU: as the ids that a step reads are on the device already, it can be started
// before the host has read them. Then the device never waits for the host, and a row that ends has run one step for
// nothing. On a CPU there is no time to win, and steps for nothing cost some. The tokens are the same.
type DecodeBatch struct {
	engine                *Engine
	ahead                 bool
	rows                  []*Row
	keep                  store
	state                 *tensor.Tensor // i32 [3, most]: ids, positions, lengths, so that they travel in one copy
	moving                *tensor.Tensor // the last two of them, which go up by one a step
	inputs                inputs
	sampler, firstSampler *rowSampler
	firstIDs              *tensor.Tensor
	transfers             transfers
	underWay              [][]*Row // the rows of steps whose ids were not read, at most two
	graphs                map[graphOf]*cuda.Graph
	tables                int  // how far those of the graphs reach
	changed               bool // whether the rows on the device are not those of rows
}

// graphOf finds a captured step.
type graphOf struct {
	rows   int
	greedy bool
}

func newDecodeBatch(e *Engine, ahead bool) (*DecodeBatch, error) {
	b := &DecodeBatch{engine: e, ahead: ahead, graphs: make(map[graphOf]*cuda.Graph), tables: e.rope.Length()}
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
		b.sampler, b.firstSampler = newRowSampler(p, &b.keep, most), newRowSampler(p, &b.keep, most)
		b.firstIDs = b.keep.zeros(p, cuda.I32, most)
	})
	if err == nil && ahead {
		b.transfers, err = newBeside(e.ctx, b.inputs.ids, b.inputs.table)
	} else if err == nil {
		b.transfers = newWaiting(b.inputs.ids, b.inputs.table)
	}
	if err != nil {
		return nil, errors.Join(err, b.keep.close())
	}
	return b, nil
}

// firstTokens draws the token after each prompt, from the logits that Prefill gave, into the rows and the result.
func (b *DecodeBatch) firstTokens(logits *tensor.Tensor, rows []*Row) ([]int32, error) {
	tokens := make([]int32, len(rows))
	err := layer.Run(b.engine.ctx, func(p *layer.Pass) {
		b.firstSampler.assign(p, rows)
		ids := p.Narrow(b.firstIDs, 0, 0, len(rows))
		b.firstSampler.draw(p, logits, ids)
		if p.Err() == nil {
			p.Check(tensor.ReadInto(ids, tokens))
		}
	})
	if err != nil {
		return nil, err
	}
	for at, row := range rows {
		row.token = tokens[at]
		row.draws++
	}
	return tokens, nil
}

// join adds a row after the others, of which there are fewer than Engine.MaxBatch.
func (b *DecodeBatch) join(row *Row) {
	b.rows = append(b.rows, row)
	b.changed = true
}

// leave takes a row out; the last one moves to its place.
func (b *DecodeBatch) leave(row *Row) {
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
	return errors.Join(err, b.dropGraphs(), b.transfers.close(), b.keep.close())
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
// end, and rotary tables that reach far enough.
func (b *DecodeBatch) canRunAhead() bool {
	if b.changed || len(b.underWay) > 1 {
		return false
	}
	context, positions := b.engine.Cache.Context, b.engine.rope.Length()
	return !slices.ContainsFunc(b.rows, func(row *Row) bool {
		return row.Sequence.Length+2 > context || row.Sequence.Position+1 >= positions
	})
}

// start gives the next step of all rows to the device.
func (b *DecodeBatch) start() error {
	e, before, furthest := b.engine, len(b.underWay), 0
	for at, row := range b.rows {
		sequence := row.Sequence
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
	err := layer.Run(e.ctx, func(p *layer.Pass) {
		if b.changed {
			b.send(p)
		}
		e.reach(p, furthest+before)
	})
	if err != nil {
		return err
	}
	if length := e.rope.Length(); length != b.tables {
		b.tables = length
		if err := b.dropGraphs(); err != nil {
			return err
		}
	}
	graph, err := b.graph()
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
	b.underWay = append(b.underWay, slices.Clone(b.rows))
	return nil
}

// collect reads what the oldest step under way has drawn, for the rows that have not left since.
func (b *DecodeBatch) collect() ([]drawn, error) {
	rows := b.underWay[0]
	b.underWay = slices.Delete(b.underWay, 0, 1)
	tokens, err := b.transfers.ids()
	if err != nil {
		return nil, err
	}
	var found []drawn
	for at, row := range rows {
		if !slices.Contains(b.rows, row) {
			continue
		}
		b.engine.Cache.Advance(row.Sequence, row.token)
		row.token = tokens[at]
		row.draws++
		found = append(found, drawn{row, row.token})
	}
	return found, nil
}

// send puts the rows on the device.
func (b *DecodeBatch) send(p *layer.Pass) {
	most := b.state.Dim(1)
	whole := make([]int32, 3*most)
	var table []int32
	for at, row := range b.rows {
		whole[at], whole[most+at], whole[2*most+at] = row.token, int32(row.Sequence.Position), int32(row.Sequence.Length+1)
		table = append(table, b.engine.Cache.row(row.Sequence)...)
	}
	p.Check(tensor.Write(b.state, whole))
	p.Check(tensor.Write(p.Narrow(b.inputs.table, 0, 0, len(b.rows)), table))
	b.sampler.assign(p, b.rows)
	b.changed = p.Err() != nil
}

// graph is the captured step of the rows that there are now.
func (b *DecodeBatch) graph() (*cuda.Graph, error) {
	e, key := b.engine, graphOf{len(b.rows), b.sampler.greedy}
	if graph := b.graphs[key]; graph != nil {
		return graph, nil
	}
	graph, err := e.ctx.Capture(func() error {
		return layer.Run(e.ctx, func(p *layer.Pass) {
			in := b.inputs.first(p, key.rows, key.rows)
			b.sampler.draw(p, e.decode(p, in), in.ids)
			// All rows, used or not: those of rows that join are set then.
			p.Check(tensor.Increment(b.moving, 1))
		})
	})
	if err == nil {
		b.graphs[key] = graph
	}
	return graph, err
}
