package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/pflag"
)

// The test binary runs as the command itself where this is set.
const asCommand = "NNCUDA_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	withlibrary.Main(m)
}

const configText = `
[model]
hidden_size = 32
num_layers = 2
num_heads = 4
head_dim = 8
num_experts = 4
experts_per_token = 2
ffn_size = 24
context = 32
extended_context = 64

[train]
steps = 6
batch_size = 4
sequence_length = 16
warmup_steps = 2
learning_rate = 0.003
eval_every = 3
eval_batches = 2
save_every = 2
clip_norm = "none"

[data]
data = "train.tokens"
held_out = "held-out.tokens"
`

// workplace is a folder with shards and a configuration.
func workplace(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	for name, count := range map[string]int{"train.tokens": 900, "held-out.tokens": 300} {
		ids := make([]int32, count)
		for at := range ids {
			ids[at] = int32(min(random.IntN(60), random.IntN(60)))
		}
		check(t, formats.WriteShard(filepath.Join(folder, name), ids, 60, [32]byte{}))
	}
	check(t, os.WriteFile(filepath.Join(folder, "config.toml"), []byte(configText), 0o666))
	return folder
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call runs the command in this process and requires its exit code.
func call(t testing.TB, code int, arguments ...string) (out, failure string) {
	t.Helper()
	var output, errors bytes.Buffer
	std := streams{strings.NewReader("7 8\n9"), &output, &errors}
	if found := run(context.Background(), arguments, std); found != code {
		t.Fatalf("%v: exit code %d, not %d\n%s", arguments, found, code, errors.String())
	}
	return output.String(), errors.String()
}

func TestTrainResumeGenerateInspect(t *testing.T) {
	work := workplace(t)
	folder, config := filepath.Join(work, "run"), filepath.Join(work, "config.toml")
	out, failure := call(t, 0, "train", folder, "--config", config, "--seed", "3", "--steps", "4", "--threads", "1")
	metrics, err := os.ReadFile(filepath.Join(folder, "metrics.jsonl"))
	check(t, err)
	if out != string(metrics) || failure != "" || strings.Count(out, "\n") != 6 { // 4 steps, evaluated at 3 and 4
		t.Errorf("train wrote %q and %q", out, failure)
	}
	state, err := train.ReadState(filepath.Join(folder, "checkpoints", "step-00000004", "training.json"))
	if err != nil || state.Train.Seed != 3 || state.Train.Steps != 4 || state.Train.ClipNorm != 0 ||
		state.DataPosition != 16 {
		t.Errorf("%+v, %v", state, err)
	}
	out, _ = call(t, 0, "train", folder, "--resume")
	if out != "" {
		t.Errorf("a complete run went on: %s", out)
	}
	greedy, _ := call(t, 0, "generate", folder, "7, 8 9", "--ids", "--greedy", "--max-tokens", "5")
	again, _ := call(t, 0, "generate", "--ids", "--temperature=0", "--max-tokens=5", folder, "-")
	if greedy != again || len(strings.Fields(greedy)) != 5 || !strings.HasSuffix(greedy, "\n") {
		t.Errorf("%q, from the standard input %q", greedy, again)
	}
	best, _ := call(t, 0, "generate", folder, "7", "--ids", "--best", "--seed", "-9223372036854775808")
	if len(strings.Fields(best)) != 64 {
		t.Errorf("%q is not all that the model reaches", best)
	}
	out, _ = call(t, 0, "inspect", folder, "--json")
	value, err := formats.ParseJSON([]byte(out))
	check(t, err)
	content := value.(*formats.Object)
	if content.Get("kind") != "checkpoint" || content.Get("model").(*formats.Object).Get("vocab_size") != int64(60) {
		t.Error(out)
	}
	out, _ = call(t, 0, "inspect", folder)
	const tensor = "model.layers.1.block_sparse_moe.experts.3.w2.weight"
	for _, words := range []string{tensor, "32 × 24", "3.0 KiB", "clip_norm", "none"} {
		if !strings.Contains(out, words) {
			t.Errorf("inspect does not show %q:\n%s", words, out)
		}
	}
	out, _ = call(t, 0, "inspect", filepath.Join(work, "train.tokens"))
	if !strings.Contains(out, "tokens: 900\nvocabulary: 60\n") {
		t.Error(out)
	}
}

// TestPrecisionAndRecomputation: a run in f16 whose first steps overflow, taken up, generating in every precision.
func TestPrecisionAndRecomputation(t *testing.T) {
	work := workplace(t)
	folder, whole, config := filepath.Join(work, "run"), filepath.Join(work, "whole"), filepath.Join(work, "config.toml")
	flags := []string{
		"--config", config, "--precision", "f16", "--loss-scale", "16777216", "--loss-scale-interval", "2",
		"--activation-checkpointing", "2", "--recompute-experts", "--steps", "8", "--keep-checkpoints", "9",
	}
	out, _ := call(t, 0, append([]string{"train", whole}, flags...)...)
	for _, words := range []string{`"learning_rate":null`, `"loss_scale":16777216,"skipped_steps":1`} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in %s", words, out)
		}
	}
	// As if it had been killed behind step 4.
	check(t, os.CopyFS(folder, os.DirFS(whole)))
	for _, later := range []string{"step-00000006", "step-00000008"} {
		check(t, os.RemoveAll(filepath.Join(folder, "checkpoints", later)))
	}
	call(t, 0, "train", folder, "--resume")
	last := filepath.Join("checkpoints", "step-00000008", "model.safetensors")
	found, err := os.ReadFile(filepath.Join(folder, last))
	check(t, err)
	wanted, err := os.ReadFile(filepath.Join(whole, last))
	check(t, err)
	if !bytes.Equal(found, wanted) {
		t.Error("taken up, the run came to other bits")
	}
	out, _ = call(t, 0, "inspect", folder)
	for _, words := range []string{"precision", "f16", "activation_checkpointing", "loss_scaling.good_steps"} {
		if !strings.Contains(out, words) {
			t.Errorf("inspect does not show %q:\n%s", words, out)
		}
	}
	for _, precision := range []string{"f32", "bf16", "f16"} {
		out, _ := call(t, 0, "generate", folder, "7 8", "--ids", "--max-tokens", "6", "--precision", precision)
		if len(strings.Fields(out)) != 6 {
			t.Errorf("%s: %q", precision, out)
		}
	}
	progress := train.Progress{Loss: 2, TokensPerSecond: 10.4, SkippedSteps: 3}
	if text := lossesText(progress); text != "loss 2.000, 3 steps skipped · 10 tokens/s" {
		t.Error(text)
	}
}

