package train_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// treeSum adds vectors in the tree over replicas of bindings.h, section comm.
func treeSum(parts [][]float32) []float32 {
	if len(parts) == 1 {
		return parts[0]
	}
	half := 1
	for 2*half < len(parts) {
		half *= 2
	}
	left, right := treeSum(parts[:half]), treeSum(parts[half:])
	sum := make([]float32, len(left))
	for at := range sum {
		sum[at] = left[at] + right[at]
	}
	return sum
}

// gradientsOf runs the micro-batches of a batch, of so many sequences each, that belong to a replica.
func gradientsOf(
	t testing.TB, made *model.MoETransformer, inputs, targets []int32, length, micro, replicas, replica int,
) []float32 {
	t.Helper()
	tokens, rows := 0, len(inputs)/length
	for _, target := range targets {
		if target != model.IgnoreIndex {
			tokens++
		}
	}
	must.Do(t, layer.Run(made.Context(), func(p *layer.Pass) {
		one, factor := p.Empty(cuda.F32, 1), p.Empty(cuda.F32, 1)
		p.Check(tensor.Write(one, []float32{1}))
		p.Check(tensor.WeightedMean(one, nil, factor, int64(tokens)))
		for at := replica * micro; at < rows; at += replicas * micro {
			size := min(micro, rows-at)
			ids, wanted := p.Empty(cuda.I32, size, length), p.Empty(cuda.I32, size, length)
			p.Check(tensor.Write(ids, inputs[at*length:(at+size)*length]))
			p.Check(tensor.Write(wanted, targets[at*length:(at+size)*length]))
			share, aux, weight := p.Empty(cuda.F32, 1), p.Empty(cuda.F32, 1), p.Empty(cuda.I32, 1)
			p.Check(tensor.Write(weight, []int32{int32(size)}))
			p.Check(tensor.WeightedMean(one, weight, share, int64(rows)))
			losses := p.Empty(cuda.F32, made.LossPieces(size*length))
			for _, use := range made.ForwardBackward(
				p, ids, wanted, model.Factors{Loss: factor, Aux: share}, losses, aux, at != replica*micro,
			) {
				p.Check(use.Close())
			}
		}
	}))
	return must.Get(tensor.Read[float32](made.Gradients.Data))(t)
}

// TestReplicasAreAddedInTheTree: to the bits of a sum by hand of what each replica computes alone.
func TestReplicasAreAddedInTheTree(t *testing.T) {
	config, ctx := tiny(), newContext(t)
	for _, of := range []struct{ replicas, batch, micro int }{
		{1, 7, 2}, {2, 2, 1}, {3, 7, 2}, {5, 5, 1}, {5, 13, 1}, {8, 8, 1}, {8, 17, 2},
	} {
		for _, precision := range []model.Precision{model.F32, model.BF16, model.F16} {
			if precision != model.F32 && of.replicas != 3 {
				continue
			}
			options := options()
			options.BatchSize, options.MicroBatchSize, options.Replicas = of.batch, of.micro, of.replicas
			options.Precision, options.LossScale = precision, train.DefaultConfig().LossScale
			if precision == model.F16 {
				options.LossScale = 1
			}
			captured, plain := newTrainer(t, ctx, config, options), newTrainer(t, ctx, config, options)
			plain.NoCapture = true
			random := rand.New(rand.NewPCG(31, uint64(of.replicas)))
			for range 3 {
				inputs, targets := randomBatch(random, config, of.batch, 9)
				var parts [][]float32
				for replica := range of.replicas {
					parts = append(parts, gradientsOf(t, plain.Model, inputs, targets, 9, of.micro, of.replicas, replica))
				}
				for _, trainer := range []*train.Trainer{captured, plain} {
					must.Get(trainer.TrainStep(inputs, targets, of.batch))(t)
					found := must.Get(tensor.Read[float32](trainer.Model.Gradients.Data))(t)
					requireSame(t, found, treeSum(parts), fmt.Sprintf("%+v in %s", of, precision))
				}
			}
			if captured.EagerReason() != "" {
				t.Errorf("%+v: the last step ran call by call: %s", of, captured.EagerReason())
			}
			requireSame(t, state(t, captured), state(t, plain), "with and without capture")
		}
	}
}

// TestReplicasDecideBits: another number of them adds in another order.
func TestReplicasDecideBits(t *testing.T) {
	config, ctx := tiny(), newContext(t)
	inputs, targets := randomBatch(rand.New(rand.NewPCG(33, 34)), config, 8, 9)
	found := map[string]int{}
	for _, replicas := range []int{1, 3, 8} {
		options := options()
		options.BatchSize, options.MicroBatchSize, options.Replicas = 8, 1, replicas
		trainer := newTrainer(t, ctx, config, options)
		must.Get(trainer.TrainStep(inputs, targets, 8))(t)
		found[fmt.Sprint(state(t, trainer))]++
	}
	if len(found) != 3 {
		t.Errorf("1, 3 and 8 replicas gave %d different states", len(found))
	}
}

func TestReplicasNeedMicroBatches(t *testing.T) {
	options := options()
	options.BatchSize, options.MicroBatchSize, options.Replicas = 8, 4, 8
	wanted := "replicas is 8; an update of batch_size 8 in micro-batches of 4 has 2, so it must be 1 to 2"
	if err := options.Validate(); err == nil || err.Error() != wanted {
		t.Error(err)
	}
	options.Replicas = 0
	if err := options.Validate(); err == nil || !strings.HasPrefix(err.Error(), "replicas is 0; it must be") {
		t.Error(err)
	}
	options.Replicas, options.MicroBatchSize = 3, 2
	trainer := newTrainer(t, newContext(t), tiny(), options)
	inputs, targets := randomBatch(rand.New(rand.NewPCG(35, 36)), tiny(), 3, 9)
	if _, err := trainer.TrainStep(inputs, targets, 3); err == nil || !strings.Contains(err.Error(), "has 2, so") {
		t.Error(err)
	}
}
