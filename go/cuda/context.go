package cuda

/*
#include "calls_gen.h"

#cgo noescape call_nncuda_ctx_get
*/
import "C"

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A Context is a device to compute on: its stream, workers, memory pool and scratch arena.
//
// Calls on one context happen one after the other: each takes the context's lock, so that any number of goroutines may
// share it. Different contexts are independent. After [Context.Close] every use of the context, and of what was made on
// it, is an error.
type Context struct {
	core   *core
	device Device
	index  int
}

// core is what finalizers need of a context. It does not point back to it, or neither would ever be freed.
type core struct {
	mu      sync.Mutex
	handle  *C.nncuda_ctx // null when closed
	problem *Error        // what is wrong with the arguments of the call that is being prepared
	capture *capture      // of the graph that is being captured
	pending pending       // what copies on the context's own stream may still use
	late    lateQueue
	tracing atomic.Bool // so that labels cost nothing while no trace runs
}

// An Option changes how [New] makes a context.
type Option func(*settings)

type settings struct {
	threads int
	isa     ISA
	hasISA  bool
}

// WithThreads sets the worker threads of the CPU engine, the caller included, 1 to 256. The default is the cores that
// this process may use. Results do not depend on it.
func WithThreads(threads int) Option { return func(s *settings) { s.threads = threads } }

// WithISA sets the instruction set of the CPU engine. The default is the widest that this processor has.
func WithISA(isa ISA) Option { return func(s *settings) { s.isa, s.hasISA = isa, true } }

// New makes a context on a device: "cpu", "cuda", "cuda:1", or "auto" for the first GPU if there is one, else the CPU.
// Threads and instruction set are the CPU engine's; with "auto" they are for the case that it is the CPU.
//
// Close it. [ErrNoDevice] when this machine has no such device, [ErrInvalidValue] for threads or an instruction set
// that it does not have.
func New(device string, options ...Option) (*Context, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	kind, index, err := parseDevice(device)
	if err != nil {
		return nil, err
	}
	var chosen settings
	for _, option := range options {
		option(&chosen)
	}
	if device == "auto" && kind == CUDA {
		chosen = settings{}
	}
	var handle *C.nncuda_ctx
	status := Status(C.call_nncuda_ctx_create(C.int32_t(kind), C.int32_t(index), &handle))
	if status != success { // there is no context yet that could say which device it was
		why := status.String()
		if _, err := DescribeDevice(kind, index); status == ErrNoDevice && err != nil {
			why = err.Error()
		}
		return nil, &Error{Status: status, Function: "nncuda_ctx_create", Message: fmt.Sprintf("device %q: %s", device, why)}
	}
	ctx := newContext(handle, kind, index)
	if chosen.threads != 0 {
		err = ctx.SetThreads(chosen.threads)
	}
	if err == nil && chosen.hasISA {
		err = ctx.SetISA(chosen.isa)
	}
	if err != nil {
		_ = ctx.Close()
		return nil, err
	}
	return ctx, nil
}

func newContext(handle *C.nncuda_ctx, device Device, index int) *Context {
	ctx := &Context{core: &core{handle: handle}, device: device, index: index}
	runtime.AddCleanup(ctx, func(core *core) { _ = core.close() }, ctx.core)
	return ctx
}

func parseDevice(device string) (Device, int, error) {
	name, number, numbered := strings.Cut(device, ":")
	index, err := 0, error(nil)
	if numbered {
		index, err = strconv.Atoi(number)
	}
	switch {
	case device == "auto":
		count, err := DeviceCount(CUDA)
		if err == nil && count > 0 {
			return CUDA, 0, nil
		}
		return CPU, 0, err
	case err == nil && index >= 0 && name == "cpu":
		return CPU, index, nil
	case err == nil && index >= 0 && name == "cuda":
		return CUDA, index, nil
	}
	return 0, 0, &Error{Status: ErrInvalidValue, Function: "nncuda_ctx_create",
		Message: fmt.Sprintf("device is %q; it must be 'auto', 'cpu', 'cuda' or 'cuda:INDEX'", device)}
}

// Close waits for the context's work and frees it with all its memory. Closing twice is fine.
func (ctx *Context) Close() error { return ctx.core.close() }

