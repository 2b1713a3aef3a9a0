package infer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// ErrClosed is the error of a LanguageModel that was closed.
var ErrClosed = errors.New("the model is closed; load another from its file")

// NoNewTokens is a Generation.MaxNewTokens of none.
const NoNewTokens = -1

// LoadOptions are those of Load. The zero value is a good choice.
type LoadOptions struct {
	engine.Options
	Device  string // as of cuda.New; "": cpu
	Threads int    // as of cuda.WithThreads; 0: all cores
}

// Prompt is a text, or the ids of one: IDs count where they are not nil. Adapter is the name of one of the model's adapters
// (engine.Options.Adapters), "" for none of them.
type Prompt struct {
	Text    string
	IDs     []int32
	Adapter string
}

// Generation is what to generate.
type Generation struct {
	// Prompts of any lengths; there may be more than MaxBatch: the others wait.
	Prompts []Prompt
	// MaxNewTokens is the most tokens a prompt; 0: until the context is full, NoNewTokens: none. Of more than the context
	// has room for, the oldest text is dropped.
	MaxNewTokens int
	// Sampling is how tokens are drawn; prompt i draws with Seed + i.
	Sampling Sampling
	// Samplings, one a prompt, stand instead of Sampling where they are not nil, each with its own seed.
	Samplings []Sampling
	// Stop has strings that end a text before the first of them that comes up.
	Stop []string
	// EndIDs are the ids that end a text; nil: those of the tokenizer.
	EndIDs []int32
	// Logprobs asks for the log-probability of each token, as the model gave it, before any option of Sampling, with those of
	// TopLogprobs of the likeliest tokens in its place, at most 20.
	Logprobs    bool
	TopLogprobs int
	// PromptLogprobs asks for those of the prompts' tokens, with PromptTopLogprobs alternatives. A prompt is then run as a
	// whole, even for no new token.
	PromptLogprobs    bool
	PromptTopLogprobs int
	// Embed asks for the vector of each prompt (LanguageModel.Embed) in place of tokens, of which there must be none.
	Embed bool
	// Constraints, one a prompt, say which tokens may be next; nil, and nil among them: all. An error of one is that of the
	// generation.
	Constraints []engine.Constraint
}

// Event is one token of one prompt's continuation.
type Event struct {
	Prompt int   // which prompt it belongs to, from 0
	Token  int32 // its id; NoToken in an event that brings none
	// Text is what it adds to the final text: a character that more tokens complete, or words that may be the beginning of
	// a stop string, come with a later event.
	Text string
	// Finish is "", or why this is the prompt's last event: engine.End (the model ended the text: the token is not part of
	// it), engine.Stop (a stop string came up, and the text ends before it; or its constraint allows no token more),
	// engine.Length (MaxNewTokens) or engine.Cancelled (the model was closed).
	Finish engine.Finish
	// Logprobs are the token's log-probability and those of alternatives, where they were asked for.
	Logprobs *engine.TokenLogprobs
	// PromptLogprobs are, in the first event of a prompt, those of the prompt's tokens, where they were asked for; nil for
	// the first one.
	PromptLogprobs []*engine.TokenLogprobs
	// Embedding is, in the one event of a prompt that is embedded, its vector; nil where it was cancelled.
	Embedding []float32
}

// LanguageModel is a model, its tokenizer and a cache on a device.
//
// Any number of goroutines may share one: they take turns, token by token and in order, and their prompts are decoded
// together. A prompt's tokens are the same bits whatever else is generated.
type LanguageModel struct {
	stored    *stored.Model
	tokenizer tokenizer.TextTokenizer
	engine    *engine.Engine
	scheduler *engine.Scheduler
	turn      chan struct{} // holds one token while somebody has the turn
	closed    bool
	owned     []func() error // what Close closes, the last first
}

