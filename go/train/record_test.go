package train_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/train"
)

// TestRecordHasAllToRepeatARun: where the data is and what it was, the programs, and every option.
func TestRecordHasAllToRepeatARun(t *testing.T) {
	ctx, data, folder := newContext(t), writeShards(t, 48), filepath.Join(t.TempDir(), "run")
	link := filepath.Join(t.TempDir(), "link")
	check(t, os.Symlink(data, link))
	options := runOptions()
	options.Seed, options.MaxLoss = 7, 50
	run := must(train.StartRun(ctx, folder, tiny(), options, link, "", nil))(t)
	defer run.Close()
	record := must(formats.ReadJSON(filepath.Join(folder, "run.json")))(t)
	wanted := []string{"data", "held_out", "data_sha256", "held_out_sha256", "unigram_entropy", "program", "library", "abi", "device",
		"model", "train"}
	if !slices.Equal(record.Names(), wanted) {
		t.Errorf("it has %v, not %v", record.Names(), wanted)
	}
	whole := sha256.New()
	for _, name := range []string{"a.tokens", "b.tokens"} {
		whole.Write(must(os.ReadFile(filepath.Join(data, name)))(t))
	}
	instructions, library := must(ctx.ISA())(t), must(cuda.BuildInfo())(t)
	for name, value := range map[string]any{
		"data":            must(filepath.EvalSymlinks(data))(t),
		"held_out":        nil,
		"data_sha256":     hex.EncodeToString(whole.Sum(nil)),
		"held_out_sha256": nil,
		"unigram_entropy": nil,
		"program":         "nncuda-go " + train.Version,
		"library":         library,
	} {
		if record.Get(name) != value {
			t.Errorf("%s is %v, not %v", name, record.Get(name), value)
		}
	}
	if device, _ := record.Get("device").(string); !strings.HasSuffix(device, "; "+instructions) {
		t.Errorf("the device is %q", device)
	}
	for name, object := range map[string]*formats.Object{"model": tiny().Object(), "train": options.Object()} {
		if found := must(formats.JSONLine(record.Get(name)))(t); string(found) != string(must(formats.JSONLine(object))(t)) {
			t.Errorf("%s is %s", name, found)
		}
	}
}

// TestOtherDataIsRefused: shards of the same size with other tokens; what has no hash takes any.
func TestOtherDataIsRefused(t *testing.T) {
	ctx, data, folder := newContext(t), writeShards(t, 48), filepath.Join(t.TempDir(), "run")
	options := runOptions()
	options.Steps, options.WarmupSteps = 2, 1
	trainRun(t, startRun(t, ctx, folder, data, options), 1)
	shard := filepath.Join(data, "b.tokens")
	bytes := must(os.ReadFile(shard))(t)
	bytes[len(bytes)-2] ^= 1
	check(t, os.WriteFile(shard, bytes, 0o666))
	_, err := train.ResumeRun(ctx, folder, data, "", nil)
	var wrong *formats.Error
	words := data + ": holds different tokens from those this run was started on (SHA-256 "
	if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), words) ||
		!strings.HasSuffix(err.Error(), "… here)") {
		t.Errorf("%v, not %q", err, words)
	}
	path := filepath.Join(folder, "run.json")
	record := must(formats.ReadJSON(path))(t)
	record.Set("data_sha256", int64(5))
	check(t, formats.WriteJSON(path, record))
	if _, err := train.ResumeRun(ctx, folder, data, "", nil); !errors.As(err, &wrong) ||
		!strings.Contains(err.Error(), "run.json: data_sha256 is 5; it must be text") {
		t.Error(err)
	}
	record.Delete("data_sha256")
	check(t, formats.WriteJSON(path, record))
	trainRun(t, must(train.ResumeRun(ctx, folder, data, "", nil))(t), 0)
	if used := must(ctx.BytesUsed())(t); used != 0 {
		t.Errorf("%d bytes are still used", used)
	}
}

// TestResumeWithOtherOptions: those that do not change what is trained; with what is computed twice, to the same bits.
func TestResumeWithOtherOptions(t *testing.T) {
	ctx, data, root := newContext(t), writeShards(t, 48), t.TempDir()
	unbroken, broken := filepath.Join(root, "unbroken"), filepath.Join(root, "broken")
	trainRun(t, startRun(t, ctx, unbroken, data, runOptions()), 0)
	trainRun(t, startRun(t, ctx, broken, data, runOptions()), 5)
	changes := formats.NewObject("activation_checkpointing", int64(2), "recompute_experts", true, "max_loss", 99.5)
	trainRun(t, must(train.ResumeRun(ctx, broken, data, data, changes))(t), 0)
	requireSameRuns(t, broken, unbroken)
	state := must(train.ReadState(filepath.Join(must(train.ResolveCheckpoint(broken, false))(t), "training.json")))(t)
	now := state.Train
	if now.ActivationCheckpointing != 2 || !now.RecomputeExperts || now.MaxLoss != 99.5 {
		t.Errorf("the last checkpoint has the options %+v", now)
	}
	for _, wrong := range []struct {
		name  string
		value int64
		words string
	}{
		{"log_every", 0, "log_every is 0; it must be a whole number, from 1 to 2147483647"},
		{"activation_checkpointing", 9, "activation_checkpointing is 9; this model has 2 blocks"},
		{"activation_checkpointing", 1, "recompute_experts is for blocks that activation_checkpointing leaves"},
		{"steps", 9, "a run goes on with the steps it has; it takes others of micro_batch_size,"},
	} {
		_, err := train.ResumeRun(ctx, broken, data, data, formats.NewObject(wrong.name, wrong.value))
		if err == nil || !strings.HasPrefix(err.Error(), wrong.words) {
			t.Errorf("%v, not %q", err, wrong.words)
		}
	}
	if used := must(ctx.BytesUsed())(t); used != 0 {
		t.Errorf("%d bytes are still used", used)
	}
}

// TestShardCutShortWhileTraining: one error that names it, no checkpoint on the way out, and a folder that goes on when
// the data is back.
func TestShardCutShortWhileTraining(t *testing.T) {
	ctx, data, folder := newContext(t), writeShards(t, 48), filepath.Join(t.TempDir(), "run")
	options := runOptions()
	options.SaveEvery = 5
	run := startRun(t, ctx, folder, data, options)
	shard := filepath.Join(data, "b.tokens")
	bytes := must(os.ReadFile(shard))(t)
	run.OnProgress = func(progress train.Progress) {
		if progress.Step == 6 {
			check(t, os.Truncate(shard, 70))
		}
	}
	err := run.Train(t.Context())
	var wrong *formats.Error
	if !errors.As(err, &wrong) || err.Error() != shard+": was cut to 70 bytes while it was in use; it had 664" {
		t.Error(err)
	}
	check(t, run.Close())
	if saved := train.ListCheckpoints(run.Checkpoints); len(saved) != 1 || filepath.Base(saved[0]) != "step-00000005" {
		t.Errorf("it holds %v", saved)
	}
	check(t, os.WriteFile(shard, bytes, 0o666))
	trainRun(t, must(train.ResumeRun(ctx, folder, data, data, nil))(t), 0)
}
