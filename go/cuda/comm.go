package cuda

/*
#include <stdlib.h>
#include "calls_gen.h"
*/
import "C"

import (
	"runtime"
	"slices"
	"time"
	"unsafe"
)

// A Comm is a communicator: one of the ranks that work on a job, each with a context of its own.
//
// All ranks make the same calls on it, in the same order and with the same sizes, and wait for each other. Those that
// take memory are queued and captured like kernels. The error is [ErrPeer] when another rank failed, left, hung or does
// not match this one; the communicator is then lost.
//
// A program that joins one over MPI must end by [Exit], or its launcher takes the end of it for that of the job.
type Comm struct {
	ctx         *Context
	handle      *handle
	cleanup     runtime.Cleanup
	rank, ranks int
}

// Launched stands for the rank and the number of ranks that the launcher tells, with MPI and NCCL.
const Launched = -1

// NewComm joins a communicator as one of so many ranks; it returns when all have. `address` is with [TransportThreads] a
// name under which the ranks meet, with [TransportNCCL] HOST:PORT of rank 0, or "" where the launcher tells. After
// `timeout` without an answer a rank counts as lost; 0 waits for ever.
func (ctx *Context) NewComm(transport Transport, address string, rank, ranks int, timeout time.Duration) (*Comm, error) {
	comm := &Comm{ctx: ctx}
	milliseconds := (timeout + time.Millisecond - 1) / time.Millisecond
	return comm.join("nncuda_comm_create", func(in *core, pointer **C.nncuda_comm) C.int32_t {
		text, length := textOf(address)
		return C.call_nncuda_comm_create(in.handle, C.int32_t(transport), text, length, C.int64_t(rank), C.int64_t(ranks),
			C.int64_t(milliseconds), pointer)
	})
}

// Exit ends the program as C's exit does, which os.Exit and the end of main do not: what libraries have left to do is done,
// such as to take leave of other ranks.
func Exit(code int) { C.exit(C.int(code)) }

// Split makes a new communicator of the ranks that give the same color, in the order of `key`, then of their ranks.
func (c *Comm) Split(color, key int) (*Comm, error) {
	return (&Comm{ctx: c.ctx}).join("nncuda_comm_split", func(in *core, pointer **C.nncuda_comm) C.int32_t {
		return C.call_nncuda_comm_split(in.handle, c.pointer(), C.int64_t(color), C.int64_t(key), pointer)
	})
}

// Part makes a new communicator of `count` ranks, `step` apart, from `first` on, of which this rank is one. Only they
// call it.
func (c *Comm) Part(first, step, count int) (*Comm, error) {
	return (&Comm{ctx: c.ctx}).join("nncuda_comm_part", func(in *core, pointer **C.nncuda_comm) C.int32_t {
		return C.call_nncuda_comm_part(in.handle, c.pointer(), C.int64_t(first), C.int64_t(step), C.int64_t(count), pointer)
	})
}

// join takes what `make` makes, and learns its rank.
func (c *Comm) join(function string, make func(in *core, pointer **C.nncuda_comm) C.int32_t) (*Comm, error) {
	var pointer *C.nncuda_comm
	var rank, ranks C.int64_t
	err := c.ctx.call(function, func(in *core) C.int32_t {
		in.drain()
		status := make(in, &pointer)
		if status == 0 {
			status = C.call_nncuda_comm_rank(in.handle, pointer, &rank, &ranks)
		}
		return status
	})
	if err != nil {
		return nil, err
	}
	c.handle, c.rank, c.ranks = &handle{commHandle, unsafe.Pointer(pointer)}, int(rank), int(ranks)
	c.cleanup = runtime.AddCleanup(c, c.ctx.core.late.add, late{handle: c.handle})
	return c, nil
}

