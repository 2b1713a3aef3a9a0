// Package cuda is the C ABI of nncuda in Go: contexts, memory, streams, events, graphs, the profiler, and every kernel.
//
// A [Context] is a device with its stream, memory pool and, on the CPU, worker threads. It makes buffers, and its
// methods named after the kernels call them as bindings.h declares them. Most programs call the kernels through package
// tensor instead, which knows shapes and finds the sizes from them.
//
// The library libnncuda is loaded when the first function needs it; [Load] says where it is looked for. Nothing of CUDA is
// needed to build.
//
// # Errors
//
// A function of the library that fails returns an [*Error] with the library's sentence; its [Status] is comparable:
//
//	if errors.Is(err, cuda.ErrOutOfRange) { ... }
//
// # Goroutines
//
// Any number of goroutines may share a context: each call takes its lock. Calls on different contexts run beside each
// other. What is closed is refused with [ErrInvalidContext], whoever closed it.
//
// # Memory
//
// Close gives memory back at once, and so should every program that does not end soon. A buffer, stream, event, graph
// or context that was forgotten is freed when the garbage collector finds it.
//
// # What is made from bindings.h
//
// Files whose names end in _gen are written by `make generate`, as is the copy of the header in
// this folder. The header's types reach Go through cgo, so there is no second list of signatures.
package cuda
