package tensor_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/golden"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tensor"
)

// A typedKernel is a function of this package, and the header's names of its arguments.
type typedKernel struct {
	name      string
	function  any
	arguments []string
}

// TestFixtures gives the golden fixtures to the functions of tensors: from the shapes alone they must find the sizes,
// strides and dtypes that the fixtures state.
func TestFixtures(t *testing.T) {
	folder := must.Get(golden.Folder())(t)
	fixtures := must.Get(golden.ReadFolder(folder))(t)
	ctx := newContext(t)
	tried := map[string]bool{}
	for i := range fixtures {
		fixture := &fixtures[i]
		tried[fixture.Kernel] = true
		t.Run(fixture.Kernel+"/"+fixture.Name, func(t *testing.T) { runTyped(t, ctx, fixture) })
	}
	for _, kernel := range typed {
		if !tried[kernel.name] {
			t.Errorf("%s has no fixture", kernel.name)
		}
	}
}

func runTyped(t *testing.T, ctx *cuda.Context, fixture *golden.Fixture) {
	kernels := cuda.Kernels()
	kernel := kernels[slices.IndexFunc(kernels, func(k cuda.Kernel) bool { return k.Name == fixture.Kernel })]
	at := slices.IndexFunc(typed, func(k typedKernel) bool { return k.name == fixture.Kernel })
	if at < 0 {
		t.Fatal("there is no function of tensors")
	}
	function := reflect.ValueOf(typed[at].function)
	buffers := map[string]*cuda.Buffer{}
	defer func() {
		for _, buffer := range buffers {
			if err := buffer.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	var arguments []reflect.Value
	for i, name := range typed[at].arguments {
		kind := function.Type().In(i)
		param := kernel.Params[slices.IndexFunc(kernel.Params, func(p cuda.Param) bool { return p.Name == name })]
		if param.Kind == cuda.PointerParam {
			given, buffer := operand(t, ctx, fixture, param)
			if buffer != nil {
				buffers[name] = buffer
			}
			arguments = append(arguments, reflect.ValueOf(given))
			continue
		}
		if kind == reflect.TypeFor[cuda.DType]() {
			arguments = append(arguments, reflect.ValueOf(sure(cuda.ParseDType(fmt.Sprint(fixture.Scalars[name])))))
			continue
		}
		switch kind.Kind() {
		case reflect.Float32, reflect.Float64:
			arguments = append(arguments, reflect.ValueOf(sure(fixture.Real(name))).Convert(kind))
		case reflect.Bool:
			arguments = append(arguments, reflect.ValueOf(sure(fixture.Integer(name)) != 0))
		default:
			arguments = append(arguments, reflect.ValueOf(sure(fixture.Integer(name))).Convert(kind))
		}
	}
	if err, _ := function.Call(arguments)[0].Interface().(error); err != nil {
		t.Fatal(err)
	}
	for _, param := range kernel.Params {
		expected, ok := fixture.Outputs[param.Name]
		if !ok {
			continue
		}
		dtype := dtypeOf(fixture, param)
		got := make([]byte, len(expected.Bytes)/expected.DType.Size()*dtype.Size())
		must.Do(t, ctx.Download(got, buffers[param.Name].At(0)))
		_, problem := golden.Compare(got, dtype, expected, fixture.Tolerance[param.Name], fixture.Zeros[param.Name])
		if problem != "" {
			t.Errorf("%s: %s", param.Name, problem)
		}
	}
}

// operand is the tensor of a parameter, shaped as the header says, with the fixture's content.
func operand(
	t *testing.T, ctx *cuda.Context, fixture *golden.Fixture, param cuda.Param,
) (*tensor.Tensor, *cuda.Buffer) {
	t.Helper()
	input, read := fixture.Inputs[param.Name]
	output, written := fixture.Outputs[param.Name]
	if !read && !written {
		return nil, nil
	}
	dtype := dtypeOf(fixture, param)
	content := input.Bytes
	if !read {
		blank := byte(0xFF)
		if dtype == cuda.I32 || dtype == cuda.I8 {
			blank = 0x5A
		}
		content = bytes.Repeat([]byte{blank}, len(output.Bytes)/output.DType.Size()*dtype.Size())
	}
	shape, inner := extents(fixture, param)
	stride := inner
	if param.Stride != "" {
		stride = int(sure(fixture.Integer(param.Stride)))
	}
	buffer := sure(ctx.Allocate(int64(shape[0]) * int64(stride) * int64(dtype.Size())))
	must.Do(t, ctx.Upload(buffer.At(0), content))
	whole := sure(tensor.Over(buffer, 0, dtype, shape[0], stride))
	rows := whole
	if len(shape) > 1 {
		rows = sure(whole.Narrow(1, 0, inner))
	}
	return sure(rows.View(shape...)), buffer
}

// extents is the shape of a parameter in the fixture's sizes, and the elements of one row.
func extents(fixture *golden.Fixture, param cuda.Param) (shape []int, inner int) {
	inner = 1
	for i, dim := range strings.Split(strings.Trim(param.Shape, "[]"), ", ") {
		dim, _, _ = strings.Cut(dim, ":")
		shape = append(shape, value(fixture, dim))
		if i > 0 {
			inner *= shape[i]
		}
	}
	if last := len(shape) - 1; param.Swap != "" && sure(fixture.Integer(param.Swap)) != 0 {
		if last == 1 {
			inner = shape[0]
		}
		shape[last-1], shape[last] = shape[last], shape[last-1]
	}
	return shape, inner
}

// value is a dimension such as "batch*q_len", "groups+1" or "head_dim/2".
func value(fixture *golden.Fixture, dim string) int {
	dim, offset, _ := strings.Cut(dim, "+")
	dim, divisor, divided := strings.Cut(dim, "/")
	product := 1
	for _, factor := range strings.Split(dim, "*") {
		if number, err := strconv.Atoi(factor); err == nil {
			product *= number
		} else {
			product *= int(sure(fixture.Integer(factor)))
		}
	}
	if divided {
		product /= sure(strconv.Atoi(divisor))
	}
	if offset != "" {
		product += sure(strconv.Atoi(offset))
	}
	return product
}

func dtypeOf(fixture *golden.Fixture, param cuda.Param) cuda.DType {
	if dtype, err := cuda.ParseDType(param.DType); err == nil {
		return dtype
	}
	return sure(cuda.ParseDType(fmt.Sprint(fixture.Scalars[param.DType])))
}
