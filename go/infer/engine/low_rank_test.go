package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
	"github.com/nncuda/nncuda/go/model/stored"
)

// adapterFolders are adapters of a small Llama by name: all of the matrices, some of those of fused calls, one of them.
func adapterFolders(t *testing.T) map[string]string {
	return map[string]string{
		"all": storedmodel.Adapter(t, 1, 3, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
			"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
		"some": storedmodel.Adapter(t, 2, 8, "self_attn.v_proj", "mlp.down_proj"),
		"gate": storedmodel.Adapter(t, 3, 1, "mlp.gate_proj"),
	}
}

// withAdapters makes an engine for one test: of prompts that name none `unnamed` is the adapter, "" for none.
func withAdapters(t *testing.T, folder, unnamed string, folders map[string]string, options Options) *Engine {
	t.Helper()
	model := must.Get(stored.Open(folder))(t)
	open := func(name string) *stored.Adapter {
		adapter := must.Get(stored.OpenAdapter(folders[name], model.Config))(t)
		t.Cleanup(func() { must.Do(t, adapter.Close()) })
		return adapter
	}
	if unnamed != "" {
		options.Adapter = open(unnamed)
	} else {
		for _, name := range []string{"all", "some", "gate"} {
			options.Adapters = append(options.Adapters, NamedAdapter{name, open(name)})
		}
	}
	ctx := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	made := must.Get(New(model, ctx, options))(t)
	t.Cleanup(func() { must.Do(t, errors.Join(made.Close(), ctx.Close(), model.Close())) })
	return made
}

// adapted are requests that begin alike, beyond a page, each for another adapter or none.
func adapted() []*Request {
	text := storedmodel.IDs(7, 200)
	var made []*Request
	for at, name := range []string{"all", "", "some", "gate", "all", ""} {
		made = append(made, &Request{
			Prompt: text[:[]int{150, 150, 150, 9, 140, 5}[at]], MaxNewTokens: 8, Adapter: name, Logprobs: true,
			Sampling: Sampling{Temperature: 1, Seed: 7},
		})
	}
	return made
}

// told are a request's tokens with the bits of their log-probabilities.
func told(request *Request) string {
	found := ""
	for at, token := range request.Tokens {
		found += fmt.Sprintf("%d:%b ", token, request.Scores[at].Logprob)
	}
	return found
}

// Of a batch with several adapters, each text has the bits that it has alone, whatever pieces prompts are cut into, also where
// graphs of other divisions make room.
func TestSeveralAdapters(t *testing.T) {
	folder, folders := storedmodel.Folder(t, "llama", nil), adapterFolders(t)
	ids := storedmodel.IDs(7, 20)
	var alone []string
	for _, request := range adapted() {
		e := withAdapters(t, folder, request.Adapter, folders, Options{})
		if request.Adapter != "" { // which is that of all prompts there
			whole := must.Get(e.Logits(ids, ""))(t)
			named := withAdapters(t, folder, "", folders, Options{})
			if !sameBits(whole, must.Get(named.Logits(ids, request.Adapter))(t)) || sameBits(whole, must.Get(named.Logits(ids, ""))(t)) {
				t.Errorf("%s: other logits", request.Adapter)
			}
			request.Adapter = ""
		}
		s := must.Get(NewScheduler(e))(t)
		generated(t, s, request)
		must.Do(t, s.Close())
		if len(request.Tokens) != 8 || slices.Contains(alone, told(request)) {
			t.Fatalf("%d tokens, %s", len(request.Tokens), told(request))
		}
		alone = append(alone, told(request))
	}
	for name, options := range map[string]Options{"all at once": {}, "three at a time": {MaxBatch: 3, Piece: 37, CacheTokens: 2048}} {
		for _, ahead := range []bool{false, true} {
			s := must.Get(newScheduler(withAdapters(t, folder, "", folders, options), ahead))(t)
			s.batch.mostGraphs = 2
			for round := range 2 {
				requests := adapted()
				generated(t, s, requests...)
				for at, request := range requests {
					if told(request) != alone[at] {
						t.Errorf("%s, ahead %v, round %d: text %d is %s, not %s", name, ahead, round, at, told(request), alone[at])
					}
				}
			}
			if len(s.batch.graphs) != 2 {
				t.Errorf("%d graphs are kept", len(s.batch.graphs))
			}
			must.Do(t, s.Close())
		}
	}
}

func TestPagesOfAdapters(t *testing.T) {
	e := withAdapters(t, storedmodel.Folder(t, "llama", nil), "", adapterFolders(t), Options{})
	s := must.Get(NewScheduler(e))(t)
	defer func() { must.Do(t, s.Close()) }()
	text := storedmodel.IDs(7, 200)
	shared := func(name string, length int) int {
		request := &Request{Prompt: text[:length], MaxNewTokens: 2, Adapter: name}
		generated(t, s, request)
		return request.Shared
	}
	for _, name := range append([]string{""}, e.Adapters()...) {
		if found := []int{shared(name, 200), shared(name, 200), shared(name, 160)}; !slices.Equal(found, []int{0, 199, 159}) {
			t.Errorf("%q: %d tokens were shared", name, found)
		}
	}
	unknown, wrong := &Request{Prompt: text, MaxNewTokens: 2, Adapter: "no"}, &OptionError{}
	s.Add(unknown)
	for _, err := range []error{
		unknown.Err, e.CheckAdapter("no"), must.Err(e.Logits(text, "no")), must.Err(e.Embed(text, "no")),
		must.Err(e.Logprobs(nil, 0, "no")),
	} {
		words := "adapter is 'no'; of those with names the model has 'all', 'some', 'gate'"
		if !errors.As(err, &wrong) || err.Error() != words || !s.Idle() || unknown.Finish != Failed {
			t.Error(err)
		}
	}
}

func TestRowRuns(t *testing.T) {
	var runs []rowRun
	for _, one := range [][2]int{{0, 3}, {0, 1}, {2, 1}, {1, 4}, {1, 4}} {
		runs = appended(runs, one[0], one[1])
	}
	if !slices.Equal(runs, []rowRun{{0, 4, 0}, {4, 1, 2}, {5, 8, 1}}) {
		t.Error(runs)
	}
	if keyOfRuns(runs) == keyOfRuns([]rowRun{{0, 4, 0}, {4, 1, 1}, {5, 8, 2}}) || keyOfRuns(runs) == keyOfRuns(runs[:2]) {
		t.Error("two divisions have one key")
	}
}
