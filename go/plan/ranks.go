package plan

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// Seat is which rank of how many a plan is for, and how many of them share out the experts.
type Seat struct{ Rank, Ranks, ExpertParallel int }

// Alone is the seat of a run on one rank.
var Alone = Seat{0, 1, 1}

// SeatOf is the seat of a rank; comm may be nil, which is a rank alone.
func SeatOf(comm *cuda.Comm, expertParallel int) Seat {
	if comm == nil {
		return Seat{0, 1, expertParallel}
	}
	return Seat{comm.Rank(), comm.Ranks(), expertParallel}
}

// Ranks is what ranks need that train together. Memory is that of the rank Seat, which needs the most, Work of the one that
// computes the most; Sent are the bytes of a step of the one that sends the most.
type Ranks struct {
	Seat   Seat
	Memory Memory
	Work   Work
	Sent   int
}

// OnRanks plans a run, with evaluation, on so many ranks, of which so many share out the experts. An error when there are
// more ranks than replicas, or when the experts cannot be shared out so.
func OnRanks(
	config model.Config, options train.Config, machine cuda.Machine, ranks, expertParallel int,
) (found Ranks, err error) {
	if err := options.CheckRanks(ranks); err != nil {
		return found, err
	}
	if err := layer.CheckExpertParallel(expertParallel, ranks, config.NumExperts); err != nil {
		return found, err
	}
	seats, err := seatsOf(config, options, machine, ranks, expertParallel)
	if err != nil {
		return found, err
	}
	for _, seat := range seats {
		memory, err := training(config, options, machine, seat, true, true)
		if err != nil {
			return found, err
		}
		if memory.Held > found.Memory.Held {
			found.Seat, found.Memory = seat, memory
		}
	}
	for _, seat := range seats {
		work, sent, err := trainingWork(config, options, machine, seat)
		if err != nil {
			return found, err
		}
		if work.Sum().Flops > found.Work.Sum().Flops {
			found.Work = work
		}
		found.Sent = max(found.Sent, sent)
	}
	return found, nil
}

// laterSums is the memory of the sums of experts' gradients of an update beyond those of the steps that are run: with more
// micro-batches more of them may wait at once.
func (s Seat) laterSums(config model.Config, options train.Config, run steps) (int, error) {
	if s.ExpertParallel == 1 {
		return 0, nil
	}
	count, first := options.MicroBatches(options.BatchSize), s.Rank/s.ExpertParallel*s.ExpertParallel
	_, all, err := cuda.ExpertSchedule(options.Replicas, s.Ranks, first, s.ExpertParallel, count, -1)
	if err != nil {
		return 0, err
	}
	_, some, err := cuda.ExpertSchedule(options.Replicas, s.Ranks, first, s.ExpertParallel, count-run.left, -1)
	own := config.NumLayers * config.NumExperts / s.ExpertParallel * 3 * config.HiddenSize * config.FFNSize
	return 4 * own * (all - some), err
}

// Growth is `most`, and before it the plans of the powers of two of ranks below its own, from 1 on. Of each, the experts
// are shared out by the largest divisor of ranks and experts that is no more than that of `most`.
func Growth(config model.Config, options train.Config, machine cuda.Machine, most Ranks) ([]Ranks, error) {
	var plans []Ranks
	for ranks := 1; ranks < most.Seat.Ranks; ranks *= 2 {
		size := min(most.Seat.ExpertParallel, ranks)
		for ranks%size != 0 || config.NumExperts%size != 0 {
			size--
		}
		one, err := OnRanks(config, options, machine, ranks, size)
		if err != nil {
			return nil, err
		}
		plans = append(plans, one)
	}
	return append(plans, most), nil
}
