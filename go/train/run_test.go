package train_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// writeShards writes two shards of random words and gives their folder.
func writeShards(t testing.TB, vocab int) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "shards")
	check(t, os.Mkdir(folder, 0o777))
	random := rand.New(rand.NewPCG(11, 12))
	for _, name := range []string{"a.tokens", "b.tokens"} {
		ids := make([]int32, 300)
		for at := range ids {
			ids[at] = int32(min(random.IntN(vocab), random.IntN(vocab)))
		}
		check(t, formats.WriteShard(filepath.Join(folder, name), ids, vocab, [32]byte{}))
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
		check(t, err)
	}
	check(t, run.Close())
}

func startRun(t testing.TB, ctx *cuda.Context, folder, data string, options train.Config) *train.Run {
	t.Helper()
	return must(train.StartRun(ctx, folder, tiny(), options, data, data, nil))(t)
}

// requireSameRuns compares the last checkpoints, byte by byte but for the time that training took, and the metrics.
func requireSameRuns(t testing.TB, found, wanted string) {
	t.Helper()
	last := func(folder string) string {
		folders := train.ListCheckpoints(filepath.Join(folder, "checkpoints"))
		return folders[len(folders)-1]
	}
	for _, name := range []string{"config.json", "model.safetensors", "optimizer.safetensors"} {
		a, b := must(
			os.ReadFile(filepath.Join(last(found), name)),
		)(
			t,
		), must(
			os.ReadFile(filepath.Join(last(wanted), name)),
		)(
			t,
		)
		if !slices.Equal(a, b) {
			t.Errorf("%s is another", name)
		}
	}
	records := func(folder string) (lines []string) {
		for _, record := range must(train.ReadMetrics(filepath.Join(folder, "metrics.jsonl")))(t) {
			record.Delete("tokens_per_second")
			record.Delete("bytes_peak") // a resumed run's context was used before
			record.Delete("seconds")
			lines = append(lines, string(must(formats.JSONLine(record))(t)))
		}
		return lines
	}
	if a, b := records(found), records(wanted); !slices.Equal(a, b) {
		t.Errorf("the metrics are\n%s\nnot\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

func TestResumeGivesTheSameBits(t *testing.T) {
	ctx, data, root := newContext(t), writeShards(t, 48), t.TempDir()
	unbroken, broken := filepath.Join(root, "unbroken"), filepath.Join(root, "broken")
	trainRun(t, startRun(t, ctx, unbroken, data, runOptions()), 0)
	trainRun(t, startRun(t, ctx, broken, data, runOptions()), 5)
	// As a kill would leave it: a folder half written, a line cut off, and a line of a step that was not saved.
	checkpoints := filepath.Join(broken, "checkpoints")
	partial := filepath.Join(checkpoints, ".partial-1-step-00000006")
	check(t, os.Mkdir(partial, 0o777))
	metrics := must(os.OpenFile(filepath.Join(broken, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0))(t)
	must(metrics.WriteString(`{"step": 6, "loss": NaN}` + "\n" + `{"step": 7, "lo`))(t)
	check(t, metrics.Close())
	trainRun(t, must(train.ResumeRun(ctx, broken, data, data, nil))(t), 8)
	trainRun(t, must(train.ResumeRun(ctx, broken, data, data, nil))(t), 0)
	requireSameRuns(t, broken, unbroken)
	if _, err := os.Stat(partial); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what was half written is still there:", err)
	}
	// A run that is complete does nothing more.
	trainRun(t, must(train.ResumeRun(ctx, broken, data, data, nil))(t), 0)
	requireSameRuns(t, broken, unbroken)
	if used := must(ctx.BytesUsed())(t); used != 0 {
		t.Errorf("%d bytes are still used", used)
	}
}

func TestAResumedRunMayBeRefused(t *testing.T) {
	ctx, data, folder := newContext(t), writeShards(t, 48), t.TempDir()
	trainRun(t, startRun(t, ctx, folder, data, runOptions()), 5)
	changes := formats.NewObject("micro_batch_size", int64(1))
	_, err := train.ResumeAdmitted(ctx, folder, data, data, changes, func(config model.Config, options train.Config) error {
		if config != tiny() || options.MicroBatchSize != 1 || must(ctx.BytesUsed())(t) != 0 {
			t.Errorf("asked for %+v, %+v", config, options)
		}
		return &train.DoesNotFitError{Sentence: "too large"}
	})
	if err == nil || err.Error() != "too large" {
		t.Error(err)
	}
}

func TestPruningKeepsTheNewestAndTheBest(t *testing.T) {
	ctx, data, folder := newContext(t), writeShards(t, 48), filepath.Join(t.TempDir(), "run")
	options := runOptions()
	options.KeepCheckpoints, options.EvalEvery, options.LearningRate, options.MaxLoss = 2, 1, 30, 1e9 // ever worse
	trainRun(t, startRun(t, ctx, folder, data, options), 0)
	var kept []string
	for _, checkpoint := range train.ListCheckpoints(filepath.Join(folder, "checkpoints")) {
		kept = append(kept, filepath.Base(checkpoint))
	}
	best := filepath.Base(must(train.ResolveCheckpoint(folder, true))(t))
	if wanted := []string{best, "step-00000011", "step-00000012"}; !slices.Equal(kept, wanted) || best >= wanted[1] {
		t.Errorf("kept %v, best %s", kept, best)
	}
	if last := filepath.Base(must(train.ResolveCheckpoint(folder, false))(t)); last != "step-00000012" {
		t.Errorf("the last is %s", last)
	}
}

func TestRunsThatCannotBe(t *testing.T) {
	ctx, data, root := newContext(t), writeShards(t, 48), t.TempDir()
	folder := filepath.Join(root, "run")
	options := runOptions()
	options.Steps, options.WarmupSteps = 2, 1
	trainRun(t, startRun(t, ctx, folder, data, options), 0)
	start := func(config model.Config, options train.Config, folder, data string) error {
		_, err := train.StartRun(ctx, folder, config, options, data, "", nil)
		return err
	}
	other, long := tiny(), options
	other.VocabSize, long.SequenceLength = 50, 400
	_, resumed := train.ResumeRun(ctx, filepath.Join(root, "none"), data, "", nil)
	_, elsewhere := train.ResumeRun(ctx, folder, filepath.Join(data, "a.tokens"), "", nil)
	for words, err := range map[string]error{
		"already holds a run": start(tiny(), options, folder, data),
		"the training data has a vocabulary of 48, the model one": start(other, options, filepath.Join(root, "x"), data),
		"the data holds no window of 400 + 1 tokens":              start(tiny(), long, filepath.Join(root, "x"), data),
		"holds no token shards (*.tokens)":                        start(tiny(), options, filepath.Join(root, "x"), folder),
		"cannot be read: no such file or directory":               start(tiny(), options, filepath.Join(root, "x"), "none"),
		"holds no checkpoint to resume from":                      resumed,
		"windows; this run was started on data with":              elsewhere,
	} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %q", err, words)
		}
	}
	if used := must(ctx.BytesUsed())(t); used != 0 {
		t.Errorf("%d bytes are still used", used)
	}
}
