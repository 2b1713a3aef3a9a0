package plan_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/plan"
	"github.com/nncuda/nncuda/go/train"
)

// What each rank of a job in threads needs and sends is what was planned; the plan of the job is of the one with the most.
func TestPlanOfRanks(t *testing.T) {
	options := trainOptions()
	options.BatchSize, options.MicroBatchSize, options.Replicas, options.SequenceLength = 59, 2, 8, 16
	for _, ranks := range []int{2, 3, 8} {
		peaks, sent := make([]int64, ranks), make([]int64, ranks)
		var running sync.WaitGroup
		for rank := range ranks {
			ctx := withlibrary.Context(t, cuda.WithThreads(1))
			running.Add(1)
			go func() {
				defer running.Done()
				if err := measureRank(ctx, options, rank, ranks, &peaks[rank], &sent[rank]); err != nil {
					t.Error(err)
				}
			}()
		}
		running.Wait()
		whole := must.Get(plan.OnRanks(wide(), options, cuda.Machine{Device: cuda.CPU, Threads: 1}, ranks, 1))(t)
		most, held := int64(0), 0
		for rank := range ranks {
			machine, seat := cuda.Machine{Device: cuda.CPU, Threads: 1}, plan.Seat{Rank: rank, Ranks: ranks, ExpertParallel: 1}
			planned := must.Get(plan.TrainingOf(wide(), options, machine, seat, false, true))(t)
			near(t, fmt.Sprint(seat), planned.Peak, peaks[rank])
			evaluated := must.Get(plan.TrainingOf(wide(), options, machine, seat, true, true))(t)
			most, held = max(most, sent[rank]), max(held, evaluated.Held)
			if _, of, err := plan.TrainingWorkOf(wide(), options, machine, seat); err != nil || int64(of) != sent[rank] {
				t.Errorf("rank %d of %d: planned %d bytes, sent %d (%v)", rank, ranks, of, sent[rank], err)
			}
		}
		if whole.Memory.Held != held || int64(whole.Sent) != most || most == 0 {
			t.Errorf("%d ranks: %d and %d bytes; of all ranks the most are %d and %d",
				ranks, whole.Memory.Held, whole.Sent, held, most)
		}
	}
	if _, err := plan.OnRanks(wide(), options, cuda.Machine{Device: cuda.CPU, Threads: 1}, 9, 1); err == nil {
		t.Error("nine ranks share out eight replicas")
	}
}

// measureRank trains a rank, and says the most bytes that it needed and what its last step sent.
func measureRank(ctx *cuda.Context, options train.Config, rank, ranks int, peak, sent *int64) error {
	comm, err := ctx.NewComm(cuda.TransportThreads, fmt.Sprint("plan of ", ranks), rank, ranks, time.Minute)
	if err != nil {
		return err
	}
	made, err := model.New(ctx, wide(), options.Precision, 1)
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
		before, err := comm.BytesSent()
		if err != nil {
			return err
		}
		if _, err = trainer.TrainStep(ids, ids, rows); err != nil {
			return err
		}
		after, err := comm.BytesSent()
		if err != nil {
			return err
		}
		*sent = after - before
	}
	*peak, err = ctx.BytesPeak()
	return err
}
