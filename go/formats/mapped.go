package formats

import (
	"fmt"
	"math"
	"syscall"
	"unsafe"
)

// Mapping is a file mapped into memory for reading: what is not used is not read from the disk.
//
// Its size is that of the descriptor which was mapped. A file that somebody cuts afterwards cannot be told from here:
// reading what is gone ends the program (SIGBUS). Writers that replace files by renaming never do that.
type Mapping struct{ bytes []byte }

// MapFile maps the whole of a file. It is an error when that cannot be done, or the file has fewer than `least` bytes, the
// fewest that a file of this kind has.
func MapFile(path, kind string, least int64) (*Mapping, error) {
	file, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the map stays
	if size < least || size > math.MaxInt {
		return nil, &Error{Path: path, Problem: fmt.Sprintf("has %d bytes; a %s has %d or more", size, kind, least)}
	}
	if size == 0 {
		return &Mapping{}, nil // which no system maps
	}
	mapped, err := syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, &Error{Path: path, Problem: "cannot be mapped: " + systemReason(err), Cause: err}
	}
	return &Mapping{mapped}, nil
}

// Bytes are the file's. They must not be written, nor used after Close.
func (m *Mapping) Bytes() []byte { return m.bytes }

// Close unmaps the file. Closing twice is fine, and so is closing nil.
func (m *Mapping) Close() error {
	if m == nil || m.bytes == nil {
		return nil
	}
	mapped := m.bytes
	m.bytes = nil
	return syscall.Munmap(mapped)
}

// Release gives the whole pages under a part of the file back to the system, which reads them again when they are looked
// at. Nothing happens to a part of other memory, nor of a mapping that is nil.
func (m *Mapping) Release(part []byte) {
	if m == nil || len(m.bytes) == 0 || len(part) == 0 {
		return
	}
	page := uintptr(syscall.Getpagesize())
	whole := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes)))
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - whole
	if begin >= uintptr(len(m.bytes)) || uintptr(len(part)) > uintptr(len(m.bytes))-begin {
		return
	}
	start, end := (begin+page-1)/page*page, (begin+uintptr(len(part)))/page*page
	if end > start {
		// What it advises may be refused, and then nothing but memory is lost.
		_ = syscall.Madvise(m.bytes[start:end], syscall.MADV_DONTNEED)
	}
}
