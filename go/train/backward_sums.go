package train

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// underWay is how many pieces travel at a time: one arrives while the next is sent.
const underWay = 2

// backwardSums bring what each rank updates of the gradients to it, piece by piece, as a backward pass completes them: that
// of the last micro-batch of a rank's last replica calls next, once a piece. Of the sums over all replicas no bit depends
// on when they are made.
type backwardSums struct {
	comm         *cuda.Comm // to all ranks, which is busy while others may be used
	replicas     *replicas
	pieces       [][]model.Span
	shards       [][]cuda.RankShard // of each piece
	rooms        [underWay]*tensor.Tensor
	begun, ended int // pieces of this step
}

// newBackwardSums makes room for what arrives. All ranks of the communicator of `r` call it.
func newBackwardSums(layout *model.Layout, r *replicas) (*backwardSums, error) {
	comm, err := r.comm.Part(0, 1, r.comm.Ranks())
	if err != nil {
		return nil, err
	}
	s := &backwardSums{comm: comm, replicas: r, pieces: layout.BackwardPieces()}
	largest := int64(0)
	for _, piece := range s.pieces {
		shards := r.held.InAll(piece)
		room, err := comm.ReduceScatterRoom(int64(layout.Size), int64(r.left), int64(r.count), shards, r.wire)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.shards, largest = append(s.shards, shards), max(largest, room)
	}
	for at := range s.rooms {
		if s.rooms[at], err = tensor.New(comm.Context(), cuda.F32, int(largest)); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
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
	s.replicas.add(p, s.replicas.last-1, s.pieces[s.begun])
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
	return s.half(s.ended-1, s.comm.ReduceScatterEnd)
}

// half does one half of what becomes of a piece.
func (s *backwardSums) half(
	piece int,
	do func(partials, x cuda.Memory, n, parts, replicas int64, shards []cuda.RankShard, wire cuda.DType,
		room cuda.Memory, roomSize int64) error,
) error {
	r, room := s.replicas, s.rooms[piece%underWay]
	return do(r.partials(), r.gradients.Memory(), int64(r.gradients.Size()), int64(r.left), int64(r.count),
		s.shards[piece], r.wire, room.Memory(), int64(room.Size()))
}
