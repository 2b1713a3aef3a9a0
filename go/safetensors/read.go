// Package safetensors reads and writes safetensors files, and folders of them.
//
// A file is eight bytes of header length (little-endian), that many bytes of JSON, then the tensors' bytes, row-major
// and little-endian, without holes (https://github.com/huggingface/safetensors, section "Format").
package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

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

// DTypeOf is the element type of a format without blocks: f32, f16 or bf16.
func DTypeOf(format formats.BlockFormat) DType { return DType(strings.ToUpper(format.Name)) }

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

var elementNames = map[DType]string{
	F64: "float64", F32: "float32", F16: "float16", BF16: "bfloat16",
	I64: "int64", I32: "int32", I16: "int16", I8: "int8",
	U64: "uint64", U32: "uint32", U16: "uint16", U8: "uint8",
	Bool: "bool",
}

// Name is what messages call an element type: "float32" for F32.
func (d DType) Name() string {
	if name, known := elementNames[d]; known {
		return name
	}
	return string(d)
}

// A Tensor is one tensor of a file. Its bytes may lie in the mapped file: they must not be written, nor used after the
// file was closed.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Bytes []byte

	// Parts may stand in for Bytes when a tensor is written, unless they are nil: what is here of it, which may be
	// nothing. Of tensors in a device's memory no more than one part need so be in the host's.
	Parts []Part
}

// A Part is bytes of a tensor, from Begin to before End. Load gets a slice to fill with them.
type Part struct {
	Begin, End int
	Load       func(into []byte) error
}

// Size is the bytes that the tensor takes by its shape and type, which are valid in a tensor of a file.
func (t Tensor) Size() int {
	size := t.DType.Size()
	for _, extent := range t.Shape {
		size *= extent
	}
	return size
}

// A File is an open safetensors file, mapped into memory: a tensor that is not used is not read from the disk.
type File struct {
	Path     string
	Metadata map[string]string
	names    []string
	tensors  map[string]Tensor
	mapped   *formats.Mapping
}

// Open opens a file and checks its header in full: that every tensor has as many bytes as its shape says, and that they
// cover the data without holes or overlap. The error is a [*formats.Error].
func Open(path string) (*File, error) {
	mapped, err := formats.MapFile(path, "safetensors file", 0)
	if err != nil {
		return nil, err
	}
	file := &File{Path: path, mapped: mapped}
	if err := file.parse(); err != nil {
		_ = file.Close()
		problem := fmt.Sprintf("is truncated, or not a safetensors file (%v)", err)
		return nil, &formats.Error{Path: path, Problem: problem, Cause: err}
	}
	return file, nil
}

// Close unmaps the file. Its tensors' bytes must not be used from here on. Closing twice is fine.
func (f *File) Close() error {
	f.tensors = nil
	return f.mapped.Close()
}

// Pages is the mapping that the tensors' bytes lie in.
func (f *File) Pages() *formats.Mapping { return f.mapped }

// Names lists the tensors in the order of their bytes.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Tensor is a tensor of the file, and whether there is one of that name.
func (f *File) Tensor(name string) (Tensor, bool) {
	tensor, ok := f.tensors[name]
	return tensor, ok
}

// Stored is a tensor of f32, f16 or bf16 over the mapped pages of the file. An error when there is none of that name, or it
// is of another type.
func (f *File) Stored(name string) (formats.StoredTensor, error) {
	tensor, found := f.tensors[name]
	if !found {
		return formats.StoredTensor{}, &formats.Error{Path: f.Path, Problem: "lacks the tensor " + formats.Shown(name)}
	}
	format, known := formats.FormatNamed(strings.ToLower(string(tensor.DType)))
	if !known {
		problem := fmt.Sprintf("tensor %s has dtype %s; weights are f32, f16 or bf16", formats.Shown(name), tensor.DType.Name())
		return formats.StoredTensor{}, &formats.Error{Path: f.Path, Problem: problem}
	}
	return formats.StoredTensor{
		Name: name, Format: format, Shape: tensor.Shape, Data: tensor.Bytes, Pages: f.mapped,
	}, nil
}

// entry is a tensor in the header.
type entry struct {
	name        string
	dtype       DType
	shape       []int
	first, last int64 // its bytes in the data
}

