package train

import (
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// Grain is the elements of the arenas that stay on one rank: a multiple of the pieces in which the norm of the gradients
// is summed up, and of the blocks of moments in 8 bits.
const Grain = 32768

// span is elements begin .. end-1 of a model's arenas.
type span struct{ begin, end int }

func (s span) size() int { return s.end - s.begin }

// of is those elements of an arena.
func (s span) of(arena *tensor.Tensor) (*tensor.Tensor, error) {
	return arena.Narrow(0, s.begin, s.size())
}

// replicas are those of a job that this rank computes, first .. last-1 of `count`, and how their gradients are added up.
// Micro-batch m of an update belongs to replica m mod count.
//
// Each replica's gradient comes to stand in the model's arena, as that of a training without replicas does. Sums that
// wait for later replicas lie aside, so that which sum is added to which is a function of `count` alone: the tree of
// cuda.ReplicaMerges.
type replicas struct {
	count, first, last int
	comm               *cuda.Comm // to the ranks that have the others; nil where this one has all
	updates            span       // what this rank updates of the parameters

	gradients *tensor.Tensor // f32 [n]
	aside     *tensor.Tensor // f32 [most at once, n]; nil where none ever waits
	merges    []int          // after each replica
	left      int            // sums aside after the last one
}

// newReplicas makes room for the sums of the replicas that a rank has; comm may be nil, which is a rank alone.
func newReplicas(m *model.MoETransformer, count int, comm *cuda.Comm) (*replicas, error) {
	rank, ranks := 0, 1
	if comm != nil {
		rank, ranks = comm.Rank(), comm.Ranks()
	}
	if ranks == 1 {
		comm = nil
	}
	if ranks > count {
		return nil, fmt.Errorf("%d ranks share out replicas: replicas must be at least %d, and is %d", ranks, ranks, count)
	}
	shared, err := shardOf(count, 1, rank, ranks)
	if err != nil {
		return nil, err
	}
	r := &replicas{count: count, first: shared.begin, last: shared.end, comm: comm, gradients: m.Gradients.Data}
	if r.updates, err = shardOf(m.Layout.Size, Grain, rank, ranks); err != nil {
		return nil, err
	}
	waiting, most := 0, 0
	for replica := r.first; replica < r.last; replica++ {
		merges, err := cuda.ReplicaMerges(int64(count), int64(r.first), int64(replica))
		if err != nil {
			return nil, err
		}
		r.merges = append(r.merges, int(merges))
		if waiting -= int(merges); replica+1 < r.last {
			waiting++
			most = max(most, waiting)
		}
	}
	r.left = waiting
	if most == 0 {
		return r, nil
	}
	r.aside, err = tensor.New(m.Context(), cuda.F32, most, m.Layout.Size)
	return r, err
}

func shardOf(count, grain, rank, ranks int) (span, error) {
	begin, end, err := cuda.Shard(int64(count), int64(grain), int64(ranks), int64(rank))
	return span{int(begin), int(end)}, err
}

func (r *replicas) close() error {
	if r == nil {
		return nil
	}
	return r.aside.Close()
}

// own lists this rank's micro-batches among `count`, in ascending order.
func (r *replicas) own(count int) []int {
	var own []int
	for at := range count {
		if replica := at % r.count; r.first <= replica && replica < r.last {
			own = append(own, at)
		}
	}
	return own
}

// run calls `gradient` for this rank's micro-batches among `count`, replica by replica, the first of each with
// `accumulate` false, and adds the replicas' gradients up.
func (r *replicas) run(p *layer.Pass, count int, gradient func(at int, accumulate bool)) {
	waiting := 0
	top := func() *tensor.Tensor { return p.View(p.Narrow(r.aside, 0, waiting, 1), r.gradients.Size()) }
	for replica := r.first; replica < r.last; replica++ {
		for at := replica; at < count; at += r.count {
			gradient(at, at != replica)
		}
		for range r.merges[replica-r.first] {
			waiting--
			older := top()
			p.Check(tensor.Add(older, r.gradients, r.gradients))
		}
		if replica+1 < r.last {
			p.Check(top().Copy(r.gradients))
			waiting++
		}
	}
}

// tell gives all ranks the losses, f32 of which each rank has its own and else zeros.
func (r *replicas) tell(losses ...*tensor.Tensor) error {
	if r.comm == nil {
		return nil
	}
	for _, each := range losses {
		if err := r.comm.AllReduce(each.Memory(), int64(each.Size())); err != nil {
			return err
		}
	}
	return nil
}

// reduce makes the gradients that this rank updates with the sums over all replicas.
func (r *replicas) reduce() error {
	if r.comm == nil {
		return nil
	}
	var aside cuda.Memory
	if r.left > 0 {
		aside = r.aside.Memory()
	}
	n := int64(r.gradients.Size())
	return r.comm.ReduceScatter(aside, r.gradients.Memory(), n, int64(r.left), Grain, int64(r.count), 0, n)
}

// norm gives that of all gradients, f32 [1].
func (r *replicas) norm(norm *tensor.Tensor) error {
	if r.comm == nil {
		return tensor.GradNorm(r.gradients, norm)
	}
	return r.comm.GradNorm(r.gradients.Memory(), norm.Memory(), int64(r.gradients.Size()), Grain)
}

// gather gives all ranks all of an arena, of which each has what it updates.
func (r *replicas) gather(arena *tensor.Tensor) error {
	if r.comm == nil {
		return nil
	}
	return r.comm.AllGather(arena.Memory(), arena.Bytes(), Grain*int64(arena.DType().Size()))
}

// total is the sum of a whole number over all ranks.
func (r *replicas) total(own int) (int, error) {
	if r.comm == nil {
		return own, nil
	}
	sum, err := r.comm.Sum(int64(own))
	return int(sum), err
}
