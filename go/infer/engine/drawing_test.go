package engine

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
)

// lists is a constraint of the ids that may be next, one list a token; it fails at a token when it is told to.
type lists struct {
	left    [][]int32
	failsAt int // tokens until then; 0 never
	masked  bool
}

var errGrammar = errors.New("the grammar is lost")

func (l *lists) Mask() ([]uint32, error) {
	if l.masked && l.failsAt == 1 {
		return nil, errGrammar
	}
	mask := make([]uint32, 2) // ids from 64 on are not allowed
	if len(l.left) > 0 {
		for _, id := range l.left[0] {
			mask[id/32] |= 1 << (id % 32)
		}
	}
	return mask, nil
}

func (l *lists) Accept(int32) error {
	l.left = l.left[1:]
	if l.failsAt > 0 {
		if l.failsAt--; l.failsAt == 0 && !l.masked {
			return errGrammar
		}
	}
	return nil
}

// Each way of drawing gives the same tokens and log-probabilities alone and beside the others.
func TestDrawing(t *testing.T) {
	folder := storedmodel.Folder(t, "llama", nil)
	some := func() [][]int32 { return [][]int32{{7, 40}, {1, 2, 3}, storedmodel.IDs(1, 30)[:0:0], {63}} }
	requests := func() []*Request {
		prompt := storedmodel.IDs(1, 30)
		all := []*Request{
			{Sampling: Sampling{Temperature: 1, MinP: 0.1, Seed: 1}},
			{Sampling: Sampling{PresencePenalty: 2, FrequencyPenalty: 0.3}, Logprobs: true, TopLogprobs: 4},
			{Sampling: Sampling{RepetitionPenalty: 1.4, Temperature: 0.9, Seed: 2}},
			{Sampling: Sampling{LogitBias: map[int32]float64{9: 1000}}, Logprobs: true},
			{Constraint: &lists{left: some()}, PromptLogprobs: true, PromptTopLogprobs: 2},
			{Constraint: &lists{left: slices.Repeat([][]int32{{1, 2, 3, 4}}, 60), failsAt: 3}},
			{Constraint: &lists{left: slices.Repeat([][]int32{{1, 2, 3, 4}}, 60), failsAt: 3, masked: true}},
			{},
		}
		for _, one := range all {
			one.Prompt, one.MaxNewTokens = prompt, 20
		}
		all[2].MaxNewTokens = 60 // more memory for its counts
		return all
	}
	var alone []*Request
	for at := range requests() {
		s := must.Get(NewScheduler(newEngine(t, folder, Options{})))(t)
		one := requests()[at]
		generated(t, s, one)
		alone = append(alone, one)
		must.Do(t, s.Close())
	}
	for _, ahead := range []bool{false, true} {
		e := newEngine(t, folder, Options{})
		s := must.Get(newScheduler(e, ahead))(t)
		together := requests()
		generated(t, s, together...)
		for at, one := range together {
			sameScores := func(a, b *TokenLogprobs) bool {
				return a == b || a != nil && b != nil && a.Logprob == b.Logprob && slices.Equal(a.Top, b.Top)
			}
			want := alone[at]
			if !slices.Equal(one.Tokens, want.Tokens) || one.Finish != want.Finish ||
				!slices.EqualFunc(one.Scores, want.Scores, sameScores) ||
				!slices.EqualFunc(one.PromptScores, want.PromptScores, sameScores) {
				t.Errorf("ahead %v, request %d: %v %s, alone %v %s", ahead, at, one.Tokens, one.Finish, want.Tokens, want.Finish)
			}
		}
		if e.Cache.Used() != 0 {
			t.Errorf("%d pages are used", e.Cache.Used())
		}
		must.Do(t, s.Close())
	}
	if biased := alone[3].Tokens; !slices.Equal(biased, slices.Repeat([]int32{9}, 20)) {
		t.Errorf("%v", biased)
	}
	penalized := slices.Clone(alone[1].Tokens)
	slices.Sort(penalized)
	if slices.Equal(alone[1].Tokens, alone[7].Tokens) || len(slices.Compact(penalized)) < 10 {
		t.Errorf("%v with penalties", alone[1].Tokens)
	}
	if tokens := alone[4].Tokens; len(tokens) != 2 || !slices.Contains(some()[0], tokens[0]) || alone[4].Finish != Stop {
		t.Errorf("%v, %s", tokens, alone[4].Finish)
	}
	for _, failed := range alone[5:7] {
		if failed.Finish != Failed || !errors.Is(failed.Err, errGrammar) || len(failed.Tokens) != 3 && len(failed.Tokens) != 2 {
			t.Errorf("%v, %s, %v", failed.Tokens, failed.Finish, failed.Err)
		}
	}
	if same := slices.Equal(alone[7].Tokens, alone[0].Tokens); same {
		t.Error("drawn tokens are the greedy ones")
	}
}

