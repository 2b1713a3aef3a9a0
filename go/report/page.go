// Package report makes one self-contained HTML page of a training run.
//
// The page is one file for all languages, with its own style and script, which draws the run that stands in it as JSON;
// this package reads the run's folder into that JSON. The same folder gives the same bytes in every language.
package report

import (
	_ "embed" // for the page
	"os"
	"path/filepath"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// The page without a run, written by `make generate`: {{rows}} is where rows of the table go, {{run}} where the JSON
// goes.
//
//go:embed page.html
var page string

// JSON has these characters in texts only, and there they have another spelling. Spelled so, no text can end the element
// that it stands in.
var spelled = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`)

// Write writes the page of the run in `folder` to `path`, by default ("") report.html in the folder, and gives where it is
// and its size in bytes. It is a *formats.Error when the folder holds no metrics.
func Write(folder, path string) (written string, size int64, err error) {
	if path == "" {
		path = filepath.Join(folder, "report.html")
	}
	run, err := Read(folder)
	if err != nil {
		return "", 0, err
	}
	html, err := HTML(run)
	if err != nil {
		return "", 0, err
	}
	if err := formats.WriteFile(path, html); err != nil {
		return "", 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", 0, err
	}
	return path, info.Size(), nil
}

// HTML is the page of a run, as Read gives it.
func HTML(run *formats.Object) ([]byte, error) {
	var rows []string
	for _, row := range run.Get("table").([]any) {
		var cells strings.Builder
		for _, value := range row.([]any) {
			cell := "–"
			if value != nil {
				cell = formats.Shown(value)
			}
			cells.WriteString("<td>" + cell + "</td>")
		}
		rows = append(rows, "<tr>"+cells.String()+"</tr>")
	}
	// The rows hold nothing but numbers, so the place that is found for the run is the page's own.
	whole := strings.Replace(page, "{{rows}}", strings.Join(rows, "\n"), 1)
	line, err := formats.JSONLine(run)
	return []byte(strings.Replace(whole, "{{run}}", spelled.Replace(string(line)), 1)), err
}
