package cuda_test

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/ranks"
)

// floats is a buffer of f32, and their bytes.
func floats(t testing.TB, ctx *cuda.Context, values ...float32) *cuda.Buffer {
	t.Helper()
	buffer := must.Get(ctx.Allocate(4 * int64(len(values))))(t)
	must.Do(t, ctx.Upload(buffer.At(0), bytesOf(values)))
	return buffer
}

func bytesOf(values []float32) []byte {
	var bytes []byte
	for _, value := range values {
		bits := math.Float32bits(value)
		bytes = append(bytes, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	return bytes
}

func requireFloats(t testing.TB, of *cuda.Buffer, wanted ...float32) {
	t.Helper()
	found := make([]byte, 4*len(wanted))
	must.Do(t, of.Context().Download(found, of.At(0)))
	if string(found) != string(bytesOf(wanted)) {
		t.Errorf("the bytes are %v, not %v", found, bytesOf(wanted))
	}
}

func TestCollectives(t *testing.T) {
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		ctx, rank := comm.Context(), comm.Rank()
		if comm.Ranks() != 3 || must.Get(comm.Sum(int64(rank)))(t) != 3 {
			t.Errorf("rank %d of %d", rank, comm.Ranks())
		}
		must.Do(t, comm.Agree("step", "7"))
		must.Do(t, comm.Barrier())

		own := []float32{0, 0, 0}
		own[rank] = float32(rank + 1)
		x, root, shared := floats(t, ctx, own...), floats(t, ctx, float32(rank)), floats(t, ctx, own...)
		sums, norm := floats(t, ctx, 1, 2, 3), floats(t, ctx, 0)
		each := must.Get(cuda.ExpertShards(3, 1, 3, 1, nil))(t)
		calls := func() error {
			return errors.Join(
				comm.AllReduce(x.At(0), 3), comm.Broadcast(root.At(0), 4, 2), comm.AllGather(shared.At(0), 12, 4),
				comm.ReduceScatter(cuda.Memory{}, sums.At(0), 3, 0, 3, each, cuda.F32), comm.AllGather(sums.At(0), 12, 4),
				comm.GradNorm(x.At(0), norm.At(0), 3, []cuda.RankShard{{0, 3, 1}}),
			)
		}
		must.Do(t, calls())
		requireFloats(t, x, 1, 2, 3)
		requireFloats(t, root, 2)
		requireFloats(t, shared, 1, 2, 3)
		requireFloats(t, sums, 3, 6, 9)
		requireFloats(t, norm, float32(math.Sqrt(14)))
		if sent := must.Get(comm.BytesSent())(t); sent < 4*8 {
			t.Errorf("rank %d sent %d bytes", rank, sent)
		}

		must.Do(t, ctx.Upload(sums.At(0), bytesOf([]float32{1, 2, 3})))
		must.Do(t, comm.ReduceScatter(cuda.Memory{}, sums.At(0), 3, 0, 3, []cuda.RankShard{{1, 2, 0}, {2, 3, 2}}, cuda.F32))
		requireFloats(t, sums, [][]float32{{1, 6, 3}, {1, 2, 3}, {1, 2, 9}}[rank]...)
		// Of 1 + 2^-9 each, three are 3 + 3/512; in bf16 each is 1, two are 2, and so are all 3.
		for _, of := range []struct {
			wire cuda.DType
			sum  float32
		}{{cuda.F32, 3 + 3.0/512}, {cuda.F16, 3 + 3.0/512}, {cuda.BF16, 3}} {
			must.Do(t, ctx.Upload(sums.At(0), bytesOf([]float32{1 + 1.0/512, 0, 0})))
			must.Do(t, comm.ReduceScatter(cuda.Memory{}, sums.At(0), 3, 0, 3, []cuda.RankShard{{0, 1, 0}}, of.wire))
			if rank == 0 {
				requireFloats(t, sums, of.sum, 0, 0)
			}
		}
		moves := []cuda.Move{{0, 4, 0, 1}, {8, 12, 2, 1}, {4, 8, 0, 2}, {0, 12, 1, 1}}
		must.Do(t, ctx.Upload(sums.At(0), bytesOf([]float32{float32(rank), float32(rank), float32(rank)})))
		must.Do(t, comm.Move(sums.At(0), 12, moves))
		requireFloats(t, sums, [][]float32{{0, 0, 0}, {0, 1, 2}, {2, 0, 2}}[rank]...)

		must.Do(t, ctx.Upload(sums.At(0), bytesOf([]float32{4, 5, 6})))
		graph := must.Get(ctx.Capture(func() error {
			return errors.Join(comm.ReduceScatter(cuda.Memory{}, sums.At(0), 3, 0, 3, each, cuda.F32), comm.AllGather(sums.At(0), 12, 4))
		}))(t)
		requireFloats(t, sums, 4, 5, 6)
		must.Do(t, graph.Launch())
		must.Do(t, graph.Launch())
		requireFloats(t, sums, 36, 45, 54)
		must.Do(t, graph.Close())

		part := must.Get(comm.Split(rank%2, -rank))(t)
		if wanted := [][2]int{{1, 2}, {0, 1}, {0, 2}}[rank]; part.Rank() != wanted[0] || part.Ranks() != wanted[1] {
			t.Errorf("rank %d is %d of %d in its part", rank, part.Rank(), part.Ranks())
		}
		if rank > 0 {
			pair := must.Get(comm.Part(1, 1, 2))(t)
			if pair.Rank() != rank-1 || pair.Ranks() != 2 || must.Get(pair.Sum(5))(t) != 10 {
				t.Errorf("rank %d is %d of %d in its pair", rank, pair.Rank(), pair.Ranks())
			}
		}
		if _, err := comm.Part(rank+1, 1, 1); !errors.Is(err, cuda.ErrInvalidValue) {
			t.Error(err)
		}
		must.Do(t, part.Close())
		must.Do(t, part.Close())
		if err := part.Barrier(); !errors.Is(err, cuda.ErrInvalidContext) {
			t.Error(err)
		}
	})
}

