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

// A Stream carries copies beside the kernels, which run on the context's own stream. Events order the two. A nil
// *Stream is the context's own stream where a function takes one.
type Stream struct {
	ctx     *Context
	handle  *handle
	memory  *pending
	cleanup runtime.Cleanup
}

// pending is the memory that copies on a stream may still use.
type pending struct{ blocks map[*block]struct{} }

// An Event is a point in a stream's work.
type Event struct {
	ctx     *Context
	handle  *handle
	cleanup runtime.Cleanup
}

// NewStream makes a stream for copies.
func (ctx *Context) NewStream() (*Stream, error) {
	var pointer *C.nncuda_stream
	err := ctx.call("nncuda_stream_create", func(in *core) C.int32_t {
		in.drain()
		return C.call_nncuda_stream_create(in.handle, &pointer)
	})
	if err != nil {
		return nil, err
	}
	stream := &Stream{ctx: ctx, handle: &handle{streamHandle, unsafe.Pointer(pointer)}, memory: &pending{}}
	stream.cleanup = runtime.AddCleanup(stream, ctx.core.late.add, late{handle: stream.handle, pending: stream.memory})
	return stream, nil
}

// NewEvent makes an event.
func (ctx *Context) NewEvent() (*Event, error) {
	var pointer *C.nncuda_event
	err := ctx.call("nncuda_event_create", func(in *core) C.int32_t {
		in.drain()
		return C.call_nncuda_event_create(in.handle, &pointer)
	})
	if err != nil {
		return nil, err
	}
	event := &Event{ctx: ctx, handle: &handle{eventHandle, unsafe.Pointer(pointer)}}
	event.cleanup = runtime.AddCleanup(event, ctx.core.late.add, late{handle: event.handle})
	return event, nil
}

// stream is the handle of s for a call on c: null for the context's own stream.
func (c *core) stream(s *Stream) *C.nncuda_stream {
	if s == nil {
		return nil
	}
	if s.ctx.core != c {
		c.foreign("stream")
		return nil
	}
	if s.handle.pointer == nil {
		c.closedHandle("stream")
	}
	return (*C.nncuda_stream)(s.handle.pointer)
}

// event is the handle of e for a call on c.
func (c *core) event(e *Event) *C.nncuda_event {
	if e.ctx.core != c {
		c.foreign("event")
		return nil
	}
	if e.handle.pointer == nil {
		c.closedHandle("event")
	}
	return (*C.nncuda_event)(e.handle.pointer)
}

// foreign keeps the problem of a stream or event of another context, whose lock is not held.
func (c *core) foreign(name string) {
	c.blame(ErrWrongDevice, "the "+name+" belongs to another context")
}

// CopyAsync copies `bytes` bytes on a stream without waiting; nil is the context's own. Either side may be host memory
// of [Context.AllocateHost]. The memory stays allocated until the stream, or for nil the context, is synchronised, even
// when it is closed before.
func (ctx *Context) CopyAsync(stream *Stream, destination, source Memory, bytes int64) error {
	in := ctx.enter()
	lane := in.stream(stream)
	to, from := in.at("destination", destination), in.at("source", source)
	in.within("destination", destination, bytes)
	in.within("source", source, bytes)
	kind := deviceToDevice
	if in.problem == nil && bytes > 0 {
		switch {
		case destination.buffer.block.host && source.buffer.block.host:
			in.blame(ErrWrongDevice, "both sides are host memory; one must be device memory")
		case source.buffer.block.host:
			kind = hostToDevice
		case destination.buffer.block.host:
			kind = deviceToHost
		}
	}
	return in.finish("nncuda_memcpy_async", func(in *core) C.int32_t {
		status := C.call_nncuda_memcpy_async(in.handle, lane, to, from, C.int64_t(bytes), C.int32_t(kind))
		if status == 0 && bytes > 0 {
			memory := &in.pending
			if stream != nil {
				memory = stream.memory
			}
			memory.keep(destination.buffer.block)
			memory.keep(source.buffer.block)
		}
		return status
	})
}

