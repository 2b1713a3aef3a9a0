package train

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// replicas are those of a job that this rank computes, first .. last-1 of `count`, and how their gradients are added up.
// Micro-batch m of an update belongs to replica m mod count.
//
// Each replica's gradient comes to stand in the model's arena, as that of a training without replicas does. Sums that
// wait for later replicas lie aside, so that which sum is added to which is a function of `count` alone: the tree of
// cuda.ReplicaMerges. So it is with all gradients, but for those of experts that are shared out over ranks: `experts` has
// these.
//
// Each replica's gradient, and each sum but that of all, is rounded to `wire` when it is complete, so that it may travel
// in it; f32 rounds nothing. Whether it travels decides no bit.
type replicas struct {
	count, first, last int
	comm               *cuda.Comm  // to the ranks that have the others; nil where this one has all
	held               *model.Held // what this rank updates of the parameters, and the others
	wire               cuda.DType

	gradients *tensor.Tensor   // f32 [n]
	shards    []cuda.RankShard // of what is added up here of the gradients, held.Dense
	moves     []cuda.Move      // that bring updated weights to all that compute with them
	aside     *tensor.Tensor   // f32 [most at once, n], of which held.Dense are memory; nil where none ever waits
	waiting   []int            // sums aside before each replica is added, and
	merges    []int            // how many of them it takes
	left      int              // sums aside after the last one
	experts   *expertSums      // nil where all experts are here
	sums      *backwardSums    // nil where they are not, and on a rank alone
}

// newReplicas makes room for the sums of the replicas that a rank has; comm may be nil, which is a rank alone.
func newReplicas(m *model.MoETransformer, config Config, comm *cuda.Comm) (*replicas, error) {
	count, rank, ranks := config.Replicas, 0, 1
	if comm != nil {
		rank, ranks = comm.Rank(), comm.Ranks()
	}
	if ranks == 1 {
		comm = nil
	}
	if err := config.CheckRanks(ranks); err != nil {
		return nil, err
	}
	shared, err := runOf(count, rank, ranks)
	if err != nil {
		return nil, err
	}
	r := &replicas{count: count, first: shared.Begin, last: shared.End, comm: comm, held: m.Held,
		wire: config.ReduceDType.DType(), gradients: m.Gradients.Data}
	if r.held == nil { // the model was made for a rank alone
		if r.held, err = model.NewHeld(m.Layout, rank, ranks, 1); err != nil {
			return nil, err
		}
	}
	waiting, merges, most, left, err := mergesOf(count, shared)
	if err != nil {
		return nil, err
	}
	r.waiting, r.merges, r.left = waiting, merges, left
	r.shards, r.moves = r.held.InDense(), r.held.WeightMoves(m.Weights.Data.DType().Size())
	if most > 0 {
		if r.aside, err = newAside(m, most, r.held.Dense); err != nil {
			return nil, err
		}
	}
	if r.experts, err = newExpertSums(m, config, r.held); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// newAside makes room for so many sums, of which only spans are memory where the experts are shared out.
func newAside(m *model.MoETransformer, count int, spans []model.Span) (*tensor.Tensor, error) {
	if m.Experts == nil {
		return tensor.New(m.Context(), cuda.F32, count, m.Layout.Size)
	}
	var parts [][2]int
	for at := range count {
		for _, span := range spans {
			parts = append(parts, [2]int{at*m.Layout.Size + span.Begin, at*m.Layout.Size + span.End})
		}
	}
	return tensor.NewParts(m.Context(), cuda.F32, parts, count, m.Layout.Size)
}

// mergesOf says how the sums of a run of the replicas wait: how many are aside before each replica, to how many of them it
// is added, how many there are at once, and how many are left aside behind the last replica.
func mergesOf(count int, run model.Span) (waiting, merges []int, most, left int, err error) {
	for replica := run.Begin; replica < run.End; replica++ {
		taken, err := cuda.ReplicaMerges(int64(count), int64(run.Begin), int64(replica))
		if err != nil {
			return nil, nil, 0, 0, err
		}
		waiting, merges = append(waiting, left), append(merges, int(taken))
		if left -= int(taken); replica+1 < run.End {
			left++
			most = max(most, left)
		}
	}
	return waiting, merges, most, left, nil
}

// runOf gives the run of `count` replicas that is the part `part` of so many.
func runOf(count, part, parts int) (model.Span, error) {
	begin, end, err := cuda.Shard(int64(count), 1, int64(parts), int64(part))
	return model.Span{Begin: int(begin), End: int(end)}, err
}

func (r *replicas) close() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.sums.close(), r.experts.close(), r.aside.Close())
}

// join makes what brings the gradients to the ranks that update them. All ranks call it, which have agreed that they mean
// the same. Rows of experts travel beside these sums, and two communicators of NCCL that are busy at a time may wait for
// each other's place on a GPU: there the sums are made after the last pass.
func (r *replicas) join(m *model.MoETransformer) (err error) {
	if r.comm == nil {
		return nil
	}
	if kind, _ := r.comm.Context().Device(); r.experts == nil || kind == cuda.CPU {
		r.sums, err = newBackwardSums(m, r)
	}
	return err
}