// Sums in two halves have the bits of those that are waited for; two are under way at once, and others are captured.
func TestSumsThatAreBegun(t *testing.T) {
	const replicas, elements = 5, 6
	pieces := [][]cuda.RankShard{{{4, 5, 2}, {5, 6, 0}}, {{2, 3, 1}, {3, 4, 0}}, {{0, 1, 0}, {1, 2, 1}}}
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		ctx, rank := comm.Context(), comm.Rank()
		first, end, err := cuda.Shard(replicas, 1, 3, int64(rank))
		must.Do(t, err)
		left := int64(0) // sums of these replicas, of which all but the last are aside
		for replica := first; replica < end; replica++ {
			left += 1 - must.Get(cuda.ReplicaMerges(replicas, first, replica))(t)
		}
		var given []float32
		for at := range left * elements {
			given = append(given, 1+float32(rank)/3+float32(at)/7)
		}
		last := given[(left-1)*elements:]
		var aside cuda.Memory
		if left > 1 {
			aside = floats(t, ctx, given[:(left-1)*elements]...).At(0)
		}
		for _, wire := range []cuda.DType{cuda.F32, cuda.F16, cuda.BF16} {
			x, wanted := floats(t, ctx, last...), floats(t, ctx, last...)
			var rooms [3]*cuda.Buffer
			var sizes [3]int64
			for at, shards := range pieces {
				sizes[at] = must.Get(comm.ReduceScatterRoom(elements, left-1, replicas, shards, wire))(t)
				rooms[at] = must.Get(ctx.Allocate(4 * sizes[at]))(t)
				must.Do(t, comm.ReduceScatter(aside, wanted.At(0), elements, left-1, replicas, shards, wire))
			}
			begin := func(at int) error {
				return comm.ReduceScatterBegin(
					aside, x.At(0), elements, left-1, replicas, pieces[at], wire, rooms[at].At(0), sizes[at])
			}
			end := func(at int) error {
				return comm.ReduceScatterEnd(
					aside, x.At(0), elements, left-1, replicas, pieces[at], wire, rooms[at].At(0), sizes[at])
			}
			calls := func() error {
				return errors.Join(begin(0), begin(1), end(0), begin(2), end(1), end(2))
			}
			bits := make([]byte, 4*elements)
			must.Do(t, ctx.Download(bits, wanted.At(0)))
			requireSums := func(how string) {
				found := make([]byte, 4*elements)
				must.Do(t, ctx.Download(found, x.At(0)))
				if string(found) != string(bits) {
					t.Errorf("rank %d, %v, %s: the bytes are %v, not %v", rank, wire, how, found, bits)
				}
			}
			must.Do(t, calls())
			requireSums("at once")
			must.Do(t, ctx.Upload(x.At(0), bytesOf(last)))
			graph := must.Get(ctx.Capture(calls))(t)
			for range 2 {
				must.Do(t, ctx.Upload(x.At(0), bytesOf(last)))
				must.Do(t, graph.Launch())
				requireSums("captured")
			}
			must.Do(t, graph.Close())
			sizes[0]--
			if err := begin(0); !errors.Is(err, cuda.ErrInvalidSize) || !strings.Contains(err.Error(), "these sums need") {
				t.Error(err)
			}
			if err := end(1); !errors.Is(err, cuda.ErrState) {
				t.Error(err)
			}
		}
		must.Do(t, comm.Barrier())
	})
}

