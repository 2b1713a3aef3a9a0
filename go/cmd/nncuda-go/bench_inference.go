package main

import (
	"context"
	"errors"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/spf13/cobra"
)

// firstTokens run before the clock does: the first ends the prefill, the second runs call by call, with the third the
// step is captured.
const firstTokens = 3

// inferenceFlags are the flags of `bench inference`.
type inferenceFlags struct {
	config, preset, precision string
	prompt, tokens            int
	json                      bool
	device                    deviceFlags
}

func newBenchInference(std streams) *cobra.Command {
	flags := &inferenceFlags{}
	command := &cobra.Command{
		Use:   "inference [flags]",
		Short: "Time generation by a model with random weights: to the first token, and each token after it.",
		Args:  exactArguments(),
		RunE: func(command *cobra.Command, _ []string) error {
			defer interruptible(command.Context(), std)()
			return flags.run(command, std)
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.config, "config", "", "A TOML file.")
	set.StringVar(&flags.preset, "preset", "", presetHelp())
	set.StringVar(&flags.precision, "precision", string(model.BF16), "What the model computes in.")
	set.IntVar(&flags.prompt, "prompt", 128, "Tokens of the prompt.")
	set.IntVar(&flags.tokens, "tokens", 64, "Timed tokens.")
	set.BoolVar(&flags.json, "json", false, "Write JSON, for programs.")
	flags.device.add(set)
	return command
}

func (f *inferenceFlags) run(command *cobra.Command, std streams) error {
	if err := f.device.check(command); err != nil {
		return err
	}
	if err := checkPreset(f.preset); err != nil {
		return err
	}
	if err := checkPrecision(f.precision); err != nil {
		return err
	}
	if f.prompt < 1 || f.tokens < 1 {
		return usagef("--prompt and --tokens must be at least 1")
	}
	if f.config != "" {
		if err := requirePath("--config", f.config, filePath); err != nil {
			return err
		}
	}
	config, err := f.model()
	if err != nil {
		return err
	}
	ctx, err := f.device.open()
	if err != nil {
		return err
	}
	result, err := f.measure(ctx, config)
	if err := errors.Join(err, ctx.Close()); err != nil {
		return err
	}
	return printObject(std.out, result, f.json)
}

// model is the configuration that is asked for, with the vocabulary of its preset.
func (f *inferenceFlags) model() (model.Config, error) {
	file, err := readConfigFile(f.config)
	if err != nil {
		return model.Config{}, err
	}
	config, _, err := buildConfigs(file, f.preset, nil, presetVocabulary(file, f.preset))
	return config, err
}

func (f *inferenceFlags) measure(ctx *cuda.Context, config model.Config) (result *formats.Object, err error) {
	precision := model.Precision(f.precision)
	began := time.Now()
	made, err := model.NewForInference(ctx, config, precision, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	if err := ctx.Synchronize(); err != nil {
		return nil, err
	}
	making := time.Since(began)
	prompt := make([]int32, f.prompt)
	for at := range prompt {
		prompt[at] = int32(at % config.VocabSize)
	}
	var first, spent time.Duration
	var before, after int64
	seen := 0
	began = time.Now()
	for _, err := range infer.Tokens(
		context.Background(), made, prompt, firstTokens+f.tokens, infer.Sampling{}, infer.NoToken,
	) {
		if err != nil {
			return nil, err
		}
		switch seen++; seen {
		case 1:
			first = time.Since(began)
		case firstTokens:
			if before, err = bytesInUse(ctx); err != nil {
				return nil, err
			}
			began = time.Now()
		case firstTokens + f.tokens:
			spent = time.Since(began)
			if after, err = bytesInUse(ctx); err != nil {
				return nil, err
			}
		}
	}
	peak, err := ctx.BytesPeak()
	if err != nil {
		return nil, err
	}
	threads, err := ctx.Threads()
	if err != nil {
		return nil, err
	}
	needed := bytesAToken(config, precision, f.prompt+firstTokens-1+f.tokens/2)
	return formats.NewObject(
		"language", "go", "parameters", config.NumParameters(), "active_parameters", config.NumActiveParameters(),
		"precision", f.precision, "threads", threads, "prompt", f.prompt, "tokens", f.tokens,
		"seconds_to_make", making.Seconds(), "seconds_to_first_token", first.Seconds(),
		"tokens_per_second", float64(f.tokens)/spent.Seconds(), "bytes_a_token", needed,
		"bytes_per_second", float64(needed*f.tokens)/spent.Seconds(), "bytes_peak", peak, "bytes_grown", after-before,
	), nil
}

// bytesInUse is what tensors and scratch take now.
func bytesInUse(ctx *cuda.Context) (int64, error) {
	used, err := ctx.BytesUsed()
	if err != nil {
		return 0, err
	}
	arena, err := ctx.BytesArena()
	return used + arena, err
}

// bytesAToken is what decoding one token reads when `position` tokens were before it: the weights that it meets, of the
// embedding its own row, and keys and values of the tokens before it and its own.
func bytesAToken(config model.Config, precision model.Precision, position int) int {
	met := config.NumActiveParameters() - (config.VocabSize-1)*config.HiddenSize
	cached := 2 * config.NumLayers * config.NumKVHeads * config.HeadDim * (position + 1)
	if precision == model.F32 {
		return 4 * (met + cached)
	}
	return 2 * (met + cached)
}
