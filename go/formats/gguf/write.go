package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
)

// writtenVersion is the version of the format in which files are written.
const writtenVersion = 3

// KeyValue is an entry of metadata to write. Its value is a string or a float32.
type KeyValue struct {
	Key   string
	Value any
}

// Write writes a file with these entries of metadata and these tensors, both in their order, in one step; it replaces what is
// there. The same entries and tensors give the same bytes. An error for what no file can have, before anything is written.
func Write(path string, metadata []KeyValue, tensors []formats.StoredTensor) error {
	head, err := header(metadata, tensors)
	if err != nil {
		return formats.Wrap(path, err)
	}
	return formats.WriteFileWith(path, func(file *os.File) error {
		out := bufio.NewWriter(file) // which gives the first error to all calls after it
		_, _ = out.Write(head)
		for _, tensor := range tensors {
			_, _ = out.Write(tensor.Bytes())
			_, _ = out.Write(make([]byte, padding(tensor.ByteCount())))
		}
		return out.Flush()
	})
}

// padding is how many bytes there are from one place to the next that is aligned.
func padding(bytes int) int { return -bytes & (defaultAlignment - 1) }

// header is what stands before the bytes of the tensors, up to the first of them.
func header(metadata []KeyValue, tensors []formats.StoredTensor) ([]byte, error) {
	order := binary.LittleEndian
	head := order.AppendUint32([]byte(magic), writtenVersion)
	head = order.AppendUint64(order.AppendUint64(head, uint64(len(tensors))), uint64(len(metadata)))
	addText := func(text string) { head = append(order.AppendUint64(head, uint64(len(text))), text...) }
	addType := func(name string) { head = order.AppendUint32(head, uint32(slices.Index(valueTypes, name))) }
	for _, entry := range metadata {
		addText(entry.Key)
		switch value := entry.Value.(type) {
		case string:
			addType("string")
			addText(value)
		case float32:
			addType("f32")
			head = order.AppendUint32(head, math.Float32bits(value))
		default:
			return nil, fmt.Errorf("%s is a %T; what is written is a string or a float32", entry.Key, value)
		}
	}
	names, offset := make(map[string]bool), 0
	for _, tensor := range tensors {
		name, shape := tensor.Name, tensor.Shape
		if names[name] {
			return nil, fmt.Errorf("two tensors have the name %s", formats.Shown(name))
		}
		names[name] = true
		wrongSize := slices.ContainsFunc(shape, func(size int) bool { return size < 1 })
		if len(name) < 1 || len(name) > longestName || len(shape) < 1 || len(shape) > mostDimensions || wrongSize {
			return nil, fmt.Errorf("tensor %s of shape %v: a name has 1 to %d bytes, a shape 1 to %d dimensions of 1 or more",
				formats.Shown(name), shape, longestName, mostDimensions)
		}
		addText(name)
		head = order.AppendUint32(head, uint32(len(shape)))
		for _, size := range slices.Backward(shape) {
			head = order.AppendUint64(head, uint64(size))
		}
		head = order.AppendUint64(order.AppendUint32(head, tensor.Format.GGUFType), uint64(offset))
		offset += tensor.ByteCount() + padding(tensor.ByteCount())
	}
	return append(head, make([]byte, padding(len(head)))...), nil
}
