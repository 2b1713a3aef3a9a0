package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/spf13/cobra"
)

// engineScript is what `bench engine` reads: a model, the options of its engine, and what to run on it.
type engineScript struct {
	Model       string
	Adapter     string            // "" for none
	Adapters    map[string]string // by their names
	Context     int
	CacheFormat string `json:"cache_format"`
	CacheTokens int    `json:"cache_tokens"`
	MaxBatch    int    `json:"max_batch"`
	Piece       int
	Weights     string
	ISA         string
	Logits      []int32 // ids whose logits are wanted
	Requests    []scriptedRequest
}

// scriptedRequest is a request that joins before a step of the scheduler, and is cancelled before another, 0 for never.
type scriptedRequest struct {
	Prompt       []int32
	MaxNewTokens int     `json:"max_new_tokens"`
	EndIDs       []int32 `json:"end_ids"`
	Temperature  float64
	TopK         int     `json:"top_k"`
	TopP         float64 `json:"top_p"`
	Seed         int64
	MinP         float64           `json:"min_p"`
	Presence     float64           `json:"presence_penalty"`
	Frequency    float64           `json:"frequency_penalty"`
	Repetition   float64           `json:"repetition_penalty"`
	LogitBias    map[int32]float64 `json:"logit_bias"`
	Logprobs     *int              // alternatives
	PromptScores *int              `json:"prompt_logprobs"`
	Adapter      string            // the name of one of the engine's
	Embed        bool
	Allowed      [][]int32 // the ids that may be next, after each token; then none
	Joins        int
	Cancelled    int
}

// request is the same for a scheduler.
func (s *scriptedRequest) request(vocab int) *engine.Request {
	request := &engine.Request{
		Prompt: s.Prompt, MaxNewTokens: s.MaxNewTokens, EndIDs: s.EndIDs, Embed: s.Embed, Adapter: s.Adapter,
		Sampling: engine.Sampling{
			Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, Seed: s.Seed, MinP: s.MinP, PresencePenalty: s.Presence,
			FrequencyPenalty: s.Frequency, RepetitionPenalty: s.Repetition, LogitBias: s.LogitBias,
		},
	}
	if request.Logprobs = s.Logprobs != nil; request.Logprobs {
		request.TopLogprobs = *s.Logprobs
	}
	if request.PromptLogprobs = s.PromptScores != nil; request.PromptLogprobs {
		request.PromptTopLogprobs = *s.PromptScores
	}
	if s.Allowed != nil {
		request.Constraint = &allowed{s.Allowed, vocab}
	}
	return request
}

// allowed is a constraint of lists of ids, one a token.
type allowed struct {
	left  [][]int32
	vocab int
}

func (a *allowed) Mask() ([]uint32, error) {
	mask := make([]uint32, (a.vocab+31)/32)
	if len(a.left) > 0 {
		for _, id := range a.left[0] {
			mask[id/32] |= 1 << (id % 32)
		}
	}
	return mask, nil
}

func (a *allowed) Accept(int32) error {
	a.left = a.left[1:]
	return nil
}

// engineResult is what `bench engine` writes.
type engineResult struct {
	Logits   string          `json:"logits,omitempty"` // SHA-256 of their bytes
	Requests []requestResult `json:"requests"`
	Tokens   map[string]int  `json:"tokens"` // what the scheduler counted
}

type requestResult struct {
	Tokens []int32       `json:"tokens"`
	Finish engine.Finish `json:"finish"`
	Shared int           `json:"shared"`

	Logprobs       []any `json:"logprobs,omitempty"` // [logprob, [[id, logprob], ...]] of each token
	PromptLogprobs []any `json:"prompt_logprobs,omitempty"`

	Embedding string `json:"embedding,omitempty"` // SHA-256 of its bytes
}

// pairs are log-probabilities as JSON has them, null for none.
func pairs(scores []*engine.TokenLogprobs) []any {
	var found []any
	for _, one := range scores {
		if one == nil {
			found = append(found, nil)
			continue
		}
		top := make([]any, len(one.Top))
		for at, other := range one.Top {
			top[at] = []any{other.ID, float64(other.Logprob)}
		}
		found = append(found, []any{float64(one.Logprob), top})
	}
	return found
}

