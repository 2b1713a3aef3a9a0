// Package safetensors reads and writes safetensors files.
//
// A file is eight bytes of header length (little-endian), that many bytes of JSON, then the tensors' bytes, row-major
// and little-endian, without holes (https://github.com/huggingface/safetensors, section "Format").
package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"syscall"
)

// maxHeader is the largest header that is read, in bytes; the format's own limit.
const maxHeader = 100_000_000

// A FormatError says what is wrong with a file.
type FormatError struct {
	Path    string
	Message string
	Cause   error // of the system, if it was that
}

// Error is the path and what is wrong there.
func (e *FormatError) Error() string { return e.Path + ": " + e.Message }

// Unwrap is what the system said, if it was that.
func (e *FormatError) Unwrap() error { return e.Cause }

// A DType is an element type as the format calls it, such as "F32".
type DType string

// Element types of the format.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	I64  DType = "I64"
	I32  DType = "I32"
	I16  DType = "I16"
	I8   DType = "I8"
	U64  DType = "U64"
	U32  DType = "U32"
	U16  DType = "U16"
	U8   DType = "U8"
	Bool DType = "BOOL"
)

// Size is the bytes of one element; 0 when this package does not know the type.
func (d DType) Size() int {
	switch d {
	case F64, I64, U64:
		return 8
	case F32, I32, U32:
		return 4
	case F16, BF16, I16, U16:
		return 2
	case I8, U8, Bool:
		return 1
	}
	return 0
}

// A Tensor is one tensor of a file. Its bytes may lie in the mapped file: they must not be written, nor used after the
// file was closed.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Bytes []byte

	// Load may stand in for Bytes when a tensor is written: it gets a slice to fill, so that of tensors in a device's
	// memory no more than one need be in the host's.
	Load func(into []byte) error
}

// Size is the bytes that the tensor takes by its shape and type, which are valid in a tensor of a file.
func (t Tensor) Size() int {
	size := t.DType.Size()
	for _, extent := range t.Shape {
		size *= extent
	}
	return size
}

// A File is an open safetensors file, mapped into memory: a tensor that nobody looks at is not read from the disk.
type File struct {
	Path     string
	Metadata map[string]string
	names    []string
	tensors  map[string]Tensor
	mapped   []byte
}

// Open opens a file and checks its header in full: that every tensor has as many bytes as its shape says, and that they
// cover the data without holes or overlap. The error is a [*FormatError].
func Open(path string) (*File, error) {
	mapped, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	file := &File{Path: path, mapped: mapped}
	if err := file.parse(); err != nil {
		_ = file.Close()
		return nil, &FormatError{Path: path, Message: fmt.Sprintf("is truncated, or not a safetensors file (%v)", err)}
	}
	return file, nil
}

func mapFile(path string) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		reason := err
		var wrapped *fs.PathError
		if errors.As(err, &wrapped) {
			reason = wrapped.Err
		}
		return nil, &FormatError{Path: path, Message: fmt.Sprintf("cannot be read: %v", reason), Cause: err}
	}
	file, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fail(err)
	}
	if info.IsDir() {
		return fail(syscall.EISDIR)
	}
	if info.Size() == 0 || info.Size() > math.MaxInt {
		return nil, &FormatError{Path: path, Message: "is truncated, or not a safetensors file (it is empty)"}
	}
	mapped, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fail(err)
	}
	return mapped, nil
}

// Close unmaps the file. Its tensors' bytes must not be used from here on. Closing twice is fine.
func (f *File) Close() error {
	mapped := f.mapped
	f.mapped, f.tensors = nil, nil
	if mapped == nil {
		return nil
	}
	return syscall.Munmap(mapped)
}

// Names lists the tensors in the order of their bytes.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Tensor is a tensor of the file, and whether there is one of that name.
func (f *File) Tensor(name string) (Tensor, bool) {
	tensor, ok := f.tensors[name]
	return tensor, ok
}

// entry is a tensor in the header.
type entry struct {
	DType   *DType   `json:"dtype"`
	Shape   *[]int64 `json:"shape"`
	Offsets *[]int64 `json:"data_offsets"`
}

