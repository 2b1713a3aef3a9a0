package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/model"
)

// UsualWarmup stands for the WarmupSteps of a run that is given none: a twentieth of its steps, at least 1 and at most
// 2000; a single step has none.
const UsualWarmup = -1

// NoDocumentMask is the DocumentMask of a run whose sequences are one document each.
const NoDocumentMask = -1

// presets are what the presets of models are trained with, where it is not the default.
var presets = map[string]func(*Config){
	"6.9b": func(c *Config) {
		c.Steps, c.BatchSize, c.MicroBatchSize, c.SequenceLength, c.LearningRate = 100000, 64, 1, 4096, 3e-4
		c.ActivationCheckpointing, c.Precision = 1, model.BF16
	},
	"small": func(c *Config) { c.Steps, c.LearningRate = 2000, 2e-3 },
	"demo":  func(c *Config) { c.Steps, c.LearningRate = 1000, 2e-3 },
}

// FineTuning gives what a run that begins with trained weights is trained with unless told otherwise: few steps, with a
// low rate.
func FineTuning() Config {
	config := DefaultConfig()
	config.Steps, config.LearningRate = 1000, 5e-5
	return config
}

// AdapterTuning is the same of an adapter, whose few parameters take larger steps.
// (Dettmers et al. 2023, "QLoRA", appendix B)
func AdapterTuning() Config {
	config := FineTuning()
	config.LearningRate = 2e-4
	return config
}

// Preset gives the options that go with the model of that preset.
func Preset(name string) (Config, error) {
	if _, err := model.Preset(name); err != nil {
		return Config{}, err
	}
	config := DefaultConfig()
	presets[name](&config)
	return config, nil
}

// Config is everything that decides the bits of a training run, beside the model and the data; and when it reports.
// What each option is stands in the list below, which files, flags and messages share. Where none is a value, 0 is it,
// UsualWarmup of WarmupSteps and NoDocumentMask of DocumentMask.
type Config struct {
	Steps          int `name:"steps"`
	BatchSize      int `name:"batch_size"`
	MicroBatchSize int `name:"micro_batch_size" none:""`
	Replicas       int `name:"replicas"`

	ReduceDType model.Precision `name:"reduce_dtype" choices:"f32,bf16,f16"`

	SequenceLength int     `name:"sequence_length"`
	DocumentMask   int     `name:"document_mask" none:"-1"`
	LearningRate   float64 `name:"learning_rate"`
	MinRateShare   float64 `name:"min_rate_share"`
	WarmupSteps    int     `name:"warmup_steps" none:"-1"`
	Beta1          float64 `name:"beta1"`
	Beta2          float64 `name:"beta2"`
	Eps            float64 `name:"eps"`
	WeightDecay    float64 `name:"weight_decay"`
	ClipNorm       float64 `name:"clip_norm" none:""`
	MaxLoss        float64 `name:"max_loss" none:""`

	ActivationCheckpointing int             `name:"activation_checkpointing"`
	RecomputeExperts        bool            `name:"recompute_experts"`
	KeepExperts             int             `name:"keep_experts"`
	Precision               model.Precision `name:"precision" choices:"f32,bf16,f16,fp8"`
	Moments                 MomentsKind     `name:"moments" choices:"f32,bf16,f8"`
	LossScale               float64         `name:"loss_scale"`
	LossScaleGrowth         float64         `name:"loss_scale_growth"`
	LossScaleBackoff        float64         `name:"loss_scale_backoff"`
	LossScaleInterval       int             `name:"loss_scale_interval"`

	LoraRank    int     `name:"lora_rank"`
	LoraAlpha   float64 `name:"lora_alpha" none:""`
	LoraTargets string  `name:"lora_targets"`

	Seed            int64 `name:"seed"`
	EvalEvery       int   `name:"eval_every"`
	EvalBatches     int   `name:"eval_batches"`
	SaveEvery       int   `name:"save_every"`
	KeepCheckpoints int   `name:"keep_checkpoints"`
	LogEvery        int   `name:"log_every"`
	HashEvery       int   `name:"hash_every"`
}

