package train_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/ranks"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// deep is dealt with so many layers that three of them are less than all.
func deep() model.Config {
	config := dealt()
	config.NumLayers = 9
	return config
}

// oneEach is a configuration of which each of so many ranks runs one micro-batch of an update.
func oneEach(count int, precision, wire model.Precision) train.Config {
	options := options()
	options.BatchSize, options.MicroBatchSize, options.Replicas = count, 1, count
	options.Precision, options.ReduceDType = precision, wire
	return options
}

// TestPartitionedGradients: ranks that keep the gradients of what they update alone train the bits of a rank alone, call by
// call and captured, and have less memory.
func TestPartitionedGradients(t *testing.T) {
	config := deep()
	for _, of := range []struct {
		count           int
		precision, wire model.Precision
	}{{2, model.F32, model.F32}, {3, model.BF16, model.BF16}, {4, model.F16, model.F16}} {
		options := oneEach(of.count, of.precision, of.wire)
		inputs, targets := randomBatch(rand.New(rand.NewPCG(53, 54)), config, of.count, 9)
		alone := newTrainer(t, newContext(t), config, options)
		var wanted []string
		for range 4 {
			wanted = append(wanted, told(t, must.Get(alone.TrainStep(inputs, targets, of.count))(t)))
		}
		parameters := must.Get(tensor.Read[float32](alone.Model.Parameters.Data))(t)
		ranks.Run(t, of.count, func(comm *cuda.Comm) {
			what := fmt.Sprintf("%+v, rank %d", of, comm.Rank())
			made := must.Get(model.New(comm.Context(), config, of.precision, options.Seed, model.WithComm(comm),
				model.WithPartitionedGradients(true)))(t)
			trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
			row := comm.Rank()
			for step := range wanted {
				found := told(t, must.Get(trainer.TrainStep(inputs[9*row:9*row+9], targets[9*row:9*row+9], 1))(t))
				if found != wanted[step] {
					t.Errorf("%s, step %d: %s, not %s", what, step, found, wanted[step])
				}
			}
			if reason := trainer.EagerReason(); reason != "" {
				t.Errorf("%s: the last step ran call by call: %s", what, reason)
			}
			refused := 0
			for _, spec := range made.Layout.Specs {
				if _, err := made.Gradients.Parameter(spec.Name); err != nil {
					refused++
				}
			}
			if refused == 0 {
				t.Errorf("%s gives the gradients of what others update, too", what)
			}
			must.Get(made.Gradients.Parameter("model.norm.weight"))(t)
			if kept, all := made.Gradients.Bytes()+made.Partitioned.Bytes(), 4*made.Layout.Size; kept >= all {
				t.Errorf("%s has %d bytes for gradients, no less than %d", what, kept, all)
			}
			must.Do(t, trainer.GatherParameters())
			requireSame(t, must.Get(tensor.Read[float32](made.Parameters.Data))(t), parameters, what)
			must.Do(t, errors.Join(trainer.Close(), made.Close()))
			if used := must.Get(comm.Context().BytesUsed())(t); used != 0 {
				t.Errorf("%s: %d bytes are still used", what, used)
			}
		})
	}
}

// TestWhatIsPartitioned: only where each rank runs one micro-batch, and where it is less memory.
func TestWhatIsPartitioned(t *testing.T) {
	ranks.Run(t, 3, func(comm *cuda.Comm) {
		options := oneEach(3, model.F32, model.F32)
		more := options
		more.BatchSize = 6
		for _, of := range []struct {
			options     train.Config
			config      model.Config
			device      cuda.Device
			ranks, each int
			wanted      bool
		}{
			{options, deep(), cuda.CPU, 3, 1, true}, {more, deep(), cuda.CPU, 3, 1, false},
			{options, dealt(), cuda.CPU, 3, 1, false}, {options, deep(), cuda.CUDA, 3, 1, false},
			{options, deep(), cuda.CPU, 2, 1, false}, {options, deep(), cuda.CPU, 3, 3, false},
		} {
			if of.options.PartitionsGradients(of.config, of.device, of.ranks, of.each) != of.wanted {
				t.Errorf("%+v: not %v", of, of.wanted)
			}
		}
		made := must.Get(model.New(comm.Context(), deep(), model.F32, 1, model.WithComm(comm),
			model.WithPartitionedGradients(true)))(t)
		defer func() { must.Do(t, made.Close()) }()
		_, err := train.NewTrainer(made, more, train.WithComm(comm))
		if err == nil || !strings.Contains(err.Error(), "each rank must run one micro-batch of an update") {
			t.Errorf("a trainer with two micro-batches a rank: %v", err)
		}
		_, err = model.New(comm.Context(), deep(), model.F32, 1, model.WithPartitionedGradients(true))
		if err == nil || !strings.Contains(err.Error(), "among the ranks of a communicator") {
			t.Errorf("a model without a communicator: %v", err)
		}
	})
}
