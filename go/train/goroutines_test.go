package train_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
)

// Steps of goroutines that do not take turns happen one after the other or not at all.
func TestGoroutinesThatShareATrainer(t *testing.T) {
	config := tiny()
	trainer := newTrainer(t, newContext(t), config, options())
	inputs, targets := randomBatch(rand.New(rand.NewPCG(1, 2)), config, 4, 16)
	var group sync.WaitGroup
	var mu sync.Mutex
	done, refused := 0, 0
	count := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			done++
		case errors.Is(err, model.ErrInUse):
			refused++
		default:
			t.Error(err)
		}
	}
	for number := range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 30 {
				if number == 0 {
					if _, _, err := trainer.Model.Evaluate(inputs, targets, 4); err != nil && !errors.Is(err, model.ErrInUse) {
						t.Error(err)
					}
					continue
				}
				_, err := trainer.TrainStep(inputs, targets, 4)
				count(err)
			}
		}()
	}
	group.Wait()
	t.Logf("%d steps of 90 were refused", refused)
	if trainer.Step() != done || done+refused != 90 {
		t.Errorf("%d steps are done of %d, and %d were refused", trainer.Step(), done, refused)
	}
}

func TestATrainerInUse(t *testing.T) {
	config := tiny()
	trainer := newTrainer(t, newContext(t), config, options())
	inputs, targets := randomBatch(rand.New(rand.NewPCG(1, 2)), config, 4, 16)
	result := must.Get(trainer.TrainStep(inputs, targets, 4))(t)
	loss := must.Get(result.Loss())(t)
	must.Do(t, trainer.Model.Exclusive(func() error {
		for name, err := range map[string]error{
			"TrainStep": second(trainer.TrainStep(inputs, targets, 4)),
			"Loss":      second(result.Loss()),
			"AuxLoss":   second(result.AuxLoss()),
			"GradNorm":  second(result.GradNorm()),
			"Skipped":   second(result.Skipped()),
			"Close":     trainer.Close(),
		} {
			if !errors.Is(err, model.ErrInUse) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	}))
	if again := must.Get(result.Loss())(t); again != loss || trainer.Step() != 1 {
		t.Errorf("loss %v after %v, step %d", again, loss, trainer.Step())
	}
}

func second[T any](_ T, err error) error { return err }
