// Package bounds holds options to tests/bounds.json, which lists what they may be in every language.
package bounds

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/options"
)

type bound struct {
	Least, Most float64
	Rule        string
}

// Check tries the numbers of a group of tests/bounds.json at their bounds and just outside them. `try` says what is
// wrong with an option of that value.
func Check(t *testing.T, group string, fields []options.Field, try func(name string, value any) error) {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	content, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "..", "..", "tests", "bounds.json"))
	if err != nil {
		t.Fatal(err)
	}
	var groups map[string]json.RawMessage
	var known map[string]bound
	if err := json.Unmarshal(content, &groups); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(groups[group], &known); err != nil {
		t.Fatal(err)
	}
	numbers := 0
	for _, field := range fields {
		if fmt.Sprint(field.Type) != "float64" {
			continue
		}
		numbers++
		bound, found := known[field.Name]
		if !found || field.Rule != bound.Rule {
			t.Errorf("%s must be %q, not %q", field.Name, field.Rule, bound.Rule)
		}
		for _, value := range []float64{bound.Least, bound.Most} {
			if err := try(field.Name, value); err != nil && !(field.None && value == 0) {
				t.Errorf("%v: %v", value, err)
			}
		}
		below, above := math.Nextafter(bound.Least, math.Inf(-1)), math.Nextafter(bound.Most, math.Inf(1))
		for _, value := range []any{below, above, math.NaN(), math.Inf(1), math.Inf(-1), "1", true} {
			err := try(field.Name, value)
			if err == nil || !strings.HasSuffix(err.Error(), "; it must be "+bound.Rule) {
				t.Errorf("%s of %v: %v", field.Name, value, err)
			}
		}
	}
	if numbers != len(known) {
		t.Errorf("%d numbers have bounds, not %d", len(known), numbers)
	}
}