func (f *File) parse() error {
	mapped := f.mapped.Bytes()
	if len(mapped) < 8 {
		return errors.New("it is shorter than the length of a header")
	}
	length := binary.LittleEndian.Uint64(mapped)
	if length > formats.HeaderBytes {
		return fmt.Errorf("a header of %d bytes; it may have at most %d", length, formats.HeaderBytes)
	}
	if length > uint64(len(mapped)-8) {
		return fmt.Errorf("a header of %d bytes does not fit into the file", length)
	}
	data := mapped[8+length:]
	entries, err := f.parseHeader(mapped[8 : 8+length])
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last), cmp.Compare(a.name, b.name))
	})
	f.names, f.tensors = make([]string, 0, len(entries)), make(map[string]Tensor, len(entries))
	end := int64(0)
	for _, entry := range entries {
		if entry.first != end {
			return fmt.Errorf("tensor %s begins at byte %d of the data, not at %d", formats.Shown(entry.name), entry.first, end)
		}
		if entry.last > int64(len(data)) {
			return fmt.Errorf("tensor %s ends at byte %d of %d", formats.Shown(entry.name), entry.last, len(data))
		}
		bytes := data[entry.first:entry.last:entry.last]
		f.names = append(f.names, entry.name)
		f.tensors[entry.name] = Tensor{Name: entry.name, DType: entry.dtype, Shape: entry.shape, Bytes: bytes}
		end = entry.last
	}
	if end != int64(len(data)) {
		return fmt.Errorf("the tensors cover %d bytes of %d", end, len(data))
	}
	return nil
}

// parseHeader reads the JSON object of a header: what it says of each tensor, and the metadata.
func (f *File) parseHeader(text []byte) ([]entry, error) {
	value, err := formats.ParseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("the header is not JSON: %w", err)
	}
	header, ok := value.(*formats.Object)
	if !ok {
		return nil, errors.New("the header is not a JSON object")
	}
	if header.Has("__metadata__") {
		if f.Metadata, ok = texts(header.Delete("__metadata__")); !ok {
			return nil, errors.New("the metadata is not a map from text to text")
		}
	}
	if header.Len() > formats.FileTensors {
		return nil, fmt.Errorf("it has %d tensors; a file may have at most %d", header.Len(), formats.FileTensors)
	}
	entries := make([]entry, 0, header.Len())
	for _, name := range header.Names() {
		entry, err := parseEntry(name, header.Get(name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// texts is a JSON object whose values are texts.
func texts(value any) (map[string]string, bool) {
	object, ok := value.(*formats.Object)
	if !ok {
		return nil, false
	}
	found := make(map[string]string, object.Len())
	for _, name := range object.Names() {
		if found[name], ok = object.Get(name).(string); !ok {
			return nil, false
		}
	}
	return found, true
}

// parseEntry checks what the header says of one tensor.
func parseEntry(name string, value any) (entry, error) {
	shown, made := formats.Shown(name), entry{name: name}
	object, _ := value.(*formats.Object)
	if object == nil {
		return made, fmt.Errorf("tensor %s is not described by an object", shown)
	}
	dtype, isText := object.Get("dtype").(string)
	shape, isShape := wholes(object.Get("shape"))
	offsets, areOffsets := wholes(object.Get("data_offsets"))
	if !isText || !isShape || !areOffsets || len(offsets) != 2 {
		return made, fmt.Errorf("tensor %s lacks its dtype, its shape or its two offsets, or they are no whole numbers", shown)
	}
	made.dtype = DType(dtype)
	size := int64(made.dtype.Size())
	if size == 0 {
		return made, fmt.Errorf("tensor %s has dtype %s, which this program cannot use", shown, formats.Excerpt(dtype))
	}
	made.shape = make([]int, len(shape))
	bytes := size
	for i, extent := range shape {
		if bytes > math.MaxInt64/max(extent, 1) { // beside a 0 the other extents are no smaller for it
			return made, fmt.Errorf("tensor %s has the shape %s, which none can have", shown, formats.Shown(object.Get("shape")))
		}
		bytes *= max(extent, 1)
		made.shape[i] = int(extent)
	}
	if slices.Contains(shape, 0) {
		bytes = 0
	}
	made.first, made.last = offsets[0], offsets[1]
	if made.last < made.first || made.last-made.first != bytes {
		return made, fmt.Errorf("tensor %s lies at bytes %d to %d, but its shape %s of %s takes %d", shown,
			made.first, made.last, formats.Shown(object.Get("shape")), dtype, bytes)
	}
	return made, nil
}

// wholes is a JSON array of whole numbers, none of them below 0.
func wholes(value any) ([]int64, bool) {
	list, ok := value.([]any)
	if !ok {
		return nil, false
	}
	numbers := make([]int64, len(list))
	for at, one := range list {
		number, ok := one.(int64)
		if !ok || number < 0 {
			return nil, false
		}
		numbers[at] = number
	}
	return numbers, true
}
