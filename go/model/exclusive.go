package model

import "errors"

// ErrInUse is the error of a call on a model that another goroutine is using. Nothing was done.
var ErrInUse = errors.New("the model is in use by another goroutine; it serves one at a time: " +
	"have the goroutines take turns, as with a sync.Mutex, or give each a model on a context of its own")

// Exclusive runs work while no other goroutine may use the model, so that no call of theirs comes between those of work.
// It is ErrInUse when one is using it.
//
// Logits, Evaluate, Prefill, the steps of a Trainer and those of a generation do this themselves, and work must not call
// them. What takes a Pass does not: whoever runs passes of a model that goroutines share runs them in here.
func (m *MoETransformer) Exclusive(work func() error) error {
	if !m.inUse.CompareAndSwap(false, true) {
		return ErrInUse
	}
	defer m.inUse.Store(false)
	return work()
}
