package cuda

/*
#include "calls_gen.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// A late thing is to be freed by the next call that may: a finalizer must not wait for a context that computes, and
// nothing can be given back while a graph is captured.
type late struct {
	block   *block   // memory
	handle  *handle  // or a stream, event, graph or communicator
	capture *capture // and the memory that belonged to the graph
	pending *pending // or that the stream's copies used
}

// lateQueue gathers late things from any goroutine.
type lateQueue struct {
	waiting atomic.Bool
	mu      sync.Mutex
	things  []late
}

func (q *lateQueue) add(thing late) {
	q.mu.Lock()
	q.things = append(q.things, thing)
	q.waiting.Store(true)
	q.mu.Unlock()
}

func (q *lateQueue) take() []late {
	q.mu.Lock()
	defer q.mu.Unlock()
	things := q.things
	q.things = nil
	q.waiting.Store(false)
	return things
}

// drain frees what is waiting, unless a graph is being captured; the lock is held.
func (c *core) drain() {
	for c.capture == nil && c.handle != nil && c.late.waiting.Load() {
		for _, thing := range c.late.take() {
			if thing.block != nil {
				_ = c.retire(thing.block) // nobody could be told
			}
			if thing.handle != nil {
				_ = thing.handle.destroy(c)
			}
			if thing.capture != nil {
				thing.capture.letGo(c)
			}
			if thing.pending != nil {
				thing.pending.letGo(c)
			}
		}
	}
}

// A handle is a stream, event, graph or communicator of the library.
type handle struct {
	kind    handleKind
	pointer unsafe.Pointer
}

type handleKind int

const (
	streamHandle handleKind = iota
	eventHandle
	graphHandle
	commHandle
)

// destroy frees the handle, once; the lock is held.
func (h *handle) destroy(c *core) error {
	if h.pointer == nil || c.handle == nil {
		return nil
	}
	pointer := h.pointer
	h.pointer = nil
	var function string
	var status C.int32_t
	switch h.kind {
	case streamHandle:
		function, status = "nncuda_stream_destroy", C.call_nncuda_stream_destroy(c.handle, (*C.nncuda_stream)(pointer))
	case eventHandle:
		function, status = "nncuda_event_destroy", C.call_nncuda_event_destroy(c.handle, (*C.nncuda_event)(pointer))
	case graphHandle:
		function, status = "nncuda_graph_destroy", C.call_nncuda_graph_destroy(c.handle, (*C.nncuda_graph)(pointer))
	case commHandle:
		function, status = "nncuda_comm_destroy", C.call_nncuda_comm_destroy(c.handle, (*C.nncuda_comm)(pointer))
	}
	if status != 0 {
		return c.fail(function, Status(status))
	}
	return nil
}
