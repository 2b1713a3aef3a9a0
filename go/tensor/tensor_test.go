package tensor_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tensor"
)

// counting is 0, 1, 2 ... in a tensor of that shape.
func counting(ctx *cuda.Context, shape ...int) *tensor.Tensor {
	size := 1
	for _, extent := range shape {
		size *= extent
	}
	values := make([]int32, size)
	for i := range values {
		values[i] = int32(i)
	}
	return sure(tensor.From(ctx, values, shape...))
}

func TestViews(t *testing.T) {
	x := counting(newContext(t), 4, 6)
	if y := sure(x.View(2, -1, 3)); !slices.Equal(y.Shape(), []int{2, 4, 3}) || y.Rank() != 3 || y.Dim(-1) != 3 {
		t.Errorf("got %v", y)
	}
	right := sure(x.Narrow(1, 2, 3))
	if right.IsDense() || right.RowStride() != 6 || right.Size() != 12 || right.Bytes() != 48 {
		t.Errorf("got %v", right)
	}
	if got := sure(tensor.Read[int32](right)); !slices.Equal(got, []int32{2, 3, 4, 8, 9, 10, 14, 15, 16, 20, 21, 22}) {
		t.Errorf("columns 2 to 4 are %v", got)
	}
	corner := sure(right.Narrow(0, 1, 2))
	if got := sure(tensor.Read[int32](corner)); !slices.Equal(got, []int32{8, 9, 10, 14, 15, 16}) {
		t.Errorf("rows 1 and 2 of them are %v", got)
	}
	if got := sure(tensor.Read[int32](sure(corner.View(2, 3, 1)))); !slices.Equal(got, []int32{8, 9, 10, 14, 15, 16}) {
		t.Errorf("in another shape they are %v", got)
	}
	row := sure(right.Narrow(0, 3, 1))
	if got := sure(tensor.Read[int32](sure(row.View(3)))); !row.IsDense() || !slices.Equal(got, []int32{20, 21, 22}) {
		t.Errorf("the last row is %v", got)
	}
	dense := sure(right.Contiguous())
	if got := sure(tensor.Read[int32](sure(dense.View(-1)))); !dense.IsDense() || len(got) != 12 || got[11] != 22 {
		t.Errorf("the dense copy is %v", got)
	}
	empty := sure(x.Narrow(0, 4, 0))
	none := sure(empty.View(3, 0))
	if got := sure(tensor.Read[int32](none)); len(got) != 0 || !slices.Equal(none.Shape(), []int{3, 0}) {
		t.Errorf("no rows are %v", got)
	}

	must.Refuse(t, must.Err(right.View(3, 4)), cuda.ErrInvalidSize, "rows 6 elements apart")
	must.Refuse(t, must.Err(x.View(5, -1)), cuda.ErrInvalidSize, "cannot be viewed")
	must.Refuse(t, must.Err(x.View(-1, -1)), cuda.ErrInvalidSize, "cannot be viewed")
	must.Refuse(t, must.Err(x.View(23)), cuda.ErrInvalidSize, "the number of elements differs")
	must.Refuse(t, must.Err(x.Narrow(0, 3, 2)), cuda.ErrOutOfRange, "is not inside dimension 0")
	must.Refuse(t, must.Err(x.Narrow(1, -1, 2)), cuda.ErrOutOfRange, "is not inside")
	must.Refuse(t, must.Err(x.Narrow(0, 1, math.MaxInt)), cuda.ErrOutOfRange, "is not inside")
	must.Refuse(t, must.Err(sure(x.View(2, 2, 6)).Narrow(2, 0, 1)), cuda.ErrInvalidValue, "dimension 0 or 1 only")
}

func TestShapesThatNoneCanHave(t *testing.T) {
	ctx := newContext(t)
	must.Refuse(t, must.Err(tensor.New(ctx, cuda.F32, 2, -1)), cuda.ErrInvalidSize, "no negative sizes")
	must.Refuse(t, must.Err(tensor.New(ctx, cuda.F32, math.MaxInt, 2)), cuda.ErrInvalidSize, "larger than any memory")
	must.Refuse(t, must.Err(tensor.New(ctx, cuda.F32, 1<<40, 1<<30, 0)), cuda.ErrInvalidSize, "larger than any memory")
	must.Refuse(t, must.Err(tensor.New(ctx, cuda.F32, 1<<58)), cuda.ErrOutOfMemory, "bytes")
	must.Refuse(t, must.Err(tensor.New(ctx, 99, 1)), cuda.ErrInvalidDType, "no element type")
	buffer := sure(ctx.Allocate(64))
	must.Refuse(t, must.Err(tensor.Over(buffer, 4, cuda.F32, 16)), cuda.ErrInvalidSize, "64 bytes from byte 4 on")
	must.Refuse(t, must.Err(tensor.Over(buffer, -4, cuda.F32, 1)), cuda.ErrInvalidSize, "byte -4")
	if last := sure(tensor.Over(buffer, 60, cuda.F32, 1)); last.Context() != ctx || last.DType() != cuda.F32 {
		t.Errorf("got %v", last)
	}
}

