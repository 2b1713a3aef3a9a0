package grammar

import (
	"os"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
)

// The cases that Python and Rust have, too.
func TestWhatSchemasMayAskFor(t *testing.T) {
	cases := schemaOf(string(must.Get(os.ReadFile("../../../tests/serve/schema_costs.json"))(t))).([]any)
	if len(cases) < 50 {
		t.Fatalf("there are %d cases only", len(cases))
	}
	for _, one := range cases {
		given := one.(*formats.Object)
		var found any
		if err := checkCost([]any{given.Get("schema")}); err != nil {
			found = err.Error()
		}
		if found != given.Get("problem") {
			t.Errorf("%.200s: %v, not %v", formats.Shown(given.Get("schema")), found, given.Get("problem"))
		}
	}
}
