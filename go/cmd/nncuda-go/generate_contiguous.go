package main

import (
	"context"
	"errors"
	"iter"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tokenizer"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
)

// runContiguous continues a prompt by the layers that train. A wrong prompt is refused before the model is loaded.
func (f *generateFlags) runContiguous(
	command *cobra.Command, folder, prompt string, sampling infer.Sampling, stop func() bool, std streams,
) error {
	checkpoint, err := train.OpenCheckpoint(folder)
	if err != nil {
		return err
	}
	job := &contiguousGeneration{f, checkpoint, prompt, sampling}
	return errors.Join(job.run(command.Context(), stop, std), checkpoint.Close())
}

// checkpointIDs are the ids of a prompt for a checkpoint.
func checkpointIDs(checkpoint *train.Checkpoint, prompt string, named bool) ([]int32, error) {
	var tokens tokenizer.TextTokenizer
	if checkpoint.Tokenizer != nil {
		tokens = checkpoint.Tokenizer
	}
	return promptIDs(prompt, named, checkpoint.Config.VocabSize, tokens, checkpoint.Folder)
}

// contiguousGeneration is a prompt to continue.
type contiguousGeneration struct {
	*generateFlags
	checkpoint *train.Checkpoint
	prompt     string
	sampling   infer.Sampling
}

func (g *contiguousGeneration) run(ctx context.Context, stop func() bool, std streams) (err error) {
	ids, err := checkpointIDs(g.checkpoint, g.prompt, g.ids)
	if err != nil {
		return err
	}
	device, err := g.device.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	precision := model.F32
	if g.precision != "" {
		precision = model.Precision(g.precision)
	}
	made, err := g.checkpoint.Model(device, precision, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	limit := g.maxTokens
	if limit < 0 {
		limit = min(usualTokens, infer.Room(made, len(ids)))
	}
	pieces := idPieces(infer.Tokens(ctx, made, ids, limit, g.sampling, infer.NoToken))
	if !g.ids {
		generator, err := infer.NewTextGenerator(made, g.checkpoint.Tokenizer)
		if err != nil {
			return err
		}
		pieces = generator.Stream(ctx, g.prompt, limit, g.sampling)
	}
	stop() // from here on an interrupt ends the loop
	out := newSpokenWriter(std.out)
	for piece, err := range pieces {
		if err == nil {
			err = out.write(piece)
		}
		if err != nil {
			return err
		}
	}
	return out.write("\n")
}

// idPieces are ids with spaces between.
func idPieces(tokens iter.Seq2[int32, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		first := true
		for token, err := range tokens {
			if !yield(idText(token, first), err) || err != nil {
				return
			}
			first = false
		}
	}
}
