package infer

import (
	"context"
	"fmt"
	"iter"

	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// TextGenerator continues texts. Every text begins with the tokenizer's begin id, as in training.
type TextGenerator struct {
	Model     *model.MoETransformer
	Tokenizer *tokenizer.Tokenizer
}

// NewTextGenerator makes a generator of a model and its tokenizer.
func NewTextGenerator(m *model.MoETransformer, tokens *tokenizer.Tokenizer) (*TextGenerator, error) {
	if tokens.VocabSize() != m.Config.VocabSize {
		return nil, fmt.Errorf(
			"the tokenizer has %d pieces, the model's vocabulary %d",
			tokens.VocabSize(),
			m.Config.VocabSize,
		)
	}
	return &TextGenerator{m, tokens}, nil
}

// Encode gives the ids of a text, after the begin id.
func (g *TextGenerator) Encode(prompt string) ([]int32, error) {
	return g.Tokenizer.Encode(prompt, tokenizer.Encoding{Begin: true})
}

// Stream gives the continuation, piece by piece, as soon as a piece is certain; see Batch for how it ends.
func (g *TextGenerator) Stream(
	ctx context.Context, prompt string, maxNewTokens int, sampling Sampling,
) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ids, err := g.Encode(prompt)
		if err != nil {
			yield("", err)
			return
		}
		decoder, err := tokenizer.NewStreamDecoder(g.Tokenizer)
		if err != nil {
			yield("", err)
			return
		}
		end := g.Tokenizer.EndID()
		for token, err := range Tokens(ctx, g.Model, ids, maxNewTokens, sampling, end) {
			var text string
			if err == nil && token == end {
				break
			}
			if err == nil {
				text, err = decoder.Push(token)
			}
			if err != nil {
				yield("", err)
				return
			}
			if text != "" && !yield(text, nil) {
				return
			}
		}
		if rest, err := decoder.Flush(); rest != "" || err != nil {
			yield(rest, err)
		}
	}
}

// Room is how many tokens the model can write after a prompt; 0 when the prompt alone is too long.
func (g *TextGenerator) Room(prompt string) (int, error) {
	ids, err := g.Encode(prompt)
	return Room(g.Model, len(ids)), err
}

// Room is how many tokens a model can write after that many.
func Room(m *model.MoETransformer, tokens int) int {
	// The last token written is not read again, so it needs no room.
	return max(0, m.Config.ExtendedContext-tokens+1)
}
