package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/plan"
	"github.com/nncuda/nncuda/go/train"
)

// planOf is what `plan --json` says.
func planOf(t *testing.T, arguments ...string) *formats.Object {
	t.Helper()
	out, _ := call(t, 0, append([]string{"plan", "--json"}, arguments...)...)
	value, err := formats.ParseJSON([]byte(out))
	check(t, err)
	return value.(*formats.Object)
}

func TestPlan(t *testing.T) {
	small := []string{"--preset", "small", "--threads", "2", "--available"}
	told := planOf(t, append(small, "300MiB")...)
	sum, bytes := int64(0), told.Get("bytes").(*formats.Object)
	cost := told.Get("work").(*formats.Object)
	if cost.Get("flops").(int64) < 5*5_908_736*2048 || cost.Get("bytes").(int64) < 1<<30 || cost.Get("seconds") != nil {
		t.Error(formats.Shown(cost))
	}
	for _, kind := range plan.Kinds() {
		sum += bytes.Get(kind.String()).(int64)
	}
	if sum != told.Get("peak") || told.Get("free") != int64(300<<20) || told.Get("fits") != false ||
		len(told.Get("ways").([]any)) != 3 || bytes.Len() != len(plan.Kinds()) {
		t.Error(formats.Shown(told))
	}
	if total := told.Get("parameters").(*formats.Object).Get("total"); total != int64(15_345_920) {
		t.Error(total, "parameters")
	}
	out, _ := call(t, 0, append([]string{"plan"}, append(small, "300MiB")...)...)
	for _, words := range []string{
		"all", "moments of AdamW", "It does not fit: ", "It fits with --micro-batch-size ",
	} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in\n%s", words, out)
		}
	}
	out, _ = call(t, 0, append([]string{"plan"}, append(small, "1GB")...)...)
	if !strings.Contains(out, "It fits, with ") {
		t.Error(out)
	}
	told = planOf(t, "--preset", "6.9b", "--device", "cuda:1", "--available", "141GB", "--precision", "bf16",
		"--activation-checkpointing", "1", "--sequence-length", "4096", "--micro-batch-size", "1")
	if told.Get("fits") != true || told.Get("device") != "cuda:1" || told.Get("held").(int64) <= told.Get("peak").(int64) {
		t.Error(formats.Shown(told))
	}
	told = planOf(t, "--preset", "small", "--device", "h100")
	if seconds, ok := told.Get("work").(*formats.Object).Get("seconds").(float64); !ok || seconds <= 0 ||
		told.Get("free") != int64(80e9) {
		t.Error(formats.Shown(told))
	}
	told = planOf(t, "--preset", "small", "--inference", "--batch-size", "4", "--context", "512", "--prompt", "9")
	if told.Get("bytes").(*formats.Object).Get("cache") != int64(2*4*4*512*64*4) || told.Get("free").(int64) < 1<<20 {
		t.Error(formats.Shown(told))
	}
}

// TestPlanTakesFilesAsTrainDoes: the vocabulary of the data that a file names, options of the file, flags over them.
func TestPlanTakesFilesAsTrainDoes(t *testing.T) {
	config := filepath.Join(workplace(t), "config.toml")
	of := func(arguments ...string) any {
		return planOf(t, append(arguments, "--available", "1GB")...).Get("parameters").(*formats.Object).Get("total")
	}
	wanted := model.Default()
	wanted.VocabSize, wanted.HiddenSize, wanted.NumLayers, wanted.NumHeads, wanted.HeadDim = 60, 32, 2, 4, 8
	wanted.NumExperts, wanted.ExpertsPerToken, wanted.FFNSize = 4, 2, 24
	if total := of("--config", config); total != int64(wanted.NumParameters()) {
		t.Errorf("%v parameters, not %d", total, wanted.NumParameters())
	}
	wanted.NumLayers = 5
	if total := of("--config", config, "--num-layers", "5"); total != int64(wanted.NumParameters()) {
		t.Errorf("%v parameters, not %d", total, wanted.NumParameters())
	}
}

func TestWrongPlans(t *testing.T) {
	for _, wrong := range []struct {
		code      int
		words     string
		arguments string
	}{
		{exitUsage, "'much' is not a number of bytes, such as 141GB or 24GiB", "--available much"},
		{exitUsage, "'9e18GB' is not a number of bytes", "--available 9e18GB"},
		{exitUsage, "--prompt is for --inference", "--prompt 3"},
		{exitUsage, "'--prompt': 0 is not in the range x>=1", "--inference --prompt 0"},
		{exitUsage, "threads", "--threads 257"},
		{exitWrongFile, "a prompt has 5 tokens; it must have 1 to 3", "--inference --context 3 --prompt 5"},
		{exitWrongFile, "context is -5; it must be a whole number, at least 1", "--inference --context -5"},
		{exitWrongFile, "a whole number of 64 bits", "--inference --context 99999999999999999999"},
		{exitWrongFile, "sequence_length is 40000", "--sequence-length 40000"},
	} {
		_, failure := call(t, wrong.code, append([]string{"plan"}, strings.Fields(wrong.arguments)...)...)
		if !strings.Contains(failure, wrong.words) {
			t.Errorf("%s: %s", wrong.arguments, failure)
		}
	}
}

// TestRunThatCannotFitIsNotStarted: the first needs more than any machine has free, the second more than there are
// addresses, so that it fails later where it is started all the same.
func TestRunThatCannotFitIsNotStarted(t *testing.T) {
	work := workplace(t)
	folder := filepath.Join(work, "run")
	flags := []string{"train", folder, "--config", filepath.Join(work, "config.toml"), "--batch-size"}
	_, failure := call(t, exitNoDevice, append(flags, "2000000000")...)
	if !strings.HasPrefix(failure, "Error: this run needs ") || !strings.Contains(failure, " free. ") ||
		!strings.HasSuffix(failure, ". --start-anyway starts it nevertheless\n") {
		t.Error(failure)
	}
	flags = append(flags, "1", "--hidden-size", "1024", "--ffn-size", "2000000000", "--num-experts", "32")
	_, failure = call(t, exitNoDevice, flags...)
	if !strings.HasPrefix(failure, "Error: this run needs more memory than any machine has; cpu has ") ||
		!strings.Contains(failure, " free. A model that fits is --preset small (") {
		t.Error(failure)
	}
	_, failure = call(t, exitNoDevice, append(flags, "--start-anyway")...)
	if strings.Contains(failure, "this run needs") {
		t.Error(failure)
	}
	if _, err := os.Stat(filepath.Join(folder, "checkpoints")); err == nil {
		t.Error("the run was started")
	}
}

func TestRequireFit(t *testing.T) {
	ctx := withlibrary.Context(t, cuda.WithThreads(2))
	config, err := model.Preset("small")
	check(t, err)
	err = requireFitIn(300<<20, ctx, config, train.DefaultConfig(), true)
	var refused *train.DoesNotFitError
	const words = "cpu has 300.0 MiB free. It fits with --micro-batch-size "
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), words) ||
		strings.Count(err.Error(), "; or with --") != 2 {
		t.Error(err)
	}
	check(t, requireFitIn(1<<40, ctx, config, train.DefaultConfig(), true))
}