func newBenchEngine(std streams) *cobra.Command {
	device := &deviceFlags{}
	command := &cobra.Command{
		Use:    "engine [flags]",
		Short:  "Run a script of requests on the inference engine, for the comparison of languages.",
		Hidden: true,
		Args:   exactArguments(),
		RunE: func(command *cobra.Command, _ []string) (err error) {
			var script engineScript
			if err := json.NewDecoder(std.in).Decode(&script); err != nil {
				return fmt.Errorf("the script is no JSON of one: %w", err)
			}
			ctx, err := device.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, ctx.Close()) }()
			if script.ISA != "" {
				isa, err := cuda.ParseISA(script.ISA)
				if err == nil {
					err = ctx.SetISA(isa)
				}
				if err != nil {
					return err
				}
			}
			model, err := stored.Open(script.Model)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, model.Close()) }()
			adapter, err := (&adapterFlag{script.Adapter}).open(model.Config)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, adapter.Close()) }()
			named := &adapterFlags{names: slices.Sorted(maps.Keys(script.Adapters))}
			for _, name := range named.names {
				named.paths = append(named.paths, script.Adapters[name])
			}
			adapters, err := named.open(model.Config)
			defer func() {
				for _, one := range adapters {
					err = errors.Join(err, one.Adapter.Close())
				}
			}()
			if err != nil {
				return err
			}
			running, err := engine.New(model, ctx, engine.Options{
				Context: script.Context, CacheFormat: script.CacheFormat, CacheTokens: script.CacheTokens,
				MaxBatch: script.MaxBatch, Piece: script.Piece, Weights: script.Weights, Adapter: adapter,
				Adapters: adapters,
			})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, running.Close()) }()
			result, err := script.run(running)
			if err != nil {
				return err
			}
			return json.NewEncoder(std.out).Encode(result)
		},
	}
	device.add(command.Flags())
	return command
}

func (s *engineScript) run(running *engine.Engine) (*engineResult, error) {
	result := &engineResult{Requests: make([]requestResult, len(s.Requests))}
	if len(s.Logits) > 0 {
		logits, err := running.Logits(s.Logits, "")
		if err != nil {
			return nil, err
		}
		result.Logits = digest(logits)
	}
	scheduler, err := engine.NewScheduler(running)
	if err != nil {
		return nil, err
	}
	err = s.serve(scheduler, running.Config.VocabSize, result)
	done := scheduler.Statistics
	result.Tokens = map[string]int{
		"prompt": done.PromptTokens, "shared": done.SharedTokens, "prefill": done.PrefillTokens, "decode": done.DecodeTokens,
		"steps": done.DecodeSteps,
	}
	return result, errors.Join(err, scheduler.Close())
}

// digest is the SHA-256 of numbers.
func digest(values []float32) string {
	hash := sha256.New()
	for _, value := range values {
		_ = binary.Write(hash, binary.LittleEndian, math.Float32bits(value)) // a hash takes all
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// serve runs the requests, each from its step on.
func (s *engineScript) serve(scheduler *engine.Scheduler, vocab int, result *engineResult) error {
	requests := make([]*engine.Request, len(s.Requests))
	for step, left := 0, len(requests); left > 0 || !scheduler.Idle(); step++ {
		for at, scripted := range s.Requests {
			if scripted.Joins == step {
				request := scripted.request(vocab)
				err := errors.Join(request.Sampling.Validate(), scheduler.Check(request.Prompt, request.MaxNewTokens))
				if err != nil {
					return err
				}
				requests[at] = request
				scheduler.Add(request)
				left--
			}
			if scripted.Cancelled == step && step > 0 {
				scheduler.Cancel(requests[at])
			}
		}
		if scheduler.Idle() {
			continue
		}
		if err := scheduler.Step(); err != nil {
			return err
		}
	}
	for at, request := range requests {
		result.Requests[at] = requestResult{Tokens: request.Tokens, Finish: request.Finish, Shared: request.Shared}
		if request.Logprobs {
			result.Requests[at].Logprobs = pairs(request.Scores)
		}
		result.Requests[at].PromptLogprobs = pairs(request.PromptScores)
		if request.Embedding != nil {
			result.Requests[at].Embedding = digest(request.Embedding)
		}
	}
	return nil
}
