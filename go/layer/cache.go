package layer

import (
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// KVCache holds keys and values of past tokens, one layer after the other, with room for `capacity` tokens per
// sequence, and all else that running a model over them needs from step to step. The rotary embedding's tables are the
// cache's own, so that sequences of any length can be run in turns.
type KVCache struct {
	capacity int
	used     []int // tokens of each sequence as the host knows them, so that it need not read them back

	keys, values []*tensor.Tensor
	counters     *tensor.Tensor // i32 [2, batch]: starts, lengths
	starts       *tensor.Tensor // i32 [batch]: tokens of each sequence, which is the position of its next one
	lengths      *tensor.Tensor // i32 [batch]: starts + 1, what the next token looks at, itself included
	cosine, sine *tensor.Tensor
	positions    *tensor.Tensor // i32 [capacity]: 0, 1, ...
}

// NewKVCache makes an empty cache of keys and values of a dtype. It must be closed.
func NewKVCache(
	ctx *cuda.Context, rope *RopeTables, dtype cuda.DType, layers, batch, capacity, kvHeads int,
) (*KVCache, error) {
	cache := &KVCache{capacity: capacity, used: make([]int, batch)}
	err := Run(ctx, func(p *Pass) {
		for range layers {
			cache.keys = append(cache.keys, p.Empty(dtype, batch, capacity, kvHeads, rope.HeadDim))
			cache.values = append(cache.values, p.Empty(dtype, batch, capacity, kvHeads, rope.HeadDim))
		}
		rows := make([]int32, 2*batch)
		for at := range batch {
			rows[batch+at] = 1
		}
		cache.counters = p.Empty(cuda.I32, 2, batch)
		p.Check(tensor.Write(cache.counters, rows))
		cache.starts = p.View(p.Narrow(cache.counters, 0, 0, 1), batch)
		cache.lengths = p.View(p.Narrow(cache.counters, 0, 1, 1), batch)

		// A table of the cache's own: the model's may be made anew, longer, while a graph still reads this one.
		cache.cosine = p.Empty(cuda.F32, capacity, rope.HeadDim/2)
		cache.sine = p.Empty(cuda.F32, capacity, rope.HeadDim/2)
		p.Check(tensor.RopeFreqs(cache.cosine, cache.sine, 0, rope.Base, rope.NTKAlpha))
		places := make([]int32, capacity)
		for at := range places {
			places[at] = int32(at)
		}
		cache.positions = p.Empty(cuda.I32, capacity)
		p.Check(tensor.Write(cache.positions, places))
		for _, made := range cache.tensors() {
			p.Keep(made)
		}
	})
	if err != nil {
		return nil, err
	}
	return cache, nil
}

func (c *KVCache) tensors() []*tensor.Tensor {
	all := append([]*tensor.Tensor{c.counters, c.cosine, c.sine, c.positions}, c.keys...)
	return append(all, c.values...)
}

// Close frees the cache.
func (c *KVCache) Close() error { return closeAll(c.tensors()...) }

// Used is how many tokens per sequence has.
func (c *KVCache) Used(row int) int { return c.used[row] }

// RequireRoom is an error when so many more tokens of each sequence do not fit.
func (c *KVCache) RequireRoom(tokens int) error {
	for row := range c.used {
		if err := c.requireRoom(tokens, row); err != nil {
			return err
		}
	}
	return nil
}

func (c *KVCache) requireRoom(tokens, row int) error {
	if wanted := c.used[row] + tokens; wanted > c.capacity {
		return fmt.Errorf("sequence %d would have %d tokens; the cache has room for %d", row, wanted, c.capacity)
	}
	return nil
}

// RequireEmpty is an error when a sequence has tokens, or a prompt of so many does not fit.
func (c *KVCache) RequireEmpty(tokens, row int) error {
	if c.used[row] != 0 {
		return fmt.Errorf("sequence %d has %d tokens; a prompt needs an empty one", row, c.used[row])
	}
	return c.requireRoom(tokens, row)
}

// Advance counts tokens of each sequence that are in the cache now: on the device, where a graph can capture it, and on
// the host. In a pass that failed it counts nothing.
func (c *KVCache) Advance(p *Pass, tokens int) {
	if p.Err() != nil {
		return
	}
	p.Check(tensor.Increment(c.counters, int32(tokens)))
	c.Count(tokens)
}

// AdvanceRow is Advance for one sequence.
func (c *KVCache) AdvanceRow(p *Pass, tokens, row int) {
	if p.Err() != nil {
		return
	}
	for _, counter := range []*tensor.Tensor{c.starts, c.lengths} {
		p.Check(tensor.Increment(p.Narrow(counter, 0, row, 1), int32(tokens)))
	}
	c.used[row] += tokens
}

// Count is the host's part of Advance, for when a graph did the device's.
func (c *KVCache) Count(tokens int) {
	for row := range c.used {
		c.used[row] += tokens
	}
}
