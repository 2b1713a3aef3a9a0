package train

import (
	"errors"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/tinymodel"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model"
)

func newInternalTrainer(t *testing.T) *Trainer {
	t.Helper()
	made := must.Get(model.New(withlibrary.Context(t, cuda.WithThreads(1)), tinymodel.Config(), model.F32, 0))(t)
	t.Cleanup(func() { _ = made.Close() })
	options := DefaultConfig()
	options.SequenceLength = 16
	trainer := must.Get(NewTrainer(made, options))(t)
	t.Cleanup(func() { _ = trainer.Close() })
	return trainer
}

// stepOf trains on a batch of ones of this shape and gives the reason why it ran call by call.
func stepOf(t *testing.T, trainer *Trainer, batch, length int) string {
	t.Helper()
	ids := make([]int32, batch*length)
	for at := range ids {
		ids[at] = 1
	}
	if _, err := trainer.TrainStep(ids, ids, batch); err != nil {
		t.Fatal(err)
	}
	return trainer.EagerReason()
}

func TestStepsSayWhyTheyRanCallByCall(t *testing.T) {
	trainer := newInternalTrainer(t)
	if reason := trainer.EagerReason(); reason != "" {
		t.Errorf("before the first step: %q", reason)
	}
	for at, step := range []struct {
		batch, length int
		reason        string
	}{
		{2, 8, "the first step of batches [2, 8] runs call by call"},
		{3, 8, "the first step of batches [3, 8] runs call by call"}, // nothing was captured yet
		{3, 8, ""},
		{3, 8, ""},
		{1, 16, "the batch is [1, 16], the captured step was for [3, 8]"},
		{1, 16, ""},
	} {
		if reason := stepOf(t, trainer, step.batch, step.length); reason != step.reason {
			t.Errorf("step %d: %q, not %q", at, reason, step.reason)
		}
	}
	plain := newInternalTrainer(t)
	plain.NoCapture = true
	for range 2 {
		if reason := stepOf(t, plain, 2, 8); reason != "capture is off" {
			t.Errorf("without capture: %q", reason)
		}
	}
}

// TestWhatCannotBeCapturedRunsCallByCall: an update that waits for the device, which no graph can hold.
func TestWhatCannotBeCapturedRunsCallByCall(t *testing.T) {
	trainer := newInternalTrainer(t)
	ids, updates := []int32{1, 2, 3, 4}, 0
	must.Do(t, trainer.prepare(2, 2, false))
	step := func() error {
		return trainer.calls.do(Batch{Inputs: ids, Targets: ids}, 4, func() error {
			if err := trainer.Model.Context().Synchronize(); err != nil {
				return err
			}
			updates++
			return nil
		})
	}
	for at := range 4 {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", at, err)
		}
	}
	reason := trainer.EagerReason()
	if updates != 4 || !strings.HasPrefix(reason, "the step could not be captured: ") ||
		!strings.Contains(reason, "capturing") {
		t.Errorf("%d updates; %q", updates, reason)
	}
	if after := stepOf(t, trainer, 1, 8); after != reason {
		t.Errorf("in another shape: %q, not %q", after, reason)
	}
	// What is not an error of the library is one of the step.
	other := newInternalTrainer(t)
	must.Do(t, other.prepare(2, 2, false))
	failure := errors.New("no")
	for at, wanted := range []error{nil, failure} {
		err := other.calls.do(Batch{Inputs: ids, Targets: ids}, 4, func() error { return wanted })
		if !errors.Is(err, wanted) {
			t.Errorf("step %d: %v, not %v", at, err, wanted)
		}
	}
}
