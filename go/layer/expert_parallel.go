package layer

import (
	"errors"
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// ExpertParallel is a rank's place in a training whose experts are shared out. Neighbouring ranks, Size of them, are a
// group: each has as many experts of every layer, the first rank the first ones. Ranks of the same Position in their
// groups, the owners, have the same experts. All that is no expert's is on all ranks.
//
// The ranks of a group go through their micro-batches in rounds, layer by layer: in each layer the rows of all of them
// go to the ranks that have their experts, and back. A rank that has no micro-batch left in a round is a guest, who only
// serves the others. No bit depends on Size.
// (Lepikhin et al. 2020, "GShard", section 3.2; Rajbhandari et al. 2022, "DeepSpeed-MoE", section 5)
type ExpertParallel struct {
	Comm     *cuda.Comm // to all ranks
	Group    *cuda.Comm // to those of the group; nil before Join
	Owners   *cuda.Comm // to those with the same experts; nil before Join, and where there is one group
	Size     int        // ranks of a group
	Position int        // of this rank in its group
	Own      int        // experts of a layer that it has

	round   *Round
	slots   *tensor.Tensor // f32 [slots, layers * own of a layer]: sums of the own experts' gradients
	rounded cuda.DType     // to which these are rounded when they are to travel
}

// Round is what the ranks of a group run at once.
type Round struct {
	Runs     []bool             // of each rank of the group, whether it has a micro-batch
	Tokens   int                // of the largest of them
	Capacity int                // slots that an expert takes of that one; 0 for no limit
	Events   []cuda.ExpertEvent // what becomes of the gradients of the own experts; none where there is no backward
}

// NewExpertParallel is the place of a rank of `comm`, which must outlive it, nil is a rank alone, in groups of `size`
// ranks that share out `experts` experts a layer. nil where `size` is 1: every rank has all experts. Close it.
func NewExpertParallel(comm *cuda.Comm, size, experts int) (*ExpertParallel, error) {
	rank, ranks := 0, 1
	if comm != nil {
		rank, ranks = comm.Rank(), comm.Ranks()
	}
	if err := CheckExpertParallel(size, ranks, experts); err != nil || size == 1 {
		return nil, err
	}
	return &ExpertParallel{Comm: comm, Size: size, Position: rank % size, Own: experts / size}, nil
}

// Join meets the group and the owners, unless it has. A trainer does it, when the ranks have agreed that they mean the
// same.
func (e *ExpertParallel) Join() (err error) {
	if e == nil || e.Group != nil {
		return nil
	}
	if e.Group, err = e.Comm.Part(e.First(), 1, e.Size); err != nil {
		return err
	}
	if ranks := e.Comm.Ranks(); ranks > e.Size {
		e.Owners, err = e.Comm.Part(e.Position, e.Size, ranks/e.Size)
	}
	return err
}

// CheckExpertParallel refuses groups of `size` ranks into which a job of so many does not fall apart, or that cannot
// share out so many experts alike.
func CheckExpertParallel(size, ranks, experts int) error {
	if size > 1 && experts == 0 {
		problem := "expert_parallel is %d; a dense model, whose num_experts is 0, has none to share out"
		return fmt.Errorf(problem, size)
	}
	if size < 1 || ranks%size != 0 || experts%size != 0 {
		problem := "expert_parallel is %d; it must divide the %d ranks and the %d experts"
		return fmt.Errorf(problem, size, ranks, experts)
	}
	return nil
}

// Close frees the communicators of group and owners. Closing nil is fine.
func (e *ExpertParallel) Close() error {
	if e == nil {
		return nil
	}
	return errors.Join(e.Owners.Close(), e.Group.Close())
}

// First is the first rank of the group.
func (e *ExpertParallel) First() int { return e.Comm.Rank() - e.Position }

// SumInto says where the gradients of the own experts are summed up: f32 [slots, elements], of each layer in turn
// W13 [own, 2*ffn, hidden], then W2 [own, hidden, ffn]. It stays the caller's. Sums that go to others are rounded to
// `rounded`: F32, F16 or BF16.
func (e *ExpertParallel) SumInto(slots *tensor.Tensor, rounded cuda.DType) {
	e.slots, e.rounded = slots, rounded
}

// During makes a round the one that runs while `work` does. All ranks of the group do the same.
func (e *ExpertParallel) During(round Round, work func()) {
	e.round = &round
	defer func() { e.round = nil }()
	work()
}

// Alone is the error of what cannot be done with the own experts alone.
func (e *ExpertParallel) Alone() error {
	first := e.Position * e.Own
	return fmt.Errorf("this rank holds experts %d to %d of %d alone; SaveCheckpoint of its trainer writes all",
		first, first+e.Own-1, e.Size*e.Own)
}

// MostRows is how many rows a rank has at most for the experts of one, of so many tokens with k experts each, of which
// none takes more than `capacity`; 0 for no limit.
func (e *ExpertParallel) MostRows(k, tokens, capacity int) int {
	if capacity == 0 {
		return k * tokens
	}
	return min(k*tokens, e.Own*capacity)
}

// current is the round that runs. There is none when somebody runs the model by itself.
func (e *ExpertParallel) current(p *Pass) *Round {
	if e.round != nil {
		return e.round
	}
	p.Check(e.Alone())
	return &Round{Runs: make([]bool, e.Size)}
}

// sources are the ranks of the group that have a micro-batch in this round: this one, where it has, then the others in
// the order in which their rows come.
func (e *ExpertParallel) sources(p *Pass) []int {
	runs := e.current(p).Runs
	var found []int
	for step := range e.Size {
		if rank := (e.Position - step + e.Size) % e.Size; runs[rank] {
			found = append(found, rank)
		}
	}
	return found
}

// dispatch sends rows [rows, hidden] in the order of experts to the ranks that have these: slots [ranks, rows of a slot,
// hidden] get those of each rank for the own experts, for which await waits, slotOffsets [ranks, own+1] where each
// expert's begin, unless these are known already. A guest has nil rows and offsets.
func (e *ExpertParallel) dispatch(p *Pass, rows, offsets, slots, slotOffsets *tensor.Tensor, known bool) {
	if p.Err() != nil {
		return
	}
	from, count := rowsAt(rows)
	at := cuda.Memory{}
	if offsets != nil {
		at = offsets.Memory()
	}
	p.Check(e.Group.DispatchBegin(from, at, slots.Memory(), slotOffsets.Memory(), count, int64(slots.Dim(1)),
		rowBytes(slots), int64(e.Size), int64(e.Own), known))
}

// await waits for the slot of another rank.
func (e *ExpertParallel) await(p *Pass, slots *tensor.Tensor, rank int) {
	if p.Err() == nil {
		p.Check(e.Group.DispatchEnd(slots.Memory(), int64(slots.Dim(1)), rowBytes(slots), int64(e.Size), int64(rank)))
	}
}

// sendBack lets the slot of another rank go back to it: there to the places in `rows` that its rows came from.
func (e *ExpertParallel) sendBack(p *Pass, slots, rows *tensor.Tensor, rank int) {
	if p.Err() == nil {
		to, count := rowsAt(rows)
		p.Check(e.Group.CollectBegin(slots.Memory(), to, count, int64(slots.Dim(1)), rowBytes(slots), int64(e.Size),
			int64(rank)))
	}
}

// collect is the end of the way back: all of `rows` is there.
func (e *ExpertParallel) collect(p *Pass, slots, rows *tensor.Tensor) {
	if p.Err() == nil {
		to, count := rowsAt(rows)
		p.Check(e.Group.CollectEnd(slots.Memory(), to, count, int64(slots.Dim(1)), rowBytes(slots), int64(e.Size)))
	}
}

// rowsAt is where the rows of a rank lie, and how many there are; of a guest nothing.
func rowsAt(rows *tensor.Tensor) (cuda.Memory, int64) {
	if rows == nil {
		return cuda.Memory{}, 0
	}
	return rows.Memory(), int64(rows.Dim(0))
}

// rowBytes is the bytes of a row of slots.
func rowBytes(slots *tensor.Tensor) int64 { return int64(slots.Dim(2) * slots.DType().Size()) }
