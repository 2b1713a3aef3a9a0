package cuda

/*
#include "calls_gen.h"
*/
import "C"

import (
	"runtime"
	"time"
	"unsafe"
)

// A Graph is kernel calls that were recorded once and run again and again, with the same memory and scalars. What
// changes from launch to launch (step, rate, lengths, seeds) lies in memory. The buffers that the calls use stay
// allocated while the graph lives, closed or not.
type Graph struct {
	ctx     *Context
	handle  *handle
	memory  *capture
	comms   []*Comm // that its calls use
	cleanup runtime.Cleanup
	yielded time.Time // when a launch last went through Go's scheduler
}

// capture is the memory that belongs to a graph: blocks that its calls use, and what was allocated while capturing.
type capture struct {
	kept  map[*block]struct{}
	pool  *pool
	comms []*Comm // of the calls so far; the graph's when it is there
}

// A pool is memory that was allocated while capturing and given back before the graph was closed. The graph's calls may
// still write to it at each launch, so that only later calls of the same capture may use it again: every launch repeats
// their order.
type pool struct {
	alive bool
	free  map[int64][]uintptr // by size
}

// take is memory of that size that is free; 0 when there is none.
func (p *pool) take(bytes int64) uintptr {
	free := p.free[bytes]
	if len(free) == 0 {
		return 0
	}
	p.free[bytes] = free[:len(free)-1]
	return free[len(free)-1]
}

func (p *pool) put(bytes int64, address uintptr) { p.free[bytes] = append(p.free[bytes], address) }

// keep makes the memory live as long as the graph. What was allocated while capturing does so by its pool.
func (p *capture) keep(b *block) {
	if _, kept := p.kept[b]; !kept && b.pool != p.pool {
		p.kept[b] = struct{}{}
		b.holders++
	}
}

// letGo gives the graph's memory back; the lock is held.
func (p *capture) letGo(c *core) {
	for b := range p.kept {
		c.release(b)
	}
	for _, addresses := range p.pool.free {
		for _, address := range addresses {
			c.late.add(late{block: &block{address: address}})
		}
	}
	p.kept, p.pool.free, p.pool.alive = nil, nil, false
}

// Capture records the kernel calls that body makes on the context instead of running them. When body fails nothing is
// kept, and its error is returned. Calls that other goroutines make on the context meanwhile are recorded too.
func (ctx *Context) Capture(body func() error) (*Graph, error) {
	if err := ctx.beginCapture(); err != nil {
		return nil, err
	}
	ended := false
	defer func() {
		if !ended { // body panicked: the context must not continue capturing
			if graph, err := ctx.endCapture(); err == nil {
				_ = graph.Close()
			}
		}
	}()
	failure := body()
	graph, err := ctx.endCapture()
	ended = true
	if failure != nil {
		if err == nil {
			_ = graph.Close()
		}
		return nil, failure
	}
	return graph, err
}

func (ctx *Context) beginCapture() error {
	return ctx.call("nncuda_graph_begin", func(in *core) C.int32_t {
		in.drain() // nothing can be given back while capturing
		status := C.call_nncuda_graph_begin(in.handle)
		if status == 0 {
			in.capture = &capture{kept: map[*block]struct{}{}, pool: &pool{true, map[int64][]uintptr{}}}
		}
		return status
	})
}

func (ctx *Context) endCapture() (*Graph, error) {
	in := ctx.enter()
	if in.refused() {
		return nil, in.refuse("nncuda_graph_end")
	}
	var pointer *C.nncuda_graph
	status := C.call_nncuda_graph_end(in.handle, &pointer)
	memory := in.capture
	in.capture = nil
	if status != 0 {
		err := in.fail("nncuda_graph_end", Status(status))
		if memory != nil {
			memory.letGo(in)
		}
		in.mu.Unlock()
		return nil, err
	}
	graph := &Graph{ctx: ctx, handle: &handle{graphHandle, unsafe.Pointer(pointer)}, memory: memory, comms: memory.comms}
	memory.comms = nil // a finalizer gets this, which must not keep the context alive
	graph.cleanup = runtime.AddCleanup(graph, in.late.add, late{handle: graph.handle, capture: memory})
	return graph, in.leave("nncuda_graph_end", 0)
}

// yieldEvery is how long launches run before the goroutine passes through Go's scheduler. From 10 ms on without that
// the runtime's monitor takes the processor away from every call into C, and wakes threads to look for work, right in
// the time of the library's workers: where these have all cores, a token of 0.74 ms took 0.84 ms. Passing wakes a
// thread, too, so it is no more frequent than that.
const yieldEvery = 8 * time.Millisecond

// Launch runs the graph: the same bits as the calls it was captured from.
func (g *Graph) Launch() error {
	in := g.ctx.enter()
	if g.handle.pointer == nil {
		in.closedHandle("graph")
	}
	if in.refused() {
		return in.refuse("nncuda_graph_launch")
	}
	status := C.call_nncuda_graph_launch(in.handle, (*C.nncuda_graph)(g.handle.pointer))
	now := time.Now()
	yields := now.Sub(g.yielded) >= yieldEvery
	if yields {
		g.yielded = now
	}
	err := in.leave("nncuda_graph_launch", status)
	if yields {
		runtime.Gosched()
	}
	return err
}

// Size is how many calls the graph holds.
func (g *Graph) Size() (int64, error) {
	in := g.ctx.enter()
	if g.handle.pointer == nil {
		in.closedHandle("graph")
	}
	var nodes C.int64_t
	err := in.finish("nncuda_graph_size", func(in *core) C.int32_t {
		return C.call_nncuda_graph_size(in.handle, (*C.nncuda_graph)(g.handle.pointer), &nodes)
	})
	return int64(nodes), err
}

// Close frees the graph and gives its memory back. Closing twice is fine.
func (g *Graph) Close() error {
	c := g.ctx.core
	c.mu.Lock()
	defer c.mu.Unlock()
	g.cleanup.Stop()
	if c.capture != nil && g.handle.pointer != nil {
		moved := *g.handle // nothing can be given back while capturing
		g.handle.pointer = nil
		c.late.add(late{handle: &moved, capture: g.memory})
		return nil
	}
	err := g.handle.destroy(c)
	g.memory.letGo(c)
	c.drain()
	return err
}

// closedHandle keeps the problem of a stream, event, graph or communicator that was closed.
func (c *core) closedHandle(name string) { c.blame(ErrInvalidContext, "the "+name+" is closed") }