func (p *pending) keep(b *block) {
	if _, kept := p.blocks[b]; !kept {
		if p.blocks == nil {
			p.blocks = map[*block]struct{}{}
		}
		p.blocks[b] = struct{}{}
		b.holders++
	}
}

// letGo is called when the stream has done its work; the lock is held.
func (p *pending) letGo(c *core) {
	for b := range p.blocks {
		c.release(b)
	}
	clear(p.blocks)
}

// Synchronize waits until the stream has done all that was given to it.
func (s *Stream) Synchronize() error {
	in := s.ctx.enter()
	lane := in.stream(s)
	return in.finish("nncuda_stream_synchronize", func(in *core) C.int32_t {
		status := C.call_nncuda_stream_synchronize(in.handle, lane)
		if status == 0 {
			s.memory.letGo(in)
		}
		return status
	})
}

// Wait makes what is given to the stream from now on wait for the event.
func (s *Stream) Wait(event *Event) error { return s.ctx.wait(s, event) }

// Wait makes what is given to the context's own stream from now on wait for the event.
func (ctx *Context) Wait(event *Event) error { return ctx.wait(nil, event) }

func (ctx *Context) wait(stream *Stream, event *Event) error {
	in := ctx.enter()
	lane, point := in.stream(stream), in.event(event)
	return in.finish("nncuda_stream_wait_event", func(in *core) C.int32_t {
		return C.call_nncuda_stream_wait_event(in.handle, lane, point)
	})
}

// Close waits for the stream and frees it. Closing twice is fine.
func (s *Stream) Close() error {
	c := s.ctx.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.capture != nil && s.handle.pointer != nil {
		return &Error{Status: ErrCapturing, Function: "nncuda_stream_destroy",
			Message: "nncuda_stream_destroy: the context is capturing a graph"}
	}
	s.cleanup.Stop()
	err := s.handle.destroy(c)
	s.memory.letGo(c)
	c.drain()
	return err
}

// Record makes the event happen when the stream has done all that was given to it so far; nil is the context's own.
func (e *Event) Record(stream *Stream) error {
	in := e.ctx.enter()
	lane, point := in.stream(stream), in.event(e)
	return in.finish("nncuda_event_record", func(in *core) C.int32_t {
		return C.call_nncuda_event_record(in.handle, lane, point)
	})
}

// Synchronize waits until the event has happened. One that was never recorded counts as happened.
func (e *Event) Synchronize() error {
	in := e.ctx.enter()
	point := in.event(e)
	return in.finish("nncuda_event_synchronize", func(in *core) C.int32_t {
		return C.call_nncuda_event_synchronize(in.handle, point)
	})
}

// Happened says whether the event has happened.
func (e *Event) Happened() (bool, error) {
	in := e.ctx.enter()
	point := in.event(e)
	var happened C.int32_t
	err := in.finish("nncuda_event_query", func(in *core) C.int32_t {
		return C.call_nncuda_event_query(in.handle, point, &happened)
	})
	return happened != 0, err
}

// Elapsed is the time from e to a later event; both must have happened.
func (e *Event) Elapsed(end *Event) (time.Duration, error) {
	in := e.ctx.enter()
	from, to := in.event(e), in.event(end)
	var milliseconds C.float
	err := in.finish("nncuda_event_elapsed", func(in *core) C.int32_t {
		return C.call_nncuda_event_elapsed(in.handle, from, to, &milliseconds)
	})
	return time.Duration(float64(milliseconds) * float64(time.Millisecond)), err
}

// Close frees the event. Closing twice is fine.
func (e *Event) Close() error {
	c := e.ctx.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.capture != nil && e.handle.pointer != nil {
		return &Error{Status: ErrCapturing, Function: "nncuda_event_destroy",
			Message: "nncuda_event_destroy: the context is capturing a graph"}
	}
	e.cleanup.Stop()
	return e.handle.destroy(c)
}
