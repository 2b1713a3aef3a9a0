package report

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)))
}

func TestFilesStandInThePageAsTheyAre(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "metrics.jsonl"), "{\"step\": 1}\n</pre>&\xff")
	write(t, filepath.Join(folder, "samples.jsonl"), "<!-- files --></script>")
	write(t, filepath.Join(folder, "checkpoints", "step-00000007", "x"), "12345")
	path, size, err := Write(folder, "")
	must.Do(t, err)
	content, err := os.ReadFile(path)
	if err != nil || int64(len(content)) != size {
		t.Fatalf("%d bytes of %d, %v", len(content), size, err)
	}
	for _, part := range []string{
		`<pre hidden data-file=".">` + "\n" + filepath.Base(folder) + "</pre>\n",
		`<pre hidden data-file="samples.jsonl">` + "\n&lt;!-- files --&gt;&lt;/script&gt;</pre>\n",
		`<pre hidden data-file="metrics.jsonl">` + "\n{\"step\": 1}\n&lt;/pre&gt;&amp;\ufffd</pre>\n",
		`<pre hidden data-file="checkpoints/step-00000007/">` + "\n5</pre>\n",
		`<pre hidden data-file="checkpoints/step-00000007/training.json">` + "\n</pre>\n",
	} {
		if strings.Count(string(content), part) != 1 {
			t.Errorf("%q is not in the page once", part)
		}
	}
	if strings.Contains(string(content), "<!--") {
		t.Error("a part of the page is missing")
	}
}
