package infer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
)

// textOf is a text of so many ids to write.
func textOf(at, most int) infer.Generation {
	return infer.Generation{
		Prompts:      promptsOf(storedmodel.Joined(storedmodel.IDs(9, 130), storedmodel.IDs(uint64(at), 1+7*at))),
		MaxNewTokens: most, Sampling: infer.Sampling{Temperature: float64(at % 2), Seed: int64(at)},
	}
}

// endOf takes the events of a text to its last.
func endOf(ctx context.Context, text *infer.Text) (tokens []int32, finish engine.Finish, err error) {
	for finish == "" {
		event, err := text.Next(ctx)
		if err != nil {
			return tokens, finish, err
		}
		if event.Token != infer.NoToken {
			tokens = append(tokens, event.Token)
		}
		finish = event.Finish
	}
	return tokens, finish, nil
}

// held keeps a service's engine in a step until it is let go.
func held(t *testing.T, service *infer.Service) (text *infer.Text, letGo func()) {
	t.Helper()
	hold := storedmodel.NewGate(storedmodel.Vocab)
	wanted := textOf(0, 2)
	wanted.EndIDs, wanted.Constraints = []int32{}, []engine.Constraint{hold}
	texts := must.Get(service.Submit([]infer.Generation{wanted}))(t)
	<-hold.Reached
	return texts[0], sync.OnceFunc(func() { close(hold.Open) })
}

func TestTextsOfAServiceAreThoseOfGenerate(t *testing.T) {
	m := load(t, "mixtral", infer.LoadOptions{Options: engine.Options{MaxBatch: 3, CacheTokens: 1024}})
	const texts = 8
	var alone [texts][]int32
	for at := range alone {
		tokens, _, err := continued(context.Background(), m, textOf(at, 20))
		must.Do(t, err)
		alone[at] = tokens[0]
	}
	service := infer.NewService(m, texts, nil, nil)
	defer service.Close()
	var group sync.WaitGroup
	for at := range texts {
		group.Add(1)
		go func() {
			defer group.Done()
			made, err := service.Submit([]infer.Generation{textOf(at, 20)})
			if err != nil {
				t.Error(err)
				return
			}
			tokens, finish, err := endOf(context.Background(), made[0])
			if err != nil || finish != engine.Length || !slices.Equal(tokens, alone[at]) {
				t.Errorf("text %d: %v, not %v; %s, %v", at, tokens, alone[at], finish, err)
			}
			if done := made[0].Progress(); done.Tokens != 20 || done.Finish != engine.Length || done.Admitted.IsZero() ||
				done.First.Before(done.Submitted) || done.Ended.Before(done.First) {
				t.Errorf("%+v", done)
			}
		}()
	}
	group.Wait()
	if running, waiting := service.Counts(); running+waiting != 0 {
		t.Errorf("%d run, %d wait", running, waiting)
	}
	idle(t, m)
}

func TestCancelledTextsLeaveBeforeTheNextStep(t *testing.T) {
	m := load(t, "llama", infer.LoadOptions{Options: engine.Options{MaxBatch: 2}})
	service := infer.NewService(m, 2, nil, nil)
	defer service.Close()
	first, letGo := held(t, service)
	defer letGo()
	second := must.Get(service.Submit([]infer.Generation{textOf(1, 400), textOf(2, 400)}))(t)
	if err := service.CheckPlaces(2); !errors.Is(err, infer.ErrQueueFull) {
		t.Error(err)
	}
	if _, err := service.Submit([]infer.Generation{textOf(3, 1), textOf(3, 1)}); !errors.Is(err, infer.ErrQueueFull) {
		t.Error(err)
	}
	must.Do(t, service.CheckPlaces(1))
	service.Cancel(second)
	letGo()
	for _, text := range second {
		if tokens, finish, err := endOf(context.Background(), text); len(tokens) != 0 || finish != engine.Cancelled || err != nil {
			t.Errorf("%v, %s, %v", tokens, finish, err)
		}
		if !text.Progress().Admitted.IsZero() {
			t.Error("it was admitted")
		}
	}
	if _, finish, err := endOf(context.Background(), first); finish != engine.Length || err != nil {
		t.Errorf("%s, %v", finish, err)
	}
	idle(t, m)
}

func TestACutServiceTakesNothing(t *testing.T) {
	m := load(t, "llama", infer.LoadOptions{Options: engine.Options{MaxBatch: 2}})
	service := infer.NewService(m, 2, nil, nil)
	text, letGo := held(t, service)
	cut := errors.New("it is late")
	service.Cut(cut)
	letGo()
	if _, _, err := endOf(context.Background(), text); !errors.Is(err, cut) {
		t.Error(err)
	}
	if _, err := service.Submit([]infer.Generation{textOf(1, 1)}); !errors.Is(err, cut) {
		t.Error(err)
	}
	service.Close()
	idle(t, m)
}

func TestWaitingForATextEndsWithItsContext(t *testing.T) {
	m := load(t, "llama", infer.LoadOptions{Options: engine.Options{MaxBatch: 1}})
	service := infer.NewService(m, 2, nil, nil)
	defer service.Close()
	_, letGo := held(t, service)
	defer letGo()
	texts := must.Get(service.Submit([]infer.Generation{textOf(1, 1)}))(t)
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Millisecond, late)
	defer cancel()
	if _, err := texts[0].Next(ctx); !errors.Is(err, late) {
		t.Error(err)
	}
	if _, err := service.Submit([]infer.Generation{{Prompts: promptsOf([]int32{1}, []int32{2})}}); err == nil {
		t.Error("two prompts are no text")
	}
}

// What ends the engine ends all texts, and is told.
func TestAServiceWhoseModelIsClosed(t *testing.T) {
	m := must.Get(infer.Load(storedmodel.Folder(t, "llama", nil), infer.LoadOptions{}))(t)
	told := make(chan error, 1)
	service := infer.NewService(m, 2, nil, func(err error) { told <- err })
	defer service.Close()
	must.Do(t, m.Close())
	texts, err := service.Submit([]infer.Generation{textOf(1, 1)})
	if err == nil { // the service may have noticed before
		_, err = texts[0].Next(context.Background())
	}
	if !errors.Is(err, infer.ErrClosed) {
		t.Error(err)
	}
	if err := <-told; !errors.Is(err, infer.ErrClosed) {
		t.Error(err)
	}
}
