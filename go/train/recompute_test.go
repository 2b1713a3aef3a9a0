package train_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
)

// recomputation is a way to keep less: every so many blocks, and the experts of the others.
type recomputation struct {
	every   int
	experts bool
	keep    int
}

// remains is all that four steps leave behind and tell.
func remains(t testing.TB, config model.Config, options train.Config, capture bool) ([]float32, string) {
	t.Helper()
	ctx := newContext(t)
	trainer := newTrainer(t, ctx, config, options)
	trainer.NoCapture = !capture
	random, all := rand.New(rand.NewPCG(31, 32)), ""
	for range 4 {
		inputs, targets := randomBatch(random, config, 4, 12)
		result := must.Get(trainer.TrainStep(inputs, targets, 4))(t)
		all += told(t, result)
		all += fmt.Sprint(must.Get(result.ExpertCounts())(t), must.Get(result.ExpertChoices())(t))
	}
	return append(state(t, trainer), must.Get(tensor.Read[float32](trainer.Model.Gradients.Data))(t)...), all
}

func TestRecomputationChangesNoBit(t *testing.T) {
	config := tiny()
	config.NumLayers, config.CapacityFactor = 6, 1.2
	for _, precision := range []model.Precision{model.F32, model.BF16} {
		for _, micro := range []int{0, 3} {
			options := inPrecision(precision)
			options.MicroBatchSize = micro
			wanted, tells := remains(t, config, options, false)
			for _, way := range []recomputation{{1, false, 0}, {2, false, 0}, {3, false, 0}, {0, true, 0}, {2, true, 0}, {0, true, 4}} {
				options.ActivationCheckpointing, options.RecomputeExperts, options.KeepExperts = way.every, way.experts, way.keep
				for _, capture := range []bool{false, true} {
					found, told := remains(t, config, options, capture)
					what := fmt.Sprintf("%s, micro-batches of %d, %+v, captured %v", precision, micro, way, capture)
					requireSame(t, found, wanted, what)
					if told != tells {
						t.Errorf("%s: the steps tell\n%s\nnot\n%s", what, told, tells)
					}
				}
			}
		}
	}
}

// wide is a model whose activations are most of its memory.
func wide() model.Config {
	config := tiny()
	config.VocabSize, config.HiddenSize, config.NumLayers, config.HeadDim, config.FFNSize = 64, 64, 12, 32, 128
	config.Context, config.ExtendedContext = 64, 64
	return config
}

const wideBatch, wideLength, wideTokens = 4, 64, 4 * 64

// held are the bytes of parts of a training step of wide, whose activations have `width` bytes.
type held struct{ block, inside, watched, loss, backward int }

func heldIn(width int) held {
	config := wide()
	slots, heads := wideTokens*config.ExpertsPerToken, config.NumHeads*config.HeadDim
	qkv := heads + 2*config.NumKVHeads*config.HeadDim
	stream := width * wideTokens * config.HiddenSize // what passes between blocks
	attention := wideTokens * (width*(qkv+heads) + 4*config.NumHeads)
	norms := 3*stream + 2*4*wideTokens // both outputs, the stream between, two rstd in f32
	routing := 4 * (3*slots + wideTokens*config.NumExperts + config.NumExperts + 1)
	inside := width * slots * (config.HiddenSize + 3*config.FFNSize) // rows, gate and up, what W2 takes in
	logits := 4 * wideTokens * config.VocabSize
	if width != 4 {
		logits += width * wideTokens * config.VocabSize // rounded, beside those in f32
	}
	return held{
		block:   attention + norms + routing + inside + width*slots*config.HiddenSize,
		inside:  inside,
		watched: 4 * (config.NumExperts + slots),    // counts and choices, which stay after a block
		loss:    2*stream + logits + 2*4*wideTokens, // the last stream, its norm, logits, rstd, lse
		// Of a block's output, of its experts' weights, and of the router's logits.
		backward: stream + 4*wideTokens*config.ExpertsPerToken + width*wideTokens*config.NumExperts,
	}
}

// fallen is by how much the peak falls. With everything kept the most is in use at the logits, else in the backward
// call of the last block: what this one did not keep is there again by then, what was watched a second time.
func (h held) fallen(way recomputation) int {
	layers, blocks, experts := wide().NumLayers, 0, 0
	if way.every > 0 {
		blocks = layers / way.every
	}
	if way.experts {
		experts = layers - blocks
	}
	again := h.inside
	if blocks > 0 {
		again = h.block + h.watched
	}
	return h.loss + blocks*h.block + experts*h.inside - again - h.backward
}