// Load opens a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint or a run of this library, and brings
// it to a device.
//
// Weights are copied into memory unless they would take more than half of what is free, and used in the mapped file
// otherwise; Options.Weights "memory" or "file" insists on one. A *formats.Error for a file that is none of these or
// wrong, an *engine.OptionError for an option that does not fit the model, a *cuda.Error when the device fails.
func Load(path string, options LoadOptions) (*LanguageModel, error) {
	model, err := stored.Open(path)
	if err != nil {
		return nil, err
	}
	var chosen []cuda.Option
	if options.Threads != 0 {
		chosen = append(chosen, cuda.WithThreads(options.Threads))
	}
	ctx, err := cuda.New(cmp.Or(options.Device, "cpu"), chosen...)
	if err != nil {
		return nil, errors.Join(err, model.Close())
	}
	made, err := New(model, ctx, options.Options)
	if err != nil {
		return nil, errors.Join(err, ctx.Close(), model.Close())
	}
	made.owned = append([]func() error{model.Close, ctx.Close}, made.owned...)
	return made, nil
}

// New makes a model of an opened one, on a context. Both stay the caller's, to be closed after the LanguageModel, and
// nothing else may use the context before.
func New(model *stored.Model, ctx *cuda.Context, options engine.Options) (*LanguageModel, error) {
	tokens, err := model.Tokenizer()
	if err != nil {
		return nil, err
	}
	running, err := engine.New(model, ctx, options)
	if err != nil {
		return nil, err
	}
	scheduler, err := engine.NewScheduler(running)
	if err != nil {
		return nil, errors.Join(err, running.Close())
	}
	return &LanguageModel{
		stored: model, tokenizer: tokens, engine: running, scheduler: scheduler, turn: make(chan struct{}, 1),
		owned: []func() error{running.Close, scheduler.Close},
	}, nil
}

// Of makes a LanguageModel of a model that was made or trained in this program, on its context, with a copy of the weights
// that it has now: to go on with later ones, make another. The tokenizer may be nil. While one generates, nothing else may
// use the context.
func Of(m *model.MoETransformer, tokens tokenizer.TextTokenizer, options engine.Options) (*LanguageModel, error) {
	copied, err := stored.Of(m, tokens)
	if err != nil {
		return nil, err
	}
	options.Weights = "memory"
	return New(copied, m.Context(), options)
}

// Close ends what is being generated, with events whose Finish is engine.Cancelled, and frees the memory. It waits for the
// step that is under way. Closing twice is fine.
func (m *LanguageModel) Close() error {
	m.turn <- struct{}{}
	defer m.release()
	m.closed = true
	var err error
	for _, end := range slices.Backward(m.owned) {
		err = errors.Join(err, end())
	}
	m.owned = nil
	return err
}

// acquire waits for the turn; an error when ctx is done before, or the model is closed.
func (m *LanguageModel) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.closed {
		m.release()
		return ErrClosed
	}
	return nil
}

func (m *LanguageModel) release() { <-m.turn }

// Config are sizes and options of the model.
func (m *LanguageModel) Config() stored.LlamaConfig { return m.stored.Config }

// Stored is the model as its files have it.
func (m *LanguageModel) Stored() *stored.Model { return m.stored }

// Tokenizer is the model's tokenizer; nil when it has none.
func (m *LanguageModel) Tokenizer() tokenizer.TextTokenizer { return m.tokenizer }

// Context is the context length: how many tokens of a sequence attend to one another.
func (m *LanguageModel) Context() int { return m.engine.Context }

// Adapters are the names of the adapters that a prompt may name.
func (m *LanguageModel) Adapters() []string { return m.engine.Adapters() }

// MaxBatch is how many texts are written at once.
func (m *LanguageModel) MaxBatch() int { return m.engine.MaxBatch }

// Room is how many tokens can be written after so many before the beginning of the text drops out of sight.
func (m *LanguageModel) Room(tokens int) int {
	return max(0, m.Context()-tokens+1) // the last token drawn is never run
}

