package formats_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
)

// special makes what is not a regular file; the words are what a reader says of it.
var special = map[string]struct {
	make  func(path string) error
	words string
}{
	"a pipe":             {func(path string) error { return syscall.Mkfifo(path, 0o666) }, "it is not a regular file"},
	"a device":           {func(path string) error { return os.Symlink("/dev/zero", path) }, "it is not a regular file"},
	"a folder":           {func(path string) error { return os.Mkdir(path, 0o777) }, "it is not a regular file"},
	"a link in a circle": {func(path string) error { return os.Symlink(path, path) }, "too many levels of symbolic links"},
	"a link to nothing":  {func(path string) error { return os.Symlink("nowhere", path) }, "no such file or directory"},
}

func TestWhatIsNoRegularFile(t *testing.T) {
	for name, kind := range special {
		path := filepath.Join(t.TempDir(), "x")
		must.Do(t, kind.make(path))
		readers := map[string]func() error{
			"json":  func() error { _, err := formats.ReadJSON(path); return err },
			"shard": func() error { _, err := formats.OpenShard(path); return err },
			"bytes": func() error { _, err := formats.ReadRegular(path, 1<<20); return err },
			"lines": func() error {
				for _, err := range formats.JSONLines(path) {
					return err
				}
				return nil
			},
		}
		for reader, read := range readers {
			err := read()
			var found *formats.Error
			if !errors.As(err, &found) || err.Error() != path+": cannot be read: "+kind.words {
				t.Errorf("%s, %s: %v", name, reader, err)
			}
		}
		if !formats.Present(path) {
			t.Errorf("%s is not there", name)
		}
	}
	path := filepath.Join(t.TempDir(), "x")
	if _, err := formats.ReadRegular(path, 1); !errors.Is(err, fs.ErrNotExist) || formats.Present(path) {
		t.Error(err)
	}
	if _, err := formats.ReadRegular("/proc/self/status", 1<<20); err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Error(err)
	}
}

func TestLinesOfJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	long := `{"a": "` + strings.Repeat("b", 1<<17) + `"}`
	must.Do(t, os.WriteFile(path, []byte("{\"a\": 1}\r\n\n[1]\n"+long+"\n{\"a\": 1, \"a\": 2}\n{\"a\": 3}"), 0o666))
	var texts []string
	records := 0
	for line, err := range formats.JSONLines(path) {
		must.Do(t, err)
		texts = append(texts, string(line.Text))
		if line.Record != nil {
			records++
		}
	}
	if len(texts) != 6 || records != 3 || texts[0] != "{\"a\": 1}\r\n" || texts[3] != long+"\n" || texts[5] != `{"a": 3}` {
		t.Errorf("%d records in %.60q", records, texts)
	}
	must.Do(t, os.Truncate(path, 1<<40)) // a line without end
	var last error
	for _, err := range formats.JSONLines(path) {
		last = err
	}
	if last == nil || last.Error() != path+": line 6 has more than 16777216 bytes" {
		t.Error(last)
	}
}

func TestMessagesAreCutAndFitForATerminal(t *testing.T) {
	long := strings.Repeat("é", 9999)
	if shown := formats.Shown(long); len([]rune(shown)) != 101 || !strings.HasSuffix(shown, "é…") {
		t.Error(shown)
	}
	if shown := formats.Shown([]any{long, long}); len([]rune(shown)) != 101 {
		t.Error(shown)
	}
	err := &formats.Error{Path: "x", Problem: "begins " + long + " ends \x1b[2J"}
	if text := err.Error(); len([]rune(text)) > 620 || !strings.HasSuffix(text, ` ends \x1b[2J`) {
		t.Error(text)
	}
}

func TestLimits(t *testing.T) {
	content := must.Get(os.ReadFile(filepath.Join("..", "..", "tests", "bounds.json")))(t)
	var bounds struct {
		Limits map[string]struct{ Is int64 }
	}
	must.Do(t, json.NewDecoder(bytes.NewReader(content)).Decode(&bounds))
	ours := map[string]int64{
		"json_bytes": formats.JSONBytes, "index_bytes": formats.IndexBytes, "header_bytes": formats.HeaderBytes,
		"line_bytes": formats.LineBytes, "name_bytes": formats.NameBytes, "toml_bytes": formats.TOMLBytes, "toml_line_bytes": formats.TOMLLineBytes,
		"tokenizer_model_bytes": formats.TokenizerModelBytes, "tokenizer_json_bytes": formats.TokenizerJSONBytes,
		"template_bytes": formats.TemplateBytes, "json_marks": formats.JSONMarks, "tokenizer_json_marks": formats.TokenizerJSONMarks,
		"json_depth": formats.JSONDepth, "json_digits": formats.JSONDigits, "file_tensors": formats.FileTensors,
		"model_tensors": formats.ModelTensors, "model_parameters": formats.ModelParameters, "count": formats.MaxCount,
	}
	if len(ours) != len(bounds.Limits) {
		t.Errorf("%d limits, not %d", len(ours), len(bounds.Limits))
	}
	for name, limit := range bounds.Limits {
		if ours[name] != limit.Is {
			t.Errorf("%s is %d, not %d", name, ours[name], limit.Is)
		}
	}
}
