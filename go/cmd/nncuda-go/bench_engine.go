package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/spf13/cobra"
)

// engineScript is what `bench engine` reads: a model, the options of its engine, and what to run on it.
type engineScript struct {
	Model       string
	Context     int
	CacheFormat string `json:"cache_format"`
	CacheTokens int    `json:"cache_tokens"`
	MaxBatch    int    `json:"max_batch"`
	Piece       int
	Weights     string
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
	Joins        int
	Cancelled    int
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
			model, err := stored.Open(script.Model)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, model.Close()) }()
			running, err := engine.New(model, ctx, engine.Options{
				Context: script.Context, CacheFormat: script.CacheFormat, CacheTokens: script.CacheTokens,
				MaxBatch: script.MaxBatch, Piece: script.Piece, Weights: script.Weights,
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
		logits, err := running.Logits(s.Logits)
		if err != nil {
			return nil, err
		}
		hash := sha256.New()
		for _, value := range logits {
			_ = binary.Write(hash, binary.LittleEndian, math.Float32bits(value)) // a hash takes all
		}
		result.Logits = hex.EncodeToString(hash.Sum(nil))
	}
	scheduler, err := engine.NewScheduler(running)
	if err != nil {
		return nil, err
	}
	err = s.serve(scheduler, result)
	done := scheduler.Statistics
	result.Tokens = map[string]int{
		"prompt": done.PromptTokens, "shared": done.SharedTokens, "prefill": done.PrefillTokens, "decode": done.DecodeTokens,
		"steps": done.DecodeSteps,
	}
	return result, errors.Join(err, scheduler.Close())
}

// serve runs the requests, each from its step on.
func (s *engineScript) serve(scheduler *engine.Scheduler, result *engineResult) error {
	requests := make([]*engine.Request, len(s.Requests))
	for step, left := 0, len(requests); left > 0 || !scheduler.Idle(); step++ {
		for at, scripted := range s.Requests {
			if scripted.Joins == step {
				sampling := engine.Sampling{
					Temperature: scripted.Temperature, TopK: scripted.TopK, TopP: scripted.TopP, Seed: scripted.Seed,
				}
				if err := errors.Join(sampling.Validate(), scheduler.Check(scripted.Prompt, scripted.MaxNewTokens)); err != nil {
					return err
				}
				requests[at] = &engine.Request{
					Prompt: scripted.Prompt, MaxNewTokens: scripted.MaxNewTokens, Sampling: sampling, EndIDs: scripted.EndIDs,
				}
				scheduler.Add(requests[at])
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
		result.Requests[at] = requestResult{request.Tokens, request.Finish, request.Shared}
	}
	return nil
}