// fields are the options of a Config, with what each must be and what it does.
var fields = options.Fields[Config]([]options.Words{
	{"steps", "a whole number, from 1 to 2147483647", "total number of updates; the schedule ends here"},
	{"batch_size", "a whole number, from 1 to 2147483647", "sequences per update"},
	{"micro_batch_size", "a whole number, from 1 to 2147483647",
		"sequences that run at once; the gradients of the micro-batches of an update are added up"},
	{"replicas", "a whole number, from 1 to 2147483647",
		"parts of an update that ranks share out; their gradients are added in a tree that the number of ranks does " +
			"not change: at most as many as there are micro-batches"},
	{"reduce_dtype", "one of f32, bf16, f16",
		"what the gradient of each replica, and each sum of them but the whole, is rounded to, so that ranks send fewer " +
			"bytes: f32, which rounds nothing, bf16, or f16, for precision f16"},
	{"sequence_length", "a whole number, from 1 to 2147483647", "tokens per sequence"},
	{"document_mask", "a whole number, from 0 to 2147483647, or none",
		"id of the token that ends a document: documents in a sequence then do not see one another, and each begins at " +
			"position 0; None for one that sees all before it"},
	{"learning_rate", "a number, from 0 to 1e+30", "highest rate, reached after the warm-up"},
	{"min_rate_share", "a number, from 0 to 1", "the cosine ends at this share of it"},
	{"warmup_steps", "a whole number, from 0 to 2147483647",
		"steps of linear warm-up, fewer than there are steps; None is a twentieth of them, from 1 to 2000"},
	{"beta1", "a number, from 0 to 0.999999", "AdamW parameter"},
	{"beta2", "a number, from 0 to 0.999999", "AdamW parameter"},
	{"eps", "a number, from 1e-30 to 1", "AdamW parameter"},
	{"weight_decay", "a number, from 0 to 1e+30", "decoupled, on matrices only"},
	{"clip_norm", "a number, from 1e-30 to 1e+30, or none",
		"largest global norm of the gradients; None never clips"},
	{"max_loss", "a number, from 1e-30 to 1e+38, or none",
		"a reported loss above it ends the run as diverged; None is 10 ln(vocab_size)"},
	{"activation_checkpointing", "a whole number, from 0 to 2147483647",
		"to save memory, every n-th block keeps only its input and recomputes the rest in backward, with the same " +
			"bits: 1 is every block, 0 none"},
	{"recompute_experts", "true or false",
		"the same, in the other blocks, for the inside of their experts"},
	{"keep_experts", "a whole number, from 0 to 2147483647",
		"with recompute_experts, so many blocks, the last ones, keep it, as far as memory goes"},
	{"precision", "one of f32, bf16, f16, fp8",
		"what the model computes in: f32, bf16, f16, whose losses are scaled, or fp8, which is bf16 with the experts' " +
			"products in 8 bits; weights and gradients are kept in f32"},
	{"moments", "one of f32, bf16, f8",
		"format of both AdamW moments, to save memory: f32, bf16, or f8, which is 8-bit codes with a scale " +
			"for every 256 parameters"},
	{"loss_scale", "a number, from 5.96046e-08 to 1.67772e+07", "initial loss scale, with f16"},
	{"loss_scale_growth", "a number, from 1 to 1.67772e+07",
		"factor of the scale after loss_scale_interval steps without an overflow"},
	{"loss_scale_backoff", "a number, from 5.96046e-08 to 1",
		"factor of the scale after a step whose gradients overflow, which is skipped"},
	{"loss_scale_interval", "a whole number, from 1 to 2147483647", "steps without an overflow after which the scale grows"},
	{"lora_rank", "a whole number, from 0 to 65536",
		"rank of an adapter (LoRA) that is trained beside the model's weights, which stay as they are stored; 0 trains the weights"},
	{"lora_alpha", "a number, from 1e-06 to 1e+06, or none",
		"by which what it adds counts lora_alpha / lora_rank times; None is lora_rank, which is once"},
	{"lora_targets", "all, or some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, separated by commas",
		"the projections of a layer that have one, separated by commas, such as q_proj,v_proj; or all"},
	{"seed", "a whole number of 64 bits", "seed of the initial weights and of the data order"},
	{"eval_every", "a whole number, from 0 to 2147483647",
		"steps between evaluations on held-out text; 0 evaluates only at the end"},
	{"eval_batches", "a whole number, from 0 to 2147483647",
		"batches per evaluation, always the same ones; 0 uses all"},
	{"save_every", "a whole number, from 0 to 2147483647", "steps between checkpoints; 0 saves only at the end"},
	{"keep_checkpoints", "a whole number, from 1 to 2147483647", "how many of the newest to keep, besides the best"},
	{"log_every", "a whole number, from 1 to 2147483647", "steps between lines of metrics"},
	{"hash_every", "a whole number, from 0 to 2147483647",
		"steps between hashes of parameters, moments and data, by which a run can be checked; 0 makes none"},
})