func TestFlagsGoOverTheFileAndTheFileOverThePreset(t *testing.T) {
	work := workplace(t)
	config := filepath.Join(work, "config.toml")
	added := addOptionFlags(pflag.NewFlagSet("options", pflag.ContinueOnError))
	if len(*added) != 45 {
		t.Fatalf("%d options", len(*added))
	}
	for _, flag := range *added {
		switch flag.field.Name {
		case "num_layers":
			check(t, flag.Set("3"))
		case "capacity_factor":
			check(t, flag.Set("1.5"))
		case "micro_batch_size":
			check(t, flag.Set("NONE"))
		}
	}
	file, err := readConfigFile(config)
	check(t, err)
	file.tables["model"].Set("capacity_factor", 2.0)
	file.tables["train"].Set("micro_batch_size", int64(7))
	made, options, err := buildConfigs(file, "small", *added, 60)
	check(t, err)
	if made.NumLayers != 3 || made.CapacityFactor != 1.5 || made.HiddenSize != 32 || made.VocabSize != 60 ||
		options.MicroBatchSize != 0 {
		t.Errorf("%+v %+v", made, options)
	}
}

func TestHelpNamesEveryOption(t *testing.T) {
	out, _ := call(t, 0, "train", "--help")
	for _, table := range tables {
		for _, field := range table.fields {
			if !strings.Contains(out, "--"+flagName(field.Name)) || !strings.Contains(out, field.Help) || field.Help == "" {
				t.Errorf("the help does not say what %s is", field.Name)
			}
		}
	}
	if out, _ := call(t, 0, "--version"); out != "nncuda-go, version "+train.Version+"\n" {
		t.Error(out)
	}
}

