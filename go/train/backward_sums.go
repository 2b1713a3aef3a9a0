package train

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// underWay is how many pieces travel at a time: one arrives while the next is sent. The backward pass is at another one.
const underWay = model.PassBuffers - 1

// backwardSums bring what each rank updates of the gradients to it, piece by piece, as a backward pass completes them: that
// of the last micro-batch of a rank's last replica calls next, once a piece; where ranks share experts out, that of the
// last round does, also on a guest, so that what a rank waits for never needs what it has not done itself. Of the sums over
// all replicas no bit depends on when they are made.
type backwardSums struct {
	comm         *cuda.Comm // to all ranks, which is busy while others may be used
	replicas     *replicas
	pieces       []gradientPiece
	rooms        [underWay]*tensor.Tensor
	begun, ended int // pieces of this step
}

// gradientPiece is gradients that are complete at a time.
type gradientPiece struct {
	elements []model.Span        // in the model's arena, but for those of experts that ranks share out
	buffer   *tensor.Tensor      // f32 of their size, which has them; nil where the arena has
	shards   []cuda.RankShard    // which rank updates what, in elements of the buffer, or of the arena
	kept     [][2]*tensor.Tensor // what this rank updates, in the arena, and in the buffer
}

// newBackwardSums makes room for what arrives. All ranks of the communicator of `r` call it.
func newBackwardSums(m *model.MoETransformer, r *replicas) (*backwardSums, error) {
	comm, err := r.comm.Part(0, 1, r.comm.Ranks())
	if err != nil {
		return nil, err
	}
	s := &backwardSums{comm: comm, replicas: r}
	largest := int64(0)
	for number, elements := range m.Layout.BackwardPieces() {
		piece, err := newGradientPiece(m, r, number, elements)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.pieces = append(s.pieces, piece)
		_, size, parts := s.sums(number)
		room, err := comm.ReduceScatterRoom(size, parts, int64(r.count), piece.shards, r.wire)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		largest = max(largest, room)
	}
	for at := range s.rooms {
		if s.rooms[at], err = tensor.New(comm.Context(), cuda.F32, int(largest)); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

func newGradientPiece(
	m *model.MoETransformer, r *replicas, number int, elements model.Span,
) (gradientPiece, error) {
	piece := gradientPiece{elements: r.held.DenseIn(elements)}
	piece.shards = r.held.InAll(piece.elements)
	var err error
	if piece.buffer, err = m.Partitioned.Buffer(number); err != nil || piece.buffer == nil {
		return piece, err
	}
	for at := range piece.shards {
		shard := &piece.shards[at]
		size := int(shard.End - shard.Begin)
		own := model.Span{Begin: int(shard.Begin), End: int(shard.End)}
		shard.Begin -= int64(elements.Begin)
		shard.End -= int64(elements.Begin)
		if int(shard.Rank) != r.comm.Rank() {
			continue
		}
		place, err := own.Of(r.gradients)
		if err != nil {
			return piece, err
		}
		sum, err := piece.buffer.Narrow(0, int(shard.Begin), size)
		if err != nil {
			return piece, err
		}
		piece.kept = append(piece.kept, [2]*tensor.Tensor{place, sum})
	}
	return piece, nil
}

func (s *backwardSums) close() error {
	if s == nil {
		return nil
	}
	var err error
	for _, room := range s.rooms {
		err = errors.Join(err, room.Close())
	}
	return errors.Join(err, s.comm.Close())
}

// bytes is the memory for what arrives.
func (s *backwardSums) bytes() int {
	if s == nil {
		return 0
	}
	return underWay * int(s.rooms[0].Bytes())
}

// bytesSent is what this rank has sent to others so far.
func (s *backwardSums) bytesSent() (int64, error) {
	if s == nil {
		return 0, nil
	}
	return s.comm.BytesSent()
}

// start comes before a step.
func (s *backwardSums) start() {
	if s != nil {
		s.begun, s.ended = 0, 0
	}
}

// next adds to the next piece of the gradients, which is complete, what waits for it on this rank, and sends it.
func (s *backwardSums) next(p *layer.Pass) {
	piece := s.pieces[s.begun]
	if piece.buffer == nil {
		s.replicas.add(p, s.replicas.last-1, piece.elements)
	} else { // of a rank with one replica nothing waits
		s.replicas.roundSum(p, piece.buffer)
	}
	if p.Err() == nil && s.begun-s.ended == underWay {
		p.Check(s.end())
	}
	if p.Err() == nil {
		p.Check(s.half(s.begun, s.comm.ReduceScatterBegin))
	}
	s.begun++
}

// finish waits for what is under way: now all that this rank updates are sums over all replicas.
func (s *backwardSums) finish() error {
	for s.ended < s.begun {
		if err := s.end(); err != nil {
			return err
		}
	}
	return nil
}

// end waits for the piece that has been under way for longest.
func (s *backwardSums) end() error {
	s.ended++
	if err := s.half(s.ended-1, s.comm.ReduceScatterEnd); err != nil {
		return err
	}
	for _, kept := range s.pieces[s.ended-1].kept {
		if err := kept[0].Copy(kept[1]); err != nil {
			return err
		}
	}
	return nil
}

// sums gives what has the gradients of a piece, how many elements it has, and how many sums lie aside.
func (s *backwardSums) sums(piece int) (x *tensor.Tensor, size, parts int64) {
	if buffer := s.pieces[piece].buffer; buffer != nil {
		return buffer, int64(buffer.Size()), 0
	}
	gradients := s.replicas.gradients
	return gradients, int64(gradients.Size()), int64(s.replicas.left)
}

// half does one half of what becomes of a piece.
func (s *backwardSums) half(
	piece int,
	do func(partials, x cuda.Memory, n, parts, replicas int64, shards []cuda.RankShard, wire cuda.DType,
		room cuda.Memory, roomSize int64) error,
) error {
	r, room := s.replicas, s.rooms[piece%underWay]
	x, size, parts := s.sums(piece)
	return do(r.partials(), x.Memory(), size, parts, int64(r.count), s.pieces[piece].shards, r.wire, room.Memory(),
		int64(room.Size()))
}
