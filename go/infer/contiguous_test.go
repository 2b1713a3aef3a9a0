package infer_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/tokenizer"
)

func newModel(t testing.TB, vocab int) *model.MoETransformer {
	t.Helper()
	return newModelIn(t, vocab, model.F32)
}

func newModelIn(t testing.TB, vocab int, precision model.Precision) *model.MoETransformer {
	t.Helper()
	config := model.Default()
	config.VocabSize, config.HiddenSize, config.NumLayers = vocab, 24, 2
	config.NumHeads, config.NumKVHeads, config.HeadDim = 4, 2, 8
	config.NumExperts, config.ExpertsPerToken, config.FFNSize = 4, 2, 20
	config.Context, config.ExtendedContext, config.InitStd = 32, 64, 0.2
	ctx := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	made := must.Get(model.New(ctx, config, precision, 3))(t)
	before := must.Get(ctx.BytesUsed())(t)
	t.Cleanup(func() {
		// What the layers hold for watchers may be left; the rest goes when its generation ends.
		after := must.Get(ctx.BytesUsed())(t)
		if after > before+4096 {
			t.Errorf("%d bytes are used, %d before", after, before)
		}
		must.Do(t, errors.Join(made.Close(), ctx.Close()))
	})
	return made
}

// collect gives all rows of tokens.
func collect(t testing.TB, m *model.MoETransformer, request infer.Request) (rows [][]int32) {
	t.Helper()
	for tokens, err := range infer.Batch(context.Background(), m, request) {
		must.Do(t, err)
		rows = append(rows, slices.Clone(tokens))
	}
	return rows
}

var prompts = [][]int32{{1, 2, 3, 4, 5}, {40}, {7, 7, 7}}

// A panic of the loop's body gives the memory back, as newModel's cleanup checks, and the model.
func TestALoopThatPanics(t *testing.T) {
	made := newModel(t, 48)
	func() {
		defer func() { _ = recover() }()
		for range infer.Batch(context.Background(), made, infer.Request{Prompts: prompts, MaxNewTokens: 9, EndID: infer.NoToken}) {
			panic("on purpose")
		}
	}()
	used := must.Get(made.Context().BytesUsed())(t)
	rows := collect(t, made, infer.Request{Prompts: prompts, MaxNewTokens: 9, EndID: infer.NoToken})
	after := must.Get(made.Context().BytesUsed())(t)
	if len(rows) != 9 || after > used+4096 || used > after+4096 {
		t.Errorf("%d rows; %d bytes are used after the panic, %d after another generation", len(rows), used, after)
	}
}

// likeliest is the token that has the largest logit after a text.
func likeliest(t *testing.T, made *model.MoETransformer, ids []int32) int32 {
	t.Helper()
	logits := must.Get(made.Logits(ids, 1))(t)
	values, err := tensor.Read[float32](logits)
	must.Do(t, errors.Join(err, logits.Close()))
	last := values[len(values)-made.Config.VocabSize:]
	return int32(slices.Index(last, slices.Max(last)))
}

func TestGreedyTokensAreTheLikeliest(t *testing.T) {
	made := newModel(t, 48)
	for row, prompt := range prompts {
		ids := slices.Clone(prompt)
		request := infer.Request{Prompts: prompts[row : row+1], MaxNewTokens: 8, EndID: infer.NoToken}
		for step, tokens := range collect(t, made, request) {
			if wanted := likeliest(t, made, ids); tokens[0] != wanted {
				t.Fatalf("prompt %d, token %d is %d, not %d", row, step, tokens[0], wanted)
			}
			ids = append(ids, tokens[0])
		}
	}
}

func TestCaptureDoesNotChangeTheTokens(t *testing.T) {
	made := newModel(t, 48)
	seen := map[string]bool{}
	for _, sampling := range []infer.Sampling{
		{}, {Temperature: 1, Seed: 5}, {Temperature: 0.8, TopK: 9, Seed: -3}, {Temperature: 1.3, TopP: 0.7, Seed: 1 << 62},
		{Temperature: 1, TopK: 20, TopP: 0.9, Seed: 7},
	} {
		request := infer.Request{Prompts: prompts, MaxNewTokens: 40, Sampling: sampling, EndID: infer.NoToken}
		rows := collect(t, made, request)
		request.NoCapture = true
		if again := collect(t, made, request); fmt.Sprint(rows) != fmt.Sprint(again) || len(rows) != 40 {
			t.Errorf("%+v: %v, without capture %v", sampling, rows, again)
		}
		// A sequence draws from the seed plus its place, whoever else is there; beside others only the last bits differ.
		alone := request
		alone.Prompts, alone.Sampling.Seed = prompts[1:2], sampling.Seed+1
		if found := collect(t, made, alone); found[0][0] != rows[0][1] {
			t.Errorf("%+v: alone it begins with %d, not %d", sampling, found[0][0], rows[0][1])
		}
		seen[fmt.Sprint(rows)] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d different texts of 5 strategies", len(seen))
	}
}

// TestGenerationIn16Bits: captured or not, the tokens are those of the model's own logits.
func TestGenerationIn16Bits(t *testing.T) {
	for _, precision := range []model.Precision{model.BF16, model.F16} {
		made := newModelIn(t, 48, precision)
		request := infer.Request{Prompts: prompts, MaxNewTokens: 40, EndID: infer.NoToken}
		rows := collect(t, made, request)
		request.NoCapture = true
		if again := collect(t, made, request); fmt.Sprint(rows) != fmt.Sprint(again) || len(rows) != 40 {
			t.Errorf("%s: %v, without capture %v", precision, rows, again)
		}
		for row, prompt := range prompts {
			if wanted := likeliest(t, made, prompt); rows[0][row] != wanted {
				t.Errorf("%s, prompt %d: the first token is %d, not %d", precision, row, rows[0][row], wanted)
			}
		}
	}
}