// peak is the most bytes in use in the third step.
func peak(t testing.TB, precision model.Precision, way recomputation, capture bool) int {
	t.Helper()
	ctx := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	defer ctx.Close()
	options := inPrecision(precision)
	options.MicroBatchSize, options.SequenceLength = 0, wideLength
	options.ActivationCheckpointing, options.RecomputeExperts, options.KeepExperts = way.every, way.experts, way.keep
	made := must.Get(model.New(ctx, wide(), precision, 0))(t)
	defer made.Close()
	trainer := must.Get(train.NewTrainer(made, options))(t)
	defer trainer.Close()
	trainer.NoCapture = !capture
	inputs, targets := randomBatch(rand.New(rand.NewPCG(41, 42)), wide(), wideBatch, wideLength)
	for step := range 3 {
		if step == 2 {
			must.Do(t, ctx.Trim())
			must.Do(t, ctx.ResetPeak())
		}
		must.Get(trainer.TrainStep(inputs, targets, wideBatch))(t)
	}
	return int(must.Get(ctx.BytesPeak())(t))
}

// TestMemoryFallsByWhatIsNotKept: by what the shapes say, to the byte where no graph holds memory.
func TestMemoryFallsByWhatIsNotKept(t *testing.T) {
	for precision, width := range map[model.Precision]int{model.F32: 4, model.BF16: 2} {
		expected := heldIn(width)
		for _, capture := range []bool{false, true} {
			slack := 64
			if capture { // memory of a graph is used again by what has the same size alone: the two peaks may overlap
				slack = expected.loss + expected.backward
			}
			everything := peak(t, precision, recomputation{}, capture)
			for _, way := range []recomputation{{1, false, 0}, {2, false, 0}, {3, false, 0}, {0, true, 0}, {2, true, 0}} {
				fallen, wanted := everything-peak(t, precision, way, capture), expected.fallen(way)
				if off := fallen - wanted; off > slack || off < -slack {
					t.Errorf("%s, captured %v, %+v: fell by %d bytes, not %d", precision, capture, way, fallen, wanted)
				}
			}
		}
	}
}

// TestCountsAreThoseOfTheForwardCall: the recomputed one neither replaces them nor counts the balancing loss again.
func TestCountsAreThoseOfTheForwardCall(t *testing.T) {
	config, options := tiny(), options()
	options.ActivationCheckpointing = 1
	trainer := newTrainer(t, newContext(t), config, options)
	inputs, targets := randomBatch(rand.New(rand.NewPCG(51, 52)), config, 4, 16)
	result := must.Get(trainer.TrainStep(inputs, targets, 4))(t)
	slots := int32(0)
	for _, row := range must.Get(result.ExpertCounts())(t) {
		for _, count := range row {
			slots += count
		}
	}
	if wanted := int32(config.NumLayers * 64 * config.ExpertsPerToken); slots != wanted {
		t.Errorf("%d slots, not %d", slots, wanted)
	}
	// alpha * sum over layers and experts of f * P, where P is near 1 / experts.
	near := config.AuxAlpha * float64(slots) / 64 / float64(config.NumExperts)
	if aux := must.Get(result.AuxLoss())(t); math.Abs(aux/near-1) > 0.5 {
		t.Errorf("the balancing loss is %v, not near %v", aux, near)
	}
}

func TestModelsWithFewerBlocks(t *testing.T) {
	made := must.Get(model.New(newContext(t), tiny(), model.F32, 0))(t)
	defer made.Close()
	options := options()
	options.ActivationCheckpointing = 3
	if _, err := train.NewTrainer(made, options); err == nil ||
		!strings.Contains(err.Error(), "activation_checkpointing is 3; this model has 2 blocks") {
		t.Error(err)
	}
}

// TestOptionsThatCameLater are in files only where they are not at their defaults.
func TestOptionsThatCameLater(t *testing.T) {
	config := train.DefaultConfig()
	later := []string{
		"activation_checkpointing", "recompute_experts", "keep_experts", "precision", "loss_scale", "loss_scale_growth",
		"loss_scale_backoff", "loss_scale_interval",
	}
	names := config.Object().Names()
	if slices.ContainsFunc(later, func(name string) bool { return slices.Contains(names, name) }) || len(names) != 18 {
		t.Errorf("a file of the usual options has %v", names)
	}
	config.ActivationCheckpointing, config.RecomputeExperts, config.KeepExperts, config.Precision = 2, true, 1, model.F16
	config.LossScale, config.LossScaleGrowth, config.LossScaleBackoff, config.LossScaleInterval = 8, 4, 0.25, 9
	must.Do(t, config.Validate())
	names = config.Object().Names()
	first := slices.Index(names, later[0])
	if first < 0 || !slices.Equal(names[first:first+len(later)], later) || names[first-1] != "clip_norm" {
		t.Errorf("in the order %v", names)
	}
	again := train.DefaultConfig()
	must.Do(t, again.Assign(config.Object()))
	config.WarmupSteps = 500 // a twentieth of the steps
	if again != config {
		t.Errorf("%+v, not %+v", again, config)
	}
}
