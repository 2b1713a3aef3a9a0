package engine

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
	"github.com/nncuda/nncuda/go/model/stored"
)

// newEngine opens a folder and makes an engine, both for one test.
func newEngine(t *testing.T, folder string, options Options, more ...cuda.Option) *Engine {
	t.Helper()
	model := must.Get(stored.Open(folder))(t)
	ctx := must.Get(cuda.New("cpu", more...))(t)
	made := must.Get(New(model, ctx, options))(t)
	t.Cleanup(func() { must.Do(t, errors.Join(made.Close(), ctx.Close(), model.Close())) })
	return made
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

// The bits of logits depend neither on the pieces that a prompt is cut into, nor on threads, nor on where the weights lie.
func TestLogitsOfPieces(t *testing.T) {
	for _, kind := range storedmodel.Kinds() {
		folder, ids := storedmodel.Folder(t, kind, nil), storedmodel.IDs(1, 200)
		expected := must.Get(newEngine(t, folder, Options{}).Logits(ids, ""))(t)
		if len(expected) != 200*storedmodel.Vocab || math.IsNaN(float64(expected[0])) {
			t.Fatalf("%s: %d logits, %v", kind, len(expected), expected[0])
		}
		for name, options := range map[string]Options{
			"pieces of 1": {Piece: 1}, "pieces of 7": {Piece: 7}, "file": {Weights: "file"}, "a batch of 1": {MaxBatch: 1},
		} {
			if got := must.Get(newEngine(t, folder, options, cuda.WithThreads(1)).Logits(ids, ""))(t); !sameBits(got, expected) {
				t.Errorf("%s: other logits with %s", kind, name)
			}
		}
	}
}

// The bits of a text's vector depend neither on the pieces that it is cut into, nor on threads, nor on who else is served or
// on what the cache has; and its length is 1.
func TestEmbeddings(t *testing.T) {
	for _, kind := range storedmodel.Kinds() {
		folder, ids := storedmodel.Folder(t, kind, nil), storedmodel.IDs(1, 200)
		expected := must.Get(newEngine(t, folder, Options{}).Embed(ids, ""))(t)
		square := 0.0
		for _, number := range expected {
			square += float64(number) * float64(number)
		}
		if math.Abs(square-1) > 1e-6 {
			t.Fatalf("%s: the length is the root of %v", kind, square)
		}
		for name, options := range map[string]Options{"pieces of 7": {Piece: 7}, "a batch of 2": {MaxBatch: 2}} {
			e := newEngine(t, folder, options, cuda.WithThreads(1))
			if got := must.Get(e.Embed(ids, ""))(t); !sameBits(got, expected) {
				t.Errorf("%s: another vector with %s", kind, name)
			}
			s := must.Get(NewScheduler(e))(t)
			finish := Cancelled
			if options.Piece == 0 { // it is whole after a step
				finish = Length
			}
			for range 2 {
				embedded := &Request{Prompt: ids, Embed: true}
				left := &Request{Prompt: ids, Embed: true}
				s.Add(left)
				must.Do(t, s.Step())
				s.Cancel(left)
				generated(t, s, &Request{Prompt: ids, MaxNewTokens: 30}, embedded)
				if !sameBits(embedded.Embedding, expected) || embedded.Shared != 0 || embedded.Finish != Length {
					t.Errorf("%s: another vector beside others, with %s", kind, name)
				}
				if e.Cache.Used() != 0 || left.pool != nil || left.Finish != finish {
					t.Errorf("%s: %d pages are used, %v", kind, e.Cache.Used(), left.Finish)
				}
			}
			must.Do(t, s.Close())
		}
	}
}

// generated runs requests, some of them later than others, and gives their tokens.
func generated(t *testing.T, s *Scheduler, requests ...*Request) [][]int32 {
	t.Helper()
	for step := 0; step < len(requests) || !s.Idle(); step++ {
		if step < len(requests) {
			must.Do(t, s.Check(requests[step].Prompt, requests[step].MaxNewTokens))
			s.Add(requests[step])
		}
		if !s.Idle() {
			must.Do(t, s.Step())
		}
	}
	var tokens [][]int32
	for _, request := range requests {
		tokens = append(tokens, request.Tokens)
	}
	return tokens
}

// mixed are requests of all kinds: greedy and drawn, short and long, with a beginning in common.
func mixed() []*Request {
	long := storedmodel.IDs(3, 300)
	return []*Request{
		{Prompt: storedmodel.IDs(1, 5), MaxNewTokens: 30},
		{Prompt: long, MaxNewTokens: 20, Sampling: Sampling{Temperature: 0.8, Seed: 4}},
		{Prompt: storedmodel.Joined(long[:180], storedmodel.IDs(2, 9)), MaxNewTokens: 25,
			Sampling: Sampling{Temperature: 1.2, TopK: 12, TopP: 0.9, Seed: -1}},
		{Prompt: long[:140], MaxNewTokens: 1},
		{Prompt: storedmodel.IDs(5, 60), MaxNewTokens: 40, EndIDs: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}},
	}
}

