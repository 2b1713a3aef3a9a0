package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/plan"
	"github.com/nncuda/nncuda/go/train"
)

// refusal is what the command, run in this process, says on standard error; it must end as one that has no device does.
func refusal(t testing.TB, arguments ...string) string {
	t.Helper()
	var failure bytes.Buffer
	std := streams{strings.NewReader(""), io.Discard, &failure}
	if code := run(context.Background(), arguments, std); code != exitNoDevice {
		t.Fatalf("%v: exit code %d, not %d\n%s", arguments, code, exitNoDevice, failure.String())
	}
	return failure.String()
}

// TestRunThatCannotFitIsNotStarted: it needs more bytes than there are addresses, so that it fails later where it is
// started all the same.
func TestRunThatCannotFitIsNotStarted(t *testing.T) {
	work := workplace(t)
	folder := filepath.Join(work, "run")
	flags := []string{"train", folder, "--config", filepath.Join(work, "config.toml"), "--batch-size", "1",
		"--hidden-size", "1024", "--ffn-size", "2000000000", "--num-experts", "32"}
	failure := refusal(t, flags...)
	if !strings.HasPrefix(failure, "Error: this run needs more memory than any machine has; cpu has ") ||
		!strings.Contains(failure, " free. A model that fits is --preset small (") {
		t.Error(failure)
	}
	failure = refusal(t, append(flags, "--start-anyway")...)
	if strings.Contains(failure, "this run needs") {
		t.Error(failure)
	}
	if _, err := os.Stat(filepath.Join(folder, "checkpoints")); err == nil {
		t.Error("the run was started")
	}
}

func TestRequireFit(t *testing.T) {
	ctx := withlibrary.Context(t, cuda.WithThreads(2))
	config := must.Get(model.Preset("small"))(t)
	err := requireFitIn(300<<20, ctx, plan.Alone, config, train.DefaultConfig(), true)
	var refused *train.DoesNotFitError
	const words = "cpu has 300.0 MiB free. It fits with --micro-batch-size "
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), words) ||
		strings.Count(err.Error(), "; or with --") != 2 {
		t.Error(err)
	}
	must.Do(t, requireFitIn(1<<40, ctx, plan.Alone, config, train.DefaultConfig(), true))
}
