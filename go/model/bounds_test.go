package model_test

import (
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/bounds"
	"github.com/nncuda/nncuda/go/model"
)

func TestBounds(t *testing.T) {
	bounds.Check(t, "model", model.Options(), func(name string, value any) error {
		config := model.Default()
		if err := config.Assign(formats.NewObject(name, value)); err != nil {
			return err
		}
		return config.Validate()
	})
}
