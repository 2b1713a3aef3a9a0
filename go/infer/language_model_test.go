package infer_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// fixture is a tokenizer of tests/tokenizer.
var fixture = filepath.Join("..", "..", "tests", "tokenizer", "own_unigram.model")

// load brings a model of a kind to the CPU, for one test.
func load(t *testing.T, kind string, options infer.LoadOptions) *infer.LanguageModel {
	t.Helper()
	made := must.Get(infer.Load(storedmodel.Folder(t, kind, nil), options))(t)
	t.Cleanup(func() { must.Do(t, made.Close()) })
	return made
}

// loadWithText is load of a model that reads and writes texts.
func loadWithText(t *testing.T) *infer.LanguageModel {
	t.Helper()
	tokens := must.Get(tokenizer.Open(fixture))(t)
	folder := storedmodel.Folder(t, "llama", func(config *formats.Object) { config.Set("vocab_size", tokens.VocabSize()) })
	storedmodel.WithTokenizer(t, folder, fixture)
	made := must.Get(infer.Load(folder, infer.LoadOptions{}))(t)
	t.Cleanup(func() { must.Do(t, made.Close()) })
	return made
}

// continued are the tokens of each prompt, and why each ended.
func continued(ctx context.Context, m *infer.LanguageModel, wanted infer.Generation) ([][]int32, []engine.Finish, error) {
	tokens, finishes := make([][]int32, len(wanted.Prompts)), make([]engine.Finish, len(wanted.Prompts))
	for event, err := range m.Generate(ctx, wanted) {
		if err != nil {
			return tokens, finishes, err
		}
		if event.Token != infer.NoToken {
			tokens[event.Prompt] = append(tokens[event.Prompt], event.Token)
		}
		finishes[event.Prompt] = event.Finish
	}
	return tokens, finishes, nil
}

// idle fails the test when anything is left of what was generated.
func idle(t *testing.T, m *infer.LanguageModel) {
	t.Helper()
	state := must.Get(m.State(context.Background()))(t)
	if state.Running+state.Waiting+state.UsedPages != 0 {
		t.Errorf("%d run, %d wait, %d pages are used", state.Running, state.Waiting, state.UsedPages)
	}
}

func promptsOf(ids ...[]int32) []infer.Prompt {
	made := make([]infer.Prompt, len(ids))
	for at, one := range ids {
		made[at].IDs = one
	}
	return made
}

func TestPromptsTogetherAndAlone(t *testing.T) {
	for _, kind := range storedmodel.Kinds() {
		m := load(t, kind, infer.LoadOptions{Threads: 2})
		all := promptsOf(storedmodel.IDs(1, 3), storedmodel.IDs(2, 150), storedmodel.IDs(3, 1))
		drawn := infer.Sampling{Temperature: 0.9, Seed: 5}
		together, finishes, err := continued(context.Background(), m,
			infer.Generation{Prompts: all, MaxNewTokens: 12, Sampling: drawn})
		must.Do(t, err)
		if !slices.Equal(finishes, []engine.Finish{engine.Length, engine.Length, engine.Length}) {
			t.Errorf("%v", finishes)
		}
		for at := range all {
			alone, _, err := continued(context.Background(), m, infer.Generation{
				Prompts: all[at : at+1], MaxNewTokens: 12, Samplings: []infer.Sampling{drawn.Of(at)},
			})
			if err != nil || !slices.Equal(alone[0], together[at]) {
				t.Errorf("%s: %v alone, %v together, %v", kind, alone[0], together[at], err)
			}
		}
		idle(t, m)
	}
}

// Goroutines that share a model get what they would get alone, and nothing is left of them.
func TestGoroutinesThatShareALanguageModel(t *testing.T) {
	m := load(t, "mixtral", infer.LoadOptions{Options: engine.Options{MaxBatch: 3, CacheTokens: 1024}})
	wanted := func(at int) infer.Generation {
		return infer.Generation{
			Prompts:      promptsOf(storedmodel.Joined(storedmodel.IDs(9, 130), storedmodel.IDs(uint64(at), 1+7*at))),
			MaxNewTokens: 20, Sampling: infer.Sampling{Temperature: float64(at % 2), Seed: int64(at)},
		}
	}
	const goroutines = 8
	var alone [goroutines][]int32
	for at := range alone {
		tokens, _, err := continued(context.Background(), m, wanted(at))
		must.Do(t, err)
		alone[at] = tokens[0]
	}
	var group sync.WaitGroup
	failures := make(chan error, 1000)
	for at := range goroutines {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := range 6 {
				ctx, cancel := context.WithCancel(context.Background())
				var tokens []int32
				for event, err := range m.Generate(ctx, wanted(at)) {
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							failures <- err
						}
						break
					}
					tokens = append(tokens, event.Token)
					if round == 2 && len(tokens) == 5 {
						cancel()
					}
					if round == 3 && len(tokens) == 3+at {
						break
					}
				}
				cancel()
				if !slices.Equal(tokens, alone[at][:len(tokens)]) || round != 2 && round != 3 && len(tokens) != 20 {
					failures <- fmt.Errorf("prompt %d: %v, not %v", at, tokens, alone[at])
				}
				if logits, err := m.Logits(context.Background(), infer.Prompt{IDs: []int32{1, 2}}); err != nil ||
					len(logits) != 2*storedmodel.Vocab {
					failures <- fmt.Errorf("%d logits, %w", len(logits), err)
				}
			}
		}()
	}
	group.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	idle(t, m)
}

