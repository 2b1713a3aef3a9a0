package infer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
)

// tokens generates greedily, with `turn` held from the first token to the last where it is given.
func tokens(m *model.MoETransformer, turn *sync.Mutex) (ids []int32, err error) {
	if turn != nil {
		turn.Lock()
		defer turn.Unlock()
	}
	for id, err := range infer.Tokens(context.Background(), m, []int32{1, 2, 3}, 40, infer.Sampling{}, infer.NoToken) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Goroutines that do not take turns get what they would get alone, or the one error that says so.
func TestGoroutinesThatShareAModel(t *testing.T) {
	made := newModel(t, 48)
	alone := must.Get(tokens(made, nil))(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	refused, wrong := 0, 0
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 15 {
				got, err := tokens(made, nil)
				mu.Lock()
				switch {
				case errors.Is(err, model.ErrInUse):
					refused++
				case err != nil:
					t.Error(err)
				case !slices.Equal(got, alone):
					wrong++
				}
				mu.Unlock()
			}
		}()
	}
	group.Wait()
	t.Logf("%d of 60 were refused", refused)
	if wrong > 0 {
		t.Errorf("%d of 60 were wrong", wrong)
	}
}

func TestGoroutinesThatTakeTurns(t *testing.T) {
	made := newModel(t, 48)
	alone := must.Get(tokens(made, nil))(t)
	var turn sync.Mutex
	var group sync.WaitGroup
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 5 {
				if got, err := tokens(made, &turn); err != nil || !slices.Equal(got, alone) {
					t.Errorf("%v, %v", got, err)
				}
			}
		}()
	}
	group.Wait()
}

// Every call on a model that is in use is refused, and leaves it as it is.
func TestAModelInUse(t *testing.T) {
	made := newModel(t, 48)
	ids := []int32{1, 2, 3, 4}
	first := func() error {
		_, err := tokens(made, nil)
		return err
	}
	must.Do(t, made.Exclusive(func() error {
		for name, call := range map[string]func() error{
			"Logits":     func() error { _, err := made.Logits(ids, 1); return err },
			"Evaluate":   func() error { _, _, err := made.Evaluate(ids, ids, 1); return err },
			"Prefill":    func() error { return made.Prefill(ids, nil, 0, nil) },
			"Close":      made.Close,
			"generation": first,
			"Exclusive":  func() error { return made.Exclusive(func() error { return nil }) },
		} {
			if err := call(); !errors.Is(err, model.ErrInUse) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	}))
	must.Do(t, first())
	// A panic of work gives it back, too.
	func() {
		defer func() { _ = recover() }()
		_ = made.Exclusive(func() error { panic("on purpose") })
	}()
	must.Do(t, first())
}
