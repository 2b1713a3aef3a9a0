package cuda

/*
#include "calls_gen.h"
*/
import "C"

// RowBytes is how many bytes a row of `elements` takes in the format. [ErrInvalidSize] when the row does not end
// with a whole block, [ErrInvalidValue] for a format that the library does not know.
func (f Format) RowBytes(elements int64) (int64, error) {
	if err := Load(); err != nil {
		return 0, err
	}
	var bytes C.int64_t
	status := Status(C.call_nncuda_format_row_bytes(C.int32_t(f), C.int64_t(elements), &bytes))
	return int64(bytes), withoutContext("nncuda_format_row_bytes", status)
}