// bytes is the memory of the sums that wait, of those of experts, and of what arrives of others.
func (r *replicas) bytes() int {
	bytes := r.experts.bytes() + r.sums.bytes()
	if r.aside != nil {
		for _, span := range r.held.Dense {
			bytes += r.aside.Dim(0) * span.Size() * r.aside.DType().Size()
		}
	}
	return bytes
}

// bytesSent is what this rank has sent to others so far.
func (r *replicas) bytesSent() (int64, error) {
	if r.comm == nil {
		return 0, nil
	}
	sent, err := r.comm.BytesSent()
	if err != nil {
		return 0, err
	}
	inBackward, err := r.sums.bytesSent()
	if err != nil {
		return 0, err
	}
	ofExperts, err := r.experts.bytesSent()
	return sent + inBackward + ofExperts, err
}

// place is the rank among how many.
func (r *replicas) place() (rank, ranks int) {
	if r.comm == nil {
		return 0, 1
	}
	return r.comm.Rank(), r.comm.Ranks()
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

// inOrder lists this rank's micro-batches among `count` in the order in which they run: replica by replica.
func (r *replicas) inOrder(count int) []int {
	var order []int
	for replica := r.first; replica < r.last; replica++ {
		for at := replica; at < count; at += r.count {
			order = append(order, at)
		}
	}
	return order
}

// add adds to spans of the gradient of an own replica, which are complete, the sums that wait for them, and puts the sum
// aside for a later one.
func (r *replicas) add(p *layer.Pass, replica int, spans []model.Span) {
	if r.count > 1 {
		r.round(p, spans)
	}
	waiting := r.waiting[replica-r.first]
	for range r.merges[replica-r.first] {
		waiting--
		r.each(p, waiting, spans, func(older, sum *tensor.Tensor) error { return tensor.Add(older, sum, sum) })
		if all := r.comm == nil && replica+1 == r.count && waiting == 0; !all {
			r.round(p, spans)
		}
	}
	if replica+1 < r.last {
		r.each(p, waiting, spans, func(aside, sum *tensor.Tensor) error { return aside.Copy(sum) })
	}
}

// round rounds spans of the gradients to what they travel in.
func (r *replicas) round(p *layer.Pass, spans []model.Span) {
	for _, span := range spans {
		r.roundSum(p, p.Narrow(r.gradients, 0, span.Begin, span.Size()))
	}
}

// roundSum rounds a sum to what it travels in.
func (r *replicas) roundSum(p *layer.Pass, sum *tensor.Tensor) {
	if r.wire != cuda.F32 {
		p.Check(tensor.Round(sum, sum, r.wire))
	}
}

// each calls `do` with what sum `at` of those aside, and the gradients, have of each span.
func (r *replicas) each(p *layer.Pass, at int, spans []model.Span, do func(aside, sum *tensor.Tensor) error) {
	all := p.View(p.Narrow(r.aside, 0, at, 1), r.gradients.Size())
	for _, span := range spans {
		p.Check(do(p.Narrow(all, 0, span.Begin, span.Size()), p.Narrow(r.gradients, 0, span.Begin, span.Size())))
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
	if err := r.reduceDense(); err != nil || r.experts == nil {
		return err
	}
	if err := r.experts.reduce(r.gradients); err != nil {
		return err
	}
	return r.move(r.gradients, r.experts.gradients)
}

// reduceDense is reduce of all but experts that ranks share out.
func (r *replicas) reduceDense() error {
	if r.sums != nil {
		return r.sums.finish()
	}
	return r.comm.ReduceScatter(r.partials(), r.gradients.Memory(), int64(r.gradients.Size()), int64(r.left),
		int64(r.count), r.shards, r.wire)
}

// partials are the sums that are left aside.
func (r *replicas) partials() cuda.Memory {
	if r.left == 0 {
		return cuda.Memory{}
	}
	return r.aside.Memory()
}

// norm gives that of all gradients, f32 [1].
func (r *replicas) norm(norm *tensor.Tensor) error {
	if r.comm == nil {
		return tensor.GradNorm(r.gradients, norm)
	}
	return r.comm.GradNorm(r.gradients.Memory(), norm.Memory(), int64(r.gradients.Size()), r.held.Shards)
}

// gather gives all ranks all that they compute with of an arena, of which each has what it updates.
func (r *replicas) gather(arena *tensor.Tensor) error {
	return r.move(arena, r.held.WeightMoves(arena.DType().Size()))
}

// move makes moves in an arena.
func (r *replicas) move(arena *tensor.Tensor, moves []cuda.Move) error {
	if r.comm == nil {
		return nil
	}
	return r.comm.Move(arena.Memory(), arena.Bytes(), moves)
}

// total is the sum of a whole number over all ranks.
func (r *replicas) total(own int) (int, error) {
	if r.comm == nil {
		return own, nil
	}
	sum, err := r.comm.Sum(int64(own))
	return int(sum), err
}