func TestWrongUse(t *testing.T) {
	work := workplace(t)
	absent, config := filepath.Join(work, "absent"), filepath.Join(work, "config.toml")
	wrong := filepath.Join(work, "wrong.toml")
	const huge = "99999999999999999999"
	check(t, os.WriteFile(wrong, []byte("[model]\nlayers = 3\n"), 0o666))
	check(t, os.WriteFile(filepath.Join(work, "none.toml"), []byte("[model\n"), 0o666))
	for _, test := range []struct {
		code      int
		words     string
		arguments []string
	}{
		{2, "missing command", nil},
		{2, "no such command \"paint\"", []string{"paint"}},
		{2, "there is no PROMPT: give one", []string{"generate", work}},
		{2, "there is no MODEL: name one", []string{"generate"}},
		{2, "takes one prompt", []string{"generate", work, "a", "--prompt", "b"}},
		{2, "nncuda-go has no command 'chat'; the Python package has it: nncuda chat\n", []string{"chat", "--model", "x"}},
		{2, "the Python package has it: nncuda generate --stats\n", []string{"generate", work, "a", "--stats"}},
		{2, "the Python package has it: nncuda inspect --ternary\n", []string{"inspect", work, "--ternary"}},
		{2, "unexpected extra argument (b)", []string{"inspect", work, "b"}},
		{2, "unknown flag: --speed", []string{"train", absent, "--speed", "9"}},
		{2, "is not a whole number", []string{"train", absent, "--steps", "many"}},
		{2, "neither a number nor 'none'", []string{"train", absent, "--clip-norm", "much"}},
		{2, "it takes no value, but was given \"1\"", []string{"train", absent, "--no-norm-topk-prob=1"}},
		{2, "0 is not in the range 1 to 256", []string{"train", absent, "--threads", "0"}},
		{2, "'huge' is not one of 6.9b, demo, small", []string{"train", absent, "--preset", "huge"}},
		{2, "path '" + absent + "' does not exist", []string{"train", absent, "--data", absent}},
		{2, "is a directory", []string{"train", absent, "--config", work}},
		{2, "say what to train on", []string{"train", absent}},
		{2, "leave out --steps. It takes --micro-batch-size, --activation-checkpointing, --recompute-experts, " +
			"--eval-every, --eval-batches, --save-every, --keep-checkpoints, --log-every, --max-loss, --device, --threads, " +
			"--data and --held-out\n", []string{"train", absent, "--resume", "--log-every", "2", "--steps", "9"}},
		{2, "leave out --config", []string{"train", absent, "--resume", "--config", config}},
		{2, "'six'", []string{"generate", work, "5 six", "--ids"}},
		{2, "does not exist", []string{"generate", absent, "a"}},
		{2, "is a file", []string{"generate", config, "a"}},
		{2, "--top-p", []string{"generate", work, "a", "--top-p", "0"}},
		{2, "'f8' is not one of f32, bf16, f16", []string{"train", absent, "--precision", "f8"}},
		{2, "'f8' is not one of f32, bf16, f16", []string{"generate", work, "a", "--precision", "f8"}},
		{2, "missing option '--config'", []string{"bench", "--data", work}},
		{3, "run.json: cannot be read: no such file", []string{"train", absent, "--resume"}},
		{3, "there is no model option \"layers\"", []string{"train", absent, "--data", work, "--config", wrong}},
		{3, "none.toml: is not TOML (", []string{"train", absent, "--config", filepath.Join(work, "none.toml")}},
		{3, "not a kind of file that nncuda-go knows", []string{"inspect", config}},
		{3, "config.json: cannot be read", []string{"inspect", work}},
		{3, "must be below 2147483647", []string{"generate", work, "99999999999999999999", "--ids"}},
		{3, "device is \"gpu\"", []string{"train", absent, "--config", config, "--device", "gpu"}},
		{3, "steps is " + huge + "; it must be", []string{"train", absent, "--config", config, "--steps", huge}},
		{4, "cuda:99", []string{"train", absent, "--config", config, "--device", "cuda:99"}},
	} {
		out, failure := call(t, test.code, test.arguments...)
		if !strings.Contains(failure, test.words) || out != "" {
			t.Errorf("%v: %q, not %q", test.arguments, failure, test.words)
		}
		if test.code > 2 && (!strings.HasPrefix(failure, "Error: ") || strings.Count(failure, "\n") != 1) {
			t.Errorf("%v: %q is not one sentence", test.arguments, failure)
		}
	}
	if _, err := os.Stat(absent); err == nil {
		t.Error("a folder was made for a run that never began")
	}
}

