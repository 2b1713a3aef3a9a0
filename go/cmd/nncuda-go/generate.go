package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tokenizer"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
)

const usualTokens = 128

// generateFlags are the flags of `generate`.
type generateFlags struct {
	model             string
	prompts           []string
	maxTokens         int // -1 where it is not given
	greedy, ids, best bool
	drawing           drawingFlags
	engine            engineFlags
	adapter           adapterFlag
	contiguous        bool
	precision         string // "" where it is not given
	device            deviceFlags
}

func newGenerate(std streams) *cobra.Command {
	flags := &generateFlags{}
	command := &cobra.Command{
		Use:   "generate [flags] [MODEL] [PROMPT]...",
		Short: "Generate text, or token ids, with a trained model.",
		Long: `Continue PROMPT ("-" reads it from standard input) with MODEL, and write the text as it is generated.

MODEL is a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint, or the folder of a run.

Several prompts run together; their texts are written in order, separated by a line "---".

With --ids, PROMPT is token ids separated by spaces or commas, which the model reads unchanged, and the output is the
ids that follow, on one line, separated by spaces; no id ends it early.`,
		Args: func(_ *cobra.Command, arguments []string) error { return flags.take(arguments) },
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command, filepath.Clean(flags.model), std)
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.model, "model", "", "The model; all arguments are then prompts.")
	set.StringArrayVar(&flags.prompts, "prompt", nil, "A prompt; may be repeated, and all run together.")
	set.IntVar(&flags.maxTokens, "max-tokens", -1,
		"Maximum number of tokens to write.  [default: 128, or less if the model's context leaves less]")
	set.Lookup("max-tokens").DefValue = "0" // what the help shows no default for
	set.BoolVar(&flags.greedy, "greedy", false, "Always pick the most likely token.")
	flags.drawing.add(set, 1, "0 is the same as --greedy", 0, "the same text. Of several prompts, prompt i uses seed + i")
	set.BoolVar(&flags.ids, "ids", false, "PROMPT and output are token ids; no tokenizer is needed.")
	flags.engine.add(set)
	flags.adapter.add(set)
	set.BoolVar(&flags.contiguous, "contiguous", false, "Run a checkpoint by the layers that train, over a contiguous cache.")
	set.StringVar(&flags.precision, "precision", "", "With --contiguous: the precision to compute in, "+
		strings.Join(model.Precisions(), ", ")+"; weights and cache take half the memory in bf16 and f16.  [default: f32]")
	set.BoolVar(&flags.best, "best", false,
		"For a run, use the checkpoint with the lowest held-out loss instead of the last.")
	flags.device.add(set)
	return command
}

// take finds model and prompts among flags and arguments.
func (f *generateFlags) take(arguments []string) error {
	if f.model == "" {
		if len(arguments) == 0 {
			return usagef("there is no MODEL: name one as the first argument or with --model")
		}
		f.model, arguments = arguments[0], arguments[1:]
	}
	if f.prompts = append(f.prompts, arguments...); len(f.prompts) == 0 {
		return usagef("there is no PROMPT: give one as an argument or with --prompt")
	}
	return nil
}

// check refuses wrong values of flags.
func (f *generateFlags) check(command *cobra.Command, path string) error {
	if err := f.device.check(command); err != nil {
		return err
	}
	given := command.Flags().Changed
	if given("max-tokens") && (f.maxTokens < 0 || f.maxTokens > math.MaxInt32) {
		return usagef("invalid value for '--max-tokens': %d is not at least 0", f.maxTokens)
	}
	if err := f.engine.check(given); err != nil {
		return err
	}
	if given("precision") {
		if err := checkPrecision(f.precision); err != nil {
			return err
		}
	}
	if err := requirePath("MODEL", path, anyPath); err != nil {
		return err
	}
	if err := f.adapter.check(given); err != nil {
		return err
	}
	switch {
	case !f.contiguous && given("precision"):
		return usagef("--precision needs --contiguous; the inference engine computes in f32")
	case f.contiguous && (!f.engine.usual() || given("adapter") || len(f.prompts) > 1):
		return usagef("--contiguous takes one prompt, and none of --context, --cache-format, --weights, --adapter and --stats")
	case f.contiguous && !isTrained(path):
		return usagef("--contiguous is for checkpoints, folders of runs and Mixtral folders")
	}
	return nil
}

// isTrained says whether a path may be a model that model.MoETransformer is.
func isTrained(path string) bool {
	if !isFolder(path) {
		return false
	}
	folder, err := train.ResolveCheckpoint(path, false)
	if err != nil {
		return true // what is wrong is for the reader to say
	}
	if formats.Present(filepath.Join(folder, "training.json")) {
		return true
	}
	config, err := formats.ReadJSON(filepath.Join(folder, "config.json"))
	return err != nil || config.Get("model_type") == any("mixtral")
}

func (f *generateFlags) run(command *cobra.Command, path string, std streams) error {
	if err := f.check(command, path); err != nil {
		return err
	}
	stop := interruptible(command.Context(), std)
	defer stop()
	sampling, err := f.drawing.read(command.Flags().Changed, f.greedy)
	if err != nil {
		return err
	}
	if isFolder(path) {
		if path, err = train.ResolveCheckpoint(path, f.best); err != nil {
			return err
		}
	}
	prompts := make([]string, len(f.prompts))
	for at, prompt := range f.prompts {
		if prompts[at] = prompt; prompt != "-" {
			continue
		}
		text, err := io.ReadAll(std.in)
		if err != nil {
			return err
		}
		prompts[at] = string(text)
	}
	if f.contiguous {
		return f.runContiguous(command, path, prompts[0], sampling, stop, std)
	}
	start := time.Now()
	opened, err := stored.Open(path)
	if err != nil {
		return err
	}
	job := &generation{generateFlags: f, stored: opened, sampling: sampling, start: start, std: std}
	return errors.Join(job.run(command.Context(), prompts, stop), opened.Close())
}

