// Package report makes one HTML page of a training run: the page in page/, which draws the run's own files that stand in
// it. docs/formats.md describes it.
package report

import (
	"embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/train"
)

//go:embed page
var page embed.FS

// A run's text stays text wherever it stands in the page.
var escaped = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Write writes the page of the run in `folder` to `path`, by default ("") report.html in the folder, and gives where it is
// and its size in bytes. It is a *formats.Error when the folder holds no metrics.
func Write(folder, path string) (written string, size int64, err error) {
	if path == "" {
		path = filepath.Join(folder, "report.html")
	}
	html, err := HTML(folder)
	if err != nil {
		return "", 0, err
	}
	return path, int64(len(html)), formats.WriteFile(path, []byte(html))
}

// HTML is the page of the run in `folder`. It is a *formats.Error when the folder holds no metrics.
func HTML(folder string) (string, error) {
	files, err := filesOf(folder)
	if err != nil {
		return "", err
	}
	frame, _ := page.ReadFile("page/page.html") // what is embedded can be read
	html := string(frame)
	for _, name := range []string{"page.css", "run.js", "charts.js", "page.js"} {
		part, _ := page.ReadFile("page/" + name)
		html = strings.Replace(html, "<!-- "+name+" -->", string(part), 1)
	}
	return strings.Replace(html, "<!-- files -->", files, 1), nil
}

// filesOf are the elements of the files that the page reads, by name; of a folder its name ("."), or the bytes of what it
// holds.
func filesOf(folder string) (string, error) {
	if err := requireMetrics(folder); err != nil {
		return "", err
	}
	whole, err := formats.Resolve(folder)
	if err != nil {
		return "", formats.CannotRead(folder, err)
	}
	var files strings.Builder
	add := func(name, text string) {
		text = escaped.Replace(strings.ToValidUTF8(text, "\ufffd"))
		files.WriteString(`<pre hidden data-file="` + name + "\">\n" + text + "</pre>\n")
	}
	add(".", filepath.Base(whole))
	for _, name := range []string{"run.json", "results.json", "samples.jsonl", "metrics.jsonl"} {
		if path := filepath.Join(folder, name); formats.Present(path) {
			add(name, content(path))
		}
	}
	for _, checkpoint := range train.ListCheckpoints(filepath.Join(folder, "checkpoints")) {
		size, err := sizeOf(checkpoint)
		if err != nil {
			continue // the run removed it meanwhile
		}
		name := "checkpoints/" + filepath.Base(checkpoint) + "/"
		add(name, strconv.FormatInt(size, 10))
		add(name+"training.json", content(filepath.Join(checkpoint, "training.json")))
	}
	return files.String(), nil
}

// requireMetrics is an error when the folder has no record of a step.
func requireMetrics(folder string) error {
	path := filepath.Join(folder, "metrics.jsonl")
	if !formats.Present(path) {
		return formats.Missing(folder, "is no training run: it holds no metrics.jsonl")
	}
	for line, err := range formats.JSONLines(path) {
		if err != nil {
			return err
		}
		if line.Record == nil {
			continue
		}
		if _, whole := line.Record.Get("step").(int64); whole {
			return nil
		}
	}
	return &formats.Error{Path: path, Problem: "holds no record of a step yet; the first comes after `log_every` steps"}
}

// content is the text of a file; none when it cannot be read, of which the page then says so.
func content(path string) string {
	text, _ := formats.ReadRegular(path, 1<<62)
	return string(text)
}

func sizeOf(folder string) (size int64, err error) {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(folder, entry.Name()))
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, err
}
