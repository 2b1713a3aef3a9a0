package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
)

const usualTokens = 128

// generateFlags are the flags of `generate`.
type generateFlags struct {
	model             string
	prompts           []string
	maxTokens         int
	greedy, ids, best bool
	temperature, topP float64
	topK              int
	seed              int64
	precision         string
	device            deviceFlags
}

func newGenerate(std streams) *cobra.Command {
	flags := &generateFlags{}
	command := &cobra.Command{
		Use:   "generate [flags] [MODEL] [PROMPT]",
		Short: "Generate text, or token ids, with a trained model.",
		Long: `Continue PROMPT ("-" reads it from standard input) with MODEL, and write the text as it is generated.

MODEL is a checkpoint, the folder of a run, or a Mixtral folder from elsewhere that has its tokenizer.model.

With --ids, PROMPT is token ids separated by spaces or commas, which the model reads unchanged, and the output is the
ids that follow, on one line, separated by spaces; no id ends it early.`,
		Args: func(_ *cobra.Command, arguments []string) error { return flags.take(arguments) },
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command, filepath.Clean(flags.model), flags.prompts[0], std)
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.model, "model", "", "The model; the argument is then the prompt.")
	set.StringArrayVar(&flags.prompts, "prompt", nil, "The prompt.")
	set.IntVar(&flags.maxTokens, "max-tokens", 0,
		"Maximum number of tokens to write.  [default: 128, or less if the model's context leaves less]")
	set.BoolVar(&flags.greedy, "greedy", false, "Always pick the most likely token.")
	set.Float64Var(&flags.temperature, "temperature", 1, "Sampling temperature; 0 is the same as --greedy.")
	set.IntVar(&flags.topK, "top-k", 0, "Sample only from the K most likely tokens.")
	set.Float64Var(&flags.topP, "top-p", 0, "Sample only from the most likely tokens that make up this share of the "+
		"probability.")
	set.Int64Var(&flags.seed, "seed", 0, "The same seed gives the same text.")
	set.BoolVar(&flags.ids, "ids", false, "PROMPT and output are token ids; no tokenizer is needed.")
	set.StringVar(&flags.precision, "precision", string(model.F32),
		"The precision to compute in; weights and cache take half the memory in bf16 and f16.")
	set.BoolVar(&flags.best, "best", false,
		"For a run, use the checkpoint with the lowest held-out loss instead of the last.")
	flags.device.add(set)
	return command
}

// take finds model and prompt among flags and arguments.
func (f *generateFlags) take(arguments []string) error {
	if f.model == "" {
		if len(arguments) == 0 {
			return usagef("there is no MODEL: name one as the first argument or with --model")
		}
		f.model, arguments = arguments[0], arguments[1:]
	}
	f.prompts = append(f.prompts, arguments...)
	switch len(f.prompts) {
	case 0:
		return usagef("there is no PROMPT: give one as an argument or with --prompt")
	case 1:
		return nil
	}
	return usagef("nncuda-go takes one prompt; the Python package runs several together: nncuda generate")
}

// check refuses wrong values of flags.
func (f *generateFlags) check(command *cobra.Command, folder string) error {
	if err := f.device.check(command); err != nil {
		return err
	}
	given := command.Flags().Changed
	switch {
	case given("max-tokens") && (f.maxTokens < 0 || f.maxTokens > math.MaxInt32):
		return usagef("invalid value for '--max-tokens': %d is not at least 0", f.maxTokens)
	case !(f.temperature >= 0):
		return usagef("invalid value for '--temperature': %v is not at least 0", f.temperature)
	case given("top-k") && f.topK < 1:
		return usagef("invalid value for '--top-k': %d is not at least 1", f.topK)
	case given("top-p") && !(f.topP > 0 && f.topP <= 1):
		return usagef("invalid value for '--top-p': %v is not above 0 and at most 1", f.topP)
	}
	if err := checkPrecision(f.precision); err != nil {
		return err
	}
	if err := refuseGGUF(folder, "generate"); err != nil {
		return err
	}
	return requirePath("MODEL", folder, folderPath)
}

