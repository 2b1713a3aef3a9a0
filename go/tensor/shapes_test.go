package tensor_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tensor"
)

// A shapedCall is a call of tests/shapes.json.
type shapedCall struct {
	Kernel  string
	Shapes  map[string][]int
	Numbers map[string]float64
	Refused *string
}

// The calls of tests/shapes.json succeed or are refused as in every language.
func TestShapesAreTakenAsInEveryLanguage(t *testing.T) {
	content := sure(os.ReadFile(filepath.Join("..", "..", "tests", "shapes.json")))
	var file struct{ Calls []shapedCall }
	must.Do(t, json.Unmarshal(content, &file))
	if len(file.Calls) == 0 {
		t.Fatal("there are no calls")
	}
	ctx := newContext(t)
	for _, call := range file.Calls {
		err := call.run(ctx)
		switch {
		case call.Refused == nil && err != nil:
			t.Errorf("%v: %v", call, err)
		case call.Refused != nil && (err == nil || !strings.HasPrefix(err.Error(), call.Kernel+": "+*call.Refused+" ")):
			t.Errorf("%v: %v does not refuse %s", call, err, *call.Refused)
		}
	}
}

func (s shapedCall) String() string { return fmt.Sprint(s.Kernel, s.Shapes, s.Numbers) }

func (s shapedCall) run(ctx *cuda.Context) error {
	kernels := cuda.Kernels()
	kernel := kernels[slices.IndexFunc(kernels, func(k cuda.Kernel) bool { return k.Name == s.Kernel })]
	entry := typed[slices.IndexFunc(typed, func(k typedKernel) bool { return k.name == s.Kernel })]
	function := reflect.ValueOf(entry.function)
	var arguments []reflect.Value
	for i, name := range entry.arguments {
		param := kernel.Params[slices.IndexFunc(kernel.Params, func(p cuda.Param) bool { return p.Name == name })]
		shape, given := s.Shapes[name]
		value := reflect.New(function.Type().In(i)).Elem()
		switch {
		case given:
			dtype, err := cuda.ParseDType(param.DType)
			if err != nil {
				dtype = cuda.F32
			}
			value = reflect.ValueOf(sure(tensor.Zeros(ctx, dtype, shape...)))
		case value.Kind() == reflect.Bool:
			value.SetBool(s.Numbers[name] != 0)
		case param.Kind != cuda.PointerParam:
			value.Set(reflect.ValueOf(s.Numbers[name]).Convert(value.Type()))
		}
		arguments = append(arguments, value)
	}
	err, _ := function.Call(arguments)[0].Interface().(error)
	return err
}
