package cuda

/*
#include "dispatch.h"

#cgo noescape nn_call_kernel
*/
import "C"

import (
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// A Kernel is a kernel of bindings.h as data, for programs that learn which ones they call when they run.
type Kernel struct {
	Name     string  // without "cuda_"
	Function string  // the method of Context, and the function of package tensor
	Family   string  // the section of the header
	Params   []Param // all but the context, in order
}

// A Param is one parameter of a kernel.
type Param struct {
	Name     string
	Kind     ParamKind
	C        string // its type in C
	DType    string // of a pointer: a dtype's name, or the name of the parameter that says it
	Shape    string // of a pointer: as in the header, such as "[tokens:ld_q, heads, head_dim]"
	Swap     string // of a pointer: the flag that swaps its last two dimensions; empty when none does
	Reads    bool   // of a pointer: whether the kernel reads what it points to
	Writes   bool   // and whether it writes it
	Nullable bool
	Stride   string   // of a pointer: the size that is the distance of its rows; empty when they are dense
	Alias    []string // of a pointer: the inputs that it may be itself
}

// ParamKind is what a parameter is.
type ParamKind int

// Kinds of parameters.
const (
	PointerParam ParamKind = iota
	SizeParam
	OptionParam
	FlagParam
	DTypeParam
)

// Kernels lists every kernel, in the header's order.
func Kernels() []Kernel { return slices.Clone(kernels) }

// An Argument is one argument of [Context.Call].
type Argument struct {
	memory  Memory
	integer int64
	real    float64
	kind    argumentKind
}

type argumentKind int

const (
	pointerArgument argumentKind = iota
	integerArgument
	realArgument
)

// Pointer is memory as an argument.
func Pointer(m Memory) Argument { return Argument{memory: m} }

// Integer is a size, flag, dtype or whole option as an argument.
func Integer(value int64) Argument { return Argument{integer: value, kind: integerArgument} }

// Real is an option of type float or double as an argument.
func Real(value float64) Argument { return Argument{real: value, kind: realArgument} }

// Call calls a kernel by its name, without "cuda_", with an argument for each of its parameters but the context. As the
// methods named after the kernels it compares no sizes with those of the buffers.
func (ctx *Context) Call(kernel string, arguments ...Argument) error {
	number := slices.IndexFunc(kernels, func(k Kernel) bool { return k.Name == kernel })
	if number < 0 {
		return &Error{Status: ErrInvalidValue, Function: "cuda_" + kernel, Message: "there is no kernel cuda_" + kernel}
	}
	params := kernels[number].Params
	function := "cuda_" + kernel
	if len(arguments) != len(params) {
		return &Error{Status: ErrInvalidValue, Function: function,
			Message: fmt.Sprintf("%s takes %d arguments, not %d", function, len(params), len(arguments))}
	}
	slots := make([]uint64, len(params))
	in := ctx.enter()
	for i, argument := range arguments {
		if want := params[i].argument(); argument.kind != want {
			in.blame(ErrInvalidValue, fmt.Sprintf("%s is given as %v; it must be %v", params[i].Name, argument.kind, want))
		}
		switch argument.kind {
		case pointerArgument:
			slots[i] = uint64(in.at(params[i].Name, argument.memory))
		case integerArgument:
			slots[i] = uint64(argument.integer)
		case realArgument:
			slots[i] = math.Float64bits(argument.real)
		}
	}
	if in.refused() {
		return in.refuse(function)
	}
	status := C.nn_call_kernel(C.int32_t(number), in.handle, (*C.nn_slot)(unsafe.Pointer(&slots[0])))
	return in.leave(function, status)
}

// argument is the kind of argument that a parameter takes.
func (p Param) argument() argumentKind {
	switch {
	case p.Kind == PointerParam:
		return pointerArgument
	case p.C == "float" || p.C == "double":
		return realArgument
	}
	return integerArgument
}

func (k argumentKind) String() string {
	return [...]string{"a pointer", "an integer", "a real number"}[k]
}
