package train_test

import (
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
		if name == "lora_alpha" {
			config.LoraRank = 1
		}
		if err := config.Assign(formats.NewObject(name, value)); err != nil {
			return err
		}
		return config.Validate()
	})
}