// textOf is a text as C takes it, with its length.
func textOf(text string) (*C.char, C.int64_t) {
	return (*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.int64_t(len(text))
}

func (c *Comm) pointer() *C.nncuda_comm { return (*C.nncuda_comm)(c.handle.pointer) }

// Rank is which of the ranks this is, from 0.
func (c *Comm) Rank() int { return c.rank }

// Ranks is how many there are.
func (c *Comm) Ranks() int { return c.ranks }

// Context is the context that the communicator belongs to.
func (c *Comm) Context() *Context { return c.ctx }

// enter takes the context's lock for a call on the communicator.
func (c *Comm) enter() *core {
	in := c.ctx.enter()
	if c.handle.pointer == nil {
		in.closedHandle("communicator")
	}
	if in.capture != nil {
		in.capture.comms = append(in.capture.comms, c)
	}
	return in
}

// Close leaves the communicator, without waiting for the other ranks. Closing twice is fine, and so is closing nil.
func (c *Comm) Close() error {
	if c == nil {
		return nil
	}
	core := c.ctx.core
	core.mu.Lock()
	defer core.mu.Unlock()
	c.cleanup.Stop()
	return c.handle.destroy(core)
}

// Abort tells the other ranks that this one cannot go on: what they do here, now or later, fails with the reason.
func (c *Comm) Abort(reason string) error {
	in := c.enter()
	return in.finish("nncuda_comm_abort", func(in *core) C.int32_t {
		text, length := textOf(reason)
		return C.call_nncuda_comm_abort(in.handle, c.pointer(), text, length)
	})
}

// Agree is [ErrPeer] on all ranks unless all give the same value. The sentence says that it is `what` differs.
func (c *Comm) Agree(what, value string) error {
	in := c.enter()
	return in.finish("nncuda_comm_agree", func(in *core) C.int32_t {
		text, length := textOf(what)
		bytes, count := textOf(value)
		return C.call_nncuda_comm_agree(in.handle, c.pointer(), text, length, unsafe.Pointer(bytes), count)
	})
}

// Sum is the sum of the ranks' values.
func (c *Comm) Sum(value int64) (int64, error) {
	in := c.enter()
	var total C.int64_t
	err := in.finish("nncuda_comm_sum", func(in *core) C.int32_t {
		return C.call_nncuda_comm_sum(in.handle, c.pointer(), C.int64_t(value), &total)
	})
	return int64(total), err
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier() error {
	in := c.enter()
	return in.finish("nncuda_comm_barrier", func(in *core) C.int32_t {
		return C.call_nncuda_comm_barrier(in.handle, c.pointer())
	})
}

// BytesSent is how many bytes this rank gave the transport for other ranks so far.
func (c *Comm) BytesSent() (int64, error) {
	in := c.enter()
	var bytes C.int64_t
	err := in.finish("nncuda_comm_bytes_sent", func(in *core) C.int32_t {
		return C.call_nncuda_comm_bytes_sent(in.handle, c.pointer(), &bytes)
	})
	return int64(bytes), err
}

// span is the address of `bytes` bytes of device memory for a call.
func (c *core) span(name string, m Memory, bytes int64) C.uintptr_t {
	c.within(name, m, bytes)
	c.onDevice(name, m)
	return c.at(name, m)
}

// Broadcast gives all ranks the bytes at x of the rank `root`.
func (c *Comm) Broadcast(x Memory, bytes int64, root int) error {
	in := c.enter()
	place := in.span("x", x, bytes)
	return in.finish("nncuda_comm_broadcast", func(in *core) C.int32_t {
		return C.call_nncuda_comm_broadcast(in.handle, c.pointer(), place, C.int64_t(bytes), C.int64_t(root))
	})
}

// AllGather gives all ranks each rank's [Shard] of the bytes at x.
func (c *Comm) AllGather(x Memory, bytes, grain int64) error {
	in := c.enter()
	place := in.span("x", x, bytes)
	return in.finish("nncuda_comm_all_gather", func(in *core) C.int32_t {
		return C.call_nncuda_comm_all_gather(in.handle, c.pointer(), place, C.int64_t(bytes), C.int64_t(grain))
	})
}

// AllReduce makes each of n f32 at x the sum over the ranks, in their order: for few numbers of which at most one rank's
// is not zero.
func (c *Comm) AllReduce(x Memory, n int64) error {
	in := c.enter()
	place := in.span("x", x, 4*n)
	return in.finish("nncuda_comm_all_reduce", func(in *core) C.int32_t {
		return C.call_nncuda_comm_all_reduce(in.handle, c.pointer(), place, C.int64_t(n))
	})
}

// A RankShard is elements Begin .. End-1 of an arena, which are those of a rank.
type RankShard struct{ Begin, End, Rank int64 }

// numbersOf are shards as C takes them, with how many there are.
func numbersOf(shards []RankShard) (*C.int64_t, C.int64_t) {
	return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(shards))), C.int64_t(len(shards))
}