func TestWhatEndsAGeneration(t *testing.T) {
	m := load(t, "llama", infer.LoadOptions{})
	one := infer.Generation{Prompts: promptsOf([]int32{1, 2, 3}), MaxNewTokens: 400}
	// The context's error is the last thing to come.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	count, last := 0, error(nil)
	for _, err := range m.Generate(ctx, one) {
		if last = err; err == nil {
			if count++; count == 3 {
				cancel()
			}
		}
	}
	if count != 3 || !errors.Is(last, context.Canceled) {
		t.Errorf("%d tokens, %v", count, last)
	}
	idle(t, m)
	late, stop := context.WithTimeout(context.Background(), -time.Second)
	defer stop()
	if _, _, err := continued(late, m, one); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	for range m.Generate(context.Background(), one) {
		break
	}
	idle(t, m)
	func() {
		defer func() { _ = recover() }()
		for range m.Generate(context.Background(), one) {
			panic("the client is gone")
		}
	}()
	idle(t, m)
	// The end ids of a call, as part of its tokens.
	free, _, err := continued(context.Background(), m, infer.Generation{Prompts: one.Prompts, MaxNewTokens: 30})
	must.Do(t, err)
	ended, finishes, err := continued(context.Background(), m, infer.Generation{
		Prompts: one.Prompts, MaxNewTokens: 30, EndIDs: free[0][4:5],
	})
	at := slices.Index(free[0], free[0][4])
	if err != nil || finishes[0] != engine.End || !slices.Equal(ended[0], free[0][:at+1]) {
		t.Errorf("%v %v, %v", ended, finishes, err)
	}
	for length, want := range map[int]int{infer.NoNewTokens: 0, 0: 512 - 3 + 1} {
		tokens, finishes, err := continued(context.Background(), m, infer.Generation{Prompts: one.Prompts, MaxNewTokens: length})
		if err != nil || len(tokens[0]) != want || finishes[0] != engine.Length {
			t.Errorf("%d: %d tokens, %v, %v", length, len(tokens[0]), finishes, err)
		}
	}
}

