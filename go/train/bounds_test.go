package train_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/bounds"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

func TestBounds(t *testing.T) {
	bounds.Check(t, "train", train.Options(), func(name string, value any) error {
		config := train.DefaultConfig()
		if strings.HasPrefix(name, "loss_scale") {
			config.Precision = model.F16
		}
		if err := config.Assign(formats.NewObject(name, value)); err != nil {
			return err
		}
		return config.Validate()
	})
}

func TestNumbersOfAState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "training.json")
	for change, rule := range map[string]string{
		`"seconds": ` + strings.Repeat("1", 400):                      "a number, from 0 to 1e+12",
		`"seconds": -0.5`:                                             "a number, from 0 to 1e+12",
		`"seconds": 1e999`:                                            "a number, from 0 to 1e+12",
		`"seconds": 1000000000000`:                                    "",
		`"held_out_loss": -1.5`:                                       "a number, from -1 to 1e+38",
		`"held_out_loss": 1e39`:                                       "a number, from -1 to 1e+38",
		`"held_out_loss": ` + strings.Repeat("1", 400):                "a number, from -1 to 1e+38",
		`"held_out_loss": Infinity`:                                   "",
		`"step": 2147483647`:                                          "",
		`"step": 2147483648`:                                          "a whole number, from 0 to 2147483647",
		`"data_position": 4611686018427387904`:                        "a whole number, from 0 to 4611686018427387903",
		fmt.Sprintf(`"train": {"steps": %d}`, uint64(1)<<63):          "a whole number, from 1 to 2147483647",
		`"train": {"steps": 1180591620717411303424}`:                  "a whole number, from 1 to 2147483647",
		`"train": {"warmup_steps": ` + strings.Repeat("1", 400) + "}": "a whole number, from 0 to 2147483647",
	} {
		name, _, _ := strings.Cut(change, ":")
		var lines []string
		for _, line := range []string{
			`"format": "nncuda training state"`, `"version": 1`, `"step": 3`, `"data_position": 12`, `"data_windows": 7`,
			`"seconds": 1.5`, `"train": {"steps": 9}`, `"held_out_loss": null`,
		} {
			if strings.HasPrefix(line, name+":") {
				line = change
			}
			lines = append(lines, line)
		}
		check(t, os.WriteFile(path, []byte("{"+strings.Join(lines, ", ")+"}"), 0o666))
		_, err := train.ReadState(path)
		if rule == "" {
			check(t, err)
		} else if err == nil || !strings.HasSuffix(err.Error(), "; it must be "+rule) || len(err.Error()) > 300 {
			t.Errorf("%.60s: %v", change, err)
		}
	}
}
