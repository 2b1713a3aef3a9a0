package cuda

/*
#include "calls_gen.h"
*/
import "C"

import (
	"strings"
	"unsafe"
)

// BeginProfile starts to measure the time, bytes and operations of every kernel call, afresh. Launched graphs are
// measured call by call.
func (ctx *Context) BeginProfile() error {
	return ctx.call("nncuda_profile_begin", func(in *core) C.int32_t { return C.call_nncuda_profile_begin(in.handle) })
}

// EndProfile stops measuring; what was measured stays until the next begin.
func (ctx *Context) EndProfile() error {
	return ctx.call("nncuda_profile_end", func(in *core) C.int32_t { return C.call_nncuda_profile_end(in.handle) })
}

// ProfileReport is what was measured, as text.
func (ctx *Context) ProfileReport(form ReportForm) (string, error) {
	read := func(c *core, text *C.char, capacity C.int64_t, needed *C.int64_t) C.int32_t {
		return C.call_nncuda_profile_report(c.handle, C.int32_t(form), text, capacity, needed)
	}
	return ctx.sizedText("nncuda_profile_report", read)
}

// call makes a call that uses no memory or handle that may be closed.
func (ctx *Context) call(function string, call func(in *core) C.int32_t) error {
	return ctx.enter().finish(function, call)
}

// A textReader is a function of the library that says how long a text is, and writes what there is room for.
type textReader func(c *core, text *C.char, capacity C.int64_t, needed *C.int64_t) C.int32_t

// sizedText asks how long a text is, then for the text, under one lock.
func (ctx *Context) sizedText(function string, read textReader) (string, error) {
	in := ctx.enter()
	if in.refused() {
		return "", in.refuse(function)
	}
	var needed C.int64_t
	status := read(in, nil, 0, &needed)
	if status != 0 || needed == 0 {
		return "", in.leave(function, status)
	}
	text := make([]byte, needed)
	status = read(in, (*C.char)(unsafe.Pointer(&text[0])), needed, &needed)
	words, _, _ := strings.Cut(string(text), "\x00")
	return words, in.leave(function, status)
}