// ReduceScatter makes of n f32 at x the own ones of `shards`, which are in ascending order and the same on all ranks, the
// sums over all replicas; the rest takes no part. `partials` are the `parts` sums of n f32 that [ReplicaMerges] left aside
// on this rank, the oldest first, and x the last. What is given, and all sums but the last of each, travel and are rounded
// to `wire`: [F32], [F16] or [BF16].
func (c *Comm) ReduceScatter(partials, x Memory, n, parts, replicas int64, shards []RankShard, wire DType) error {
	in := c.enter()
	aside, last := in.span("partials", partials, 4*n*parts), in.span("x", x, 4*n)
	return in.finish("nncuda_comm_reduce_scatter", func(in *core) C.int32_t {
		numbers, count := numbersOf(shards)
		return C.call_nncuda_comm_reduce_scatter(in.handle, c.pointer(), aside, last, C.int64_t(n), C.int64_t(parts),
			C.int64_t(replicas), numbers, count, C.int32_t(wire))
	})
}

// ReduceScatterRoom is how many f32 [Comm.ReduceScatterBegin] needs for what arrives.
func (c *Comm) ReduceScatterRoom(n, parts, replicas int64, shards []RankShard, wire DType) (int64, error) {
	in := c.enter()
	var size C.int64_t
	err := in.finish("nncuda_comm_reduce_scatter_room", func(in *core) C.int32_t {
		numbers, count := numbersOf(shards)
		return C.call_nncuda_comm_reduce_scatter_room(in.handle, c.pointer(), C.int64_t(n), C.int64_t(parts),
			C.int64_t(replicas), numbers, count, C.int32_t(wire), &size)
	})
	return int64(size), err
}

// ReduceScatterBegin is the first half of [Comm.ReduceScatter]: what travels is sent beside what the context does from now
// on. [Comm.ReduceScatterEnd] with the same arguments is the second; until then what takes part of partials and x, and
// room, f32 [roomSize], belong to it. Several may be under way, each with a room of its own; they end in the order in
// which they began, and nothing else is done on this communicator meanwhile.
func (c *Comm) ReduceScatterBegin(
	partials, x Memory, n, parts, replicas int64, shards []RankShard, wire DType, room Memory, roomSize int64,
) error {
	in := c.enter()
	aside, last, kept := in.span("partials", partials, 4*n*parts), in.span("x", x, 4*n), in.span("room", room, 4*roomSize)
	return in.finish("nncuda_comm_reduce_scatter_begin", func(in *core) C.int32_t {
		numbers, count := numbersOf(shards)
		return C.call_nncuda_comm_reduce_scatter_begin(in.handle, c.pointer(), aside, last, C.int64_t(n), C.int64_t(parts),
			C.int64_t(replicas), numbers, count, C.int32_t(wire), kept, C.int64_t(roomSize))
	})
}

// ReduceScatterEnd is the second half: it waits for what travels, in stream order, and x is as after [Comm.ReduceScatter].
func (c *Comm) ReduceScatterEnd(
	partials, x Memory, n, parts, replicas int64, shards []RankShard, wire DType, room Memory, roomSize int64,
) error {
	in := c.enter()
	aside, last, kept := in.span("partials", partials, 4*n*parts), in.span("x", x, 4*n), in.span("room", room, 4*roomSize)
	return in.finish("nncuda_comm_reduce_scatter_end", func(in *core) C.int32_t {
		numbers, count := numbersOf(shards)
		return C.call_nncuda_comm_reduce_scatter_end(in.handle, c.pointer(), aside, last, C.int64_t(n), C.int64_t(parts),
			C.int64_t(replicas), numbers, count, C.int32_t(wire), kept, C.int64_t(roomSize))
	})
}