// A graph keeps the communicator of its calls, though nobody else holds it any more.
func TestAGraphKeepsItsCommunicator(t *testing.T) {
	ranks.Run(t, 2, func(comm *cuda.Comm) {
		ctx := comm.Context()
		x := floats(t, ctx, 1)
		part := must.Get(comm.Split(0, comm.Rank()))(t)
		graph := must.Get(ctx.Capture(func() error { return part.Broadcast(x.At(0), 4, 0) }))(t)
		for range 3 {
			runtime.GC()
			_ = must.Get(ctx.BytesUsed())(t) // what finalizers left is freed here
		}
		must.Do(t, graph.Launch())
		must.Do(t, comm.Barrier())
	})
}

func TestRanksThatFail(t *testing.T) {
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		var err error
		if comm.Rank() == 1 {
			must.Do(t, comm.Abort("the disk is full"))
			err = comm.Barrier()
		} else {
			_, err = comm.Sum(1)
		}
		if !errors.Is(err, cuda.ErrPeer) || !strings.Contains(err.Error(), "rank 1: the disk is full") {
			t.Errorf("rank %d: %v", comm.Rank(), err)
		}
	})
	ranks.Run(t, 2, func(comm *cuda.Comm) {
		err := comm.Agree("step", map[int]string{0: "4", 1: "5"}[comm.Rank()])
		if !errors.Is(err, cuda.ErrPeer) || !strings.Contains(err.Error(), "the step of rank 1 (5) is not that of rank 0 (4)") {
			t.Error(err)
		}
	})
	ctx := newContext(t)
	if _, err := ctx.NewComm(cuda.TransportThreads, "nobody else", 0, 2, time.Millisecond); !errors.Is(err, cuda.ErrPeer) {
		t.Error(err)
	}
	if _, err := ctx.NewComm(cuda.TransportSelf, "", 0, 2, 0); !errors.Is(err, cuda.ErrInvalidValue) {
		t.Error(err)
	}
	alone := must.Get(ctx.NewComm(cuda.TransportSelf, "", cuda.Launched, cuda.Launched, 0))(t)
	if err := alone.Broadcast(floats(t, ctx, 1).At(0), 8, 0); !errors.Is(err, cuda.ErrInvalidSize) {
		t.Error(err)
	}
	if _, _, err := cuda.Shard(4, 0, 1, 0); !errors.Is(err, cuda.ErrInvalidValue) {
		t.Error(err)
	}
	if _, err := cuda.ReplicaMerges(4, 2, 1); !errors.Is(err, cuda.ErrInvalidValue) {
		t.Error(err)
	}
}

// Four ranks in groups of two: whole grains of the parts of a stack from 3 to 19 go to the owners, the rest to all.
func TestExpertShards(t *testing.T) {
	shards := must.Get(cuda.ExpertShards(21, 2, 4, 2, [][2]int64{{3, 19}}))(t)
	owned := map[int64]int64{} // by position, of the grains that lie in its part alone
	var end int64
	for _, shard := range shards {
		if shard.Begin != end || shard.End <= shard.Begin || shard.Begin%2 != 0 {
			t.Fatal(shards)
		}
		for grain := shard.Begin; grain < shard.End; grain += 2 {
			for position := range int64(2) {
				if from := 3 + 8*position; grain >= from && grain+2 <= from+8 {
					if owned[position]++; shard.Rank%2 != position {
						t.Errorf("the grain at %d is that of rank %d", grain, shard.Rank)
					}
				}
			}
		}
		end = shard.End
	}
	if end != 21 || owned[0] != 3 || owned[1] != 3 {
		t.Error(shards, owned)
	}
	plain := must.Get(cuda.ExpertShards(21, 2, 3, 1, [][2]int64{{3, 19}}))(t)
	if want := []cuda.RankShard{{0, 6, 0}, {6, 14, 1}, {14, 21, 2}}; !slices.Equal(plain, want) {
		t.Error(plain)
	}
	if _, err := cuda.ExpertShards(21, 2, 4, 3, nil); !errors.Is(err, cuda.ErrInvalidValue) {
		t.Error(err)
	}
}

