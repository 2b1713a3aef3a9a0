package cuda

/*
#include "calls_gen.h"

#cgo noescape call_nncuda_malloc
#cgo noescape call_nncuda_memcpy_to
#cgo noescape call_nncuda_memcpy_from
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// A Buffer is memory of a context. Close gives it back to the context's pool; what was forgotten is given back when the
// garbage collector finds it.
type Buffer struct {
	ctx     *Context
	block   *block
	cleanup runtime.Cleanup
}

// A block is the memory of a buffer. It does not point back to the buffer or its context: graphs and streams keep
// blocks, and finalizers get them, which must not keep the context alive.
type block struct {
	address uintptr // 0 when there are no bytes
	size    int64
	host    bool
	lent    bool  // by the program, which frees it
	pool    *pool // of the capture that it was allocated in

	// Guarded by the context's lock.
	closed  bool
	holders int // graphs and streams that still use the memory; the last of them frees it when closed
}

// Memory is a place inside a buffer, as kernels take it. The zero value is a null pointer.
type Memory struct {
	buffer *Buffer
	offset int64
}

// Allocate makes a buffer of device memory, aligned to 256 bytes, its content not set.
func (ctx *Context) Allocate(bytes int64) (*Buffer, error) {
	in := ctx.enter()
	if in.refused() {
		return nil, in.refuse("nncuda_malloc")
	}
	var address uintptr
	if in.capture != nil {
		address = in.capture.pool.take(bytes)
	} else {
		in.drain()
	}
	if address == 0 {
		var pointer C.uintptr_t
		if status := C.call_nncuda_malloc(in.handle, C.int64_t(bytes), &pointer); status != 0 {
			return nil, in.leave("nncuda_malloc", status)
		}
		address = uintptr(pointer)
	}
	return ctx.adopt(address, bytes, false), in.leave("nncuda_malloc", 0)
}

// AllocateParts makes a buffer of device memory, zeroed, of which only some bytes are memory: those from the first
// number of a range on and before its second, in ascending order. The others have addresses alone, and on the CPU a
// program that touches them ends.
func (ctx *Context) AllocateParts(bytes int64, ranges [][2]int64) (*Buffer, error) {
	in := ctx.enter()
	if in.refused() {
		return nil, in.refuse("nncuda_malloc_parts")
	}
	if in.capture == nil {
		in.drain()
	}
	var pointer C.uintptr_t
	status := C.call_nncuda_malloc_parts(in.handle, C.int64_t(bytes), (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(ranges))),
		C.int64_t(len(ranges)), &pointer)
	if status != 0 {
		return nil, in.leave("nncuda_malloc_parts", status)
	}
	buffer := ctx.adopt(uintptr(pointer), bytes, false)
	buffer.block.pool = nil // nothing else could use it again
	return buffer, in.leave("nncuda_malloc_parts", 0)
}

// AllocateHost makes a buffer of host memory that the device copies from and to at full speed (page-locked on a GPU).
// Kernels do not take it; streams copy from and to it.
func (ctx *Context) AllocateHost(bytes int64) (*Buffer, error) {
	in := ctx.enter()
	if in.refused() {
		return nil, in.refuse("nncuda_malloc_host")
	}
	in.drain()
	var pointer C.uintptr_t
	if status := C.call_nncuda_malloc_host(in.handle, C.int64_t(bytes), &pointer); status != 0 {
		return nil, in.leave("nncuda_malloc_host", status)
	}
	return ctx.adopt(uintptr(pointer), bytes, true), in.leave("nncuda_malloc_host", 0)
}

// Borrow makes a buffer over memory of the program, without a copy: of weights in a mapped file, for one. The memory must
// not be the garbage collector's, and stay as it is until the buffer is closed and nothing uses it any more; where it is
// read-only, so is the buffer. [ErrWrongDevice] on a GPU, which cannot use the host's memory in place.
func (ctx *Context) Borrow(memory []byte) (*Buffer, error) {
	in := ctx.enter()
	if ctx.device != CPU {
		in.blame(ErrWrongDevice, "a GPU cannot use memory of the host in place; Upload copies it")
	}
	if in.refused() {
		return nil, in.refuse("Borrow")
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	if len(memory) == 0 {
		address = 0
	}
	buffer := &Buffer{ctx: ctx, block: &block{address: address, size: int64(len(memory)), lent: true}}
	return buffer, in.leave("Borrow", 0)
}

// adopt makes the buffer of memory that was just allocated; the lock is held.
func (ctx *Context) adopt(address uintptr, bytes int64, host bool) *Buffer {
	buffer := &Buffer{ctx: ctx, block: &block{address: address, size: bytes, host: host}}
	if ctx.core.capture != nil && !host {
		buffer.block.pool = ctx.core.capture.pool
	}
	if address != 0 {
		buffer.cleanup = runtime.AddCleanup(buffer, ctx.core.late.add, late{block: buffer.block})
	}
	return buffer
}

// Close gives the memory back. A graph or a stream that still uses it keeps it until it is done; nothing else can use
// it any more. Closing twice is fine, and so is closing after the context.
func (b *Buffer) Close() error {
	c := b.ctx.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.block.closed || c.handle == nil {
		return nil
	}
	b.cleanup.Stop()
	return c.retire(b.block)
}

// retire closes a block, and frees it unless something holds it; the lock is held.
func (c *core) retire(b *block) error {
	b.closed = true
	if b.holders > 0 || b.address == 0 || b.lent || c.handle == nil {
		return nil
	}
	if b.pool != nil && b.pool.alive {
		b.pool.put(b.size, b.address)
		return nil
	}
	if c.capture != nil { // nothing can be given back now
		c.late.add(late{block: b})
		return nil
	}
	function := "nncuda_free"
	var status C.int32_t
	if b.host {
		function = "nncuda_free_host"
		status = C.call_nncuda_free_host(c.handle, C.uintptr_t(b.address))
	} else {
		status = C.call_nncuda_free(c.handle, C.uintptr_t(b.address))
	}
	if status != 0 {
		return c.fail(function, Status(status))
	}
	return nil
}

// release is called when a graph or stream no longer uses the block; the lock is held.
func (c *core) release(b *block) {
	b.holders--
	if b.holders == 0 && b.closed {
		_ = c.retire(b) // the caller asked for something else, which was done
	}
}

// Context is the context that the buffer belongs to.
func (b *Buffer) Context() *Context { return b.ctx }

// Size is the bytes of the buffer.
func (b *Buffer) Size() int64 { return b.block.size }

// Closed says whether the buffer or its context was closed.
func (b *Buffer) Closed() bool {
	b.ctx.core.mu.Lock()
	defer b.ctx.core.mu.Unlock()
	return b.block.closed || b.ctx.core.handle == nil
}

// At is the place `offset` bytes into the buffer.
func (b *Buffer) At(offset int64) Memory { return Memory{b, offset} }

// Address is where m lies in the memory of its device, 0 for the null pointer: to compare with what a trace reports.
func (m Memory) Address() uint64 {
	if m.buffer == nil {
		return 0
	}
	return uint64(m.buffer.block.address) + uint64(m.offset)
}

// at is the address of m for a call on c. What is wrong with it is kept as the call's problem.
func (c *core) at(name string, m Memory) C.uintptr_t {
	if m.buffer == nil {
		return 0
	}
	b := m.buffer.block
	if m.buffer.ctx.core != c || b.closed || c.capture != nil || uint64(m.offset) > uint64(b.size) {
		c.inspect(name, m)
	}
	return C.uintptr_t(b.address) + C.uintptr_t(m.offset)
}

// inspect is the part of at that is seldom needed.
func (c *core) inspect(name string, m Memory) {
	switch b := m.buffer.block; {
	case m.buffer.ctx.core != c:
		c.blame(ErrWrongDevice, name+" belongs to another context")
	case b.closed:
		c.blame(ErrInvalidContext, name+" is closed")
	case uint64(m.offset) > uint64(b.size):
		c.blame(ErrInvalidSize, fmt.Sprintf("%s begins at byte %d of a buffer of %d bytes", name, m.offset, b.size))
	default:
		c.capture.keep(b)
	}
}

// within keeps a problem when `bytes` bytes from m on are not all inside its buffer, or are null.
func (c *core) within(name string, m Memory, bytes int64) {
	size := int64(0)
	if m.buffer != nil {
		size = m.buffer.block.size
	}
	if bytes < 0 || m.offset < 0 || bytes > size-m.offset {
		c.blame(ErrInvalidSize, fmt.Sprintf("%s: %d bytes from byte %d on are not inside a buffer of %d bytes",
			name, bytes, m.offset, size))
	}
}

// onDevice keeps a problem when m is host memory, which only streams take.
func (c *core) onDevice(name string, m Memory) {
	if m.buffer != nil && m.buffer.block.host {
		c.blame(ErrWrongDevice, name+" is host memory; it must be device memory")
	}
}

// Set sets `bytes` bytes from m on to value.
func (ctx *Context) Set(m Memory, value byte, bytes int64) error {
	in := ctx.enter()
	pointer := in.at("memory", m)
	in.within("memory", m, bytes)
	in.onDevice("memory", m)
	return in.finish("nncuda_memset", func(in *core) C.int32_t {
		return C.call_nncuda_memset(in.handle, pointer, C.int32_t(value), C.int64_t(bytes))
	})
}

// Copy copies `bytes` bytes between places of device memory. It may be captured.
func (ctx *Context) Copy(destination, source Memory, bytes int64) error {
	in := ctx.enter()
	to, from := in.at("destination", destination), in.at("source", source)
	in.within("destination", destination, bytes)
	in.within("source", source, bytes)
	in.onDevice("destination", destination)
	in.onDevice("source", source)
	return in.finish("nncuda_memcpy", func(in *core) C.int32_t {
		return C.call_nncuda_memcpy(in.handle, to, from, C.int64_t(bytes), C.int32_t(deviceToDevice))
	})
}

// Upload copies host bytes to destination and returns when they were taken.
func (ctx *Context) Upload(destination Memory, source []byte) error {
	in := ctx.enter()
	bytes := int64(len(source))
	to := in.at("destination", destination)
	in.within("destination", destination, bytes)
	return in.finish("nncuda_memcpy", func(in *core) C.int32_t {
		switch {
		case bytes == 0:
			return 0
		case destination.buffer.block.host:
			C.nn_copy_to(to, unsafe.Pointer(&source[0]), C.int64_t(bytes))
			return 0
		}
		return C.call_nncuda_memcpy_to(in.handle, to, unsafe.Pointer(&source[0]), C.int64_t(bytes))
	})
}

// Download copies from source into host bytes, after the work given to the context before.
func (ctx *Context) Download(destination []byte, source Memory) error {
	in := ctx.enter()
	bytes := int64(len(destination))
	from := in.at("source", source)
	in.within("source", source, bytes)
	return in.finish("nncuda_memcpy", func(in *core) C.int32_t {
		switch {
		case bytes == 0:
			return 0
		case source.buffer.block.host:
			C.nn_copy_from(unsafe.Pointer(&destination[0]), from, C.int64_t(bytes))
			return 0
		}
		return C.call_nncuda_memcpy_from(in.handle, unsafe.Pointer(&destination[0]), from, C.int64_t(bytes))
	})
}

// MemoryInfo is the bytes free and in all on the context's device (the machine's memory on the CPU).
func (ctx *Context) MemoryInfo() (free, total int64, err error) {
	var freeBytes, totalBytes C.int64_t
	err = ctx.call("nncuda_memory_info", func(in *core) C.int32_t {
		in.drain()
		return C.call_nncuda_memory_info(in.handle, &freeBytes, &totalBytes)
	})
	return int64(freeBytes), int64(totalBytes), err
}
