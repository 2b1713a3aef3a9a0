package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// order is the order of element types in a file: the widest first, so that every tensor is aligned to its elements. It
// is that of the format's first implementation, so that the same tensors give the same bytes there and here.
var order = []DType{U64, I64, F64, F32, U32, I32, BF16, F16, U16, I16, I8, U8, Bool}

// Write writes a file, which must not exist, and waits until it is on the disk. The same tensors give the same bytes,
// in whatever order they come. The caller sees to a half-written file: its name should not be the final one.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	if err := Create(path, tensors, metadata); err != nil {
		return err
	}
	return Fill(path, tensors, metadata)
}

// Create makes the file of [Write] in its full length, with zeros in place of the tensors: for [Fill].
func Create(path string, tensors []Tensor, metadata map[string]string) error {
	_, header, err := arranged(path, tensors, metadata)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = file.Write(header)
	if err == nil {
		size := len(header)
		for _, tensor := range tensors {
			size += tensor.Size()
		}
		err = file.Truncate(int64(size))
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// Fill writes what is here of the tensors into the file that [Create] made of the same ones, and waits until it is on
// the disk. Several programs may fill one file, each with the parts that it has.
func Fill(path string, tensors []Tensor, metadata map[string]string) error {
	sorted, header, err := arranged(path, tensors, metadata)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	written := func() error {
		var loaded []byte
		place := int64(len(header))
		for _, tensor := range sorted {
			if tensor.Parts == nil && len(tensor.Bytes) > 0 {
				if _, err := file.WriteAt(tensor.Bytes, place); err != nil {
					return err
				}
			}
			for _, part := range tensor.Parts {
				size := part.End - part.Begin
				loaded = slices.Grow(loaded[:0], size)[:size]
				if err := part.Load(loaded); err != nil {
					return err
				}
				if _, err := file.WriteAt(loaded, place+int64(part.Begin)); err != nil {
					return err
				}
			}
			place += int64(tensor.Size())
		}
		return file.Sync()
	}()
	if err := file.Close(); written == nil {
		written = err
	}
	return written
}

// arranged gives the tensors in the order of a file, and its header.
func arranged(path string, tensors []Tensor, metadata map[string]string) (sorted []Tensor, head []byte, err error) {
	sorted = slices.Clone(tensors)
	slices.SortStableFunc(sorted, func(a, b Tensor) int {
		byType := cmp.Compare(slices.Index(order, a.DType), slices.Index(order, b.DType))
		return cmp.Or(byType, strings.Compare(a.Name, b.Name))
	})
	if head, err = header(sorted, metadata); err != nil {
		err = &formats.Error{Path: path, Problem: err.Error(), Cause: err}
	}
	return sorted, head, err
}

// header is the length and the JSON, filled with spaces so that the data begins at a multiple of eight bytes.
func header(sorted []Tensor, metadata map[string]string) ([]byte, error) {
	text := bytes.NewBuffer(make([]byte, 8, 4096))
	separator := byte('{')
	field := func(name string, value any) error {
		text.WriteByte(separator)
		separator = ','
		if err := appendJSON(text, name); err != nil {
			return err
		}
		text.WriteByte(':')
		return appendJSON(text, value)
	}
	if metadata != nil {
		if err := field("__metadata__", metadata); err != nil {
			return nil, err
		}
	}
	names := make(map[string]struct{}, len(sorted))
	var end int64
	for _, tensor := range sorted {
		if _, twice := names[tensor.Name]; twice || tensor.Name == "__metadata__" {
			return nil, fmt.Errorf("tensor '%s' cannot be written: another entry has that name", tensor.Name)
		}
		names[tensor.Name] = struct{}{}
		bytes := int64(tensor.DType.Size())
		for _, extent := range tensor.Shape {
			if extent < 0 || (extent > 0 && bytes > math.MaxInt64/int64(extent)) {
				return nil, fmt.Errorf("tensor '%s' cannot be written: none can have the shape %v", tensor.Name, tensor.Shape)
			}
			bytes *= int64(extent)
		}
		if (tensor.Parts == nil && bytes != int64(len(tensor.Bytes))) || tensor.DType.Size() == 0 {
			return nil, fmt.Errorf("tensor '%s' cannot be written: it has %d bytes, but its shape %v of %s takes %d",
				tensor.Name, len(tensor.Bytes), tensor.Shape, tensor.DType, bytes)
		}
		shape := tensor.Shape
		if shape == nil {
			shape = []int{}
		}
		err := field(tensor.Name, struct {
			DType   DType    `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{tensor.DType, shape, [2]int64{end, end + bytes}})
		if err != nil {
			return nil, err
		}
		end += bytes
	}
	if separator == '{' {
		text.WriteByte('{')
	}
	text.WriteByte('}')
	for text.Len()%8 != 0 {
		text.WriteByte(' ')
	}
	length := text.Len() - 8
	if length > formats.HeaderBytes || len(sorted) > formats.FileTensors {
		return nil, fmt.Errorf("%d tensors and a header of %d bytes; a file may have %d and %d", len(sorted), length,
			formats.FileTensors, formats.HeaderBytes)
	}
	binary.LittleEndian.PutUint64(text.Bytes(), uint64(length))
	return text.Bytes(), nil
}

// appendJSON adds a value without its line end.
func appendJSON(text *bytes.Buffer, value any) error {
	line, err := formats.JSONLine(value)
	text.Write(bytes.TrimSuffix(line, []byte("\n")))
	return err
}
