package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/pflag"
)

func TestMain(m *testing.M) { withlibrary.Main(m) }

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
`

// workplace is a folder with a shard and a configuration.
func workplace(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	must.Do(t, formats.WriteShard(filepath.Join(folder, "train.tokens"), make([]int32, 900), 60, [32]byte{}))
	must.Do(t, os.WriteFile(filepath.Join(folder, "config.toml"), []byte(configText), 0o666))
	return folder
}

func TestFlagsGoOverTheFileAndTheFileOverThePreset(t *testing.T) {
	work := workplace(t)
	config := filepath.Join(work, "config.toml")
	added := addOptionFlags(pflag.NewFlagSet("options", pflag.ContinueOnError))
	if len(*added) != 62 {
		t.Fatalf("%d options", len(*added))
	}
	for _, flag := range *added {
		switch flag.field.Name {
		case "num_layers":
			must.Do(t, flag.Set("3"))
		case "capacity_factor":
			must.Do(t, flag.Set("1.5"))
		case "micro_batch_size":
			must.Do(t, flag.Set("NONE"))
		}
	}
	file := must.Get(readConfigFile(config))(t)
	file.tables["model"].Set("capacity_factor", 2.0)
	file.tables["train"].Set("micro_batch_size", int64(7))
	made, options, err := buildConfigs(file, "small", *added, 60)
	must.Do(t, err)
	if made.NumLayers != 3 || made.CapacityFactor != 1.5 || made.HiddenSize != 32 || made.VocabSize != 60 ||
		options.MicroBatchSize != 0 {
		t.Errorf("%+v %+v", made, options)
	}
}

func TestLossesText(t *testing.T) {
	progress := train.Progress{Loss: 2, TokensPerSecond: 10.4, SkippedSteps: 3}
	if text := lossesText(progress); text != "loss 2.000, 3 steps skipped · 10 tokens/s" {
		t.Error(text)
	}
}
