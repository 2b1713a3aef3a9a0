package infer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// NoToken stands for the tokens after a sequence's end, and as Request.EndID for a vocabulary without one.
const NoToken = -1

// Request is what to generate.
type Request struct {
	Prompts      [][]int32 // of any lengths, run together; each has at least one token
	MaxNewTokens int       // most tokens per sequence
	Sampling     Sampling
	EndID        int32 // the token that ends a sequence, NoToken for none
	NoCapture    bool  // runs every token call by call instead of replaying a captured graph: the same tokens, later
}

// Batch continues several prompts at once and gives the next token of each, NoToken past its end; what it gives is
// overwritten by the next.
//
// It ends when all sequences have ended, after MaxNewTokens, when ctx is done, whose error it gives, or with another
// error: that of a prompt that is empty, of a model that does not reach that far, cuda.ErrOutOfRange for an id outside
// the vocabulary, or model.ErrInUse when another goroutine is using the model while this one runs a step. A sequence's
// tokens do not depend on the others of the batch, except through the last bits of products over other numbers of rows.
func Batch(ctx context.Context, m *model.MoETransformer, request Request) iter.Seq2[[]int32, error] {
	return func(yield func([]int32, error) bool) {
		if err := request.validate(); err != nil || request.MaxNewTokens == 0 {
			if err != nil {
				yield(nil, err)
			}
			return
		}
		sequences, err := newSequences(m, request)
		if err != nil {
			yield(nil, err)
			return
		}
		ended := false
		defer func() {
			if !ended { // who takes the tokens has panicked, as HTTP handlers do to break off
				_ = sequences.close()
			}
		}()
		stopped, err := sequences.run(ctx, request, func(tokens []int32) bool { return yield(tokens, nil) })
		ended = true
		if err = errors.Join(err, sequences.close()); err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// Tokens continues one prompt, token by token, up to and including the end; see Batch.
func Tokens(
	ctx context.Context, m *model.MoETransformer, prompt []int32, maxNewTokens int, sampling Sampling, endID int32,
) iter.Seq2[int32, error] {
	request := Request{Prompts: [][]int32{prompt}, MaxNewTokens: maxNewTokens, Sampling: sampling, EndID: endID}
	return func(yield func(int32, error) bool) {
		for tokens, err := range Batch(ctx, m, request) {
			if err != nil {
				yield(NoToken, err)
				return
			}
			if !yield(tokens[0], nil) {
				return
			}
		}
	}
}

func (r Request) validate() error {
	if len(r.Prompts) == 0 || slices.ContainsFunc(r.Prompts, func(prompt []int32) bool { return len(prompt) == 0 }) {
		return errors.New("a prompt must have at least one token; the one that begins a text is enough")
	}
	if r.MaxNewTokens < 0 {
		return fmt.Errorf("max_new_tokens is %d; it must be at least 0", r.MaxNewTokens)
	}
	return r.Sampling.Validate()
}

// sequences are a batch on the device: their cache, the logits of their last tokens, the ids drawn from them.
//
// A first step runs call by call. The second is captured, unless it is the last, and replayed from then on with the
// same bits: between its calls the host has nothing to do, and from step to step nothing but the ids comes back.
type sequences struct {
	model       *model.MoETransformer
	cache       *layer.KVCache
	logits, ids *tensor.Tensor // f32 [rows, vocab], i32 [rows]
	sampler     *engine.RowSampler
	capture     bool
	steps       int
	graph       *cuda.Graph
}

func newSequences(m *model.MoETransformer, request Request) (*sequences, error) {
	longest := 0
	for _, prompt := range request.Prompts {
		longest = max(longest, len(prompt))
	}
	rows, ctx := len(request.Prompts), m.Context()
	s := &sequences{model: m, capture: !request.NoCapture}
	// The last token drawn is never run through the model.
	capacity := longest + request.MaxNewTokens - 1
	if request.MaxNewTokens > m.Config.ExtendedContext {
		capacity = request.MaxNewTokens // refused below, whatever the prompt; their sum may not fit an int
	}
	drawings := make([]*engine.Drawing, rows)
	for row, prompt := range request.Prompts {
		drawings[row] = engine.NewDrawing(request.Sampling.Of(row), prompt, capacity-len(prompt)+1)
	}
	err := request.Sampling.CheckIDs(m.Config.VocabSize)
	if err == nil {
		err = m.Exclusive(func() (err error) {
			if s.cache, err = m.Cache(rows, capacity); err != nil {
				return err
			}
			return layer.Run(ctx, func(p *layer.Pass) {
				s.logits = p.Keep(p.Empty(cuda.F32, rows, m.Config.VocabSize))
				s.ids = p.Keep(p.Empty(cuda.I32, rows))
				s.sampler = engine.NewRowSampler(p, rows, m.Config.VocabSize)
				s.sampler.Assign(p, drawings)
			})
		})
	}
	if err == nil {
		err = s.prefill(request.Prompts)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *sequences) prefill(prompts [][]int32) error {
	for row, prompt := range prompts {
		logits, err := s.logits.Narrow(0, row, 1)
		if err != nil {
			return err
		}
		if err := s.model.Prefill(prompt, s.cache, row, logits); err != nil {
			return err
		}
	}
	return s.model.Exclusive(func() error {
		return layer.Run(s.model.Context(), func(p *layer.Pass) { s.sampler.Draw(p, s.logits, s.ids) })
	})
}

func (s *sequences) close() error {
	var err error
	if s.graph != nil {
		err = s.graph.Close()
	}
	err = errors.Join(err, s.sampler.Close())
	if s.cache != nil {
		err = errors.Join(err, s.cache.Close())
	}
	return errors.Join(err, s.logits.Close(), s.ids.Close())
}

// run gives the tokens of each step; `stopped` when the one who takes them wants no more.
func (s *sequences) run(ctx context.Context, request Request, give func([]int32) bool) (stopped bool, err error) {
	ids, tokens := make([]int32, len(request.Prompts)), make([]int32, len(request.Prompts))
	ended := make([]bool, len(request.Prompts))
	for left := request.MaxNewTokens; ; left-- {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := s.model.Exclusive(func() error { return tensor.ReadInto(s.ids, ids) }); err != nil {
			return false, err
		}
		for row, id := range ids {
			tokens[row] = id
			if ended[row] {
				tokens[row] = NoToken
			}
			ended[row] = ended[row] || id == request.EndID
		}
		if !give(tokens) {
			return true, nil
		}
		if left == 1 || !slices.Contains(ended, false) {
			return false, nil
		}
		if err := s.model.Exclusive(func() error { return s.step(left == 2) }); err != nil {
			return false, err
		}
	}
}

// step runs the last tokens through the model and draws the next.
func (s *sequences) step(last bool) error {
	s.steps++
	if s.graph != nil {
		if err := s.cache.RequireRoom(1); err != nil {
			return err
		}
		s.cache.Count(1)
		return s.graph.Launch()
	}
	if s.steps == 1 || last || !s.capture {
		return s.calls()
	}
	graph, err := s.model.Context().Capture(s.calls)
	if err != nil {
		return err
	}
	s.graph = graph
	return graph.Launch()
}

func (s *sequences) calls() error {
	return layer.Run(s.model.Context(), func(p *layer.Pass) {
		s.model.Decode(p, s.ids, s.cache, s.logits)
		s.sampler.Draw(p, s.logits, s.ids)
	})
}
