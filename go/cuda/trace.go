package cuda

/*
#include "calls_gen.h"
*/
import "C"

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// BeginTrace starts to keep a line of every kernel call with its arguments' names, dtypes and shapes; `values` is how
// many leading values of each output to add, with minimum, maximum and mean; 0 to 64.
func (ctx *Context) BeginTrace(values int) error {
	return ctx.beginTrace("nncuda_trace_begin", func(in *core) C.int32_t {
		return C.call_nncuda_trace_begin(in.handle, C.int64_t(values))
	})
}

func (ctx *Context) beginTrace(function string, begin func(in *core) C.int32_t) error {
	err := ctx.call(function, begin)
	if err == nil {
		ctx.core.tracing.Store(true)
	}
	return err
}

// EndTrace stops tracing; the lines stay until the next begin.
func (ctx *Context) EndTrace() error {
	ctx.core.tracing.Store(false)
	return ctx.call("nncuda_trace_end", func(in *core) C.int32_t { return C.call_nncuda_trace_end(in.handle) })
}

// TraceText is the traced lines.
func (ctx *Context) TraceText() (string, error) {
	read := func(c *core, text *C.char, capacity C.int64_t, needed *C.int64_t) C.int32_t {
		return C.call_nncuda_trace_read(c.handle, text, capacity, needed)
	}
	return ctx.sizedText("nncuda_trace_read", read)
}

// Label says what the kernel calls from here on belong to, such as "model.layers.3.self_attn": the parts
// joined; without parts, to nothing. A running trace reports it; without a trace nothing happens.
func (ctx *Context) Label(parts ...string) error {
	if !ctx.core.tracing.Load() {
		return nil
	}
	label := strings.Join(parts, "")
	return ctx.call("nncuda_trace_label", func(in *core) C.int32_t {
		return C.call_nncuda_trace_label(in.handle, (*C.char)(unsafe.Pointer(unsafe.StringData(label))), C.int64_t(len(label)))
	})
}

// A Place is an element of a tensor in a kernel call.
type Place struct {
	Call     int64   `json:"call"`   // its number, the first being 0
	Label    *string `json:"label"`  // see [Context.Label]; nil without one
	Kernel   string  `json:"kernel"` // of bindings.h, such as "cuda_gemm"
	Argument string  `json:"argument"`
	DType    string  `json:"dtype"`
	Shape    []int   `json:"shape"`
	Index    []int   `json:"index"`
}

// In is the kernel, with the label of the call if it has one: "cuda_gemm in lm_head".
func (p *Place) In() string {
	if p.Label == nil {
		return p.Kernel
	}
	return p.Kernel + " in " + *p.Label
}

// A Nonfinite is the first value that is not a finite number among what kernel calls read and wrote.
type Nonfinite struct {
	Place
	Use     string // "in" if no call wrote it before, such as weights; "out" if this call did
	Address uint64 // of the element; see [Memory.Address]
	Value   string // "nan", "inf" or "-inf"
}

// FirstNonfinite runs body and returns the first value that is not finite, in what kernels read and none has written
// since, or in what one wrote; nil if all are finite. No other trace may run.
func (ctx *Context) FirstNonfinite(body func() error) (*Nonfinite, error) {
	var told struct{ Found *Nonfinite }
	err := ctx.traced(&told, body, func() error {
		return ctx.beginTrace("nncuda_trace_begin_nonfinite", func(in *core) C.int32_t {
			return C.call_nncuda_trace_begin_nonfinite(in.handle)
		})
	})
	return told.Found, err
}

// A Shadow is how kernel calls on one context compare with the same calls on another; bindings.h has the bound, at
// nncuda_trace_begin_shadow.
type Shadow struct {
	Calls    int64          `json:"calls"`
	Compared int64          `json:"compared"`
	Moves    int64          `json:"moves"`   // copies and fills of bytes, which do not run twice
	Over     int64          `json:"over"`    // calls that went beyond their bound
	First    *Difference    `json:"first"`   // of the first of those
	Largest  *Difference    `json:"largest"` // as a share of its bound
	Kernels  []ShadowKernel `json:"kernels"` // in the order of the header
}

// A ShadowKernel is the calls of one kernel in a [Shadow].
type ShadowKernel struct {
	Kernel   string      `json:"kernel"`
	Calls    int64       `json:"calls"`
	Compared int64       `json:"compared"`
	Over     int64       `json:"over"`
	Why      *string     `json:"why"` // a call was not compared
	Largest  *Difference `json:"largest"`
}

// A Difference is the element of an output in which two calls differ most, as a share of the bound.
type Difference struct {
	Place
	Value     string   `json:"value"`
	Reference string   `json:"reference"`
	Bound     float64  `json:"bound"`
	Share     *float64 `json:"share"` // nil where no bound would do
}

// beginning lets one goroutine at a time take the locks of two contexts, so that they cannot deadlock.
var beginning sync.Mutex

// Shadow runs body with every kernel call a second time on `reference`, another context, and compares what both
// wrote. Neither may measure, and no other trace may run; reference cannot be closed meanwhile.
func (ctx *Context) Shadow(reference *Context, body func() error) (*Shadow, error) {
	told := &Shadow{}
	err := ctx.traced(told, body, func() error {
		beginning.Lock()
		defer beginning.Unlock()
		other := reference.core
		if other != ctx.core { // else the library refuses
			other.mu.Lock()
			defer other.mu.Unlock()
		}
		return ctx.beginTrace("nncuda_trace_begin_shadow", func(in *core) C.int32_t {
			return C.call_nncuda_trace_begin_shadow(in.handle, other.handle)
		})
	})
	runtime.KeepAlive(reference)
	return told, err
}

// traced runs body between a begin and the end of the trace, and reads its result as JSON.
func (ctx *Context) traced(told any, body, begin func() error) (err error) {
	if err := begin(); err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended { // body panicked
			_ = ctx.EndTrace()
		}
	}()
	err = body()
	ended = true
	if err = errors.Join(err, ctx.EndTrace()); err != nil {
		return err
	}
	text, err := ctx.TraceText()
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), told)
}
