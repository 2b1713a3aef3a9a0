package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/internal/must"
)

func TestNamesOfModels(t *testing.T) {
	folder := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	target := filepath.Join(folder, "step-1.q8.gguf")
	must.Do(t, os.WriteFile(target, nil, 0o600))
	link := filepath.Join(folder, "link")
	must.Do(t, os.Symlink(target, link))
	for path, wanted := range map[string]string{
		target: "step-1.q8", link: "step-1.q8", filepath.Join(folder, "a run"): "a run", filepath.Join(folder, ".hidden"): ".hidden",
		filepath.Join(folder, "dot."): "dot.", "/": "model",
	} {
		if found := nameOf(path); found != wanted {
			t.Errorf("%s: %s, not %s", path, found, wanted)
		}
	}
}

func TestNumbersOfTheServeCommand(t *testing.T) {
	for number, wanted := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if found := withCommas(number); found != wanted {
			t.Errorf("%s, not %s", found, wanted)
		}
	}
	for seconds, wanted := range map[float64]time.Duration{0.25: 250 * time.Millisecond, 1e300: math.MaxInt64, math.Inf(1): math.MaxInt64} {
		if found := duration(seconds); found != wanted {
			t.Errorf("%v: %v, not %v", seconds, found, wanted)
		}
	}
}
