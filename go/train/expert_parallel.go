package train

import (
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// expertSums are the gradients of the experts that a rank has, over all micro-batches of its group, and how they come to
// the ranks that update them, and the weights back. The sums over replicas are those of the tree of cuda.ReplicaMerges;
// cuda.ExpertSchedule has the order.
type expertSums struct {
	model        *model.MoETransformer
	microBatches int // of an update
	replicas     int // of the job

	slots  *tensor.Tensor       // f32 [slots, elements of the own experts]
	rounds [][]cuda.ExpertEvent // of each round
	copies []cuda.ExpertEvent   // behind the last
	left   int                  // sums that are then left, in the first slots
	wire   cuda.DType           // to which sums are rounded, but those over all replicas
	shards []model.SlotShard    // of a slot, and which of the owners gets the sums of each

	gradients []cuda.Move // behind the sums
}

// newExpertSums makes room for the sums; nil where all experts are on this rank.
func newExpertSums(m *model.MoETransformer, config Config, held *model.Held) (*expertSums, error) {
	e := m.Experts
	if e == nil {
		return nil, nil
	}
	x := &expertSums{model: m, microBatches: config.MicroBatches(config.BatchSize), replicas: config.Replicas,
		wire: config.ReduceDType.DType(), shards: held.InSlot()}
	first, ranks := e.First(), e.Comm.Ranks()
	events, slots, err := cuda.ExpertSchedule(x.replicas, ranks, first, e.Size, x.microBatches, e.Position)
	if err != nil {
		return nil, err
	}
	for _, event := range events {
		if event.Kind == cuda.ExpertsCopy {
			x.copies = append(x.copies, event)
			continue
		}
		for event.Round >= len(x.rounds) {
			x.rounds = append(x.rounds, nil)
		}
		x.rounds[event.Round] = append(x.rounds[event.Round], event)
	}
	group, err := runOf(x.replicas, first/e.Size, ranks/e.Size)
	if err != nil {
		return nil, err
	}
	_, _, _, left, err := mergesOf(x.replicas, group)
	if err != nil {
		return nil, err
	}
	x.left = left + 1
	x.gradients = held.GradientMoves(m.Gradients.Data.DType().Size())
	own := 0
	for _, span := range held.Own {
		own += span.Size()
	}
	if x.slots, err = tensor.New(m.Context(), cuda.F32, slots, own); err != nil {
		return nil, err
	}
	e.SumInto(x.slots, x.wire)
	return x, nil
}

// close frees the slots.
func (x *expertSums) close() error {
	if x == nil {
		return nil
	}
	x.model.Experts.SumInto(nil, x.wire)
	return x.slots.Close()
}

// bytes is the memory of the sums.
func (x *expertSums) bytes() int {
	if x == nil {
		return 0
	}
	return int(x.slots.Bytes())
}

// roundsOf gives the rounds of a step of micro-batches of so many sequences of a length; nil where all experts are here.
func (x *expertSums) roundsOf(sizes []int, length int) ([]layer.Round, error) {
	if x == nil {
		return nil, nil
	}
	if len(sizes) != x.microBatches {
		problem := "a batch of %d micro-batches; with expert_parallel it must have those of batch_size, %d"
		return nil, fmt.Errorf(problem, len(sizes), x.microBatches)
	}
	rounds := make([]layer.Round, len(x.rounds))
	for at, events := range x.rounds {
		round := layer.Round{Runs: make([]bool, x.model.Experts.Size), Events: events}
		for _, event := range events {
			if event.Kind == cuda.ExpertsRun {
				round.Runs[event.A] = true
				round.Tokens = max(round.Tokens, sizes[event.B]*length)
			}
		}
		round.Capacity = x.model.Config.Capacity(round.Tokens)
		rounds[at] = round
	}
	return rounds, nil
}

// reduce puts the sums over all replicas of the gradients of those own experts into the arena that ranks of this group
// update.
func (x *expertSums) reduce(gradients *tensor.Tensor) error {
	for _, event := range x.copies {
		from, err := x.slot(event.A)
		if err != nil {
			return err
		}
		to, err := x.slot(event.B)
		if err == nil {
			err = to.Copy(from)
		}
		if err != nil {
			return err
		}
	}
	sum, err := x.slot(x.left - 1)
	if err != nil {
		return err
	}
	owners := x.model.Experts.Owners
	if owners != nil {
		aside, shards := cuda.Memory{}, make([]cuda.RankShard, len(x.shards))
		if x.left > 1 {
			aside = x.slots.Memory()
		}
		for at, shard := range x.shards {
			shards[at] = shard.RankShard
		}
		err := owners.ReduceScatter(aside, sum.Memory(), int64(sum.Size()), int64(x.left-1), int64(x.replicas), shards, x.wire)
		if err != nil {
			return err
		}
	}
	for _, shard := range x.shards {
		if owners != nil && int(shard.Rank) != owners.Rank() {
			continue
		}
		size := int(shard.End - shard.Begin)
		from, err := sum.Narrow(0, int(shard.Begin), size)
		if err != nil {
			return err
		}
		to, err := gradients.Narrow(0, shard.InArena, size)
		if err == nil {
			err = to.Copy(from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// slot is one of the slots, [elements].
func (x *expertSums) slot(at int) (*tensor.Tensor, error) {
	row, err := x.slots.Narrow(0, at, 1)
	if err != nil {
		return nil, err
	}
	return row.View(x.slots.Dim(1))
}

// bytesSent is what this rank has sent to others of its group, and to other owners; see cuda.Comm.BytesSent.
func (x *expertSums) bytesSent() (int64, error) {
	if x == nil {
		return 0, nil
	}
	sent, err := x.model.Experts.Group.BytesSent()
	if owners := x.model.Experts.Owners; err == nil && owners != nil {
		var more int64
		more, err = owners.BytesSent()
		sent += more
	}
	return sent, err
}

// evaluate runs `own`, the evaluation of part `at` of so many, of up to `tokens` tokens, in a round in which the ranks of
// the group have neighbouring parts. A rank whose part is behind the last serves the others. An expert takes up to
// `capacity` slots, 0 for no limit.
func (x *expertSums) evaluate(at, parts, tokens, capacity int, own func() error) (err error) {
	if x == nil && at < parts {
		return own()
	}
	if x == nil {
		return nil
	}
	e := x.model.Experts
	round := layer.Round{Runs: make([]bool, e.Size), Tokens: tokens, Capacity: capacity}
	for rank := range round.Runs {
		round.Runs[rank] = at-e.Position+rank < parts
	}
	e.During(round, func() {
		if round.Runs[e.Position] {
			err = own()
		} else {
			err = x.model.ServeEvaluation()
		}
	})
	return err
}