func TestDivergenceHasItsOwnCode(t *testing.T) {
	work := workplace(t)
	_, failure := call(t, 1, "train", filepath.Join(work, "run"), "--config", filepath.Join(work, "config.toml"),
		"--learning-rate", "1e30", "--warmup-steps", "0", "--weight-decay", "1e30")
	if !strings.Contains(failure, "at step") || !strings.Contains(failure, "A lower learning rate") {
		t.Error(failure)
	}
}

// command is this binary as the command, in a process of its own.
func command(arguments ...string) *exec.Cmd {
	process := exec.Command(os.Args[0], arguments...)
	process.Env = append(os.Environ(), asCommand+"=1")
	return process
}

// TestKilledRunsGoOn: killed at any moment, a run has whole checkpoints and comes to the end of one that was not.
func TestKilledRunsGoOn(t *testing.T) {
	work := workplace(t)
	killed, whole := filepath.Join(work, "killed"), filepath.Join(work, "whole")
	arguments := []string{"--config", filepath.Join(work, "config.toml"), "--steps", "60", "--save-every", "1"}
	call(t, 0, append([]string{"train", whole}, arguments...)...)
	for attempt := range 3 {
		process := command(append([]string{"train", killed}, arguments...)...)
		if attempt > 0 {
			process = command("train", killed, "--resume")
		}
		out, err := process.StdoutPipe()
		check(t, err)
		check(t, process.Start())
		lines := bufio.NewScanner(out)
		for count := 0; count < 7+attempt && lines.Scan(); count++ {
		}
		check(t, process.Process.Kill())
		_ = process.Wait() // it was killed
	}
	call(t, 0, "train", killed, "--resume")
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		found, err := os.ReadFile(filepath.Join(killed, "checkpoints", "step-00000060", name))
		check(t, err)
		wanted, err := os.ReadFile(filepath.Join(whole, "checkpoints", "step-00000060", name))
		check(t, err)
		if !bytes.Equal(found, wanted) {
			t.Errorf("%s is another than that of a run that was never killed", name)
		}
	}
}

// TestWithoutTheLibrary: the error says what was tried and what to do.
func TestWithoutTheLibrary(t *testing.T) {
	work := workplace(t)
	process := command("train", filepath.Join(work, "run"), "--config", filepath.Join(work, "config.toml"))
	process.Env = append(process.Env, cuda.LibraryVariable+"="+filepath.Join(work, "none.so"))
	var failure bytes.Buffer
	process.Stderr = &failure
	err := process.Run()
	words := "Error: libnncuda.so was not found:\n  " + cuda.LibraryVariable + ": "
	if process.ProcessState.ExitCode() != 4 || !strings.HasPrefix(failure.String(), words) ||
		strings.Count(failure.String(), "\n") != 3 {
		t.Errorf("%v: %s", err, failure.String())
	}
}

// TestReaderThatGoesAway: a closed pipe ends the command quietly.
func TestReaderThatGoesAway(t *testing.T) {
	work := workplace(t)
	process := command(
		"train",
		filepath.Join(work, "run"),
		"--config",
		filepath.Join(work, "config.toml"),
		"--steps",
		"500",
	)
	out, err := process.StdoutPipe()
	check(t, err)
	var failure bytes.Buffer
	process.Stderr = &failure
	check(t, process.Start())
	bufio.NewScanner(out).Scan()
	check(t, out.Close())
	if err := process.Wait(); err != nil || failure.Len() > 0 {
		t.Errorf("%v: %s", err, failure.String())
	}
}

func TestBench(t *testing.T) {
	work := workplace(t)
	arguments := []string{
		"--config",
		filepath.Join(work, "config.toml"),
		"--data",
		work,
		"--steps",
		"2",
		"--decode",
		"3",
		"--threads",
		"1",
	}
	check(t, os.Remove(filepath.Join(work, "held-out.tokens")))
	out, _ := call(t, 0, append([]string{"bench", "--json"}, arguments...)...)
	value, err := formats.ParseJSON([]byte(out))
	check(t, err)
	line := value.(*formats.Object)
	if line.Get("language") != "go" || line.Get("threads") != int64(1) {
		t.Error(out)
	}
	for _, name := range []string{"train_tokens_per_second", "decode_tokens_per_second", "call_nanoseconds"} {
		if measured, err := strconv.ParseFloat(fmt.Sprint(line.Get(name)), 64); err != nil || measured <= 0 {
			t.Error(name, "is", line.Get(name))
		}
	}
}