// Two ranks have two experts each. Rank 1 has no rows of its own in the first exchange.
func TestRowsTravelToTheirExperts(t *testing.T) {
	ranks.Run(t, 2, func(comm *cuda.Comm) {
		ctx, rank := comm.Context(), comm.Rank()
		x, offsets := floats(t, ctx, 1, 2, 3, 4), must.Get(ctx.Allocate(4*5))(t)
		y, yOffsets := floats(t, ctx, make([]float32, 8)...), must.Get(ctx.Allocate(4*6))(t)
		first := must.Get(binary.Append(nil, binary.NativeEndian, []int32{0, 1, 1, 3, 4}))(t)
		must.Do(t, ctx.Upload(offsets.At(0), first))
		from, at, rows := x.At(0), offsets.At(0), int64(4)
		if rank == 1 {
			from, at, rows = cuda.Memory{}, cuda.Memory{}, 0
		}
		must.Do(t, comm.Dispatch(from, at, y.At(0), yOffsets.At(0), rows, 4, 4, 2, 2))
		if rank == 0 {
			requireFloats(t, y, 1, 0, 0, 0, 0, 0, 0, 0)
		} else {
			requireFloats(t, y, 2, 3, 4, 0, 0, 0, 0, 0)
			must.Do(t, ctx.Upload(y.At(0), bytesOf([]float32{20, 30, 40, 0})))
		}
		must.Do(t, comm.Collect(y.At(0), yOffsets.At(0), from, at, rows, 4, 4, 2, 2))
		if rank == 0 {
			requireFloats(t, x, 1, 20, 30, 40)
		}
		if err := comm.Dispatch(from, at, y.At(0), yOffsets.At(0), rows, 5, 4, 2, 2); !errors.Is(err, cuda.ErrInvalidSize) {
			t.Error(err)
		}
	})
}

// The same rows, twice at once, while the context does other things, and back to their places.
func TestRowsTravelBesideOtherWork(t *testing.T) {
	ranks.Run(t, 2, func(comm *cuda.Comm) {
		ctx, rank := comm.Context(), comm.Rank()
		x, offsets := floats(t, ctx, 1, 2, 3, 4), must.Get(ctx.Allocate(4*5))(t)
		y, again := floats(t, ctx, make([]float32, 8)...), floats(t, ctx, make([]float32, 8)...)
		yOffsets := must.Get(ctx.Allocate(4 * 6))(t)
		must.Do(t, ctx.Upload(offsets.At(0), must.Get(binary.Append(nil, binary.NativeEndian, []int32{0, 1, 1, 3, 4}))(t)))
		from, at, rows := x.At(0), offsets.At(0), int64(4)
		if rank == 1 {
			from, at, rows = cuda.Memory{}, cuda.Memory{}, 0
		}
		peer := int64(1 - rank)
		if err := comm.DispatchEnd(y.At(0), 4, 4, 2, peer); !errors.Is(err, cuda.ErrState) {
			t.Error(err)
		}
		must.Do(t, comm.DispatchBegin(from, at, y.At(0), yOffsets.At(0), rows, 4, 4, 2, 2, false))
		must.Do(t, comm.DispatchBegin(from, at, again.At(0), yOffsets.At(0), rows, 4, 4, 2, 2, true))
		must.Do(t, comm.DispatchEnd(again.At(0), 4, 4, 2, peer))
		want := []float32{1, 0, 0, 0, 0, 0, 0, 0}
		if rank == 1 {
			want = []float32{2, 3, 4, 0, 0, 0, 0, 0}
		}
		requireFloats(t, y, want...)
		requireFloats(t, again, want...)
		if rank == 1 {
			must.Do(t, ctx.Upload(again.At(0), bytesOf([]float32{20, 30, 40, 0})))
		}
		must.Do(t, comm.CollectBegin(again.At(0), from, rows, 4, 4, 2, peer))
		must.Do(t, comm.CollectEnd(again.At(0), from, rows, 4, 4, 2))
		if rank == 0 {
			requireFloats(t, x, 1, 20, 30, 40)
		}
	})
}

func TestExpertSchedule(t *testing.T) {
	events, slots, err := cuda.ExpertSchedule(3, 3, 0, 3, 4, -1)
	must.Do(t, err)
	wanted := []cuda.ExpertEvent{
		{0, cuda.ExpertsRun, 0, 0, 0, 0}, {0, cuda.ExpertsRun, 1, 1, 1, 0}, {0, cuda.ExpertsRound, 1, 0, 0, 0},
		{0, cuda.ExpertsRun, 2, 2, 2, 0}, {0, cuda.ExpertsRound, 2, 0, 0, 0},
		{1, cuda.ExpertsRun, 0, 3, 0, 1}, {1, cuda.ExpertsRound, 0, 0, 0, 0},
		{1, cuda.ExpertsAdd, 0, 1, 0, 0}, {1, cuda.ExpertsRound, 0, 0, 0, 0}, {1, cuda.ExpertsAdd, 0, 2, 0, 0},
	}
	if slots != 3 || !slices.Equal(events, wanted) {
		t.Error(events, slots)
	}
	if _, _, err = cuda.ExpertSchedule(3, 4, 0, 2, 4, -1); !errors.Is(err, cuda.ErrInvalidValue) {
		t.Error(err)
	}
}