// added are options that checkpoints did not have from the beginning. Files have them where they are not at their
// defaults, so a run that uses none of them is the same file as ever, which programs from before them open too.
var added = map[string]bool{
	"activation_checkpointing": true, "recompute_experts": true, "keep_experts": true, "precision": true, "loss_scale": true,
	"loss_scale_growth": true, "loss_scale_backoff": true, "loss_scale_interval": true, "max_loss": true,
	"moments": true, "replicas": true, "reduce_dtype": true, "document_mask": true, "hash_every": true,
	"lora_rank": true, "lora_alpha": true, "lora_targets": true,
}

// Changeable lists the options that a run may go on with other values of. Micro-batches and what is computed twice
// change how a step is reached, not what is trained; the rest decides when the run looks at itself.
func Changeable() []string {
	return []string{
		"micro_batch_size", "activation_checkpointing", "recompute_experts", "keep_experts", "eval_every", "eval_batches", "save_every",
		"keep_checkpoints", "log_every", "hash_every", "max_loss",
	}
}

// Loss scales that the library takes.
const leastLossScale, largestLossScale = 1.0 / (1 << 24), 1 << 24

// bounds are the least and the largest value of each number; tests/bounds.json has the reasons.
var bounds = options.Bounds{
	"learning_rate":      {0, 1e30},
	"min_rate_share":     {0, 1},
	"beta1":              {0, 0.999999},
	"beta2":              {0, 0.999999},
	"eps":                {1e-30, 1},
	"weight_decay":       {0, 1e30},
	"clip_norm":          {1e-30, 1e30},
	"max_loss":           {1e-30, 1e38},
	"loss_scale":         {leastLossScale, largestLossScale},
	"loss_scale_growth":  {1, largestLossScale},
	"loss_scale_backoff": {leastLossScale, 1},
	"lora_alpha":         {1e-6, 1e6},
}

// largestRank is that of an adapter; tests/bounds.json has the reason.
const largestRank = 65536

// Options lists the options, for flags and help.
func Options() []options.Field { return fields }

// DefaultConfig gives the usual options.
func DefaultConfig() Config {
	return Config{
		Steps: 10000, BatchSize: 8, Replicas: 1, ReduceDType: model.F32, SequenceLength: 256, DocumentMask: NoDocumentMask,
		LearningRate: 3e-4, MinRateShare: 0.1, WarmupSteps: UsualWarmup,
		Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, ClipNorm: 1.0,
		Precision: model.F32, Moments: MomentsF32, LossScale: 65536, LossScaleGrowth: 2, LossScaleBackoff: 0.5, LossScaleInterval: 2000,
		LoraTargets: "all",
		EvalEvery:   100, SaveEvery: 100, KeepCheckpoints: 2, LogEvery: 1, HashEvery: 25,
	}
}

// Assign sets options by name, as files and flags give them. Unknown names and wrong types are errors; ranges are
// checked by Validate.
func (c *Config) Assign(values *formats.Object) error {
	return options.Assign(c, fields, values, "training")
}

// Object gives all options by name, but those that were added later and are at their defaults; of UsualWarmup the steps.
func (c Config) Object() *formats.Object {
	usual, object := DefaultConfig(), formats.NewObject()
	c.WarmupSteps, _ = c.scheduleSteps()
	if c.LoraRank > 0 {
		c.LoraAlpha = c.LowRank().Alpha
	}
	for _, field := range fields {
		if value := field.Get(&c); !added[field.Name] || value != field.Get(&usual) {
			object.Set(field.Name, value)
		}
	}
	return object
}

