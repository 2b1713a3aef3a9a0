package cuda

/*
#include "calls_gen.h"
*/
import "C"

import "fmt"

// Element types that hold data but that no dtype parameter of a kernel takes: seeds and bytes.
const (
	I64 DType = -1
	U8  DType = -2
)

var dtypeNames = map[DType]string{F32: "f32", F16: "f16", BF16: "bf16", I32: "i32", I8: "i8", I64: "i64", U8: "u8"}

// ParseDType is the element type of a name such as "bf16".
func ParseDType(name string) (DType, error) {
	return named(dtypeNames, name, &Error{Status: ErrInvalidDType,
		Message: fmt.Sprintf("dtype is %q; it must be one of f32, f16, bf16, i32, i8, i64, u8", name)})
}

// String is the name: "f32", "f16", "bf16", "i32", "i8", "i64" or "u8".
func (d DType) String() string { return nameOf(dtypeNames, d, "DType") }

// named is the constant of a name, or the error.
func named[T comparable](names map[T]string, name string, unknown error) (T, error) {
	for constant, known := range names {
		if known == name {
			return constant, nil
		}
	}
	var none T
	return none, unknown
}

// nameOf is the name of a constant, and of another number of its type that number.
func nameOf[T ~int32](names map[T]string, constant T, kind string) string {
	if name, ok := names[constant]; ok {
		return name
	}
	return fmt.Sprintf("%s(%d)", kind, int32(constant))
}

// Size is the bytes of one element; 0 when d is not an element type.
func (d DType) Size() int {
	switch d {
	case F32, I32:
		return 4
	case F16, BF16:
		return 2
	case I8, U8:
		return 1
	case I64:
		return 8
	}
	return 0
}

// LibrarySize is the bytes of one element as the library counts them. [ErrInvalidDType] for what it does not know,
// which I64 and U8 are.
func (d DType) LibrarySize() (int64, error) {
	if err := Load(); err != nil {
		return 0, err
	}
	var bytes C.int64_t
	status := Status(C.call_nncuda_dtype_size(C.int32_t(d), &bytes))
	return int64(bytes), withoutContext("nncuda_dtype_size", status)
}
