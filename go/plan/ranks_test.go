package plan_test

import (
	"fmt"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/plan"
	"github.com/nncuda/nncuda/go/train"
)

// What each rank of a job in threads needs and sends is what was planned; the plan of the job is of the one with the most.
// Where the experts are shared out, what a rank sends depends on what its tokens choose.
func TestPlanOfRanks(t *testing.T) {
	options := trainOptions()
	options.MicroBatchSize, options.SequenceLength = 2, 16
	for _, of := range []struct{ ranks, experts, batch, replicas int }{
		{2, 1, 59, 8}, {3, 1, 59, 8}, {8, 1, 59, 8}, {2, 2, 59, 8}, {4, 2, 59, 8}, {4, 4, 59, 8},
		{8, 1, 15, 8}, {7, 1, 14, 7}, // whose ranks partition the gradients
		{8, 1, 32, 8}, // and whose do not, though the plan runs fewer micro-batches than they
	} {
		ranks, experts := of.ranks, of.experts
		options.BatchSize, options.Replicas = of.batch, of.replicas
		if options.PartitionsGradients(wide(), cuda.CPU, ranks, experts) != (of.batch <= 2*ranks) {
			t.Errorf("%v: gradients are partitioned, or are not", of)
		}
		peaks, sent := make([]int64, ranks), make([]int64, ranks)
		var running sync.WaitGroup
		for rank := range ranks {
			ctx := withlibrary.Context(t, cuda.WithThreads(1))
			running.Add(1)
			go func() {
				defer running.Done()
				if err := measureRank(ctx, options, rank, ranks, experts, &peaks[rank], &sent[rank]); err != nil {
					t.Error(err)
				}
			}()
		}
		running.Wait()
		whole := must.Get(plan.OnRanks(wide(), options, cuda.Machine{Device: cuda.CPU, Threads: 1}, ranks, experts))(t)
		mostPlanned, held := 0, 0
		for rank := range ranks {
			machine, seat := cuda.Machine{Device: cuda.CPU, Threads: 1}, plan.Seat{Rank: rank, Ranks: ranks, ExpertParallel: experts}
			planned := must.Get(plan.TrainingOf(wide(), options, machine, seat, false, true))(t)
			near(t, fmt.Sprint(seat), planned.Peak, peaks[rank])
			evaluated := must.Get(plan.TrainingOf(wide(), options, machine, seat, true, true))(t)
			held = max(held, evaluated.Held)
			_, sends, err := plan.TrainingWorkOf(wide(), options, machine, seat)
			if off := math.Abs(float64(sends)/float64(sent[rank]) - 1); err != nil || off > 0.2 || experts == 1 && off != 0 {
				t.Errorf("%v: planned %d bytes, sent %d (%v)", seat, sends, sent[rank], err)
			}
			mostPlanned = max(mostPlanned, sends)
		}
		if whole.Memory.Held != held || whole.Sent != mostPlanned || mostPlanned == 0 {
			t.Errorf("%v: %d and %d bytes; of all ranks the most are %d and %d",
				of, whole.Memory.Held, whole.Sent, held, mostPlanned)
		}
	}
	if _, err := plan.OnRanks(wide(), options, cuda.Machine{Device: cuda.CPU, Threads: 1}, 9, 1); err == nil {
		t.Error("nine ranks share out eight replicas")
	}
	_, err := plan.OnRanks(wide(), options, cuda.Machine{Device: cuda.CPU, Threads: 1}, 6, 3)
	if err == nil || err.Error() != "expert_parallel is 3; it must divide the 6 ranks and the 4 experts" {
		t.Error(err)
	}
}

// Where borders of grains make ranks send different bytes, the one that sends the most is found. The numbers are those of
// all seats, looked at one by one.
func TestTheRankThatSendsMost(t *testing.T) {
	for _, of := range []struct {
		vocab, hidden, ffn, experts, layers, ranks, size, sent int
		precision                                              model.Precision
	}{
		{426, 96, 200, 8, 2, 12, 4, 2337040, model.BF16},
		{449, 128, 64, 2, 4, 4, 2, 3158920, model.F32},
	} {
		config, options := wide(), trainOptions()
		config.VocabSize, config.HiddenSize, config.FFNSize = of.vocab, of.hidden, of.ffn
		config.NumExperts, config.NumLayers = of.experts, of.layers
		config.NumHeads, config.NumKVHeads, config.HeadDim = 2, 2, of.hidden/2
		options.Precision, options.SequenceLength = of.precision, 16
		options.BatchSize, options.MicroBatchSize, options.Replicas = of.ranks, 1, of.ranks
		machine := cuda.Machine{Device: cuda.CPU, Threads: 1}
		planned := must.Get(plan.OnRanks(config, options, machine, of.ranks, of.size))(t)
		if planned.Sent != of.sent {
			t.Errorf("planned %d bytes, the most are %d", planned.Sent, of.sent)
		}
	}
}