func (c *core) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handle == nil {
		return nil
	}
	status := Status(C.call_nncuda_ctx_destroy(c.handle))
	if status != success {
		return c.fail("nncuda_ctx_destroy", status)
	}
	// The library has freed all that was made on the context, and what waits to be freed is gone with it.
	c.handle, c.capture = nil, nil
	c.late.take()
	return nil
}

// Closed says whether the context was closed.
func (ctx *Context) Closed() bool {
	ctx.core.mu.Lock()
	defer ctx.core.mu.Unlock()
	return ctx.core.handle == nil
}

// Device is the kind of the context's device, and which of them it is.
func (ctx *Context) Device() (kind Device, index int) { return ctx.device, ctx.index }

// Synchronize waits until all work of the context, on all its streams, is done, and returns the first error that the
// device met.
func (ctx *Context) Synchronize() error {
	return ctx.call("nncuda_ctx_synchronize", func(in *core) C.int32_t {
		status := C.call_nncuda_ctx_synchronize(in.handle)
		if status == 0 {
			in.pending.letGo(in)
		}
		return status
	})
}

// enter takes the context's lock for one call. leave or refuse gives it back.
func (ctx *Context) enter() *core {
	c := ctx.core
	c.mu.Lock()
	c.problem = nil
	if c.handle == nil {
		c.blame(ErrInvalidContext, "the context is closed")
	}
	return c
}

// blame keeps what is wrong with the call that is being prepared, unless something was before.
func (c *core) blame(status Status, message string) {
	if c.problem == nil {
		c.problem = &Error{Status: status, Message: message}
	}
}

// refused says whether the call must not be made.
func (c *core) refused() bool { return c.problem != nil }

// finish makes a call whose arguments are prepared, unless something is wrong with them, and gives the lock back.
func (c *core) finish(function string, call func(in *core) C.int32_t) error {
	if c.refused() {
		return c.refuse(function)
	}
	return c.leave(function, call(c))
}

// refuse ends a call that was not made, with what was wrong.
func (c *core) refuse(function string) error {
	problem := c.problem
	c.problem = nil
	c.mu.Unlock()
	problem.Function = function
	problem.Message = function + ": " + problem.Message
	return problem
}

// leave ends a call. The library's sentence is read before another call can replace it.
func (c *core) leave(function string, status C.int32_t) error {
	if status == 0 {
		c.mu.Unlock()
		return nil
	}
	err := c.fail(function, Status(status))
	c.mu.Unlock()
	return err
}

// fail is the error of a call that has just returned status; the lock is held.
func (c *core) fail(function string, status Status) error {
	message := C.GoString(C.call_nncuda_last_error(c.handle))
	if message == "" {
		message = function + ": " + status.String()
	}
	return &Error{Status: status, Function: function, Message: message}
}

func (ctx *Context) get(attribute attribute) (int64, error) {
	var value C.int64_t
	err := ctx.call("nncuda_ctx_get", func(in *core) C.int32_t {
		in.drain()
		return C.call_nncuda_ctx_get(in.handle, C.int32_t(attribute), &value)
	})
	return int64(value), err
}

func (ctx *Context) set(attribute attribute, value int64) error {
	return ctx.call("nncuda_ctx_set", func(in *core) C.int32_t {
		in.drain()
		return C.call_nncuda_ctx_set(in.handle, C.int32_t(attribute), C.int64_t(value))
	})
}

// Threads is the worker threads of the CPU engine, the caller included; 0 on a GPU.
func (ctx *Context) Threads() (int, error) {
	value, err := ctx.get(ctxThreads)
	return int(value), err
}

// SetThreads sets the worker threads of the CPU engine, 1 to 256. Results do not depend on it.
func (ctx *Context) SetThreads(threads int) error { return ctx.set(ctxThreads, int64(threads)) }

// Nodes is the number of memory nodes (NUMA) over which worker threads are spread; 0 on a GPU.
func (ctx *Context) Nodes() (int, error) {
	value, err := ctx.get(ctxNodes)
	return int(value), err
}

// SetNodes spreads worker threads over memory nodes, 1 to as many as this process may use. With more than 1 each thread
// stays on one, and what a copy or a kernel writes first lies on the node whose threads read it later. With 1, as it is
// unless set, the system decides. Results do not depend on it.
func (ctx *Context) SetNodes(nodes int) error { return ctx.set(ctxNodes, int64(nodes)) }

