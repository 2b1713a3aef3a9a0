package tensor

import (
	"fmt"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
)

// A Tensor is memory of a context with a shape and an element type. It is row-major. Its first dimension may have a
// stride larger than a row, as the halves of a fused product have; all dimensions after the first are dense.
//
// A tensor of [New] owns its memory, and Close gives it back. Tensors of [Tensor.View] and [Tensor.Narrow] share that
// memory: closing them does nothing, and using them after its owner was closed is an error.
type Tensor struct {
	buffer *cuda.Buffer
	offset int64 // bytes from the buffer's beginning
	shape  []int
	ld     int // elements between entries of the first dimension
	inner  int // elements of one entry of the first dimension
	size   int
	dtype  cuda.DType
	dense  bool
	owner  bool
	why    error // of Failed
}

// New makes a tensor whose values are not set. No sizes make a tensor of one element.
func New(ctx *cuda.Context, dtype cuda.DType, shape ...int) (*Tensor, error) {
	t, err := layout(dtype, shape)
	if err != nil {
		return nil, err
	}
	t.buffer, err = ctx.Allocate(int64(t.size) * int64(dtype.Size()))
	if err != nil {
		return nil, err
	}
	t.owner = true
	return t, nil
}

// Zeros makes a tensor of zeros.
func Zeros(ctx *cuda.Context, dtype cuda.DType, shape ...int) (*Tensor, error) {
	t, err := New(ctx, dtype, shape...)
	if err != nil {
		return nil, err
	}
	if err := t.Zero(); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// NewParts makes a tensor of zeros of which only some elements are memory: those from the first number of a range on and
// before its second, in ascending order. The others have addresses alone, and on the CPU a program that touches them
// ends.
func NewParts(ctx *cuda.Context, dtype cuda.DType, ranges [][2]int, shape ...int) (*Tensor, error) {
	t, err := layout(dtype, shape)
	if err != nil {
		return nil, err
	}
	bytes := make([][2]int64, len(ranges))
	for i, ends := range ranges {
		bytes[i] = [2]int64{int64(ends[0]) * int64(dtype.Size()), int64(ends[1]) * int64(dtype.Size())}
	}
	t.buffer, err = ctx.AllocateParts(t.Bytes(), bytes)
	if err != nil {
		return nil, err
	}
	t.owner = true
	return t, nil
}

// Failed stands in for a tensor that could not be made, in code that looks for errors once, at its end. It has an element
// type and a shape, but no memory, and every call with it gives the error `why`.
func Failed(why error, dtype cuda.DType, shape ...int) *Tensor {
	return &Tensor{why: why, dtype: dtype, shape: slices.Clone(shape)}
}

// Over makes a tensor over memory of a buffer, from a byte on, which stays the buffer's.
func Over(buffer *cuda.Buffer, offset int64, dtype cuda.DType, shape ...int) (*Tensor, error) {
	t, err := layout(dtype, shape)
	if err != nil {
		return nil, err
	}
	bytes := int64(t.size) * int64(dtype.Size())
	if offset < 0 || offset > buffer.Size() || bytes > buffer.Size()-offset {
		return nil, fail(cuda.ErrInvalidSize, "%d bytes from byte %d on are not inside a buffer of %d bytes", bytes, offset,
			buffer.Size())
	}
	t.buffer, t.offset = buffer, offset
	return t, nil
}

// layout is a dense tensor without memory.
func layout(dtype cuda.DType, shape []int) (*Tensor, error) {
	if dtype.Size() == 0 {
		return nil, fail(cuda.ErrInvalidDType, "%v is no element type", dtype)
	}
	size := 1
	for _, extent := range shape {
		if extent < 0 {
			return nil, fail(cuda.ErrInvalidSize, "a shape has no negative sizes: %v", slices.Clone(shape))
		}
		if extent > 0 && size > maxBytes/dtype.Size()/extent {
			return nil, fail(cuda.ErrInvalidSize, "a tensor of shape %v is larger than any memory", slices.Clone(shape))
		}
		size *= extent
	}
	t := &Tensor{shape: slices.Clone(shape), size: size, inner: 1, dtype: dtype, dense: true}
	for _, extent := range shape[min(1, len(shape)):] {
		t.inner *= extent
	}
	t.ld = t.inner
	return t, nil
}

// maxBytes bounds the bytes of a tensor, so that no product of sizes overflows.
const maxBytes = 1 << 62

func fail(status cuda.Status, format string, values ...any) error {
	return &cuda.Error{Status: status, Message: fmt.Sprintf(format, values...)}
}

// Close gives the memory back, if the tensor owns it. Closing twice is fine, and so is closing nil.
func (t *Tensor) Close() error {
	if t == nil || !t.owner {
		return nil
	}
	return t.buffer.Close()
}

// Context is the context of the tensor's memory.
func (t *Tensor) Context() *cuda.Context { return t.buffer.Context() }

// DType is the element type.
func (t *Tensor) DType() cuda.DType { return t.dtype }

// Shape is a copy of the sizes.
func (t *Tensor) Shape() []int { return slices.Clone(t.shape) }

// Rank is the number of dimensions.
func (t *Tensor) Rank() int { return len(t.shape) }

// Dim is the size of one dimension; a negative one counts from the last. It panics when there is no such dimension.
func (t *Tensor) Dim(dim int) int {
	if dim < 0 {
		dim += len(t.shape)
	}
	return t.shape[dim]
}

// Size is the number of elements.
func (t *Tensor) Size() int { return t.size }

// Bytes is the bytes of the elements, without what lies between rows.
func (t *Tensor) Bytes() int64 { return int64(t.size) * int64(t.dtype.Size()) }

// RowStride is the elements between entries of the first dimension.
func (t *Tensor) RowStride() int { return t.ld }

// IsDense says whether nothing lies between the elements.
func (t *Tensor) IsDense() bool { return t.dense }

// Memory is where the first element lies.
func (t *Tensor) Memory() cuda.Memory { return t.memory() }

// memory is Memory, and the null pointer for nil.
func (t *Tensor) memory() cuda.Memory {
	if t == nil {
		return cuda.Memory{}
	}
	return t.buffer.At(t.offset)
}

// String describes the tensor, without its values.
func (t *Tensor) String() string {
	if t == nil {
		return "nil tensor"
	}
	if t.dense {
		return fmt.Sprintf("%v tensor of shape %v", t.dtype, t.shape)
	}
	return fmt.Sprintf("%v tensor of shape %v with rows %d elements apart", t.dtype, t.shape, t.ld)
}

// View is the same elements in another shape, without a copy; one size may be -1. Of a tensor whose rows are further
// apart than they are long, only the dimensions after the first may change.
func (t *Tensor) View(shape ...int) (*Tensor, error) {
	if t.why != nil {
		return nil, t.why
	}
	wanted := slices.Clone(shape)
	if rest := slices.Index(wanted, -1); rest >= 0 {
		known := 1
		for i, extent := range wanted {
			if i != rest {
				known *= max(extent, 0)
			}
		}
		if known == 0 || t.size%known != 0 {
			return nil, fail(cuda.ErrInvalidSize, "a tensor of shape %v cannot be viewed as %v", t.shape, wanted)
		}
		wanted[rest] = t.size / known
	}
	v, err := layout(t.dtype, wanted)
	if err != nil {
		return nil, err
	}
	if v.size != t.size {
		return nil, fail(cuda.ErrInvalidSize, "a tensor of shape %v cannot be viewed as %v: the number of elements "+
			"differs",
			t.shape, wanted)
	}
	v.buffer, v.offset = t.buffer, t.offset
	if t.ld == t.inner || t.size == 0 {
		return v, nil
	}
	if len(wanted) > 0 && wanted[0] == t.shape[0] {
		v.ld, v.dense = t.ld, t.dense
	} else if !t.dense {
		return nil, fail(cuda.ErrInvalidSize, "a tensor of shape %v with rows %d elements apart cannot be viewed as %v: its "+
			"first dimension must stay; Contiguous makes a dense copy", t.shape, t.ld, wanted)
	}
	return v, nil
}

// Narrow is elements start .. start+length-1 of dimension 0 or 1, without a copy; -1 is the last dimension of a tensor
// with two. Dimension 1 gives rows that lie further apart than they are long.
func (t *Tensor) Narrow(dim, start, length int) (*Tensor, error) {
	if t.why != nil {
		return nil, t.why
	}
	axis := dim
	if dim < 0 {
		axis += len(t.shape)
	}
	if axis < 0 || axis > 1 || axis >= len(t.shape) {
		return nil, fail(cuda.ErrInvalidValue, "dim is %d; a tensor of shape %v can be narrowed in dimension 0 or 1 only",
			dim, t.shape)
	}
	if start < 0 || length < 0 || start > t.shape[axis] || length > t.shape[axis]-start {
		return nil, fail(cuda.ErrOutOfRange, "%d .. %d+%d is not inside dimension %d of shape %v", start, start, length, dim,
			t.shape)
	}
	v := *t
	v.owner = false
	v.shape = slices.Clone(t.shape)
	v.shape[axis] = length
	step := t.ld
	if axis == 1 {
		step = t.inner / max(t.shape[1], 1)
		v.inner = step * length
	}
	v.offset += int64(start) * int64(step) * int64(t.dtype.Size())
	v.size = v.shape[0] * v.inner
	v.dense = v.ld == v.inner || v.size == 0 || v.shape[0] == 1
	return &v, nil
}

// AsBytes is the memory of each entry of the first dimension, u8 [entries, bytes], without a copy, of a dense tensor.
func (t *Tensor) AsBytes() (*Tensor, error) {
	if t.why != nil {
		return nil, t.why
	}
	if !t.dense || len(t.shape) == 0 {
		return nil, fail(cuda.ErrInvalidSize, "a tensor of shape %v with rows %d elements apart has no bytes of entries: it "+
			"must be dense, and have a first dimension", t.shape, t.ld)
	}
	v, err := layout(cuda.U8, []int{t.shape[0], t.inner * t.dtype.Size()})
	if err != nil {
		return nil, err
	}
	v.buffer, v.offset = t.buffer, t.offset
	return v, nil
}
