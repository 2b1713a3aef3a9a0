package tensor

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/halves"
)

// Element is the Go types that a tensor's values are copied from and to.
type Element interface {
	float32 | int32 | int8 | int64 | uint8
}

// elementType is the element type of a Go type.
func elementType[T Element]() cuda.DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return cuda.F32
	case int32:
		return cuda.I32
	case int8:
		return cuda.I8
	case int64:
		return cuda.I64
	}
	return cuda.U8
}

// From makes a tensor of the values' own type. Without a shape it has one dimension.
func From[T Element](ctx *cuda.Context, values []T, shape ...int) (*Tensor, error) {
	if len(shape) == 0 {
		shape = []int{len(values)}
	}
	t, err := New(ctx, elementType[T](), shape...)
	if err != nil {
		return nil, err
	}
	if err := Write(t, values); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// Write overwrites the values of a tensor of the values' own type, row by row.
func Write[T Element](t *Tensor, values []T) error {
	if err := matches[T](t, len(values)); err != nil {
		return err
	}
	return t.Upload(bytesOf(values))
}

// Read copies the values of a tensor of type T, row by row, after the work given to the context before.
func Read[T Element](t *Tensor) ([]T, error) {
	values := make([]T, t.size)
	return values, ReadInto(t, values)
}

// ReadInto is [Read] into a slice of as many elements.
func ReadInto[T Element](t *Tensor, values []T) error {
	if err := matches[T](t, len(values)); err != nil {
		return err
	}
	return t.Download(bytesOf(values))
}

func matches[T Element](t *Tensor, count int) error {
	if t.dtype != elementType[T]() {
		return fail(cuda.ErrInvalidDType, "the tensor holds %v, not %v", t.dtype, elementType[T]())
	}
	if t.size != count {
		return fail(cuda.ErrInvalidSize, "%d values do not fill a tensor of shape %v", count, t.shape)
	}
	return nil
}

// bytesOf is the memory of a slice.
func bytesOf[T Element](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T))))
}

// Upload overwrites the values with bytes as they lie in memory, row by row, without what lies between rows.
func (t *Tensor) Upload(bytes []byte) error {
	if int64(len(bytes)) != t.Bytes() {
		return fail(cuda.ErrInvalidSize, "%d bytes do not fill a %v", len(bytes), t)
	}
	return t.eachDense(func(place cuda.Memory, first, last int64) error {
		return t.Context().Upload(place, bytes[first:last])
	})
}

// Download copies the values as bytes, row by row, without what lies between rows.
func (t *Tensor) Download(bytes []byte) error {
	if int64(len(bytes)) != t.Bytes() {
		return fail(cuda.ErrInvalidSize, "a %v does not fill %d bytes", t, len(bytes))
	}
	return t.eachDense(func(place cuda.Memory, first, last int64) error {
		return t.Context().Download(bytes[first:last], place)
	})
}

// eachDense calls do with each dense run of the tensor and the bytes that it is of all of them.
func (t *Tensor) eachDense(do func(place cuda.Memory, first, last int64) error) error {
	if t.why != nil || t.size == 0 {
		return t.why
	}
	if t.dense {
		return do(t.memory(), 0, t.Bytes())
	}
	step, length := int64(t.ld*t.dtype.Size()), int64(t.inner*t.dtype.Size())
	for row := range int64(t.shape[0]) {
		if err := do(t.buffer.At(t.offset+row*step), row*length, (row+1)*length); err != nil {
			return err
		}
	}
	return nil
}

// Zero sets every value to zero.
func (t *Tensor) Zero() error {
	return t.eachDense(func(place cuda.Memory, first, last int64) error {
		return t.Context().Set(place, 0, last-first)
	})
}

// Copy overwrites the values with those of a tensor of the same shape and element type.
func (t *Tensor) Copy(source *Tensor) error {
	if why := cmp.Or(t.why, source.why); why != nil {
		return why
	}
	if t.dtype != source.dtype || !slices.Equal(t.shape, source.shape) {
		return fail(cuda.ErrInvalidSize, "cannot copy a %v into a %v: shape and element type must be the same", source, t)
	}
	if t.dense && source.dense || t.size == 0 {
		return t.Context().Copy(t.memory(), source.memory(), t.Bytes())
	}
	size := int64(t.dtype.Size())
	for row := range int64(t.shape[0]) {
		to, from := t.offset+row*int64(t.ld)*size, source.offset+row*int64(source.ld)*size
		if err := t.Context().Copy(t.buffer.At(to), source.buffer.At(from), int64(t.inner)*size); err != nil {
			return err
		}
	}
	return nil
}

// Contiguous is a dense copy, which the caller closes.
func (t *Tensor) Contiguous() (*Tensor, error) {
	if t.why != nil {
		return nil, t.why
	}
	dense, err := New(t.Context(), t.dtype, t.shape...)
	if err != nil {
		return nil, err
	}
	if err := dense.Copy(t); err != nil {
		_ = dense.Close()
		return nil, err
	}
	return dense, nil
}

// Floats copies the values of a tensor of f32, f16 or bf16, widened to float32, which loses nothing.
func (t *Tensor) Floats() ([]float32, error) {
	switch t.dtype {
	case cuda.F32:
		return Read[float32](t)
	case cuda.F16, cuda.BF16:
	default:
		return nil, fail(cuda.ErrInvalidDType, "the tensor holds %v, not f32, f16 or bf16", t.dtype)
	}
	stored := make([]uint16, t.size)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(stored))), 2*t.size)
	if err := t.Download(memory); err != nil {
		return nil, err
	}
	values := make([]float32, t.size)
	for i, half := range stored {
		if t.dtype == cuda.BF16 {
			values[i] = halves.OfBrain(half)
		} else {
			values[i] = halves.Float(half)
		}
	}
	return values, nil
}