// ISA is the instruction set of the CPU engine, such as "avx2"; of a GPU its architecture, such as "sm_90".
func (ctx *Context) ISA() (string, error) {
	value, err := ctx.get(ctxISA)
	if err != nil {
		return "", err
	}
	if ctx.device == CUDA {
		return fmt.Sprintf("sm_%d", value), nil
	}
	return ISA(value).String(), nil
}

// SetISA chooses the instruction set of the CPU engine among those that this processor has.
func (ctx *Context) SetISA(isa ISA) error { return ctx.set(ctxISA, int64(isa)) }

// TF32 says whether f32 products on a GPU may round their factors to tf32, 10 bits of mantissa; false unless set.
func (ctx *Context) TF32() (bool, error) {
	value, err := ctx.get(ctxTF32)
	return value != 0, err
}

// SetTF32 allows or forbids tf32; see [Context.TF32].
func (ctx *Context) SetTF32(allowed bool) error { return ctx.set(ctxTF32, int64(flag(allowed))) }

// TwoParts says whether the backward pass of attention in 16 bits multiplies probabilities and their gradients as two
// 16-bit numbers each on every GPU, however long a sequence is: on Hopper slower, and closer where few keys count; false
// unless set.
func (ctx *Context) TwoParts() (bool, error) {
	value, err := ctx.get(ctxTwoParts)
	return value != 0, err
}

// SetTwoParts asks for two parts or not; see [Context.TwoParts].
func (ctx *Context) SetTwoParts(wanted bool) error { return ctx.set(ctxTwoParts, int64(flag(wanted))) }

// BytesUsed is the bytes of buffers now.
func (ctx *Context) BytesUsed() (int64, error) { return ctx.get(ctxBytesUsed) }

// BytesPeak is the most bytes that buffers and scratch together ever took since [Context.ResetPeak].
func (ctx *Context) BytesPeak() (int64, error) { return ctx.get(ctxBytesPeak) }

// ResetPeak makes BytesPeak start again from what is used now.
func (ctx *Context) ResetPeak() error { return ctx.set(ctxBytesPeak, 0) }

// BytesHeld is BytesPeak in the pages that a GPU gives at once; on the CPU it is BytesPeak.
func (ctx *Context) BytesHeld() (int64, error) { return ctx.get(ctxBytesHeld) }

// BytesPooled is the bytes that were freed and are kept for reuse.
func (ctx *Context) BytesPooled() (int64, error) { return ctx.get(ctxBytesPooled) }

// Trim returns pooled memory to the system.
func (ctx *Context) Trim() error { return ctx.set(ctxBytesPooled, 0) }

// BytesArena is the size of the scratch memory, that of graphs included.
func (ctx *Context) BytesArena() (int64, error) { return ctx.get(ctxBytesArena) }

// flag is a C flag.
func flag(set bool) C.int32_t {
	if set {
		return 1
	}
	return 0
}

var isaNames = map[ISA]string{
	Baseline: "baseline", AVX2: "avx2", AVX512: "avx512", AVX512BF16: "avx512bf16", AMX: "amx",
	NEON: "neon", DotProd: "dotprod", I8MM: "i8mm",
}

// ISAs are the instruction sets, from the plainest to the widest: those of x86-64, then those of AArch64.
func ISAs() []ISA { return []ISA{Baseline, AVX2, AVX512, AVX512BF16, AMX, NEON, DotProd, I8MM} }

// ParseISA is the instruction set of a name: "baseline", "avx2", "avx512", "avx512bf16", "amx", "neon", "dotprod" or
// "i8mm".
func ParseISA(name string) (ISA, error) {
	return named(isaNames, name, &Error{Status: ErrInvalidValue,
		Message: fmt.Sprintf("isa is %q; it must be one of baseline, avx2, avx512, avx512bf16, amx, neon, dotprod, i8mm", name)})
}

// String is the name, such as "avx2".
func (i ISA) String() string { return nameOf(isaNames, i, "ISA") }

// String is "cpu" or "cuda".
func (d Device) String() string {
	return nameOf(map[Device]string{CPU: "cpu", CUDA: "cuda"}, d, "Device")
}