// A Move is of the bytes Begin .. End-1, from one rank to another.
type Move struct{ Begin, End, From, To int64 }

// Move moves pieces of the bytes at x between ranks, each to the same place. All ranks give the same moves.
func (c *Comm) Move(x Memory, bytes int64, moves []Move) error {
	in := c.enter()
	place := in.span("x", x, bytes)
	return in.finish("nncuda_comm_move", func(in *core) C.int32_t {
		numbers := (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(moves)))
		return C.call_nncuda_comm_move(in.handle, c.pointer(), place, C.int64_t(bytes), numbers, C.int64_t(len(moves)))
	})
}

// GradNorm gives the norm of n f32 at grad, of which each rank has its `shards`, those of [ExpertShards]: to the bits of
// [Context.GradNorm]. Only the own ones need be memory.
func (c *Comm) GradNorm(grad, norm Memory, n int64, shards []RankShard) error {
	in := c.enter()
	from, to := in.span("grad", grad, 4*n), in.span("norm", norm, 4)
	return in.finish("nncuda_comm_grad_norm", func(in *core) C.int32_t {
		numbers, count := numbersOf(shards)
		return C.call_nncuda_comm_grad_norm(in.handle, c.pointer(), from, to, C.int64_t(n), numbers, count)
	})
}

// Dispatch sends the rows at x, in the order of experts, to the ranks that have these: each of `ranks` has `own`
// neighbouring ones. `offsets` are i32 [ranks*own+1], the first row of each expert; a rank without rows gives no memory for
// both. Of each rank this one gets the rows for its own experts, into a slot of y [ranks, slotRows] from the start of it,
// and yOffsets i32 [ranks, own+1] become the first row of each expert there. The rest of a slot stays.
func (c *Comm) Dispatch(x, offsets, y, yOffsets Memory, rows, slotRows, rowBytes, ranks, own int64) error {
	in := c.enter()
	p := in.exchange(x, offsets, y, yOffsets, rows, slotRows, rowBytes, ranks, own)
	return in.finish("nncuda_comm_dispatch", func(in *core) C.int32_t {
		return C.call_nncuda_comm_dispatch(in.handle, c.pointer(), p.x, p.offsets, p.y, p.yOffsets, C.int64_t(rows),
			C.int64_t(slotRows), C.int64_t(rowBytes), C.int64_t(ranks), C.int64_t(own))
	})
}

// Collect is the way back of [Comm.Dispatch]: the rows of each slot of y go to their rank, to the places at x that they
// came from.
func (c *Comm) Collect(y, yOffsets, x, offsets Memory, rows, slotRows, rowBytes, ranks, own int64) error {
	in := c.enter()
	p := in.exchange(x, offsets, y, yOffsets, rows, slotRows, rowBytes, ranks, own)
	return in.finish("nncuda_comm_collect", func(in *core) C.int32_t {
		return C.call_nncuda_comm_collect(in.handle, c.pointer(), p.y, p.yOffsets, p.x, p.offsets, C.int64_t(rows),
			C.int64_t(slotRows), C.int64_t(rowBytes), C.int64_t(ranks), C.int64_t(own))
	})
}