// Where each layer is dealt out among the ranks, some update more grains than others.
func TestTheRankThatUpdatesMost(t *testing.T) {
	config, options := wide(), trainOptions()
	config.VocabSize, config.HiddenSize, config.FFNSize, config.NumExperts = 300, 128, 1024, 6
	config.NumHeads, config.NumKVHeads, config.HeadDim = 2, 2, 64
	options.SequenceLength, options.BatchSize, options.MicroBatchSize, options.Replicas = 16, 5, 1, 5
	machine := cuda.Machine{Device: cuda.CPU, Threads: 1}
	for _, precision := range []model.Precision{model.F32, model.BF16} {
		options.Precision = precision
		for _, ranks := range []int{2, 3, 5} {
			found, held, sent := must.Get(plan.OnRanks(config, options, machine, ranks, 1))(t), 0, 0
			for rank := range ranks {
				seat := plan.Seat{Rank: rank, Ranks: ranks, ExpertParallel: 1}
				held = max(held, must.Get(plan.TrainingOf(config, options, machine, seat, true, true))(t).Held)
				_, of, err := plan.TrainingWorkOf(config, options, machine, seat)
				must.Do(t, err)
				sent = max(sent, of)
			}
			if found.Memory.Held != held || found.Sent != sent {
				t.Errorf("%s on %d ranks: %d and %d bytes; of all ranks the most are %d and %d",
					precision, ranks, found.Memory.Held, found.Sent, held, sent)
			}
		}
	}
}

// That which updates the most, the gains among it, does not need the most where ranks keep the gradients of what they update
// alone, and those of all gains. On a GPU each has all.
func TestTheRankThatNeedsMost(t *testing.T) {
	config, options := wide(), trainOptions()
	config.VocabSize = 500
	options.SequenceLength, options.BatchSize, options.MicroBatchSize, options.Replicas = 16, 4, 1, 4
	for _, of := range []struct {
		machine cuda.Machine
		rank    int
	}{
		{cuda.Machine{Device: cuda.CPU, Threads: 1}, 0}, {cuda.Machine{Device: cuda.CUDA, Capability: 90}, 3},
	} {
		held := 0
		for rank := range 4 {
			seat := plan.Seat{Rank: rank, Ranks: 4, ExpertParallel: 1}
			held = max(held, must.Get(plan.TrainingOf(config, options, of.machine, seat, true, true))(t).Held)
		}
		found := must.Get(plan.OnRanks(config, options, of.machine, 4, 1))(t)
		if found.Memory.Held != held || found.Seat.Rank != of.rank {
			t.Errorf("%+v: rank %d with %d bytes; of all ranks the most are %d", of, found.Seat.Rank, found.Memory.Held, held)
		}
	}
}

// Each row is the plan of so many ranks; experts are shared out as far as ranks and experts allow.
func TestGrowth(t *testing.T) {
	options, machine, config := trainOptions(), cuda.Machine{Device: cuda.CPU, Threads: 1}, wide()
	options.BatchSize, options.MicroBatchSize, options.Replicas, options.SequenceLength = 6, 1, 6, 16
	config.NumExperts = 6
	most := must.Get(plan.OnRanks(config, options, machine, 6, 3))(t)
	rows := must.Get(plan.Growth(config, options, machine, most))(t)
	var found [][2]int
	for _, row := range rows {
		found = append(found, [2]int{row.Seat.Ranks, row.Seat.ExpertParallel})
	}
	if want := [][2]int{{1, 1}, {2, 2}, {4, 2}, {6, 3}}; !reflect.DeepEqual(found, want) {
		t.Errorf("%v; want %v", found, want)
	}
	four := must.Get(plan.OnRanks(config, options, machine, 4, 2))(t)
	if !reflect.DeepEqual(rows[2], four) || !reflect.DeepEqual(rows[3], most) || rows[0].Sent != 0 {
		t.Errorf("%v", rows)
	}
}

