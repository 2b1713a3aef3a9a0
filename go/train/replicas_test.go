package train_test

import (
	"fmt"
	"math"
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

// treeSum adds vectors in the tree over replicas of bindings.h, section comm; `rounded` gets each part and each sum below
// the root.
func treeSum(parts [][]float32, rounded func(float32) float32) []float32 {
	if len(parts) == 1 {
		return parts[0]
	}
	half := 1
	for 2*half < len(parts) {
		half *= 2
	}
	left, right := treeSum(parts[:half], rounded), treeSum(parts[half:], rounded)
	sum := make([]float32, len(left))
	for at := range sum {
		sum[at] = rounded(left[at]) + rounded(right[at])
	}
	return sum
}

func unrounded(value float32) float32 { return value }

// toBF16 rounds a finite number to the nearest bf16, to even.
func toBF16(value float32) float32 {
	bits := math.Float32bits(value)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
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
				p, ids, wanted, nil, model.Factors{Loss: factor, Aux: share}, losses, aux, at != replica*micro, nil,
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
	for _, of := range []struct {
		replicas, batch, micro int
		wire                   model.Precision
	}{
		{1, 7, 2, model.F32}, {2, 2, 1, model.F32}, {3, 7, 2, model.F32}, {5, 5, 1, model.F32}, {5, 13, 1, model.F32},
		{8, 8, 1, model.F32}, {8, 17, 2, model.F32}, {2, 2, 1, model.BF16}, {3, 7, 2, model.BF16}, {8, 17, 2, model.BF16},
	} {
		rounded := unrounded
		if of.wire == model.BF16 {
			rounded = toBF16
		}
		for _, precision := range []model.Precision{model.F32, model.BF16, model.F16} {
			if precision != model.F32 && of.replicas != 3 {
				continue
			}
			options := options()
			options.BatchSize, options.MicroBatchSize, options.Replicas = of.batch, of.micro, of.replicas
			options.ReduceDType = of.wire
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
					requireSame(t, found, treeSum(parts, rounded), fmt.Sprintf("%+v in %s", of, precision))
				}
			}
			if captured.EagerReason() != "" {
				t.Errorf("%+v: the last step ran call by call: %s", of, captured.EagerReason())
			}
			requireSame(t, state(t, captured), state(t, plain), "with and without capture")
		}
	}
}

// TestReplicasDecideBits: another number of them adds in another order, and so does what their gradients are rounded to.
func TestReplicasDecideBits(t *testing.T) {
	config, ctx := tiny(), newContext(t)
	inputs, targets := randomBatch(rand.New(rand.NewPCG(33, 34)), config, 8, 9)
	found := map[string]int{}
	for _, of := range []struct {
		replicas int
		wire     model.Precision
	}{{1, model.F32}, {3, model.F32}, {8, model.F32}, {8, model.BF16}, {8, model.F16}} {
		options := options()
		options.BatchSize, options.MicroBatchSize, options.Replicas = 8, 1, of.replicas
		if options.ReduceDType = of.wire; of.wire == model.F16 {
			options.Precision = model.F16
		}
		trainer := newTrainer(t, ctx, config, options)
		must.Get(trainer.TrainStep(inputs, targets, 8))(t)
		found[fmt.Sprint(state(t, trainer))]++
	}
	if len(found) != 5 {
		t.Errorf("five jobs gave %d different states", len(found))
	}
}

func TestWrongReduceDType(t *testing.T) {
	for _, of := range []struct {
		wire, precision model.Precision
		replicas        int
		words           string
	}{
		{"bf8", model.F32, 2, "reduce_dtype is 'bf8'; it must be one of f32, bf16, f16"},
		{model.F16, model.BF16, 2, "reduce_dtype is f16, but the precision is bf16; gradients fit into f16 only with the loss " +
			"scale of precision f16"},
		{model.BF16, model.F32, 1, "reduce_dtype is bf16, but replicas is 1; gradients are rounded between replicas"},
	} {
		config := options()
		config.BatchSize, config.MicroBatchSize, config.Replicas = 2, 1, of.replicas
		config.ReduceDType, config.Precision = of.wire, of.precision
		if err := config.Validate(); err == nil || err.Error() != of.words {
			t.Error(err)
		}
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