// DispatchBegin is [Comm.Dispatch] beside what the context does from now on: the slot of this rank is there, for any other
// [Comm.DispatchEnd] waits. Of those, the rank one before this one comes first, then the one before that. With `known`
// yOffsets are those of an earlier dispatch with the same offsets on all ranks. Until [Comm.CollectEnd], x and y belong to
// what travels, and nothing else is done on this communicator.
func (c *Comm) DispatchBegin(
	x, offsets, y, yOffsets Memory, rows, slotRows, rowBytes, ranks, own int64, known bool,
) error {
	in := c.enter()
	p := in.exchange(x, offsets, y, yOffsets, rows, slotRows, rowBytes, ranks, own)
	var there C.int32_t
	if known {
		there = 1
	}
	return in.finish("nncuda_comm_dispatch_begin", func(in *core) C.int32_t {
		return C.call_nncuda_comm_dispatch_begin(in.handle, c.pointer(), p.x, p.offsets, p.y, p.yOffsets, C.int64_t(rows),
			C.int64_t(slotRows), C.int64_t(rowBytes), C.int64_t(ranks), C.int64_t(own), there)
	})
}

// DispatchEnd waits for the rows of the rank `source`, and for all that come before them.
func (c *Comm) DispatchEnd(y Memory, slotRows, rowBytes, ranks, source int64) error {
	in := c.enter()
	to := in.span("y", y, ranks*slotRows*rowBytes)
	return in.finish("nncuda_comm_dispatch_end", func(in *core) C.int32_t {
		return C.call_nncuda_comm_dispatch_end(in.handle, c.pointer(), to, C.int64_t(slotRows), C.int64_t(rowBytes),
			C.int64_t(ranks), C.int64_t(source))
	})
}

// CollectBegin is [Comm.Collect] of the last [Comm.DispatchBegin], rank by rank: what became of the rows of `source` may go
// back, beside what the context does from now on. x may be what was sent, whose places it takes.
func (c *Comm) CollectBegin(y, x Memory, rows, slotRows, rowBytes, ranks, source int64) error {
	in := c.enter()
	from, to := in.span("y", y, ranks*slotRows*rowBytes), in.span("x", x, rows*rowBytes)
	return in.finish("nncuda_comm_collect_begin", func(in *core) C.int32_t {
		return C.call_nncuda_comm_collect_begin(in.handle, c.pointer(), from, to, C.int64_t(rows), C.int64_t(slotRows),
			C.int64_t(rowBytes), C.int64_t(ranks), C.int64_t(source))
	})
}

// CollectEnd sends back the rows of all ranks that have not gone yet, and waits for those of x.
func (c *Comm) CollectEnd(y, x Memory, rows, slotRows, rowBytes, ranks int64) error {
	in := c.enter()
	from, to := in.span("y", y, ranks*slotRows*rowBytes), in.span("x", x, rows*rowBytes)
	return in.finish("nncuda_comm_collect_end", func(in *core) C.int32_t {
		return C.call_nncuda_comm_collect_end(in.handle, c.pointer(), from, to, C.int64_t(rows), C.int64_t(slotRows),
			C.int64_t(rowBytes), C.int64_t(ranks))
	})
}

// exchanged is the memory of an exchange of rows.
type exchanged struct{ x, offsets, y, yOffsets C.uintptr_t }

// exchange checks it. A rank without rows may have offsets, which are then all 0.
func (c *core) exchange(x, offsets, y, yOffsets Memory, rows, slotRows, rowBytes, ranks, own int64) exchanged {
	entries := ranks*own + 1
	if rows == 0 && offsets.buffer == nil {
		entries = 0
	}
	return exchanged{
		x: c.span("x", x, rows*rowBytes), offsets: c.span("offsets", offsets, 4*entries),
		y: c.span("y", y, ranks*slotRows*rowBytes), yOffsets: c.span("yOffsets", yOffsets, 4*ranks*(own+1)),
	}
}

// Shard gives the elements begin .. end-1 of shard `part` of `parts` into which `count` elements are cut, in whole
// grains; the last grain may be shorter.
func Shard(count, grain, parts, part int64) (begin, end int64, err error) {
	if err := Load(); err != nil {
		return 0, 0, err
	}
	var from, to C.int64_t
	status := C.call_nncuda_shard(C.int64_t(count), C.int64_t(grain), C.int64_t(parts), C.int64_t(part), &from, &to)
	return int64(from), int64(to), withoutContext("nncuda_shard", Status(status))
}

