package train_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/report"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tokenizer"
	"github.com/nncuda/nncuda/go/train"
)

// TestMissingFilesAreToldFromWrongOnes asks with errors.Is, as a program would.
func TestMissingFilesAreToldFromWrongOnes(t *testing.T) {
	folder, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, []byte("{"), 0o666))
	must.Do(t, os.MkdirAll(filepath.Join(folder, "run", "checkpoints"), 0o777))
	none := filepath.Join(folder, "none")
	for name, test := range map[string]struct {
		err     error
		missing bool
	}{
		"no checkpoint folder":    {second(train.OpenCheckpoint(none)), true},
		"no config.json":          {second(train.OpenCheckpoint(folder)), true},
		"a file as a checkpoint":  {second(train.OpenCheckpoint(file)), false},
		"a run without any":       {second(train.ResolveCheckpoint(filepath.Join(folder, "run"), false)), true},
		"a run without the best":  {second(train.ResolveCheckpoint(filepath.Join(folder, "run"), true)), true},
		"no data":                 {second(train.OpenShards(none)), true},
		"no tensors":              {second(safetensors.Open(none)), true},
		"text instead of tensors": {second(safetensors.Open(file)), false},
		"no tokenizer":            {second(tokenizer.Open(none)), true},
		"text as a tokenizer":     {second(tokenizer.Open(file)), false},
		"no metrics":              {second(report.HTML(folder)), true},
	} {
		if test.err == nil || errors.Is(test.err, fs.ErrNotExist) != test.missing {
			t.Errorf("%s: %v", name, test.err)
		}
	}
}