func (f *generateFlags) run(command *cobra.Command, folder, prompt string, std streams) error {
	if err := f.check(command, folder); err != nil {
		return err
	}
	stop := interruptible(command.Context(), std)
	defer stop()
	if prompt == "-" {
		text, err := io.ReadAll(std.in)
		if err != nil {
			return err
		}
		prompt = string(text)
	}
	sampling := infer.Sampling{Temperature: f.temperature, TopK: f.topK, TopP: f.topP, Seed: f.seed}
	if f.greedy {
		sampling.Temperature = 0
	}
	if err := sampling.Validate(); err != nil {
		return err
	}
	resolved, err := train.ResolveCheckpoint(folder, f.best)
	if err != nil {
		return err
	}
	checkpoint, err := openCheckpoint(resolved, "generate")
	if err != nil {
		return err
	}
	if !command.Flags().Changed("max-tokens") {
		f.maxTokens = -1
	}
	job := &generation{checkpoint, prompt, sampling}
	return errors.Join(job.run(command.Context(), f, stop, std), checkpoint.Close())
}

// promptIDs are the ids of a prompt: those that it names, between spaces or commas, or those of its text.
func promptIDs(checkpoint *train.Checkpoint, prompt string, named bool) ([]int32, error) {
	if !named && checkpoint.Tokenizer == nil {
		return nil, formats.Missing(checkpoint.Folder,
			"holds no tokenizer.model, so it cannot read text; --ids takes token ids")
	} else if !named {
		return (&infer.TextGenerator{Tokenizer: checkpoint.Tokenizer}).Encode(prompt)
	}
	var ids []int32
	for _, word := range strings.Fields(strings.ReplaceAll(prompt, ",", " ")) {
		if strings.Trim(word, "0123456789") != "" {
			return nil, usagef("PROMPT has '%s'; with --ids it must be token ids, separated by spaces or commas", word)
		}
		id, err := strconv.ParseInt(word, 10, 32)
		if vocab := checkpoint.Config.VocabSize; err != nil || int(id) >= vocab {
			return nil, fmt.Errorf("PROMPT[%d] is %s; it must be 0 to %d", len(ids), word, vocab-1)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// generation is a prompt to continue.
type generation struct {
	checkpoint *train.Checkpoint
	prompt     string
	sampling   infer.Sampling
}

func (g *generation) run(ctx context.Context, flags *generateFlags, stop func() bool, std streams) (err error) {
	ids, err := promptIDs(g.checkpoint, g.prompt, flags.ids)
	if err != nil {
		return err
	}
	device, err := flags.device.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	made, err := g.checkpoint.Model(device, model.Precision(flags.precision), false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	limit := flags.maxTokens
	if limit < 0 {
		limit = min(usualTokens, infer.Room(made, len(ids)))
	}
	pieces := idPieces(infer.Tokens(ctx, made, ids, limit, g.sampling, infer.NoToken))
	if !flags.ids {
		generator, err := infer.NewTextGenerator(made, g.checkpoint.Tokenizer)
		if err != nil {
			return err
		}
		pieces = generator.Stream(ctx, g.prompt, limit, g.sampling)
	}
	stop() // from here on an interrupt ends the loop
	out := bufio.NewWriter(std.out)
	for piece, err := range pieces {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if _, err := out.WriteString(piece); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if err := out.WriteByte('\n'); err != nil {
		return err
	}
	return out.Flush()
}

// idPieces are ids with spaces between.
func idPieces(tokens iter.Seq2[int32, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		space := ""
		for token, err := range tokens {
			if !yield(space+strconv.Itoa(int(token)), err) || err != nil {
				return
			}
			space = " "
		}
	}
}
