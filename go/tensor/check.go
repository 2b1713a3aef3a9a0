package tensor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
)

// A checker gathers what is wrong with the tensors of one kernel call. Only the first problem is kept.
type checker struct {
	kernel  string
	origins string // which tensor determines which size, for messages
	ctx     *cuda.Context
	err     error
}

// form is what rows a tensor of a kernel may have.
type form int

const (
	dense   form = iota
	strided      // rows may be further apart than they are long
	exact        // and no dimensions are folded: the two may be swapped
)

// exactIf is f for a tensor whose two dimensions are swapped when the flag is set.
func (f form) exactIf(swapped bool) form {
	if swapped {
		return f | exact
	}
	return f
}

// named is a tensor and what the header calls it.
type named struct {
	name   string
	tensor *Tensor
}

// ranked is a tensor read as a shape of that many dimensions.
type ranked struct {
	named
	rank int
}

// folded is what is folded into the first dimension.
func (r ranked) folded() []int { return r.tensor.shape[:len(r.tensor.shape)-r.rank+1] }

func begin(kernel, origins string) checker { return checker{kernel: kernel, origins: origins} }

func (c *checker) fail(status cuda.Status, format string, values ...any) bool {
	if c.err == nil {
		message := c.kernel + ": " + fmt.Sprintf(format, values...)
		c.err = &cuda.Error{Status: status, Function: "cuda_" + c.kernel, Message: message}
	}
	return false
}

// required says whether t is there and can be read as a shape of that many dimensions.
func (c *checker) required(name string, t *Tensor, rank int, form form) bool {
	if t == nil {
		return c.fail(cuda.ErrNullPointer, "%s is nil; it must be a tensor", name)
	}
	return c.optional(name, t, rank, form)
}

// optional is required for a tensor that may be nil.
//
// A shape of one dimension takes a dense tensor of any shape, flattened; leading dimensions beyond those of the
// header's shape are folded into the first.
func (c *checker) optional(name string, t *Tensor, rank int, form form) bool {
	if t == nil {
		return true
	}
	if t.why != nil {
		c.err = cmp.Or(c.err, t.why)
		return false
	}
	ctx := t.buffer.Context()
	if c.ctx == nil {
		c.ctx = ctx
	} else if c.ctx != ctx {
		return c.fail(cuda.ErrWrongDevice, "%s belongs to another context than the tensors before it", name)
	}
	if !t.dense && form&strided == 0 {
		return c.fail(cuda.ErrInvalidSize, "%s must be dense, but its rows of %d elements lie %d apart; Contiguous makes a "+
			"dense copy", name, t.inner, t.ld)
	}
	if rank == 1 || len(t.shape) == rank {
		return true
	}
	if len(t.shape) < rank || !t.dense || form&exact != 0 {
		return c.fail(cuda.ErrInvalidSize, "%s has shape %v; one of %d dimensions was expected", name, t.shape, rank)
	}
	return true
}

// extent is dimension `at` of t, read as a shape of that many dimensions.
func (t *Tensor) extent(rank, at int) int {
	if rank == 1 {
		return t.size
	}
	extra := len(t.shape) - rank
	if at > 0 || extra == 0 {
		return t.shape[extra+at]
	}
	folded := 1
	for _, extent := range t.shape[:extra+1] {
		folded *= extent
	}
	return folded
}

// extentIf is dimension `swapped` where the flag says so, else `at`.
func (t *Tensor) extentIf(flag bool, rank, swapped, at int) int {
	if flag {
		at = swapped
	}
	return t.extent(rank, at)
}

// same refuses tensors of different shapes where the header gives them one shape. Nil has any.
func (c *checker) same(tensors ...named) {
	var first named
	for _, each := range tensors {
		switch {
		case each.tensor == nil:
		case first.tensor == nil:
			first = each
		case !slices.Equal(each.tensor.shape, first.tensor.shape):
			c.fail(cuda.ErrInvalidSize, "%s has shape %v, but %s has shape %v; both must have the same shape", each.name,
				each.tensor.shape, first.name, first.tensor.shape)
		}
	}
}

// folds refuses tensors that fold different sizes into a dimension that all of them have.
func (c *checker) folds(dim string, tensors ...ranked) {
	var first ranked
	for _, each := range tensors {
		switch {
		case each.tensor == nil || len(each.folded()) < 2:
		case first.tensor == nil:
			first = each
		case !slices.Equal(each.folded(), first.folded()):
			c.fail(cuda.ErrInvalidSize, "%s folds %v into %s, but %s folds %v; both must be the same, or one of them flat",
				each.name, each.folded(), dim, first.name, first.folded())
		}
	}
}

// unfolded refuses a tensor that folds sizes into a dimension which is not the first one of another tensor.
func (c *checker) unfolded(name string, t *Tensor, rank int, text, dim, other string) {
	if t != nil && len(t.shape) > rank {
		c.fail(cuda.ErrInvalidSize, "%s has shape %v; %s was expected, where %s cannot be folded, since %s has it as an "+
			"inner dimension", name, t.shape, text, dim, other)
	}
}