// State is what a model does at a moment, and has done so far.
type State struct {
	Statistics              engine.Statistics
	Waiting, Running        int // requests
	UsedPages, CachePages   int
	WeightBytes, CacheBytes int64
}

// State asks for the model's state, between two steps. An error when ctx is done before, or the model is closed.
func (m *LanguageModel) State(ctx context.Context) (State, error) {
	if err := m.acquire(ctx); err != nil {
		return State{}, err
	}
	defer m.release()
	return State{
		m.scheduler.Statistics, m.scheduler.Waiting(), m.scheduler.Running(), m.engine.Cache.Used(), m.engine.Cache.NumPages,
		m.engine.Weights.Bytes(), m.engine.Cache.Bytes(),
	}, nil
}

// Encode gives the ids of a prompt as the model reads it: a text with the id that begins one, ids as they are. An
// *engine.IDError for an id outside the vocabulary.
func (m *LanguageModel) Encode(prompt Prompt) ([]int32, error) {
	ids := prompt.IDs
	if ids == nil {
		tokens, err := m.textTokenizer()
		if err != nil {
			return nil, err
		}
		if ids, err = tokens.Encode(prompt.Text, tokenizer.Encoding{Begin: tokens.AddsBegin()}); err != nil {
			return nil, err
		}
	}
	return ids, engine.CheckIDs(ids, m.Config().VocabSize, "ids")
}

func (m *LanguageModel) textTokenizer() (tokenizer.TextTokenizer, error) {
	if m.tokenizer == nil {
		return nil, &engine.OptionError{
			Option:  "prompt",
			Problem: fmt.Sprintf("%s has no tokenizer, so it accepts and returns ids only", m.stored.Path),
		}
	}
	return m.tokenizer, nil
}

// Logits gives the logits after each token of one text, f32 [tokens, vocab], row by row: row t predicts the token after t.
func (m *LanguageModel) Logits(ctx context.Context, prompt Prompt) ([]float32, error) {
	ids, err := m.Encode(prompt)
	if err != nil {
		return nil, err
	}
	if err := m.acquire(ctx); err != nil {
		return nil, err
	}
	defer m.release()
	return m.engine.Logits(ids, prompt.Adapter)
}

// Logprobs gives the log-probability of each token of one text after those before it, with so many of the likeliest tokens
// in its place, at most 20; nil for the first. The bits are those of Generation.PromptLogprobs.
func (m *LanguageModel) Logprobs(ctx context.Context, prompt Prompt, alternatives int) ([]*engine.TokenLogprobs, error) {
	if err := engine.CheckAlternatives("alternatives", alternatives); err != nil {
		return nil, err
	}
	ids, err := m.Encode(prompt)
	if err != nil {
		return nil, err
	}
	if err := m.acquire(ctx); err != nil {
		return nil, err
	}
	defer m.release()
	return m.engine.Logprobs(ids, alternatives, prompt.Adapter)
}

// Embed gives the vector of each prompt, f32 [hidden size]: the mean of the hidden states after the final norm, of all of
// its tokens, brought to length 1. So the cosine of two prompts is the dot product of their vectors.
//
// The prompts run together, beside what else is generated; none of them is taken from the cache. A vector's bits depend on
// its prompt and adapter alone. Errors are those of Generate, and ErrClosed when the model is closed before they have run.
func (m *LanguageModel) Embed(ctx context.Context, prompts ...Prompt) ([][]float32, error) {
	vectors := make([][]float32, len(prompts))
	for event, err := range m.Generate(ctx, Generation{Prompts: prompts, Embed: true}) {
		if err != nil {
			return nil, err
		}
		if event.Embedding == nil {
			return nil, ErrClosed
		}
		vectors[event.Prompt] = event.Embedding
	}
	return vectors, nil
}