// A prompt's tokens are the same bits alone and with others, in any order of steps, with pages shared or not, whether a
// batch runs ahead or not.
func TestTokensOfSchedules(t *testing.T) {
	for _, kind := range storedmodel.Kinds() {
		folder := storedmodel.Folder(t, kind, nil)
		var alone [][]int32
		for at := range mixed() {
			e := newEngine(t, folder, Options{})
			s := must.Get(NewScheduler(e))(t)
			alone = append(alone, generated(t, s, mixed()[at])...)
			must.Do(t, s.Close())
		}
		if slices.Equal(alone[1][:10], alone[2][:10]) || len(alone[0]) != 30 || len(alone[3]) != 1 {
			t.Fatalf("%v", alone)
		}
		for name, options := range map[string]Options{
			"all at once": {}, "two at a time": {MaxBatch: 2, CacheTokens: 2048}, "a small cache": {CacheTokens: 512},
			"small pieces": {Piece: 16},
		} {
			for _, ahead := range []bool{false, true} {
				e := newEngine(t, folder, options)
				s := must.Get(newScheduler(e, ahead))(t)
				if got := generated(t, s, mixed()...); !slices.EqualFunc(got, alone, slices.Equal) {
					t.Errorf("%s, %s, ahead %v: %v, not %v", kind, name, ahead, got, alone)
				}
				if used := e.Cache.Used(); used != 0 || e.Cache.reserved != 0 {
					t.Errorf("%d pages are used, %d reserved", used, e.Cache.reserved)
				}
				// Again, from a warm cache.
				got := generated(t, s, mixed()...)
				if !slices.EqualFunc(got, alone, slices.Equal) {
					t.Errorf("%s, %s, ahead %v: warm %v", kind, name, ahead, got)
				}
				if options.CacheTokens == 0 && s.Statistics.SharedTokens < 300 {
					t.Errorf("%d tokens were shared", s.Statistics.SharedTokens)
				}
				must.Do(t, s.Close())
			}
		}
	}
}

// A text that is longer than the context drops its oldest page, the same in any company, and beyond the first rotary
// tables, too.
func TestWindows(t *testing.T) {
	folder := storedmodel.Folder(t, "llama", nil)
	request := func() *Request {
		return &Request{Prompt: storedmodel.IDs(1, 200), MaxNewTokens: 4200, Sampling: Sampling{Temperature: 1}}
	}
	var expected []int32
	for _, ahead := range []bool{false, true} {
		e := newEngine(t, folder, Options{Context: 256})
		s := must.Get(newScheduler(e, ahead))(t)
		tokens := generated(t, s, request(), &Request{Prompt: storedmodel.IDs(2, 100), MaxNewTokens: 300})
		if expected == nil {
			expected = tokens[0]
		}
		if len(tokens[0]) != 4200 || !slices.Equal(tokens[0], expected) || len(tokens[1]) != 300 {
			t.Errorf("ahead %v: %d tokens", ahead, len(tokens[0]))
		}
		if e.rope.Length() <= firstPositions {
			t.Errorf("tables of %d rows", e.rope.Length())
		}
		must.Do(t, s.Close())
	}
}

