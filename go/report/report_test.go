package report

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
)

const hostile = `</script><script>alert(1)</script>&\u2028\ud800`

// runFolder makes a run with these lines of metrics.
func runFolder(t *testing.T, lines ...string) string {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "metrics.jsonl"), strings.Join(lines, "\n"))
	return folder
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, folder string) *formats.Object {
	t.Helper()
	run, err := Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func expect(t *testing.T, what string, found any, wanted string) {
	t.Helper()
	line, err := formats.JSONLine(found)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.TrimSpace(string(line)); text != strings.ReplaceAll(wanted, ", ", ",") {
		t.Errorf("%s is %s; it should be %s", what, text, wanted)
	}
}

func TestWhatIsNoRecordIsNoted(t *testing.T) {
	run := read(t, runFolder(t, "", `{"step": 2, "loss": NaN}`, `{"step": 1, "loss": 0.30000004}`, "5", `{"step": -1}`,
		`{"step": 1e3}`, `{"step": 3, "expert_shares": [[0.5, 2]]}`, "\xff", strings.Repeat("[", 100_000)))
	expect(t, "notes", run.Get("notes"), `[["line", "metrics.jsonl", 4], ["line", "metrics.jsonl", 5], `+
		`["line", "metrics.jsonl", 6], ["line", "metrics.jsonl", 8], ["cut", "metrics.jsonl"], `+
		`["not finite", "training loss", 1, 2], ["shares", 1]]`)
	series := run.Get("series").(*formats.Object)
	expect(t, "series", series.Names()[0], `"loss"`)
	expect(t, "loss", series.Get("loss").(*formats.Object).Get("mean"), "[0.3, null]")
	expect(t, "table", run.Get("table"), "[[1, 0.3, null, null, null, null], [2, null, null, null, null, null]]")
	expect(t, "last step", run.Get("last_step"), "3")
}

func TestNoRun(t *testing.T) {
	for _, folder := range []string{t.TempDir(), runFolder(t, "5", "")} {
		var wrong *formats.Error
		if _, err := Read(folder); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

func TestTextCannotLeaveItsElement(t *testing.T) {
	folder := runFolder(t, `{"step": 1, "loss": 1}`)
	write(t, filepath.Join(folder, "run.json"), `{"program": "`+hostile+`", "model": {}, "train": 5}`)
	write(t, filepath.Join(folder, "results.json"), `[]`)
	write(t, filepath.Join(folder, "samples.jsonl"), `{"step": 1, "prompt": "{{run}}", "text": "`+hostile+`"}`)
	path, size, err := Write(folder, "")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil || int64(len(content)) != size {
		t.Fatalf("%d bytes of %d, %v", len(content), size, err)
	}
	before, _, _ := strings.Cut(page, "{{rows}}")
	if text := string(content); !strings.HasPrefix(text, before) || strings.Contains(text, "alert(1)</script>") ||
		strings.Count(text, "</script>") != 2 || !strings.Contains(text, `"prompt":"{{run}}"`) {
		t.Error("a text of the run is not where it belongs")
	}
	expect(t, "notes", read(t, folder).Get("notes"), `[["file", "results.json"], ["options"]]`)
}

func TestThinning(t *testing.T) {
	var points []point
	for step := range 2 * mostPoints {
		points = append(points, point{int64(step), float64(step)})
	}
	made := thin(points, nil, nil)
	for name, wanted := range map[string]float64{"mean": 2.5, "low": 2, "high": 3} {
		if found := made.Get(name).([]any); len(found) != mostPoints || found[1] != any(wanted) {
			t.Errorf("%s has %d points, the second %v", name, len(found), found[1])
		}
	}
	if thin([]point{{1, math.NaN()}}, nil, nil) != nil {
		t.Error("a series without a number")
	}
	expect(t, "columns", thinExperts([]shares{{0, [][]float64{{1, 0}}}, {20, [][]float64{{0, 1}}}, {30, [][]float64{{.5, .5}}}}).
		Get("columns"), "[[[10000, 0]], [[10000, 0]], [[2500, 7500]]]")
	if spread := loadSpread([]float64{4, 0, 0, 0}); spread != math.Sqrt(3) {
		t.Errorf("the spread is %v", spread)
	}
}
