package train_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// writeShards writes two shards of random words and gives their folder.
func writeShards(t testing.TB, vocab int) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "shards")
	must.Do(t, os.Mkdir(folder, 0o777))
	random := rand.New(rand.NewPCG(11, 12))
	for _, name := range []string{"a.tokens", "b.tokens"} {
		ids := make([]int32, 300)
		for at := range ids {
			ids[at] = int32(min(random.IntN(vocab), random.IntN(vocab)))
		}
		must.Do(t, formats.WriteShard(filepath.Join(folder, name), ids, vocab, [32]byte{}))
	}
	return folder
}

func runOptions() train.Config {
	config := options()
	config.Steps, config.BatchSize, config.MicroBatchSize = 12, 5, 2
	config.SaveEvery, config.EvalEvery, config.EvalBatches, config.KeepCheckpoints = 1, 3, 4, 100
	return config
}

// trainRun runs to the end, or until step `until`, where it is cancelled.
func trainRun(t testing.TB, run *train.Run, until int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run.OnProgress = func(progress train.Progress) {
		if progress.Step == until {
			cancel()
		}
	}
	err := run.Train(ctx)
	if until > 0 && !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled, it ended with %v", err)
	}
	if until == 0 {
		must.Do(t, err)
	}
	must.Do(t, run.Close())
}

func startRun(t testing.TB, ctx *cuda.Context, folder, data string, options train.Config) *train.Run {
	t.Helper()
	return must.Get(train.StartRun(ctx, folder, tiny(), options, data, data, nil))(t)
}

func TestAResumedRunMayBeRefused(t *testing.T) {
	ctx, data, folder := newContext(t), writeShards(t, 48), t.TempDir()
	trainRun(t, startRun(t, ctx, folder, data, runOptions()), 5)
	changes := formats.NewObject("micro_batch_size", int64(1))
	_, err := train.ResumeAdmitted(ctx, folder, data, data, changes, func(config model.Config, options train.Config) error {
		if config != tiny() || options.MicroBatchSize != 1 || must.Get(ctx.BytesUsed())(t) != 0 {
			t.Errorf("asked for %+v, %+v", config, options)
		}
		return &train.DoesNotFitError{Sentence: "too large"}
	})
	if err == nil || err.Error() != "too large" {
		t.Error(err)
	}
}