// ForgetPrefixes forgets the texts in unused pages of the cache, so that later prompts share nothing with earlier ones.
func (m *LanguageModel) ForgetPrefixes(ctx context.Context) error {
	if err := m.acquire(ctx); err != nil {
		return err
	}
	defer m.release()
	m.engine.Cache.Forget()
	return nil
}

// Generate continues the prompts together and gives every token as it is generated, until each prompt has ended with an
// event whose Finish says why.
//
// What cannot be done at all is the one thing to come, before anything runs: an *engine.OptionError, an *engine.IDError or
// an *engine.CacheFullError. When ctx is done its error ends all prompts before the next token, and leaving the loop ends
// them, too; so does the `stop` of iter.Pull, which must be called.
func (m *LanguageModel) Generate(ctx context.Context, wanted Generation) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		under, err := m.prepare(wanted)
		if err != nil {
			yield(Event{Token: NoToken}, err)
			return
		}
		defer m.abandon(under) // also when who takes the events panics, as HTTP handlers do to break off
		if err := m.add(ctx, under); err != nil {
			yield(Event{Token: NoToken}, err)
			return
		}
		for left := len(under); left > 0; {
			events, err := m.next(ctx, under)
			for _, event := range events {
				if event.Finish != "" {
					left--
				}
				if !yield(event, nil) {
					return
				}
			}
			if err != nil {
				yield(Event{Token: NoToken}, err)
				return
			}
		}
	}
}

// Stream gives the continuation of one text, piece by piece, as of Generate.
func (m *LanguageModel) Stream(ctx context.Context, wanted Generation) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := m.checkTexts(wanted, 1); err != nil {
			yield("", err)
			return
		}
		for event, err := range m.Generate(ctx, wanted) {
			if (event.Text != "" || err != nil) && !yield(event.Text, err) {
				return
			}
		}
	}
}

// Complete gives the continuations as a whole, one a prompt, as of Generate.
func (m *LanguageModel) Complete(ctx context.Context, wanted Generation) ([]string, error) {
	if err := m.checkTexts(wanted, len(wanted.Prompts)); err != nil {
		return nil, err
	}
	texts := make([]string, len(wanted.Prompts))
	for event, err := range m.Generate(ctx, wanted) {
		if err != nil {
			return nil, err
		}
		texts[event.Prompt] += event.Text
	}
	return texts, nil
}

func (m *LanguageModel) checkTexts(wanted Generation, prompts int) error {
	if len(wanted.Prompts) != prompts {
		return &engine.OptionError{Option: "prompts", Problem: fmt.Sprintf("there are %d prompts; a stream is of one",
			len(wanted.Prompts))}
	}
	_, err := m.textTokenizer()
	return err
}