// factors checks what is folded into a product of as many sizes. Where the product is nothing, no factor matters.
func (c *checker) factors(name string, t *Tensor, rank int, text string, want ...int) {
	if t == nil || t.size == 0 {
		return
	}
	if folded := (ranked{named{name, t}, rank}).folded(); len(folded) == len(want) && !slices.Equal(folded, want) {
		c.fail(cuda.ErrInvalidSize, "%s folds %v into the first dimension of %s; %v was expected (%s)", name, folded, text,
			slices.Clone(want), c.origins)
	}
}

// size checks a size that the caller gave.
func (c *checker) size(name string, value int) {
	if value < 0 {
		c.fail(cuda.ErrInvalidSize, "%s is %d; a size is not negative", name, value)
	}
}

// solve is the size s of factor * s / divisor + offset = extent. Nothing times anything is nothing: where both are zero
// the size does not matter.
func (c *checker) solve(name, dim, size string, extent, offset, divisor, factor int) int {
	product := extent - offset
	if product > maxBytes/divisor {
		c.fail(cuda.ErrInvalidSize, "%s has %d entries along %s, which is too many", name, extent, dim)
		return 1
	}
	product *= divisor
	if factor == 0 && product == 0 {
		return 1
	}
	if factor == 0 || product < 0 || product%factor != 0 {
		c.fail(cuda.ErrInvalidSize, "%s has %d entries along %s, which no %s gives", name, extent, dim, size)
		return 1
	}
	return product / factor
}

// firstDType is the element type of the first tensor that is given; f32 when none is.
func firstDType(tensors ...*Tensor) cuda.DType {
	for _, t := range tensors {
		if t != nil {
			return t.dtype
		}
	}
	return cuda.F32
}

// dtype checks an element type; nil has any.
func (c *checker) dtype(name string, t *Tensor, want cuda.DType) {
	if t != nil && t.dtype != want {
		c.fail(cuda.ErrInvalidDType, "%s is %v; %v was expected", name, t.dtype, want)
	}
}

// shape checks every dimension; nil has any shape. text is the shape in the header.
func (c *checker) shape(name string, t *Tensor, text string, want ...int) {
	if t == nil {
		return
	}
	for at, extent := range want {
		if t.extent(len(want), at) != extent {
			c.mismatch(name, t, text, slices.Clone(want))
			return
		}
	}
}

// shapeIf is shape for a tensor whose last two dimensions are swapped when the flag is set; swappedText is the shape
// then.
func (c *checker) shapeIf(swapped bool, name string, t *Tensor, text, swappedText string, want ...int) {
	if swapped {
		text = swappedText
		last := len(want) - 1
		want[last-1], want[last] = want[last], want[last-1]
	}
	c.shape(name, t, text, want...)
}

func (c *checker) mismatch(name string, t *Tensor, text string, want []int) {
	if c.origins == "" {
		c.fail(cuda.ErrInvalidSize, "%s has shape %v; %s was expected", name, t.shape, text)
		return
	}
	c.fail(cuda.ErrInvalidSize, "%s has shape %v; %s, here %v, was expected (%s)", name, t.shape, text, want, c.origins)
}

// rowStride is the distance of t's rows, read as a shape of that many dimensions, and whether it has one: a tensor of
// at most one row has none of its own.
func (t *Tensor) rowStride(rank int) (stride int, own bool) {
	extra := len(t.shape) - rank
	if extra == 0 {
		return t.ld, t.size != 0 && t.shape[0] > 1
	}
	return t.rowLength(rank), t.size != 0 && t.extent(rank, 0) > 1
}

// rowLength is the elements of one row, read as a shape of that many dimensions.
func (t *Tensor) rowLength(rank int) int {
	length := 1
	for _, extent := range t.shape[len(t.shape)-rank+1:] {
		length *= extent
	}
	return length
}

// stride is the distance of the rows of the one tensor that has it.
func (t *Tensor) stride(rank int) int {
	if stride, own := t.rowStride(rank); own {
		return stride
	}
	return t.rowLength(rank)
}

// strides is the common distance of the rows of several tensors.
func (c *checker) strides(name string, rank int, tensors ...named) int {
	common, of, longest := 0, "", 0
	for _, each := range tensors {
		if each.tensor == nil {
			continue
		}
		longest = max(longest, each.tensor.rowLength(rank))
		stride, own := each.tensor.rowStride(rank)
		switch {
		case !own:
		case of == "":
			common, of = stride, each.name
		case stride != common:
			c.fail(cuda.ErrInvalidSize, "the rows of %s lie %d elements apart, but those of %s %d; both must be the same (%s)",
				each.name, stride, of, common, name)
		}
	}
	if of == "" {
		return longest
	}
	return common
}
