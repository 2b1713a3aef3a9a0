package train_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/ranks"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// dealt is a model whose layers are dealt out among two or three ranks, each by itself.
func dealt() model.Config {
	config := tiny()
	config.VocabSize, config.HiddenSize, config.FFNSize = 300, 128, 1024
	return config
}

// TestLayersThatAreDealtOut: ranks that update a part of each layer, whose sums travel while others are computed, train the
// bits of a rank alone, call by call and captured.
func TestLayersThatAreDealtOut(t *testing.T) {
	config := dealt()
	inputs, targets := randomBatch(rand.New(rand.NewPCG(51, 52)), config, 7, 9)
	for _, of := range []struct {
		precision, wire model.Precision
		replicas        int
		moments         train.MomentsKind
	}{
		{model.F32, model.F32, 3, train.MomentsF32}, {model.F32, model.BF16, 4, train.MomentsBF16},
		{model.BF16, model.BF16, 7, train.MomentsF8},
	} {
		options := options()
		options.BatchSize, options.MicroBatchSize, options.Replicas = 7, 1, of.replicas
		options.Precision, options.ReduceDType, options.Moments = of.precision, of.wire, of.moments
		alone := newTrainer(t, newContext(t), config, options)
		var wanted []string
		for range 4 {
			wanted = append(wanted, told(t, must.Get(alone.TrainStep(inputs, targets, 7))(t)))
		}
		parameters := must.Get(tensor.Read[float32](alone.Model.Parameters.Data))(t)
		for _, count := range []int{2, 3} {
			ranks.Run(t, count, func(comm *cuda.Comm) {
				what := fmt.Sprintf("%+v, rank %d of %d", of, comm.Rank(), count)
				made := must.Get(model.New(comm.Context(), config, of.precision, options.Seed, model.WithComm(comm)))(t)
				held := must.Get(model.NewHeld(made.Layout, comm.Rank(), count, 1))(t)
				if len(held.Updated) < 2 {
					t.Errorf("%s updates %v, which is one run", what, held.Updated)
				}
				trainer := must.Get(train.NewTrainer(made, options, train.WithComm(comm)))(t)
				var ids, answers []int32
				for _, row := range trainer.Rows() {
					ids, answers = append(ids, inputs[9*row:9*row+9]...), append(answers, targets[9*row:9*row+9]...)
				}
				for step := range wanted {
					found := told(t, must.Get(trainer.TrainStep(ids, answers, len(ids)/9))(t))
					if found != wanted[step] {
						t.Errorf("%s, step %d: %s, not %s", what, step, found, wanted[step])
					}
				}
				if reason := trainer.EagerReason(); reason != "" {
					t.Errorf("%s: the last step ran call by call: %s", what, reason)
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
}