func (f *File) parse() error {
	if len(f.mapped) < 8 {
		return errors.New("it is shorter than the length of a header")
	}
	length := binary.LittleEndian.Uint64(f.mapped)
	if length > maxHeader {
		return fmt.Errorf("a header of %d bytes is larger than any may be", length)
	}
	if length > uint64(len(f.mapped)-8) {
		return fmt.Errorf("a header of %d bytes does not fit into the file", length)
	}
	data := f.mapped[8+length:]
	entries, err := f.parseHeader(f.mapped[8 : 8+length])
	if err != nil {
		return err
	}
	f.names = slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		x, y := *entries[a].Offsets, *entries[b].Offsets
		if order := slices.Compare(x, y); order != 0 {
			return order
		}
		return bytes.Compare([]byte(a), []byte(b))
	})
	f.tensors = make(map[string]Tensor, len(entries))
	end := int64(0)
	for _, name := range f.names {
		tensor, first, last, err := entries[name].tensor(name)
		if err != nil {
			return err
		}
		if first != end {
			return fmt.Errorf("tensor '%s' begins at byte %d of the data, not at %d", name, first, end)
		}
		if last > int64(len(data)) {
			return fmt.Errorf("tensor '%s' ends at byte %d of %d", name, last, len(data))
		}
		tensor.Bytes = data[first:last:last]
		f.tensors[name] = tensor
		end = last
	}
	if end != int64(len(data)) {
		return fmt.Errorf("the tensors cover %d bytes of %d", end, len(data))
	}
	return nil
}

// parseHeader reads the JSON object key by key: a name that comes twice is an error, not the later one.
func (f *File) parseHeader(text []byte) (map[string]entry, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("the header is not a JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("the header is not JSON: %w", err)
	}
	entries := map[string]entry{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("the header is not JSON: %w", err)
		}
		name := token.(string) // the decoder takes nothing else for a key
		if name == "__metadata__" {
			if f.Metadata != nil {
				return nil, errors.New("the header has two entries of metadata")
			}
			f.Metadata = map[string]string{}
			if err := decoder.Decode(&f.Metadata); err != nil {
				return nil, fmt.Errorf("the metadata is not a map from text to text: %w", err)
			}
			continue
		}
		if _, twice := entries[name]; twice {
			return nil, fmt.Errorf("there are two tensors '%s'", name)
		}
		decoder.DisallowUnknownFields()
		var tensor entry
		if err := decoder.Decode(&tensor); err != nil {
			return nil, fmt.Errorf("tensor '%s': %w", name, err)
		}
		if tensor.DType == nil || tensor.Shape == nil || tensor.Offsets == nil || len(*tensor.Offsets) != 2 {
			return nil, fmt.Errorf("tensor '%s' lacks its dtype, its shape or its two offsets", name)
		}
		entries[name] = tensor
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("the header is not JSON: %w", err)
	}
	if rest := bytes.Trim(text[decoder.InputOffset():], " \t\r\n"); len(rest) != 0 {
		return nil, errors.New("something stands behind the header's JSON object")
	}
	return entries, nil
}

// tensor checks what the header says of one tensor. first and last are its place in the data.
func (e entry) tensor(name string) (tensor Tensor, first, last int64, err error) {
	size := int64(e.DType.Size())
	if size == 0 {
		return tensor, 0, 0, fmt.Errorf("tensor '%s' has dtype %s, which this program cannot use", name, *e.DType)
	}
	shape := make([]int, len(*e.Shape))
	bytes := size
	for i, extent := range *e.Shape {
		if extent < 0 || (extent > 0 && bytes > math.MaxInt64/extent) {
			return tensor, 0, 0, fmt.Errorf("tensor '%s' has the shape %v, which none can have", name, *e.Shape)
		}
		bytes *= extent
		shape[i] = int(extent)
	}
	first, last = (*e.Offsets)[0], (*e.Offsets)[1]
	if first < 0 || last < first || last-first != bytes {
		return tensor, 0, 0, fmt.Errorf("tensor '%s' lies at bytes %d to %d, but its shape %v of %s takes %d", name,
			first, last, *e.Shape, *e.DType, bytes)
	}
	return Tensor{Name: name, DType: *e.DType, Shape: shape}, first, last, nil
}
