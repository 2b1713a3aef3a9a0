// Package convert writes stored models as other ones.
package convert

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tensor"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// MergeAdapter writes a model, a folder in f32, f16 or bf16, with an adapter added to it, W + scale * B * A, as a Hugging Face
// folder that must not exist, in one step. Each sum is made in f32 on the device and rounded once to the dtype of its matrix;
// everything else is what the model has, each tensor under its name there. When ctx ends before, so does this, with its error
// and without a trace.
//
// A *formats.Error when the model is no such folder, has ternary weights, or has the matrices that are adapted in a form of its
// own, or when a sum is too large for its dtype.
func MergeAdapter(
	ctx context.Context, model *stored.Model, adapter *stored.Adapter, path string, device *cuda.Context,
) error {
	folder := model.Folder()
	switch {
	case model.Config.Ternary:
		return wrong(model.Path, "has ternary weights, and with an adapter added they are not ternary; run the model with the "+
			"adapter beside it, as its --adapter")
	case folder == nil && model.GGUF() == nil:
		return wrong(model.Path, "is in memory; an adapter is merged into a Hugging Face folder")
	case folder == nil:
		return wrong(model.Path, "is a GGUF file; an adapter is merged into a Hugging Face folder")
	}
	for _, shape := range model.Config.Shapes() {
		_, adapted := adapter.Factors[shape.Name]
		if _, found := folder.Tensor(shape.Name); adapted && !found {
			return wrong(model.Path, "has %s in one tensor with others; adapters of it are not merged", shape.Name)
		}
	}
	sums := merging{ctx, model.Path, adapter, device}
	var tensors []safetensors.Tensor
	for _, name := range folder.Names() {
		matrix, err := folder.Stored(name)
		if err != nil {
			return err
		}
		tensors = append(tensors, safetensors.Tensor{
			Name: name, DType: safetensors.DTypeOf(matrix.Format), Shape: matrix.Shape,
			Parts: []safetensors.Part{{End: matrix.ByteCount(), Load: func(into []byte) error { return sums.load(matrix, into) }}},
		})
	}
	return formats.WriteFolder(path, func(made string) error {
		if err := copyFiles(model.Path, made); err != nil {
			return err
		}
		return safetensors.Write(filepath.Join(made, "model.safetensors"), tensors, map[string]string{"format": "pt"})
	})
}

// copyFiles copies config.json, and what a folder has of a tokenizer.
func copyFiles(from, to string) error {
	contents, err := tokenizer.ReadFiles(from)
	if err != nil {
		return err
	}
	if contents["config.json"], err = formats.ReadRegular(filepath.Join(from, "config.json"), formats.JSONBytes); err != nil {
		return err
	}
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// merging is an adapter that is added to the matrices of a folder.
type merging struct {
	ctx     context.Context
	path    string
	adapter *stored.Adapter
	device  *cuda.Context
}

// load gives the bytes of a tensor of the folder, with what the adapter adds to it.
func (m merging) load(matrix formats.StoredTensor, into []byte) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	defer matrix.Pages.Release(matrix.Data)
	pair, adapted := m.adapter.Factors[matrix.Name]
	if !adapted {
		copy(into, matrix.Data)
		return nil
	}
	if err := addProduct(m.device, matrix, pair, float32(m.adapter.Scale), into); err != nil {
		return err
	}
	if slices.ContainsFunc(formats.Widened(matrix.Format.Name, into), notFinite) {
		return wrong(m.path, "tensor %s and what the adapter adds give values that %s cannot hold", matrix.Name,
			matrix.Format.Name)
	}
	return nil
}

func notFinite(number float32) bool { return !(math.Abs(float64(number)) <= math.MaxFloat32) }

// addProduct makes W + scale * B * A in the format of W.
func addProduct(device *cuda.Context, matrix formats.StoredTensor, pair stored.LowRank, scale float32, into []byte) (err error) {
	var made []*tensor.Tensor
	defer func() {
		for _, one := range made {
			err = errors.Join(err, one.Close())
		}
	}()
	for _, one := range []formats.StoredTensor{matrix, pair.A, pair.B} {
		numbers, err := one.Floats()
		if err != nil {
			return err
		}
		wide, err := tensor.From(device, numbers, one.Shape...)
		if err != nil {
			return err
		}
		made = append(made, wide)
	}
	sum := made[0]
	if err := tensor.GemmBeta(made[2], made[1], sum, scale, 1, false, false); err != nil {
		return err
	}
	dtype, err := cuda.ParseDType(matrix.Format.Name)
	if err != nil {
		return err
	}
	if dtype != cuda.F32 {
		rounded, err := tensor.New(device, dtype, matrix.Shape...)
		if err != nil {
			return err
		}
		made = append(made, rounded)
		if err := tensor.Cast(sum, rounded); err != nil {
			return err
		}
		sum = rounded
	}
	return sum.Download(into)
}

func wrong(path, format string, values ...any) error {
	return &formats.Error{Path: path, Problem: fmt.Sprintf(format, values...)}
}