// promptIDs are the ids of a prompt as the model in a path reads it: those that it names, between spaces or commas, or
// those of its text.
func promptIDs(prompt string, named bool, vocab int, tokens tokenizer.TextTokenizer, path string) ([]int32, error) {
	if !named && tokens == nil {
		return nil, formats.Missing(path, "holds no tokenizer, so it cannot read text; --ids takes token ids")
	} else if !named {
		return tokens.Encode(prompt, tokenizer.Encoding{Begin: tokens.AddsBegin()})
	}
	ids := []int32{}
	for _, word := range strings.Fields(strings.ReplaceAll(prompt, ",", " ")) {
		if strings.Trim(word, "0123456789") != "" {
			return nil, usagef("PROMPT has '%s'; with --ids it must be token ids, separated by spaces or commas", word)
		}
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil || int(id) >= vocab {
			return nil, fmt.Errorf("PROMPT[%d] is %s; it must be 0 to %d", len(ids), word, vocab-1)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// generation is prompts to continue on the inference engine.
type generation struct {
	*generateFlags
	stored   *stored.Model
	sampling infer.Sampling
	start    time.Time
	std      streams
}

func (g *generation) run(ctx context.Context, prompts []string, stop func() bool) (err error) {
	adapter, err := g.adapter.open(g.stored.Config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, adapter.Close()) }()
	tokens, err := g.stored.Tokenizer()
	if err != nil {
		return err
	}
	config, longest := g.stored.Config, 0
	wanted := infer.Generation{Sampling: g.sampling}
	for _, prompt := range prompts {
		ids, err := promptIDs(prompt, g.ids, config.VocabSize, tokens, g.stored.Path)
		if err != nil {
			return err
		}
		longest = max(longest, len(ids))
		wanted.Prompts = append(wanted.Prompts, infer.Prompt{IDs: ids})
	}
	if g.ids {
		wanted.EndIDs = []int32{}
	}
	g.choose(longest)
	if wanted.MaxNewTokens = g.maxTokens; g.maxTokens == 0 {
		wanted.MaxNewTokens = infer.NoNewTokens
	}
	device, err := g.device.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	made, err := infer.New(g.stored, device, engine.Options{
		Context: g.engine.context, CacheFormat: g.engine.cacheFormat, Weights: g.engine.weights,
		MaxBatch: min(len(prompts), engine.UsualBatch), Adapter: adapter,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	loaded := time.Since(g.start)
	stop() // from here on an interrupt ends the loop
	first, err := g.write(made.Generate(ctx, wanted), len(prompts))
	if err == nil && g.engine.stats {
		err = writeStatistics(ctx, g.std.err, made, device, loaded, first)
	}
	return err
}

// choose sets how many tokens are written, and the context, where no flag says so.
func (g *generation) choose(longest int) {
	config := g.stored.Config
	if g.maxTokens < 0 {
		reach := g.engine.context
		if reach == 0 {
			reach = min(config.Context, engine.UsualContext)
			if config.ExtendedContext > config.Context {
				reach = max(reach, config.ExtendedContext)
			}
		}
		g.maxTokens = max(0, min(usualTokens, reach-longest+1))
	}
	if g.engine.context == 0 && config.ExtendedContext > config.Context {
		// As over a contiguous cache: the rotary embedding is stretched where a text needs it.
		g.engine.context = min(max(config.Context, longest+g.maxTokens-1), config.ExtendedContext)
	}
}

// writeStatistics says what it took.
func writeStatistics(
	ctx context.Context, out io.Writer, made *infer.LanguageModel, device *cuda.Context, loaded, first time.Duration,
) error {
	state, err := made.State(ctx)
	if err != nil {
		return err
	}
	peak, err := device.BytesPeak()
	if err != nil {
		return err
	}
	done := state.Statistics
	_, err = fmt.Fprintf(out, "loaded in %.2f s; first token after %.3f s\n"+
		"prompt: %d tokens, %d of them in the cache; %d run in %.3f s: %s tokens/s\n"+
		"decode: %d tokens in %d steps, %.3f s: %s tokens/s, %s GB/s\n"+
		"memory: weights %s, cache %s, all tensors and scratch at most %s\n",
		loaded.Seconds(), first.Seconds(),
		done.PromptTokens, done.SharedTokens, done.PrefillTokens, done.PrefillTime.Seconds(),
		rate(float64(done.PrefillTokens), done.PrefillTime),
		done.DecodeTokens, done.DecodeSteps, done.DecodeTime.Seconds(), rate(float64(done.DecodeTokens), done.DecodeTime),
		rate(float64(done.DecodeBytes)/1e9, done.DecodeTime),
		bytesText(int(state.WeightBytes)), bytesText(int(state.CacheBytes)), bytesText(int(peak)))
	return err
}

func rate(amount float64, spent time.Duration) string {
	if spent == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", amount/spent.Seconds())
}