// with gives the options with other values of those that are `changeable`; `changes` may be nil.
func (c Config) with(changes *formats.Object, changeable []string) (Config, error) {
	if changes == nil {
		return c, nil
	}
	for _, name := range changes.Names() {
		if !slices.Contains(changeable, name) {
			known := strings.Join(changeable, ", ")
			return c, fmt.Errorf("a run goes on with the %s it has; it takes others of %s", name, known)
		}
	}
	if err := c.Assign(changes); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// Validate says which option is outside its range.
func (c Config) Validate() error {
	count := func(value, least int) bool { return value >= least && value <= formats.MaxCount }
	holds := map[string]bool{
		"steps":            count(c.Steps, 1),
		"batch_size":       count(c.BatchSize, 1),
		"micro_batch_size": count(c.MicroBatchSize, 0),
		"replicas":         count(c.Replicas, 1),
		"reduce_dtype":     c.ReduceDType.Validate() == nil && c.ReduceDType != model.FP8,
		"sequence_length":  count(c.SequenceLength, 1),
		"document_mask":    c.DocumentMask == NoDocumentMask || count(c.DocumentMask, 0),
		"warmup_steps":     c.WarmupSteps == UsualWarmup || count(c.WarmupSteps, 0),

		"activation_checkpointing": count(c.ActivationCheckpointing, 0),
		"keep_experts":             count(c.KeepExperts, 0),
		"precision":                c.Precision.Validate() == nil,
		"moments":                  slices.Contains(MomentsKinds(), c.Moments),
		"loss_scale_interval":      count(c.LossScaleInterval, 1),

		"lora_rank":    c.LoraRank >= 0 && c.LoraRank <= largestRank,
		"lora_targets": areTargets(c.adapted()),

		"eval_every":       count(c.EvalEvery, 0),
		"eval_batches":     count(c.EvalBatches, 0),
		"save_every":       count(c.SaveEvery, 0),
		"keep_checkpoints": count(c.KeepCheckpoints, 1),
		"log_every":        count(c.LogEvery, 1),
		"hash_every":       count(c.HashEvery, 0),
	}
	for _, field := range fields {
		if held, checked := holds[field.Name]; checked && !held {
			return field.Wrong(field.Get(&c))
		}
	}
	if err := bounds.Check(&c, fields); err != nil {
		return err
	}
	if c.RecomputeExperts && c.ActivationCheckpointing == 1 {
		return errors.New("recompute_experts is for blocks that activation_checkpointing leaves; 1 leaves none")
	}
	if c.KeepExperts > 0 && !c.RecomputeExperts {
		return fmt.Errorf("keep_experts is %d, but recompute_experts is false; then all blocks keep them", c.KeepExperts)
	}
	if err := c.checkReplicas(c.BatchSize); err != nil {
		return err
	}
	if err := c.checkRounding(); err != nil {
		return err
	}
	if err := c.checkAdapter(); err != nil {
		return err
	}
	return c.checkScaling()
}

// areTargets says whether names are some of the projections that may have an adapter, each once.
func areTargets(names []string) bool {
	known := model.LowRankTargets()
	for at, name := range names {
		if !slices.Contains(known, name) || slices.Contains(names[:at], name) {
			return false
		}
	}
	return true
}

// checkAdapter refuses options of an adapter where none is trained, and a precision that adapters are not trained in.
func (c Config) checkAdapter() error {
	usual := DefaultConfig()
	switch {
	case c.LoraRank == 0 && c.LoraAlpha != 0:
		return errors.New("lora_alpha is given, but lora_rank is 0; it is of an adapter")
	case c.LoraRank == 0 && c.LoraTargets != usual.LoraTargets:
		return errors.New("lora_targets is given, but lora_rank is 0; it is of an adapter")
	case c.LoraRank > 0 && c.Precision != model.F32:
		return fmt.Errorf("precision is %s, but lora_rank is %d; adapters are trained in f32", c.Precision, c.LoraRank)
	}
	return nil
}

// LowRank is what the adapter of a run is made with.
func (c Config) LowRank() model.LowRank {
	alpha := c.LoraAlpha
	if alpha == 0 {
		alpha = float64(c.LoraRank)
	}
	return model.LowRank{Rank: c.LoraRank, Alpha: alpha, Targets: c.adapted()}
}

// adapted are the projections of a layer that have an adapter.
func (c Config) adapted() []string {
	if c.LoraTargets == "all" {
		return model.LowRankTargets()
	}
	return strings.Split(c.LoraTargets, ",")
}

// checkReplicas refuses replicas some of which would have no micro-batch of an update of `batch` sequences.
func (c Config) checkReplicas(batch int) error {
	if most := c.MicroBatches(batch); c.Replicas > most {
		return fmt.Errorf("replicas is %d; an update of batch_size %d in micro-batches of %d has %d, so it must be 1 to %d",
			c.Replicas, batch, c.micro(batch), most, most)
	}
	return nil
}

// checkRounding refuses gradients in f16 without a loss scale, and rounding where nothing is added over replicas.
func (c Config) checkRounding() error {
	switch {
	case c.ReduceDType == model.F16 && c.Precision != model.F16:
		problem := "reduce_dtype is f16, but the precision is %s; gradients fit into f16 only with the loss scale of precision f16"
		return fmt.Errorf(problem, c.Precision)
	case c.ReduceDType != model.F32 && c.Replicas == 1:
		return fmt.Errorf("reduce_dtype is %s, but replicas is 1; gradients are rounded between replicas", c.ReduceDType)
	}
	return nil
}

// CheckRanks refuses more ranks than there are replicas.
func (c Config) CheckRanks(ranks int) error {
	if ranks > c.Replicas {
		problem := "%d ranks share out replicas: replicas must be at least %d, and is %d"
		return fmt.Errorf(problem, ranks, ranks, c.Replicas)
	}
	return nil
}

// oneMicroBatchEach says that each rank runs one of an update, and so needs a layer's gradients only until others have
// them.
func (c Config) oneMicroBatchEach(ranks int) bool {
	return c.Replicas == ranks && c.MicroBatches(c.BatchSize) == ranks
}

// PartitionsGradients says whether the models of ranks are to partition their gradients (model.PartitionedGradients):
// where they can, and it is less memory. Ranks that share the experts out have parts of most of them anyway; a tied head's are
// needed from the first layer to the last; and it has not been tried on a GPU.
func (c Config) PartitionsGradients(config model.Config, device cuda.Device, ranks, expertParallel int) bool {
	return device == cuda.CPU && ranks > 1 && expertParallel == 1 && !config.TieEmbeddings &&
		c.oneMicroBatchEach(ranks) && model.NewLayout(config).PartitioningSaves(ranks)
}

// micro is how many of `batch` sequences run at once.
func (c Config) micro(batch int) int {
	if c.MicroBatchSize == 0 {
		return batch
	}
	return c.MicroBatchSize
}

// MicroBatches is how many an update of `batch` sequences has.
func (c Config) MicroBatches(batch int) int { return (batch + c.micro(batch) - 1) / c.micro(batch) }

// checkScaling refuses options of loss scaling where no losses are scaled.
func (c Config) checkScaling() error {
	usual := DefaultConfig()
	for _, field := range fields {
		given := strings.HasPrefix(field.Name, "loss_scale") && field.Get(&c) != field.Get(&usual)
		if given && c.Precision != model.F16 {
			return fmt.Errorf("%s is given, but the precision is %s; losses are scaled in f16", field.Name, c.Precision)
		}
	}
	return nil
}

// scheduleSteps are warm-up and total steps of the learning-rate schedule: a run shorter than its warm-up never leaves
// it.
func (c Config) scheduleSteps() (warmup, total int) {
	if warmup = c.WarmupSteps; warmup == UsualWarmup {
		warmup = usualWarmup(c.Steps)
	}
	return warmup, max(c.Steps, warmup)
}

func usualWarmup(steps int) int { return min(max(steps/20, 1), 2000, steps-1) }

// CheckSchedule is an error when the steps end before the warm-up does. Runs from when that was allowed still go on.
func (c Config) CheckSchedule() error {
	warmup, _ := c.scheduleSteps()
	if warmup < c.Steps {
		return nil
	}
	usual := usualWarmup(c.Steps)
	return fmt.Errorf("warmup_steps is %d, but there are %d steps: the rate would never reach its highest; "+
		"give fewer, such as %d, or none, which is %d here", warmup, c.Steps, usual, usual)
}