// Memory in parts counts as what it holds, begins with zeros, and is no other tensor's later.
func TestParts(t *testing.T) {
	ctx := newContext(t)
	before := sure(ctx.BytesUsed())
	const rows, columns = 1 << 20, 1 << 21
	x := sure(tensor.NewParts(ctx, cuda.I32, [][2]int{{0, 100}, {rows / 2 * columns, rows/2*columns + 20}}, rows, columns))
	if used := sure(ctx.BytesUsed()) - before; used != 480 {
		t.Errorf("it counts as %d bytes", used)
	}
	row := sure(sure(x.Narrow(0, rows/2, 1)).View(columns))
	if got := sure(tensor.Read[int32](sure(row.Narrow(0, 0, 20)))); !slices.Equal(got, make([]int32, 20)) {
		t.Errorf("it begins with %v", got)
	}
	must.Do(t, x.Close())
	if used := sure(ctx.BytesUsed()); used != before {
		t.Errorf("%d bytes are left", used-before)
	}
	if _, err := tensor.NewParts(ctx, cuda.F32, [][2]int{{3, 5}, {4, 6}}, 10); !errors.Is(err, cuda.ErrInvalidValue) {
		t.Error(err)
	}
}

func TestValues(t *testing.T) {
	ctx := newContext(t)
	x := sure(tensor.From(ctx, []float32{1, 2, 3, 4, 5, 6}, 2, 3))
	left := sure(x.Narrow(1, 0, 2))
	must.Do(t, tensor.Write(left, []float32{10, 20, 30, 40}))
	must.Do(t, sure(x.Narrow(1, 2, 1)).Zero())
	if got := sure(tensor.Read[float32](x)); !slices.Equal(got, []float32{10, 20, 0, 30, 40, 0}) {
		t.Errorf("got %v", got)
	}
	y := sure(tensor.Zeros(ctx, cuda.F32, 2, 2))
	must.Do(t, y.Copy(left))
	if got := sure(tensor.Read[float32](y)); !slices.Equal(got, []float32{10, 20, 30, 40}) {
		t.Errorf("the copy is %v", got)
	}
	must.Refuse(t, y.Copy(x), cuda.ErrInvalidSize, "cannot copy")
	must.Refuse(t, tensor.Write(y, []int32{1, 2, 3, 4}), cuda.ErrInvalidDType, "holds f32, not i32")
	must.Refuse(t, tensor.Write(y, []float32{1}), cuda.ErrInvalidSize, "1 values do not fill")
	must.Refuse(t, y.Upload([]byte{1}), cuda.ErrInvalidSize, "1 bytes do not fill")
	must.Refuse(t, y.Download(nil), cuda.ErrInvalidSize, "does not fill 0 bytes")
	must.Refuse(t, must.Err(tensor.From(ctx, []float32{1, 2}, 3)), cuda.ErrInvalidSize, "2 values do not fill")
	wide := []int64{math.MinInt64, 7}
	if got := sure(tensor.Read[int64](sure(tensor.From(ctx, wide)))); !slices.Equal(got, wide) {
		t.Errorf("got %v", got)
	}
	if got := sure(tensor.Read[uint8](sure(tensor.From(ctx, []uint8{255})))); got[0] != 255 {
		t.Errorf("got %v", got)
	}
	if got := sure(tensor.Read[int8](sure(tensor.From(ctx, []int8{-128})))); got[0] != -128 {
		t.Errorf("got %v", got)
	}
}

// Widening 16-bit values loses nothing: narrowing them again gives the same bits, for every pattern that is not a NaN.
func TestFloats(t *testing.T) {
	ctx := newContext(t)
	for _, dtype := range []cuda.DType{cuda.F16, cuda.BF16} {
		bits := make([]byte, 0, 2*65536)
		for pattern := range 65536 {
			bits = append(bits, byte(pattern), byte(pattern>>8))
		}
		x := sure(tensor.New(ctx, dtype, 65536))
		must.Do(t, x.Upload(bits))
		wide, narrow := sure(x.Floats()), sure(tensor.New(ctx, dtype, 65536))
		must.Do(t, tensor.Cast(sure(tensor.From(ctx, wide)), narrow))
		again := make([]byte, len(bits))
		must.Do(t, narrow.Download(again))
		nans := 0
		for i, value := range wide {
			if value != value {
				nans++
			} else if again[2*i] != bits[2*i] || again[2*i+1] != bits[2*i+1] {
				t.Fatalf("%v: pattern %#x became %v and then %#x%02x", dtype, i, value, again[2*i+1], again[2*i])
			}
		}
		if want := map[cuda.DType]int{cuda.F16: 2 * 1023, cuda.BF16: 2 * 127}[dtype]; nans != want {
			t.Errorf("%v: %d NaNs, not %d", dtype, nans, want)
		}
	}
	must.Refuse(t, must.Err(counting(ctx, 2).Floats()), cuda.ErrInvalidDType, "holds i32")
}