func TestCancelledRequests(t *testing.T) {
	e := newEngine(t, storedmodel.Folder(t, "mixtral", nil), Options{MaxBatch: 2, CacheTokens: 1024})
	s := must.Get(NewScheduler(e))(t)
	requests := mixed()
	for _, request := range requests {
		s.Add(request)
	}
	must.Do(t, s.Step())
	must.Do(t, s.Step())
	if s.Running() != 2 || s.Waiting() != 3 {
		t.Fatalf("%d run, %d wait", s.Running(), s.Waiting())
	}
	s.Cancel(requests[0])
	s.Cancel(requests[0])
	s.Cancel(requests[4]) // which waits
	s.Add(&Request{Prompt: []int32{1}})
	for !s.Idle() {
		must.Do(t, s.Step())
	}
	finishes := make(map[Finish]int)
	for _, request := range requests {
		finishes[request.Finish]++
	}
	if !maps.Equal(finishes, map[Finish]int{Cancelled: 2, Length: 3}) || e.Cache.Used() != 0 {
		t.Errorf("%v, %d pages are used", finishes, e.Cache.Used())
	}
	more := mixed()[1]
	s.Add(more)
	must.Do(t, s.Step())
	must.Do(t, s.Close())
	if more.Finish != Cancelled {
		t.Errorf("closing left %q", more.Finish)
	}
}

