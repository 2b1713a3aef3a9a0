package options_test

import (
	"testing"

	"github.com/nncuda/nncuda/go/internal/options"
)

func TestNearest(t *testing.T) {
	known := []string{"num_layers", "num_heads", "learning_rate", "eps", "seed"}
	for name, wanted := range map[string]string{
		"layers": "num_layers", "num_layer": "num_layers", "Num-Layers": "num_layers", "learning_rte": "learning_rate",
		"head": "num_heads", "speed": "seed", "esed": "seed", "sdee": "", "ep": "eps", "num": "num_heads", "the_seed_of_it": "seed",
		"colour": "", "": "", "é": "", "n": "",
		"num_layers_num_layers_num_layers_num_layers_num_layers_num_layers_num_layers": "",
	} {
		if found := options.Nearest(name, known); found != wanted {
			t.Errorf("for %q it is %q, not %q", name, found, wanted)
		}
	}
}
