package train

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/model"
)

// What the ranks of a job agree on is the same text in every language, since a job may have ranks of several.

// agreed is all options, a line each.
func agreed(m model.Config, c Config) string {
	c.WarmupSteps, _ = c.scheduleSteps()
	var text strings.Builder
	add := func(fields []options.Field, target any) {
		for _, field := range fields {
			fmt.Fprintf(&text, "%s=%s\n", field.Name, agreedValue(field.Get(target)))
		}
	}
	add(model.Options(), &m)
	add(fields, &c)
	return text.String()
}

// agreedValue is a number with a point by its bits, since languages spell those in their own ways.
func agreedValue(value any) string {
	switch value := value.(type) {
	case nil:
		return "none"
	case float64:
		return fmt.Sprintf("%016x", math.Float64bits(value))
	}
	return fmt.Sprint(value)
}

// TellFailure tells the other ranks of an error here, if there is one, since they would wait in vain; comm may be nil. Of
// a failed peer, and of divergence, all know. It gives the error back.
func TellFailure(comm *cuda.Comm, err error) error {
	if err == nil || comm == nil || errors.Is(err, cuda.ErrPeer) || errors.Is(err, ErrDiverged) {
		return err
	}
	return errors.Join(err, comm.Abort(err.Error()))
}

// together ends a part of the work of all ranks, in which this one may have failed. An error on one of them is one on all
// of them, but not before all are done: nobody cleans up under another's hands.
func together(comm *cuda.Comm, failure error) error {
	failed := int64(0)
	if failure != nil {
		failed = 1
	}
	failures, err := comm.Sum(failed)
	switch {
	case failure != nil:
		return TellFailure(comm, failure)
	case err != nil || failures == 0:
		return err
	}
	return comm.Barrier() // fails, with the reason of the rank that did
}