func TestClosedTensorIsRefused(t *testing.T) {
	ctx := newContext(t)
	x := sure(tensor.From(ctx, []float32{1, 2}))
	view := sure(x.View(2, 1))
	must.Do(t, view.Close())
	if err := tensor.Add(x, x, x); err != nil {
		t.Errorf("closing a view closed the tensor: %v", err)
	}
	var none *tensor.Tensor
	must.Do(t, errors.Join(x.Close(), x.Close(), none.Close()))
	must.Refuse(t, tensor.Add(x, x, x), cuda.ErrInvalidContext, "a is closed")
	must.Refuse(t, tensor.Add(view, view, view), cuda.ErrInvalidContext, "a is closed")
	must.Refuse(t, must.Err(tensor.Read[float32](view)), cuda.ErrInvalidContext, "closed")
	if used, err := ctx.BytesUsed(); err != nil || used != 0 {
		t.Errorf("%d bytes are used (%v)", used, err)
	}
}

// Shapes fold and flatten as the package says, and no further.
func TestHowShapesMeetTheHeaders(t *testing.T) {
	ctx := newContext(t)
	x := sure(tensor.Zeros(ctx, cuda.F32, 2, 3, 4))
	flat, gain := sure(tensor.New(ctx, cuda.F32, 24)), sure(tensor.New(ctx, cuda.F32, 4))
	if err := errors.Join(tensor.Add(x, x, x), tensor.RMSNorm(x, gain, x, nil, 1e-6)); err != nil {
		t.Error(err)
	}
	must.Refuse(t, tensor.Softmax(flat, flat), cuda.ErrInvalidSize,
		"softmax: x has shape [24]; one of 2 dimensions was expected")
	w := sure(tensor.New(ctx, cuda.F32, 5, 4))
	y := sure(tensor.New(ctx, cuda.F32, 2, 3, 5))
	if err := tensor.Gemm(x, w, y, false, true); err != nil {
		t.Error(err)
	}
	must.Refuse(t, tensor.Gemm(x, w, y, true, true), cuda.ErrInvalidSize,
		"a has shape [2 3 4]; one of 2 dimensions was expected")
	tokens, rows := sure(tensor.New(ctx, cuda.F32, 4, 8)), sure(tensor.New(ctx, cuda.F32, 6, 8))
	must.Refuse(t, tensor.MoEGather(tokens, counting(ctx, 6), rows),
		cuda.ErrInvalidSize, "row_slot has 6 entries along tokens*k, which no k gives")
	halves := sure(tensor.New(ctx, cuda.F32, 4, 16))
	gate, up := sure(halves.Narrow(1, 0, 8)), sure(tensor.New(ctx, cuda.F32, 4, 8))
	must.Refuse(t, tensor.SwiGLU(gate, up, nil, sure(tensor.New(ctx, cuda.F32, 4, 8))), cuda.ErrInvalidSize,
		"the rows of up lie 8 elements apart, but those of gate 16; both must be the same (ld)")
	must.Refuse(t, tensor.FlashAttention(gate, up, up, nil, up, nil, -1, 1, false), cuda.ErrInvalidSize, "")
	other := sure(tensor.New(newContext(t), cuda.F32, 24))
	must.Refuse(t, tensor.Add(x, other, x), cuda.ErrWrongDevice, "add: b belongs to another context")
	must.Refuse(t, tensor.ZeroGrad(nil), cuda.ErrNullPointer, "grad is nil")
}

// An id that is out of range is refused before anything is written, with the status that says so.
func TestIdsOutOfRange(t *testing.T) {
	ctx := newContext(t)
	table, y := sure(tensor.Zeros(ctx, cuda.F32, 3, 2)), sure(tensor.From(ctx, []float32{1, 2, 3, 4}, 2, 2))
	ids := sure(tensor.From(ctx, []int32{0, 3}))
	must.Refuse(t, tensor.Embedding(table, ids, y), cuda.ErrOutOfRange, "3")
	if got := sure(tensor.Read[float32](y)); !slices.Equal(got, []float32{1, 2, 3, 4}) {
		t.Errorf("the output is %v", got)
	}
}