// prepare checks everything that can be checked before a prompt waits.
func (m *LanguageModel) prepare(wanted Generation) ([]*underWay, error) {
	if wanted.Samplings != nil && len(wanted.Samplings) != len(wanted.Prompts) {
		return nil, &engine.OptionError{Option: "sampling", Problem: fmt.Sprintf("there are %d samplings for %d prompts",
			len(wanted.Samplings), len(wanted.Prompts))}
	}
	if wanted.Constraints != nil && len(wanted.Constraints) != len(wanted.Prompts) {
		return nil, &engine.OptionError{Option: "constraint", Problem: fmt.Sprintf(
			"there are %d constraints for %d prompts; each needs its own", len(wanted.Constraints), len(wanted.Prompts))}
	}
	if err := cmp.Or(engine.CheckAlternatives("logprobs", wanted.TopLogprobs),
		engine.CheckAlternatives("prompt_logprobs", wanted.PromptTopLogprobs)); err != nil {
		return nil, err
	}
	if len(wanted.Stop) > 0 && m.tokenizer == nil {
		return nil, &engine.OptionError{Option: "stop", Problem: "stop strings need a tokenizer, which this model lacks"}
	}
	ends := wanted.EndIDs
	if ends == nil && m.tokenizer != nil {
		ends = m.tokenizer.EndIDs()
	}
	if err := engine.CheckIDs(ends, m.Config().VocabSize, "end_ids"); err != nil {
		return nil, err
	}
	under := make([]*underWay, len(wanted.Prompts))
	for at, prompt := range wanted.Prompts {
		ids, err := m.Encode(prompt)
		if err != nil {
			return nil, err
		}
		if err := m.engine.CheckAdapter(prompt.Adapter); err != nil {
			return nil, err
		}
		sampling := wanted.Sampling.Of(at)
		if wanted.Samplings != nil {
			sampling = wanted.Samplings[at]
		}
		if err := cmp.Or(sampling.Validate(), sampling.CheckIDs(m.Config().VocabSize)); err != nil {
			return nil, err
		}
		length := wanted.MaxNewTokens
		switch {
		case wanted.Embed && length > 0:
			return nil, &engine.OptionError{Option: "max_new_tokens", Problem: fmt.Sprintf(
				"max_new_tokens is %d; where a prompt is embedded there are no new ones", length)}
		case wanted.Embed, length == NoNewTokens:
			length = 0
		case length == 0:
			length = m.Room(len(ids))
		}
		if length > math.MaxInt32 {
			return nil, &engine.OptionError{Option: "max_new_tokens", Problem: fmt.Sprintf(
				"max_new_tokens is %d; it must be at most %d", length, math.MaxInt32)}
		}
		if err := m.scheduler.Check(ids, length); err != nil {
			return nil, err
		}
		text, err := newContinuation(m.tokenizer, wanted.Stop)
		if err != nil {
			return nil, err
		}
		request := &engine.Request{
			Prompt: ids, MaxNewTokens: length, Sampling: sampling, EndIDs: ends,
			Logprobs: wanted.Logprobs, TopLogprobs: wanted.TopLogprobs,
			PromptLogprobs: wanted.PromptLogprobs, PromptTopLogprobs: wanted.PromptTopLogprobs, Embed: wanted.Embed,
			Adapter: prompt.Adapter,
		}
		if wanted.Constraints != nil {
			request.Constraint = wanted.Constraints[at]
		}
		under[at] = &underWay{request: request, text: text}
	}
	return under, nil
}

func (m *LanguageModel) add(ctx context.Context, under []*underWay) error {
	if err := m.acquire(ctx); err != nil {
		return err
	}
	defer m.release()
	for _, one := range under {
		m.scheduler.Add(one.request)
	}
	return nil
}

// next gives what has come of some prompts, after a step if nothing has.
func (m *LanguageModel) next(ctx context.Context, under []*underWay) ([]Event, error) {
	err := m.acquire(ctx)
	if err == nil {
		defer m.release()
	} else if !errors.Is(err, ErrClosed) { // Close has cancelled them, and nothing else touches them any more
		return nil, err
	}
	if !slices.ContainsFunc(under, func(one *underWay) bool {
		return !one.over && (len(one.request.Tokens) > 0 || one.request.Finish != "")
	}) {
		if err := m.scheduler.Step(); err != nil {
			return nil, err
		}
	}
	var events []Event
	for number, one := range under {
		if one.over {
			continue
		}
		more, err := m.eventsOf(number, one)
		events = append(events, more...)
		if err != nil {
			return events, err
		}
	}
	if len(events) == 0 { // what came before a failure is told first
		for _, one := range under {
			if err := one.request.Err; err != nil && !one.over {
				return nil, err
			}
		}
	}
	return events, nil
}

// abandon cancels prompts that nobody waits for any more.
func (m *LanguageModel) abandon(under []*underWay) {
	if !slices.ContainsFunc(under, func(one *underWay) bool { return !one.over }) {
		return
	}
	if err := m.acquire(context.Background()); err != nil {
		return // closed: nothing is left to cancel
	}
	defer m.release()
	for _, one := range under {
		m.scheduler.Cancel(one.request)
	}
}