func TestLogprobs(t *testing.T) {
	e := newEngine(t, storedmodel.Folder(t, "mixtral", nil), Options{Piece: 48})
	s := must.Get(NewScheduler(e))(t)
	prompt := storedmodel.IDs(2, 150)
	request := &Request{
		Prompt: prompt, MaxNewTokens: 4, Logprobs: true, TopLogprobs: MostAlternatives, PromptLogprobs: true, PromptTopLogprobs: 3,
		Sampling: Sampling{PresencePenalty: 5},
	}
	generated(t, s, request)
	logits := must.Get(e.Logits(slices.Concat(prompt, request.Tokens), ""))(t)
	logprob := func(row int, id int32) float64 {
		values, sum := logits[row*storedmodel.Vocab:(row+1)*storedmodel.Vocab], 0.0
		for _, value := range values {
			sum += math.Exp(float64(value))
		}
		return float64(values[id]) - math.Log(sum)
	}
	// f32 numbers of a magnitude below 16 whose rounding, and that of the sum, is a few units of 2^-20.
	near := func(a float32, b float64) bool { return math.Abs(float64(a)-b) < 1e-5 }
	if len(request.PromptScores) != 150 || request.PromptScores[0] != nil {
		t.Fatalf("%d scores", len(request.PromptScores))
	}
	for at, one := range request.PromptScores[1:] {
		if !near(one.Logprob, logprob(at, prompt[at+1])) || len(one.Top) != 3 || one.Top[0].Logprob < one.Top[1].Logprob ||
			!near(one.Top[2].Logprob, logprob(at, one.Top[2].ID)) {
			t.Fatalf("token %d: %v, not %v", at, one, logprob(at, prompt[at+1]))
		}
	}
	for at, one := range request.Scores {
		if !near(one.Logprob, logprob(149+at, request.Tokens[at])) || len(one.Top) != MostAlternatives {
			t.Errorf("token %d: %v", at, one)
		}
	}
	alone := must.Get(e.Logprobs(prompt, 3, ""))(t)
	for at, one := range alone[1:] {
		if other := request.PromptScores[at+1]; one.Logprob != other.Logprob || !slices.Equal(one.Top, other.Top) {
			t.Fatalf("token %d: %v, of a request %v", at, one, other)
		}
	}
	nothing := &Request{Prompt: prompt[:5], PromptLogprobs: true}
	generated(t, s, nothing)
	if len(nothing.PromptScores) != 5 || len(nothing.Tokens) != 0 || nothing.Finish != Length || len(nothing.PromptScores[1].Top) != 0 {
		t.Errorf("%+v", nothing)
	}
	if none := must.Get(e.Logprobs(nil, 0, ""))(t); none != nil {
		t.Errorf("%v", none)
	}
	if err := must.Err(e.Logprobs([]int32{-1}, 0, "")); !errors.Is(err, cuda.ErrOutOfRange) {
		t.Errorf("%v", err)
	}
	must.Do(t, s.Close())
}

func TestWrongSamplings(t *testing.T) {
	for words, sampling := range map[string]Sampling{
		"min_p is 1.5; it must be 0 to 1":                                 {MinP: 1.5},
		"min_p is NaN; it must be 0 to 1":                                 {MinP: math.NaN()},
		"presence_penalty is +Inf; it must be a finite number":            {PresencePenalty: math.Inf(1)},
		"frequency_penalty is 1e+39; it must be a finite number":          {FrequencyPenalty: 1e39},
		"repetition_penalty is -1; it must be a finite number above 0":    {RepetitionPenalty: -1},
		"repetition_penalty is 1e-50; it must be a finite number above 0": {RepetitionPenalty: 1e-50},
		"logit_bias has the key -1; it must be a token id":                {LogitBias: map[int32]float64{-1: 1}},
		"logit_bias of token 3 is NaN; it must be a finite number":        {LogitBias: map[int32]float64{3: math.NaN()}},
	} {
		var wrong *OptionError
		if err := sampling.Validate(); !errors.As(err, &wrong) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
	biased := Sampling{LogitBias: map[int32]float64{3: 1, 96: 1}}
	must.Do(t, biased.Validate())
	if err := biased.CheckIDs(96); !errors.Is(err, cuda.ErrOutOfRange) || err.Error() != "logit_bias[1] is 96; it must be 0 to 95" {
		t.Errorf("%v", err)
	}
	if err := CheckAlternatives("logprobs", 21); err == nil || err.Error() != "logprobs is 21; it must be 0 to 20" {
		t.Errorf("%v", err)
	}
}
