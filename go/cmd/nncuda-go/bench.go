package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
)

// What runs before the clock does, and the calls that it times.
const (
	warmSteps  = 3
	warmTokens = 4
	warmCalls  = 1000
	timedCalls = 10000
)

// benchFlags are the flags of `bench`.
type benchFlags struct {
	config, data   string
	steps, decode  int
	json           bool
	device         deviceFlags
	trained        float64 // tokens a second
	decoded, calls float64 // tokens a second, nanoseconds
}

func newBench(std streams) *cobra.Command {
	flags := &benchFlags{}
	command := &cobra.Command{
		Use:   "bench [flags] --config FILE --data SHARD",
		Short: "Time a training step, a decoded token and a call from Go.",
		Long: `Time a training step, a decoded token and a call from Go: the worker of the comparison of languages.

It does 3 steps to warm up, then --steps timed ones; the ids 1 to 16 and 4 greedy tokens to warm up, then --decode
timed ones; 1000 calls of cuda_add on one element to warm up, then 10000 timed ones.`,
		Args: exactArguments(),
		RunE: func(command *cobra.Command, _ []string) error {
			defer interruptible(command.Context(), std)()
			return flags.run(command, std)
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.config, "config", "", "A TOML file.")
	set.StringVar(&flags.data, "data", "", "A token shard, or a folder of them.")
	set.IntVar(&flags.steps, "steps", 10, "Steps that are timed.")
	set.IntVar(&flags.decode, "decode", 64, "Tokens that are timed.")
	set.BoolVar(&flags.json, "json", false, "Write JSON, for programs.")
	flags.device.add(set)
	command.AddCommand(newBenchInference(std), newBenchEngine(std))
	return command
}

func (f *benchFlags) run(command *cobra.Command, std streams) error {
	if err := f.device.check(command); err != nil {
		return err
	}
	for _, path := range []struct {
		name, value string
		kind        int
	}{{"--config", f.config, filePath}, {"--data", f.data, anyPath}} {
		if path.value == "" {
			return usagef("missing option '%s'", path.name)
		}
		if err := requirePath(path.name, path.value, path.kind); err != nil {
			return err
		}
	}
	if f.steps < 1 || f.decode < 1 {
		return usagef("--steps and --decode must be at least 1")
	}
	ctx, err := f.device.open()
	if err != nil {
		return err
	}
	err = f.measure(ctx)
	threads, failure := ctx.Threads()
	if err := errors.Join(err, failure, ctx.Close()); err != nil {
		return err
	}
	result := formats.NewObject(
		"language", "go", "train_tokens_per_second", f.trained, "decode_tokens_per_second", f.decoded,
		"call_nanoseconds", f.calls, "threads", threads)
	return printObject(std.out, result, f.json)
}

// printObject writes an object as JSON, or as a line an entry.
func printObject(out io.Writer, object *formats.Object, asJSON bool) error {
	if asJSON {
		line, err := formats.JSONLine(object)
		if err == nil {
			_, err = out.Write(line)
		}
		return err
	}
	for _, name := range object.Names() {
		if _, err := fmt.Fprintf(out, "%s: %v\n", name, object.Get(name)); err != nil {
			return err
		}
	}
	return nil
}

func (f *benchFlags) measure(ctx *cuda.Context) (err error) {
	vocab, err := vocabularyOf(f.data)
	if err != nil {
		return err
	}
	file, err := readConfigFile(f.config)
	if err != nil {
		return err
	}
	modelConfig, trainConfig, err := buildConfigs(file, "", nil, vocab)
	if err != nil {
		return err
	}
	windows, err := train.OpenWindows(f.data, trainConfig.SequenceLength)
	if err != nil {
		return err
	}
	made, err := model.New(ctx, modelConfig, trainConfig.Precision, trainConfig.Seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	trainer, err := train.NewTrainer(made, trainConfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trainer.Close()) }()
	if f.trained, err = timeSteps(trainer, windows, f.steps); err != nil {
		return err
	}
	if f.decoded, err = timeTokens(made, f.decode); err != nil {
		return err
	}
	f.calls, err = timeCalls(ctx)
	return err
}

// timeSteps gives tokens a second over so many steps, each on the batch of a run; nothing is read back.
func timeSteps(trainer *train.Trainer, windows *train.Windows, steps int) (float64, error) {
	config, ctx := trainer.Config, trainer.Model.Context()
	var began time.Time
	for step := range warmSteps + steps {
		if step == warmSteps {
			if err := ctx.Synchronize(); err != nil {
				return 0, err
			}
			began = time.Now()
		}
		first := int64(step * config.BatchSize)
		indices, err := ctx.DataOrder(config.Seed, first, config.BatchSize, int64(windows.Count))
		if err != nil {
			return 0, err
		}
		batch, err := windows.Batch(indices)
		if err != nil {
			return 0, err
		}
		if _, err := trainer.TrainBatch(batch, config.BatchSize); err != nil {
			return 0, err
		}
	}
	if err := ctx.Synchronize(); err != nil {
		return 0, err
	}
	return float64(steps*config.BatchSize*config.SequenceLength) / time.Since(began).Seconds(), nil
}

// timeTokens gives tokens a second of a sequence that continues greedily, each token read back.
func timeTokens(made *model.MoETransformer, count int) (float64, error) {
	prompt := make([]int32, 16)
	for at := range prompt {
		prompt[at] = int32(at + 1)
	}
	var began time.Time
	seen := 0
	ctx, total := context.Background(), warmTokens+count
	for _, err := range infer.Tokens(ctx, made, prompt, total, infer.Sampling{}, infer.NoToken) {
		if err != nil {
			return 0, err
		}
		if seen++; seen == warmTokens {
			began = time.Now()
		}
	}
	return float64(count) / time.Since(began).Seconds(), nil
}

// timeCalls gives nanoseconds of a call that has next to nothing to do.
func timeCalls(ctx *cuda.Context) (float64, error) {
	var spent time.Duration
	err := layer.Run(ctx, func(p *layer.Pass) {
		a, b, y := p.Empty(cuda.F32, 1), p.Empty(cuda.F32, 1), p.Empty(cuda.F32, 1)
		for _, zero := range []*tensor.Tensor{a, b} {
			p.Check(zero.Zero())
		}
		var began time.Time
		for call := range warmCalls + timedCalls {
			if call == warmCalls {
				p.Check(ctx.Synchronize())
				began = time.Now()
			}
			p.Check(tensor.Add(a, b, y))
		}
		p.Check(ctx.Synchronize())
		spent = time.Since(began)
	})
	return float64(spent.Nanoseconds()) / timedCalls, err
}