func TestSequencesEndAtTheEnd(t *testing.T) {
	made := newModel(t, 48)
	request := infer.Request{Prompts: prompts, MaxNewTokens: 12, EndID: infer.NoToken}
	whole := collect(t, made, request)
	request.EndID = whole[2][0]
	ended := make([]bool, len(prompts))
	rows := collect(t, made, request)
	for step, tokens := range rows {
		for row, token := range tokens {
			wanted := whole[step][row]
			if ended[row] {
				wanted = infer.NoToken
			}
			if token != wanted {
				t.Fatalf("token %d of sequence %d is %d, not %d", step, row, token, wanted)
			}
			ended[row] = ended[row] || token == request.EndID
		}
	}
	if len(rows) < 12 && slices.Contains(ended, false) {
		t.Errorf("it ended after %d steps with sequences still going: %v", len(rows), ended)
	}
	request.Prompts = prompts[:1]
	if rows := collect(t, made, request); len(rows) > 3 || rows[len(rows)-1][0] != request.EndID {
		t.Errorf("alone it went on: %v", rows)
	}
}

func TestGenerationStopsWhenAsked(t *testing.T) {
	made := newModel(t, 48)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	count := 0
	var failure error
	for _, err := range infer.Tokens(ctx, made, prompts[0], 40, infer.Sampling{}, infer.NoToken) {
		if failure = err; err != nil {
			break
		}
		if count++; count == 5 {
			cancel()
		}
	}
	if count != 5 || !errors.Is(failure, context.Canceled) {
		t.Errorf("%d tokens, then %v", count, failure)
	}
	for range infer.Tokens(context.Background(), made, prompts[0], 40, infer.Sampling{}, infer.NoToken) {
		break
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	made, cold := newModel(t, 48), infer.Sampling{Temperature: -1}
	for words, request := range map[string]infer.Request{
		"at least one token; the one that begins": {Prompts: [][]int32{{1}, {}}, MaxNewTokens: 1},
		"a prompt must have at least one token":   {MaxNewTokens: 1},
		"max_new_tokens is -1":                    {Prompts: prompts, MaxNewTokens: -1},
		"65 tokens are more than this model take": {Prompts: [][]int32{{1}}, MaxNewTokens: 65},
		"9223372036854775807 tokens are more":     {Prompts: prompts, MaxNewTokens: 1<<63 - 1},
		"temperature is -1; it must be":           {Prompts: prompts, MaxNewTokens: 1, Sampling: cold},
		"top_k is -5; it must be at least 1":      {Prompts: prompts, MaxNewTokens: 1, Sampling: infer.Sampling{TopK: -5}},
		"top_p is 1.5; it must be above 0":        {Prompts: prompts, MaxNewTokens: 1, Sampling: infer.Sampling{TopP: 1.5}},
	} {
		var failure error
		for tokens, err := range infer.Batch(context.Background(), made, request) {
			if failure = err; err == nil {
				t.Errorf("it gave %v", tokens)
			}
		}
		if failure == nil || !strings.Contains(failure.Error(), words) {
			t.Errorf("%v, not %q", failure, words)
		}
	}
	beyond := infer.Request{Prompts: [][]int32{{48}}, MaxNewTokens: 2}
	for _, err := range infer.Batch(context.Background(), made, beyond) {
		if !errors.Is(err, cuda.ErrOutOfRange) {
			t.Error("an id beyond the vocabulary:", err)
		}
	}
	for range infer.Batch(context.Background(), made, infer.Request{Prompts: prompts}) {
		t.Error("no tokens were asked for")
	}
}

func TestText(t *testing.T) {
	tokens, err := tokenizer.Open(filepath.Join("..", "..", "tests", "tokenizer", "own_bpe.model"))
	if err != nil {
		t.Skip("the tokenizers lie in the source tree, beside this module: ", err)
	}
	made := newModel(t, tokens.VocabSize())
	generator := must.Get(infer.NewTextGenerator(made, tokens))(t)
	sampling := infer.Sampling{Temperature: 1, Seed: 2}
	var pieces []string
	for piece, err := range generator.Stream(context.Background(), "The cat", 30, sampling) {
		must.Do(t, err)
		pieces = append(pieces, piece)
	}
	ids := must.Get(tokens.Encode("The cat", tokenizer.Encoding{Begin: true}))(t)
	var drawn []int32
	for token, err := range infer.Tokens(context.Background(), made, ids, 30, sampling, tokens.EndID()) {
		must.Do(t, err)
		drawn = append(drawn, token)
	}
	if drawn[len(drawn)-1] == tokens.EndID() {
		drawn = drawn[:len(drawn)-1]
	}
	whole := must.Get(tokens.Decode(drawn))(t)
	if found := strings.Join(pieces, ""); found != whole || len(pieces) < 2 {
		t.Errorf("%q, not %q", pieces, whole)
	}
	if room := must.Get(generator.Room("The cat"))(t); room != 64-len(ids)+1 {
		t.Error("there is room for", room)
	}
	if _, err := infer.NewTextGenerator(newModel(t, 48), tokens); err == nil {
		t.Error("a tokenizer of another vocabulary was taken")
	}
}

func BenchmarkDecode(b *testing.B) {
	made := newModel(b, 512)
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range infer.Tokens(context.Background(), made, prompts[0], 60, infer.Sampling{}, infer.NoToken) {
			must.Do(b, err)
		}
	}
	b.ReportMetric(60*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}