// What micro-batches of a kind come to is what all of them do when each is run.
func TestMicroBatchesOfAKindAreRunOnce(t *testing.T) {
	machine, config := cuda.Machine{Device: cuda.CPU, Threads: 1}, wide()
	config.NumExperts, config.CapacityFactor = 6, 1.2
	for _, change := range []func(*train.Config){
		func(c *train.Config) { c.BatchSize, c.MicroBatchSize, c.Replicas = 23, 1, 9 },
		func(c *train.Config) {
			c.BatchSize, c.MicroBatchSize, c.Replicas = 45, 2, 7
			c.Precision, c.ReduceDType = model.F16, model.F16
		},
		func(c *train.Config) {
			c.BatchSize, c.MicroBatchSize, c.Replicas = 14, 1, 14
			c.Precision, c.Moments = model.BF16, train.MomentsF8
		},
	} {
		options := trainOptions()
		options.SequenceLength = 16
		change(&options)
		plans := func() (found []string) {
			for _, of := range [][2]int{{1, 1}, {3, 1}, {4, 2}, {6, 6}} {
				for rank := range of[0] {
					seat := plan.Seat{Rank: rank, Ranks: of[0], ExpertParallel: of[1]}
					memory := must.Get(plan.TrainingOf(config, options, machine, seat, true, true))(t)
					work, sent, err := plan.TrainingWorkOf(config, options, machine, seat)
					must.Do(t, err)
					found = append(found, fmt.Sprint(seat, memory, work, sent))
				}
			}
			return found
		}
		found := plans()
		all := plan.RunAll()
		wanted := plans()
		all()
		for at := range wanted {
			if found[at] != wanted[at] {
				t.Errorf("%s; of all micro-batches %s", found[at], wanted[at])
			}
		}
	}
}

// However many a rank runs, few kinds of them are run.
func TestManyReplicasTakeFewMicroBatches(t *testing.T) {
	options := trainOptions()
	options.SequenceLength, options.BatchSize, options.MicroBatchSize, options.Replicas = 16, 3000, 1, 1000
	for _, of := range [][2]int{{1, 1}, {4, 2}} {
		ctx := must.Get(cuda.NewMeasuring(cuda.Machine{Device: cuda.CPU, Threads: 1}))(t)
		trainer := must.Get(plan.TrainerOf(ctx, wide(), options, 3000, plan.Seat{Ranks: of[0], ExpertParallel: of[1]}))(t)
		must.Do(t, trainer.Rehearse(3000, 16))
		parts, all := trainer.LeftOut(), 0
		for _, part := range parts {
			all += 1 + part.Times
		}
		if len(parts) > 10 || all < 3000/of[0]*of[1] {
			t.Errorf("%v: %d parts stand for %d", of, len(parts), all)
		}
		must.Do(t, ctx.Close())
	}
}

// measureRank trains a rank, and says the most bytes that it needed and what its last step sent.
func measureRank(ctx *cuda.Context, options train.Config, rank, ranks, size int, peak, sent *int64) error {
	comm, err := ctx.NewComm(cuda.TransportThreads, fmt.Sprint("plan of ", ranks, " by ", size), rank, ranks, time.Minute)
	if err != nil {
		return err
	}
	experts, err := layer.NewExpertParallel(comm, size, wide().NumExperts)
	if err != nil {
		return err
	}
	made, err := model.New(ctx, wide(), options.Precision, 1, model.WithExperts(experts), model.WithComm(comm),
		model.WithPartitionedGradients(options.PartitionsGradients(wide(), cuda.CPU, ranks, size)))
	if err != nil {
		return err
	}
	trainer, err := train.NewTrainer(made, options, train.WithComm(comm))
	if err != nil {
		return err
	}
	rows := len(trainer.Rows())
	ids := make([]int32, rows*options.SequenceLength)
	for at := range ids {
		ids[at] = int32(at * 7919 % wide().VocabSize)
	}
	for range 3 {
		before, err := trainer.BytesSent()
		if err != nil {
			return err
		}
		if _, err = trainer.TrainStep(ids, ids, rows); err != nil {
			return err
		}
		after, err := trainer.BytesSent()
		if err != nil {
			return err
		}
		*sent = after - before
	}
	*peak, err = ctx.BytesPeak()
	return err
}

// A rank with a part of the experts computes with them what all ranks of its group have for them, and not what their
// memory has room for.
func TestWorkOfSharedExperts(t *testing.T) {
	machine, options := cuda.Machine{Device: cuda.CPU, Threads: 1}, trainOptions()
	options.BatchSize, options.MicroBatchSize, options.Replicas, options.SequenceLength = 24, 2, 4, 64
	for _, factor := range []float64{0, 1.5} {
		config := wide()
		config.CapacityFactor = factor
		alone := must.Get(plan.TrainingWork(config, options, machine))(t)
		shared := must.Get(plan.OnRanks(config, options, machine, 4, 4))(t).Work
		for _, kernel := range []string{"cuda_grouped_gemm", "cuda_grouped_gemm_wgrad"} {
			found, wanted := shared[kernel], alone[kernel]
			flops, bytes := float64(found.Flops)/float64(wanted.Flops), float64(found.Bytes)/float64(wanted.Bytes)
			if math.Abs(4*flops-1) > 1e-3 || bytes > 0.5 {
				t.Errorf("capacity_factor %v: %s is %+v on one of four ranks, %+v on one alone", factor, kernel, found, wanted)
			}
		}
	}
}
