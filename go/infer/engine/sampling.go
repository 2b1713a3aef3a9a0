package engine

import (
	"maps"
	"math"
	"slices"
)

// Sampling says how the next token is chosen. The zero value always picks the most likely token.
type Sampling struct {
	Temperature float64 // divides the logits; 0 always picks the most likely token
	TopK        int     // samples only from this many of the most likely tokens; 0 from all
	// TopP samples only from the shortest run of most likely tokens that reaches this probability; 0: no limit.
	TopP float64
	Seed int64 // the same seed gives the same tokens; sequence r of a batch uses Seed + r
	// MinP samples only from tokens at least this many times as likely as the most likely one, of those that TopK and TopP
	// leave; 0: from all. (Nguyen et al. 2024)
	MinP float64

	// What follows changes the logits first, in this order, and holds at a temperature of 0, too.

	// RepetitionPenalty divides the logits of tokens in the prompt and the text so far where they are above 0, and
	// multiplies them elsewhere; 0 and 1: none. (Keskar et al. 2019, as in transformers and vLLM)
	RepetitionPenalty float64
	FrequencyPenalty  float64           // is subtracted from a token's logit for each time it was drawn so far (as OpenAI defines it)
	PresencePenalty   float64           // is subtracted once if it was drawn at all
	LogitBias         map[int32]float64 // what is added to the logits of some ids
}

// Validate says which option is outside its range.
func (s Sampling) Validate() error {
	if math.IsNaN(s.Temperature) || math.IsInf(s.Temperature, 0) || s.Temperature < 0 {
		return wrongOption("temperature", "temperature is %v; it must be a finite number, at least 0", s.Temperature)
	}
	if s.TopK < 0 || s.TopK > math.MaxInt32 {
		return wrongOption("top_k", "top_k is %d; it must be at least 1", s.TopK)
	}
	if !(s.TopP >= 0 && s.TopP <= 1) {
		return wrongOption("top_p", "top_p is %v; it must be above 0, at most 1", s.TopP)
	}
	if !(s.MinP >= 0 && s.MinP <= 1) {
		return wrongOption("min_p", "min_p is %v; it must be 0 to 1", s.MinP)
	}
	for _, penalty := range []struct {
		name  string
		value float64
	}{{"presence_penalty", s.PresencePenalty}, {"frequency_penalty", s.FrequencyPenalty}} {
		if !isFinite(penalty.value) {
			return wrongOption(penalty.name, "%s is %v; it must be a finite number", penalty.name, penalty.value)
		}
	}
	if repetition := s.RepetitionPenalty; repetition != 0 && !(isFinite(repetition) && float32(repetition) > 0) {
		return wrongOption("repetition_penalty", "repetition_penalty is %v; it must be a finite number above 0", repetition)
	}
	for _, id := range s.biased() {
		if id < 0 {
			return wrongOption("logit_bias", "logit_bias has the key %d; it must be a token id", id)
		}
		if !isFinite(s.LogitBias[id]) {
			return wrongOption("logit_bias", "logit_bias of token %d is %v; it must be a finite number", id, s.LogitBias[id])
		}
	}
	return nil
}

// CheckIDs is an *IDError when LogitBias has an id outside the vocabulary.
func (s Sampling) CheckIDs(vocabSize int) error { return CheckIDs(s.biased(), vocabSize, "logit_bias") }

// Of is the sampling of one sequence of a batch: the seed goes up by its number, modulo 2^64.
func (s Sampling) Of(number int) Sampling {
	s.Seed = int64(uint64(s.Seed) + uint64(number))
	return s
}

// biased are the ids with a bias, ascending.
func (s Sampling) biased() []int32 { return slices.Sorted(maps.Keys(s.LogitBias)) }

// repeats says whether tokens of the prompt count.
func (s Sampling) repeats() bool { return s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1 }

// penalizes says whether tokens are counted.
func (s Sampling) penalizes() bool {
	return s.PresencePenalty != 0 || s.FrequencyPenalty != 0 || s.repeats()
}

// isFinite says whether a number is finite as f32, which kernels take.
func isFinite(value float64) bool { return math.Abs(value) <= math.MaxFloat32 }
