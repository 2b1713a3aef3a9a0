package engine

import (
	"errors"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// pool makes the vector of a text: it takes hidden states in the order of the tokens; the pieces that they come in change
// no bit.
type pool struct{ sum *tensor.Tensor } // f32 [2, hidden]

// newPool makes a pool that lives until it is closed.
func (e *Engine) newPool() (*pool, error) {
	sum, err := tensor.Zeros(e.ctx, cuda.F32, 2, e.Config.HiddenSize)
	if err != nil {
		return nil, err
	}
	return &pool{sum}, nil
}

// add takes the hidden states of so many tokens of the last prefill call, from number `first` on.
func (q *pool) add(p *layer.Pass, e *Engine, first, tokens int) {
	for start := first; start < first+tokens && p.Err() == nil; start += logitsRows {
		rows := min(logitsRows, first+tokens-start)
		p.Check(tensor.PoolRows(e.finalNorm(p, p.Narrow(e.x, 0, start, rows)), q.sum))
	}
}

// read gives the vector of those that were taken. The length of a mean is not its sum's, but the direction is.
func (q *pool) read(p *layer.Pass) []float32 {
	vector := p.Empty(cuda.F32, q.sum.Dim(1))
	found := make([]float32, q.sum.Dim(1))
	if p.Err() == nil {
		p.Check(tensor.PoolUnit(q.sum, vector))
		p.Check(tensor.ReadInto(vector, found))
	}
	return found
}

func (q *pool) close() error { return q.sum.Close() }

// Embed gives the vector of a text, f32 [hidden size]: the mean of the hidden states after the final norm, of all of its
// tokens, brought to length 1; `adapter` is that of Logits. The bits are those that a request has for its prompt.
func (e *Engine) Embed(ids []int32, adapter string) (vector []float32, err error) {
	if err := e.checkWhole(ids, 1); err != nil {
		return nil, err
	}
	made, err := e.newPool()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, made.close()) }()
	sequence, err := e.open(len(ids), adapter)
	if err != nil {
		return nil, err
	}
	defer e.Cache.Close(sequence)
	err = layer.Run(e.ctx, func(p *layer.Pass) {
		for piece := range slices.Chunk(ids, e.Piece) {
			e.forwardParts(p, []Part{{Sequence: sequence, IDs: piece}})
			made.add(p, e, 0, len(piece))
		}
		vector = made.read(p)
	})
	if err != nil {
		return nil, err
	}
	return vector, nil
}
