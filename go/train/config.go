package train

import (
	"math"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
)

// Config is everything that decides the bits of a training run, beside the model and the data; and when it reports.
// DefaultConfig gives the usual values. The tags are the one list of options.
type Config struct {
	Steps           int     `name:"steps" rule:"a whole number, at least 1" help:"updates in all; the schedule ends here"`
	BatchSize       int     `name:"batch_size" rule:"a whole number, at least 1" help:"sequences an update"`
	MicroBatchSize  int     `name:"micro_batch_size" none:"" rule:"a whole number, at least 1" help:"sequences that run at once; the gradients of the micro-batches of an update are added up"`
	SequenceLength  int     `name:"sequence_length" rule:"a whole number, at least 1" help:"tokens a sequence"`
	LearningRate    float64 `name:"learning_rate" rule:"a number, at least 0" help:"highest rate, reached after the warm-up"`
	MinRateShare    float64 `name:"min_rate_share" rule:"a number, from 0 to 1" help:"the cosine ends at this share of it"`
	WarmupSteps     int     `name:"warmup_steps" rule:"a whole number, at least 0" help:"steps of linear warm-up"`
	Beta1           float64 `name:"beta1" rule:"a number, from 0 to 1, and below 1" help:"AdamW's"`
	Beta2           float64 `name:"beta2" rule:"a number, from 0 to 1, and below 1" help:"AdamW's"`
	Eps             float64 `name:"eps" rule:"a number above 0" help:"AdamW's"`
	WeightDecay     float64 `name:"weight_decay" rule:"a number, at least 0" help:"decoupled, on matrices only"`
	ClipNorm        float64 `name:"clip_norm" none:"" rule:"a number above 0, or none for no clipping" help:"largest global norm of the gradients; None never clips"`
	Seed            int64   `name:"seed" rule:"a whole number of 64 bits" help:"of the initial weights and of the data order"`
	EvalEvery       int     `name:"eval_every" rule:"a whole number, at least 0" help:"steps between evaluations on held-out text; 0 evaluates at the end alone"`
	EvalBatches     int     `name:"eval_batches" rule:"a whole number, at least 0" help:"batches an evaluation takes, always the same ones; 0 takes all"`
	SaveEvery       int     `name:"save_every" rule:"a whole number, at least 0" help:"steps between checkpoints; 0 saves at the end alone"`
	KeepCheckpoints int     `name:"keep_checkpoints" rule:"a whole number, at least 1" help:"how many of the newest to keep, beside the best"`
	LogEvery        int     `name:"log_every" rule:"a whole number, at least 1" help:"steps between lines of metrics"`
}

// DefaultConfig gives the usual options.
func DefaultConfig() Config {
	return Config{
		Steps: 10000, BatchSize: 8, SequenceLength: 256, LearningRate: 3e-4, MinRateShare: 0.1, WarmupSteps: 2000,
		Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, ClipNorm: 1.0, EvalEvery: 100, SaveEvery: 100,
		KeepCheckpoints: 2, LogEvery: 1,
	}
}

// Assign sets options by name, as files and flags give them. Unknown names and wrong types are errors; ranges are
// checked by Validate.
func (c *Config) Assign(values options.Values) error {
	return options.Assign(c, values, "training", formats.Repr)
}

// Object gives all options by name.
func (c Config) Object() *formats.Object {
	object := formats.NewObject()
	for _, field := range options.Fields[Config]() {
		object.Set(field.Name, field.Get(&c))
	}
	return object
}

// Sizes and counts beyond this would not fit the library's 32-bit options.
const maxCount = math.MaxInt32

// Validate says which option is outside its range.
func (c Config) Validate() error {
	within := func(value, low, high float64) bool { return value >= low && value <= high && !math.IsInf(value, 0) }
	count := func(value, least int) bool { return value >= least && value <= maxCount }
	holds := map[string]bool{
		"steps":            count(c.Steps, 1),
		"batch_size":       count(c.BatchSize, 1),
		"micro_batch_size": count(c.MicroBatchSize, 0),
		"sequence_length":  count(c.SequenceLength, 1),
		"learning_rate":    within(c.LearningRate, 0, math.Inf(1)),
		"min_rate_share":   within(c.MinRateShare, 0, 1),
		"warmup_steps":     count(c.WarmupSteps, 0),
		"beta1":            within(c.Beta1, 0, 1) && c.Beta1 < 1,
		"beta2":            within(c.Beta2, 0, 1) && c.Beta2 < 1,
		"eps":              within(c.Eps, 0, math.Inf(1)) && c.Eps > 0,
		"weight_decay":     within(c.WeightDecay, 0, math.Inf(1)),
		"clip_norm":        within(c.ClipNorm, 0, math.Inf(1)),
		"seed":             true,
		"eval_every":       count(c.EvalEvery, 0),
		"eval_batches":     count(c.EvalBatches, 0),
		"save_every":       count(c.SaveEvery, 0),
		"keep_checkpoints": count(c.KeepCheckpoints, 1),
		"log_every":        count(c.LogEvery, 1),
	}
	for _, field := range options.Fields[Config]() {
		if !holds[field.Name] {
			return field.Wrong(formats.Repr(field.Get(&c)))
		}
	}
	return nil
}

// scheduleSteps are warm-up and total steps of the learning-rate schedule: a run shorter than its warm-up never leaves
// it.
func (c Config) scheduleSteps() (warmup, total int) {
	return c.WarmupSteps, max(c.Steps, c.WarmupSteps)
}
