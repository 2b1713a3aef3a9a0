package plan

import (
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// pageOf is the bytes of a page, in which a device gives memory in parts.
func pageOf(device cuda.Device) int {
	if device == cuda.CPU {
		return 4096
	}
	return 2 << 20
}

// Of so many gradients a rank sends one sum of squares, f64, to each of the others.
const squaresCPU, squaresGPU = 16384, 32768

// seatsOf gives seats of which none needs, computes or sends less than one that is left out.
func seatsOf(
	config model.Config, options train.Config, machine cuda.Machine, ranks, expertParallel int,
) ([]Seat, error) {
	var best []Seat // of those that do the same, in the order in which the first of them come
	places := map[string]int{}
	offer := func(kind string, seat Seat, better func(than Seat) bool) {
		if at, known := places[kind]; !known {
			places[kind] = len(best)
			best = append(best, seat)
		} else if better(best[at]) {
			best[at] = seat
		}
	}
	of, err := differencesOf(config, options, machine, ranks, expertParallel)
	if err != nil {
		return nil, err
	}
	for rank := range ranks {
		seat := Seat{rank, ranks, expertParallel}
		share, err := seat.share(options)
		if err != nil {
			return nil, err
		}
		if expertParallel > 1 {
			share += of.rounds[rank/expertParallel] + of.own[rank]
		}
		offer("held "+share, seat, func(than Seat) bool { return of.held[rank] > of.held[than.Rank] })
		offer("sent "+share, seat, func(than Seat) bool { return of.sent[rank] > of.sent[than.Rank] })
	}
	var seats []Seat
	known := map[Seat]bool{}
	for _, seat := range best {
		if !known[seat] {
			known[seat] = true
			seats = append(seats, seat)
		}
	}
	return seats, nil
}

// differences are those of ranks, of which some may share out the experts.
type differences struct {
	held   []int    // bytes of each rank that it has, in pages of the device,
	sent   []int    // and that it sends, both but for what all have alike
	rounds []string // where experts are shared out, of each group what happens in its rounds, whichever micro-batches these are, and what is left behind
	own    []string // and of each rank the rounds in which it runs one
}

func differencesOf(
	config model.Config, options train.Config, machine cuda.Machine, ranks, group int,
) (of differences, err error) {
	first, err := model.NewHeld(model.NewLayout(config), 0, ranks, group)
	if err != nil {
		return of, err
	}
	weight := options.Precision.DType().Size()
	for _, elements := range first.WeightsSent() {
		of.sent = append(of.sent, weight*elements)
	}
	for _, move := range first.GradientMoves(4) {
		of.sent[move.From] += int(move.End - move.Begin)
	}
	page := pageOf(machine.Device)
	partitions := options.PartitionsGradients(config, machine.Device, ranks, group)
	for rank := range ranks {
		held := first.Of(rank)
		computes, gradients, updates := held.Computes(), held.Computes(), 0
		if partitions {
			gradients = held.Gradients()
		}
		bytes := inPages(page, computes, weight) + inPages(page, gradients, 4)
		if weight == 2 {
			bytes += inPages(page, held.Updated, 4)
		}
		for _, span := range held.Updated {
			updates += span.Size()
		}
		of.held = append(of.held, bytes+options.Moments.Bytes(updates))
	}
	if err = of.addSums(options, machine, first, ranks, group); err != nil {
		return of, err
	}
	if group == 1 {
		return of, nil
	}
	of.own = make([]string, ranks)
	for at := 0; at < ranks; at += group {
		if err = of.addRounds(options, at, ranks, group); err != nil {
			return of, err
		}
	}
	return of, nil
}

// addSums adds what the sums of gradients, and of their squares, make of a difference in what ranks send: of each sum
// that is left on a rank it keeps what it updates, or an owner of its group, and sends all else.
func (d *differences) addSums(options train.Config, machine cuda.Machine, held *model.Held, ranks, group int) error {
	wire, chunk := options.ReduceDType.DType().Size(), int64(squaresCPU)
	if machine.Device != cuda.CPU {
		chunk = squaresGPU
	}
	sums := make([]int, ranks) // of dense gradients
	for rank := range sums {
		var err error
		if sums[rank], err = (Seat{Rank: rank, Ranks: ranks}).sumsLeft(options.Replicas); err != nil {
			return err
		}
	}
	for _, shard := range held.InDense() {
		d.sent[shard.Rank] -= wire * sums[shard.Rank] * int(shard.End-shard.Begin)
	}
	for _, shard := range held.Shards {
		d.sent[shard.Rank] += 8 * (ranks - 1) * int((shard.End-shard.Begin+chunk-1)/chunk)
	}
	if group == 1 || group == ranks { // no experts are shared out, or the gradients of each are on one rank alone
		return nil
	}
	for at := range sums {
		var err error
		if sums[at], err = (Seat{Rank: at / group, Ranks: ranks / group}).sumsLeft(options.Replicas); err != nil {
			return err
		}
	}
	for position := range group {
		for _, shard := range held.Of(position).InSlot() {
			rank := int(shard.Rank)*group + position
			d.sent[rank] -= wire * sums[rank] * int(shard.End-shard.Begin)
		}
	}
	return nil
}

// inPages is how much memory spans of elements of so many bytes take.
func inPages(page int, spans []model.Span, bytes int) (taken int) {
	for _, span := range spans {
		taken += page * ((bytes*span.End+page-1)/page - bytes*span.Begin/page)
	}
	return taken
}

// addRounds adds those of the group from rank `first` on.
func (d *differences) addRounds(options train.Config, first, ranks, group int) error {
	microBatches := options.MicroBatches(options.BatchSize)
	events, _, err := cuda.ExpertSchedule(options.Replicas, ranks, first, group, microBatches, -1)
	if err != nil {
		return err
	}
	happens := make([]byte, 0, 16*len(events))
	for _, event := range events {
		other := event.B
		if event.Kind == cuda.ExpertsRun {
			d.own[first+event.A] += fmt.Sprint(event.Round, " ")
			other = 0
		}
		happens = fmt.Append(happens, event.Round, event.Kind, event.A, other, event.C, ";")
	}
	merges, err := Seat{Rank: first / group, Ranks: ranks / group}.merges(options.Replicas)
	d.rounds = append(d.rounds, fmt.Sprint(string(happens), merges))
	return err
}

// replicas lists those of a rank.
func (s Seat) replicas(count int) (own []int, err error) {
	begin, end, err := cuda.Shard(int64(count), 1, int64(s.Ranks), int64(s.Rank))
	for replica := begin; replica < end; replica++ {
		own = append(own, int(replica))
	}
	return own, err
}

// merges says to how many of the sums that wait each of its replicas is added.
func (s Seat) merges(count int) (merges []int64, err error) {
	own, err := s.replicas(count)
	for _, replica := range own {
		taken, err := cuda.ReplicaMerges(int64(count), int64(own[0]), int64(replica))
		if err != nil {
			return nil, err
		}
		merges = append(merges, taken)
	}
	return merges, err
}

// sumsLeft is how many sums its replicas leave.
func (s Seat) sumsLeft(count int) (int, error) {
	merges, err := s.merges(count)
	left := len(merges)
	for _, taken := range merges {
		left -= int(taken)
	}
	return left, err
}

// share is which micro-batches a rank runs, and which of their sums it adds.
func (s Seat) share(options train.Config) (string, error) {
	own, err := s.replicas(options.Replicas)
	if err != nil {
		return "", err
	}
	merges, err := s.merges(options.Replicas)
	if err != nil {
		return "", err
	}
	count, micro := options.MicroBatches(options.BatchSize), options.MicroBatchSize
	ragged, last, more := micro > 0 && options.BatchSize%micro != 0, false, 0
	for _, replica := range own {
		if replica < count%options.Replicas {
			more++
		}
		last = last || replica == (count-1)%options.Replicas
	}
	return fmt.Sprint(merges, more, ragged && last), nil
}