// ExpertShards says which rank updates which of n elements, in ascending order without gaps, cut at multiples of `grain`.
// `group` neighbouring ranks hold the `experts` together: of each of these stacks, the first element and the one after the
// last, in ascending order, the rank q of a group has part q. Whole grains of such a part go to the ranks that have it,
// all others to all ranks. With group 1 the elements are cut where stacks begin and end, at the grain below, but only into
// pieces of 16 grains a rank and more, and each piece is cut by [Shard].
func ExpertShards(n, grain, ranks, group int64, experts [][2]int64) ([]RankShard, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	var count C.int64_t
	ask := func(shards []RankShard) error {
		stacks := (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(experts)))
		numbers, capacity := numbersOf(shards)
		status := C.call_nncuda_expert_shards(C.int64_t(n), C.int64_t(grain), C.int64_t(ranks), C.int64_t(group), stacks,
			C.int64_t(len(experts)), numbers, capacity, &count)
		return withoutContext("nncuda_expert_shards", Status(status))
	}
	if err := ask(nil); err != nil {
		return nil, err
	}
	shards := make([]RankShard, count)
	return shards, ask(shards)
}

// ReplicaMerges is how many of the sums that were put aside are added to the gradient of a replica, the newest first, on
// a rank that computes replicas from `first` on; the result is put aside in turn. Summed over all replicas so, gradients
// have the same bits for any number of ranks.
func ReplicaMerges(replicas, first, replica int64) (int64, error) {
	if err := Load(); err != nil {
		return 0, err
	}
	var merges C.int64_t
	status := C.call_nncuda_replica_merges(C.int64_t(replicas), C.int64_t(first), C.int64_t(replica), &merges)
	return int64(merges), withoutContext("nncuda_replica_merges", Status(status))
}

// An ExpertEvent is what becomes of the gradients of a rank's experts, in a round of its group. [ExpertsRun]: those of the
// micro-batch B of the group's rank A go to the slot C, where Accumulate is 1, else 0, they are added to what is there.
// [ExpertsAdd]: slot B is added to slot A, and is free. [ExpertsRound]: slot A has a sum that is complete, but not that
// over all replicas, and is rounded where sums travel rounded. [ExpertsCopy], behind the last round: slot A is copied to
// slot B.
type ExpertEvent struct {
	Round      int
	Kind       ExpertEventKind
	A, B, C    int
	Accumulate int
}

// ExpertSchedule is the order in which the experts' owners in the group of ranks first .. first+group-1 add their
// gradients, and how many slots that takes. In round j each rank of the group runs the j-th of its micro-batches, replica by
// replica; each layer carries out all events of a round in order, in its part of the slots. At the end the sums that are
// left, which [Comm.ReduceScatter] takes, lie in the first slots. With the `position` of a rank in its group, else -1, the
// events of a round are in the order in which rows come to it ([Comm.DispatchBegin]), its own last, as far as each slot
// allows; sums are the same.
func ExpertSchedule(
	replicas, ranks, first, group, microBatches, position int,
) (events []ExpertEvent, slots int, err error) {
	if err := Load(); err != nil {
		return nil, 0, err
	}
	var count, needed C.int64_t
	ask := func(rows []C.int64_t, capacity int) error {
		status := C.call_nncuda_expert_schedule(C.int64_t(replicas), C.int64_t(ranks), C.int64_t(first), C.int64_t(group),
			C.int64_t(microBatches), C.int64_t(position), unsafe.SliceData(rows), C.int64_t(capacity), &count, &needed)
		return withoutContext("nncuda_expert_schedule", Status(status))
	}
	if err = ask(nil, 0); err != nil {
		return nil, 0, err
	}
	rows := make([]C.int64_t, 6*count)
	if err = ask(rows, int(count)); err != nil {
		return nil, 0, err
	}
	for row := range slices.Chunk(rows, 6) {
		events = append(events, ExpertEvent{
			int(row[0]), ExpertEventKind(row[1]), int(row[2]), int(row[3]), int(row[4]), int(row[5]),
		})
	}
	return events, int(needed), nil
}
