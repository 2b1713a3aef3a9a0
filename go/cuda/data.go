package cuda

/*
#include "calls_gen.h"
*/
import "C"

import "unsafe"

// DataOrder is which windows of training data stand at positions first .. first+count-1 of the endless shuffled
// sequence of this seed: each epoch of `windows` positions visits every window once. A function of its arguments alone,
// the same in every language; bindings.h has the formula.
func (ctx *Context) DataOrder(seed, first int64, count int, windows int64) ([]int64, error) {
	indices := make([]int64, max(0, count)+1) // one more, so that there is an address even for none
	err := ctx.call("nncuda_data_order", func(in *core) C.int32_t {
		return C.call_nncuda_data_order(in.handle, C.int64_t(seed), C.int64_t(first), C.int64_t(count),
			C.int64_t(windows), (*C.int64_t)(unsafe.Pointer(&indices[0])))
	})
	if err != nil {
		return nil, err
	}
	return indices[:count], nil
}
