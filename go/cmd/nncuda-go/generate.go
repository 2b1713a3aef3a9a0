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
	var ids []int32
	if f.ids {
		var err error
		if ids, err = parseIDs(prompt); err != nil {
			return err
		}
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
	limit := -1
	if command.Flags().Changed("max-tokens") {
		limit = f.maxTokens
	}
	job := &generation{checkpoint, ids, prompt, limit, sampling}
	return errors.Join(job.run(command.Context(), f, stop, std), checkpoint.Close())
}

// parseIDs reads token ids between spaces or commas. An id that no vocabulary has stays one that none has.
func parseIDs(text string) ([]int32, error) {
	var ids []int32
	for _, word := range strings.Fields(strings.ReplaceAll(text, ",", " ")) {
		if strings.Trim(word, "0123456789") != "" {
			return nil, usagef("PROMPT has '%s'; with --ids it must be token ids, separated by spaces or commas", word)
		}
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("PROMPT[%d] is %s; it must be below %d", len(ids), word, math.MaxInt32)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// checkIDs refuses ids that a vocabulary has not.
func checkIDs(ids []int32, vocab int) error {
	for at, id := range ids {
		if int(id) >= vocab {
			return fmt.Errorf("PROMPT[%d] is %d; it must be 0 to %d", at, id, vocab-1)
		}
	}
	return nil
}

// generation is what to write: the continuation of ids, or of a text.
type generation struct {
	checkpoint *train.Checkpoint
	ids        []int32
	text       string
	maxTokens  int // -1: as many as usual, or as the model's reach leaves
	sampling   infer.Sampling
}

func (g *generation) run(ctx context.Context, flags *generateFlags, stop func() bool, std streams) (err error) {
	if !flags.ids && g.checkpoint.Tokenizer == nil {
		return formats.Missing(g.checkpoint.Folder, "holds no tokenizer.model, so it cannot read text")
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
	pieces := g.idPieces(ctx, made)
	if !flags.ids {
		generator, err := infer.NewTextGenerator(made, g.checkpoint.Tokenizer)
		if err != nil {
			return err
		}
		pieces = generator.Stream(ctx, g.text, g.limit(func() int { return generator.Room(g.text) }), g.sampling)
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

// limit is how many tokens to write at most.
func (g *generation) limit(room func() int) int {
	if g.maxTokens >= 0 {
		return g.maxTokens
	}
	return min(usualTokens, room())
}

// idPieces gives the ids that follow, with spaces between.
func (g *generation) idPieces(ctx context.Context, made *model.MoETransformer) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := checkIDs(g.ids, made.Config.VocabSize); err != nil {
			yield("", err)
			return
		}
		limit := g.limit(func() int { return infer.Room(made, len(g.ids)) })
		space := ""
		for token, err := range infer.Tokens(ctx, made, g.ids, limit, g.sampling, infer.NoToken) {
			if !yield(space+strconv.Itoa(int(token)), err) || err != nil {
				return
			}
			space = " "
		}
	}
}