func TestRefusals(t *testing.T) {
	folder := storedmodel.Folder(t, "llama", nil)
	e := newEngine(t, folder, Options{Context: 100, CacheTokens: 128})
	s := must.Get(NewScheduler(e))(t)
	defer func() { must.Do(t, s.Close()) }()
	full, wrong := &CacheFullError{}, &OptionError{}
	for words, err := range map[string]error{
		"a prompt must have at least one token":                     s.Check(nil, 1),
		"the prompt has 101 tokens; the context has room for 100":   s.Check(storedmodel.IDs(1, 101), 1),
		"max_new_tokens is -1; it must be at least 0":               s.Check([]int32{1}, -1),
		"the prompt has 60 tokens, 101 with the new ones":           s.Check(storedmodel.IDs(1, 60), 42),
		"ids is empty; there must be at least one":                  must.Err(e.Logits(nil, "")),
		"there are 101 ids; the context has room for 100":           must.Err(e.Logits(storedmodel.IDs(1, 101), "")),
		"a call of 1 parts with 0 tokens; there may be 32 parts of": must.Err(e.Prefill([]Part{{Sequence: &CachedSequence{}}})),
		"temperature is -1; it must be a finite number":             Sampling{Temperature: -1}.Validate(),
		"top_p is 2; it must be above 0, at most 1":                 Sampling{TopP: 2}.Validate(),
	} {
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
	if err := must.Err(e.Logits([]int32{1, 96}, "")); !errors.Is(err, cuda.ErrOutOfRange) || err.Error() != "ids[1] is 96; it must be 0 to 95" {
		t.Errorf("%v", err)
	}
	small := must.Get(NewScheduler(newEngine(t, folder, Options{CacheTokens: 256})))(t)
	defer func() { must.Do(t, small.Close()) }()
	if err := small.Check([]int32{1}, 400); !errors.As(err, &full) || !strings.Contains(err.Error(), "needs 4 pages of 128 tokens; the cache has 2") {
		t.Errorf("%v", err)
	}
	model, ctx := must.Get(stored.Open(folder))(t), must.Get(cuda.New("cpu"))(t)
	defer func() { must.Do(t, errors.Join(ctx.Close(), model.Close())) }()
	for words, options := range map[string]Options{
		"context is 513; this model takes 1 to 512 tokens":            {Context: 513},
		"max_batch is -1; it must be at least 1":                      {MaxBatch: -1},
		"cache_tokens is -1; it must be at least 1":                   {CacheTokens: -1},
		"weights is 'disk'; it must be one of auto, memory, file":     {Weights: "disk"},
		"cache_format is 'f64'; it must be one of f16, f32":           {CacheFormat: "f64"},
		"cache_format is q8_0, whose blocks of 32 do not divide head": {CacheFormat: "q8_0"},
	} {
		if _, err := New(model, ctx, options); !errors.As(err, &wrong) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
	if used, err := ctx.BytesUsed(); err != nil || used != 0 {
		t.Errorf("%d bytes are left behind, %v", used, err)
	}
}

// Rotary embeddings that are stretched reach the kernels: other logits beyond the first token.
func TestScaledRope(t *testing.T) {
	ids := storedmodel.IDs(1, 40)
	plain := must.Get(newEngine(t, storedmodel.Folder(t, "llama", nil), Options{}).Logits(ids, ""))(t)
	for _, scaling := range []*formats.Object{
		formats.NewObject("rope_type", "linear", "factor", 4.0),
		formats.NewObject("rope_type", "llama3", "factor", 8.0, "low_freq_factor", 1.0, "high_freq_factor", 4.0,
			"original_max_position_embeddings", 16),
	} {
		folder := storedmodel.Folder(t, "llama", func(config *formats.Object) { config.Set("rope_scaling", scaling) })
		scaled := must.Get(newEngine(t, folder, Options{}).Logits(ids, ""))(t)
		if sameBits(scaled, plain) || !sameBits(scaled[:storedmodel.Vocab], plain[:storedmodel.Vocab]) {
			t.Errorf("%v changes nothing, or the first token", scaling.Get("rope_type"))
		}
	}
}

// The codes of formats are those of the library.
func TestFormatCodes(t *testing.T) {
	for name, code := range map[string]cuda.Format{
		"f32": cuda.FormatF32, "f16": cuda.FormatF16, "bf16": cuda.FormatBF16, "q4_0": cuda.FormatQ40, "q4_1": cuda.FormatQ41,
		"q5_0": cuda.FormatQ50, "q5_1": cuda.FormatQ51, "q8_0": cuda.FormatQ80, "q4_k": cuda.FormatQ4K, "q5_k": cuda.FormatQ5K,
		"q6_k": cuda.FormatQ6K, "iq4_nl": cuda.FormatIq4Nl, "mxfp4": cuda.FormatMxfp4, "iq4_xs": cuda.FormatIq4Xs,
		"q2_k": cuda.FormatQ2K, "q3_k": cuda.FormatQ3K,
	} {
		if format, known := formats.FormatNamed(name); !known || cuda.Format(format.Code) != code {
			t.Errorf("%s has the code %d, not %d", name, format.Code, code)
		}
	}
	for name, code := range map[string]cuda.Format{
		"q4_0": cuda.FormatQ40R16, "q4_1": cuda.FormatQ41R16, "q5_0": cuda.FormatQ50R16, "q5_1": cuda.FormatQ51R16,
		"q8_0": cuda.FormatQ80R16, "q4_k": cuda.FormatQ4KR16, "q5_k": cuda.FormatQ5KR16, "q6_k": cuda.FormatQ6KR16,
		"iq4_nl": cuda.FormatIq4NlR16, "mxfp4": cuda.FormatMxfp4R16, "iq4_xs": cuda.FormatIq4XsR16,
		"q2_k": cuda.FormatQ2KR16, "q3_k": cuda.FormatQ3KR16,
	} {
		format, _ := formats.FormatNamed(name)
		if interleaved, has := format.Interleaved(); !has || cuda.Format(interleaved) != code {
			t.Errorf("%s has the code %d with rows side by side, not %d", name, interleaved, code)
		}
	}
}
