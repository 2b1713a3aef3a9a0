package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
)

// Precision is what a model computes in: all in one dtype, or, with FP8, the experts' products in 8 bits and the rest in
// BF16.
type Precision string

// The precisions there are.
const (
	F32  Precision = "f32"
	BF16 Precision = "bf16"
	F16  Precision = "f16"
	FP8  Precision = "fp8"
)

// Precisions lists the names of all precisions.
func Precisions() []string { return []string{string(F32), string(BF16), string(F16), string(FP8)} }

// Validate says that this is not a precision.
func (p Precision) Validate() error {
	if !slices.Contains(Precisions(), string(p)) {
		known := strings.Join(Precisions(), ", ")
		return fmt.Errorf("precision is %s; it must be one of %s", formats.Shown(string(p)), known)
	}
	return nil
}

// DType is the element type of weights and activations in a valid precision.
func (p Precision) DType() cuda.DType {
	switch p {
	case BF16, FP8:
		return cuda.BF16
	case F16:
		return cuda.F16
	}
	return cuda.F32
}