func TestClosingWhileOthersGenerate(t *testing.T) {
	made := must.Get(infer.Load(storedmodel.Folder(t, "llama", nil), infer.LoadOptions{}))(t)
	started, finished := make(chan struct{}), make(chan engine.Finish)
	go func() {
		var last infer.Event
		count := 0
		for event, err := range made.Generate(context.Background(), infer.Generation{Prompts: promptsOf([]int32{1})}) {
			if err != nil {
				t.Error(err)
			}
			if last, count = event, count+1; count == 2 {
				close(started)
			}
			time.Sleep(time.Millisecond)
		}
		finished <- last.Finish
	}()
	<-started
	must.Do(t, made.Close())
	must.Do(t, made.Close())
	if finish := <-finished; finish != engine.Cancelled {
		t.Errorf("%q", finish)
	}
	if _, _, err := continued(context.Background(), made, infer.Generation{Prompts: promptsOf([]int32{1})}); !errors.Is(err, infer.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := made.Logits(context.Background(), infer.Prompt{IDs: []int32{1}}); !errors.Is(err, infer.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestWrongGenerations(t *testing.T) {
	m := load(t, "llama", infer.LoadOptions{Options: engine.Options{Context: 100, CacheTokens: 128}})
	good := promptsOf([]int32{1})
	for words, wanted := range map[string]infer.Generation{
		"a prompt must have at least one token":                     {Prompts: promptsOf([]int32{})},
		"the prompt has 101 tokens":                                 {Prompts: promptsOf(storedmodel.IDs(1, 101))},
		"there are 2 samplings for 1 prompts":                       {Prompts: good, Samplings: make([]infer.Sampling, 2)},
		"temperature is -1":                                         {Prompts: good, Sampling: infer.Sampling{Temperature: -1}},
		"top_k is -1":                                               {Prompts: good, Samplings: []infer.Sampling{{TopK: -1}}},
		"stop strings need a tokenizer":                             {Prompts: good, Stop: []string{"x"}},
		"has no tokenizer, so it accepts and returns ids only":      {Prompts: []infer.Prompt{{Text: "x"}}},
		"max_new_tokens is 2147483648; it must be at most 21474836": {Prompts: good, MaxNewTokens: 1 << 31},
		"max_new_tokens is -2; it must be at least 0":               {Prompts: good, MaxNewTokens: -2},
		"max_new_tokens is 3; where a prompt is embedded":           {Prompts: good, MaxNewTokens: 3, Embed: true},
	} {
		var wrong *engine.OptionError
		if _, _, err := continued(context.Background(), m, wanted); !errors.As(err, &wrong) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
	for words, wanted := range map[string]infer.Generation{
		"ids[1] is 96; it must be 0 to 95":     {Prompts: promptsOf([]int32{1, 96})},
		"end_ids[0] is -1; it must be 0 to 95": {Prompts: good, EndIDs: []int32{-1}},
	} {
		if _, _, err := continued(context.Background(), m, wanted); !errors.Is(err, cuda.ErrOutOfRange) || err.Error() != words {
			t.Errorf("%v, not %s", err, words)
		}
	}
	if _, err := m.Complete(context.Background(), infer.Generation{Prompts: good}); err == nil {
		t.Error("a model without a tokenizer gave a text")
	}
	var wrong *formats.Error
	if _, err := infer.Load(filepath.Join(t.TempDir(), "none"), infer.LoadOptions{}); !errors.As(err, &wrong) {
		t.Errorf("%v", err)
	}
	idle(t, m)
}

func TestTexts(t *testing.T) {
	m := loadWithText(t)
	wanted := infer.Generation{
		Prompts: []infer.Prompt{{Text: "line 3"}, {Text: "of 7"}}, MaxNewTokens: 40, Sampling: infer.Sampling{Temperature: 1},
		EndIDs: []int32{},
	}
	texts := must.Get(m.Complete(context.Background(), wanted))(t)
	if texts[0] == texts[1] || len(texts[0]) < 20 {
		t.Fatalf("%q", texts)
	}
	one := infer.Generation{Prompts: wanted.Prompts[:1], MaxNewTokens: 40, Sampling: wanted.Sampling, EndIDs: []int32{}}
	pieces := ""
	for piece, err := range m.Stream(context.Background(), one) {
		must.Do(t, err)
		pieces += piece
	}
	if pieces != texts[0] {
		t.Errorf("%q in pieces, %q as a whole", pieces, texts[0])
	}
	// Ends before a stop string, whose beginning may be that of other text.
	letters := []rune(texts[0])
	stop := string(letters[8:11])
	one.Stop = []string{"never there", stop}
	cut := must.Get(m.Complete(context.Background(), one))(t)
	if before, _, _ := strings.Cut(texts[0], stop); cut[0] != before {
		t.Errorf("%q, not %q", cut[0], before)
	}
	_, finishes, err := continued(context.Background(), m, one)
	if err != nil || finishes[0] != engine.Stop {
		t.Errorf("%v, %v", finishes, err)
	}
	for _, err := range m.Stream(context.Background(), wanted) {
		if err == nil || !strings.Contains(err.Error(), "there are 2 prompts; a stream is of one") {
			t.Errorf("%v", err)
		}
	}
	one.Stop = []string{""}
	if _, err := m.Complete(context.Background(), one); err == nil || !strings.Contains(err.Error(), "a stop string is empty") {
		t.Errorf("%v", err)
	}
	idle(t, m)
}

func TestStopStrings(t *testing.T) {
	for _, given := range []struct {
		stops, pushed, certain []string
		stopped                bool
		rest                   string
	}{
		{[]string{"ab"}, []string{"xa", "ac", "a", "b", "z"}, []string{"x", "aac", "", ""}, true, ""},
		{[]string{"abc", "bx"}, []string{"ab", "x"}, []string{"", "a"}, true, ""},
		{[]string{"aab"}, []string{"aa", "aa", "a"}, []string{"", "aa", "a"}, false, "aa"},
		{[]string{"é!"}, []string{"cafe", "é", "?"}, []string{"cafe", "", "é?"}, false, ""},
		{nil, []string{"any", ""}, []string{"any", ""}, false, ""},
	} {
		stops := must.Get(infer.NewStopStrings(given.stops...))(t)
		for at, text := range given.pushed {
			certain, stopped := stops.Push(text)
			if certain != given.certain[at] || stopped != (given.stopped && at == len(given.certain)-1) {
				t.Errorf("%v after %v: %q, %v", given.stops, given.pushed[:at+1], certain, stopped)
			}
			if stopped {
				break
			}
		}
		if rest := stops.Flush(); rest != given.rest {
			t.Errorf("%v: %q is left", given.stops, rest)
		}
	}
}

// The weights of a model on a context of the caller's.
func TestAModelOnAContext(t *testing.T) {
	opened, ctx := must.Get(stored.Open(storedmodel.Folder(t, "bitnet", nil)))(t), must.Get(cuda.New("cpu"))(t)
	defer func() { must.Do(t, errors.Join(ctx.Close(), opened.Close())) }()
	made := must.Get(infer.New(opened, ctx, engine.Options{}))(t)
	if made.Config().VocabSize != storedmodel.Vocab || made.Context() != storedmodel.Context || made.Room(500) != 13 ||
		made.Tokenizer() != nil || made.Stored() != opened {
		t.Error("it is another model")
	}
	must.Do(t, made.ForgetPrefixes(context.Background()))
	must.Do(t, made.Close())
	if used, err := ctx.BytesUsed(); err != nil || used != 0 {
		t.Errorf("%d bytes are left behind, %v", used, err)
	}
}

// only is a constraint of one id, which fails after some tokens.
type only struct {
	id   int32
	left int
}

func (o *only) Mask() ([]uint32, error) { return []uint32{1 << o.id}, nil }

func (o *only) Accept(int32) error {
	if o.left--; o.left == 0 {
		return errors.New("no more of that")
	}
	return nil
}

func TestLogprobsAndConstraints(t *testing.T) {
	m := load(t, "llama", infer.LoadOptions{})
	prompt := storedmodel.IDs(1, 20)
	wanted := infer.Generation{
		Prompts: promptsOf(prompt, prompt[:3]), MaxNewTokens: 5, Logprobs: true, TopLogprobs: 2, PromptLogprobs: true,
		Constraints: []engine.Constraint{nil, &only{id: 5, left: 100}},
	}
	first := make([]bool, 2)
	for event, err := range m.Generate(context.Background(), wanted) {
		must.Do(t, err)
		if event.Logprobs == nil || len(event.Logprobs.Top) != 2 || event.Prompt == 1 && event.Token != 5 {
			t.Errorf("%+v", event)
		}
		if has := event.PromptLogprobs != nil; has == first[event.Prompt] {
			t.Errorf("prompt %d: log-probabilities in another event than the first", event.Prompt)
		}
		if first[event.Prompt] = true; event.PromptLogprobs != nil && len(event.PromptLogprobs) != []int{20, 3}[event.Prompt] {
			t.Errorf("%d", len(event.PromptLogprobs))
		}
	}
	if scores := must.Get(m.Logprobs(context.Background(), infer.Prompt{IDs: prompt}, 1))(t); len(scores) != 20 {
		t.Errorf("%d", len(scores))
	}
	// What comes before a failure is told first; the failure ends the generation.
	wanted.Constraints = []engine.Constraint{nil, &only{id: 5, left: 2}}
	count := 0
	var last error
	for event, err := range m.Generate(context.Background(), wanted) {
		if last = err; err == nil && event.Prompt == 1 {
			count++
		}
	}
	if count != 2 || last == nil || last.Error() != "no more of that" {
		t.Errorf("%d tokens, %v", count, last)
	}
	idle(t, m)
	wanted.Constraints = wanted.Constraints[:1]
	if _, _, err := continued(context.Background(), m, wanted); err == nil || !strings.Contains(err.Error(), "there are 1 constraints for 2 prompts") {
		t.Errorf("%v", err)
	}
	if _, err := m.Logprobs(context.Background(), infer.Prompt{IDs: prompt}, 21); err == nil {
		t.Error("21 alternatives were given")
	}
}

func TestEmbed(t *testing.T) {
	m := load(t, "llama", infer.LoadOptions{Options: engine.Options{MaxBatch: 2}})
	prompts := promptsOf(storedmodel.IDs(1, 3), storedmodel.IDs(2, 200), storedmodel.IDs(3, 50))
	together := must.Get(m.Embed(context.Background(), prompts...))(t)
	for at, prompt := range prompts {
		alone := must.Get(m.Embed(context.Background(), prompt))(t)
		if len(alone) != 1 || !slices.Equal(alone[0], together[at]) || len(alone[0]) != m.Config().HiddenSize {
			t.Errorf("prompt %d has another vector alone", at)
		}
	}
	if _, err := m.Embed(context.Background(), infer.Prompt{IDs: []int32{}}); err == nil {
		t.Error("a prompt without tokens has a vector")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Embed(ctx, prompts...); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	idle(t, m)
	must.Do(t, m.Close())
	if _, err := m.Embed(context.Background(), prompts...); !errors.Is(err, infer.ErrClosed) {
		t.Errorf("%v", err)
	}
}
