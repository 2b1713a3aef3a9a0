package golden

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/safetensors"
)

const (
	guard     = 64 // bytes around every buffer that must survive
	guardByte = 0xC3
	floatByte = 0xFF // of which every float is NaN
	wholeByte = 0x5A
)

// An Outcome is what one output of one call came to.
type Outcome struct {
	Output  string
	Over    string  // the input that the output was written over; empty in the plain call
	Share   float64 // the part of the tolerance that was used
	Problem string  // empty when nothing was wrong
}

// A memory is a buffer between guards, and the bytes that it was filled with.
type memory struct {
	buffer *cuda.Buffer
	start  int
	image  []byte
}

// allocate makes the memory of a parameter. A buffer is aligned to 256 bytes: one element further on, the content is
// aligned to its element alone.
func allocate(ctx *cuda.Context, content []byte, itemSize int, aligned bool) (*memory, error) {
	m := &memory{start: guard}
	if !aligned {
		m.start += itemSize
	}
	m.image = bytes.Repeat([]byte{guardByte}, m.start+len(content)+guard)
	copy(m.image[m.start:], content)
	var err error
	if m.buffer, err = ctx.Allocate(int64(len(m.image))); err != nil {
		return nil, err
	}
	return m, ctx.Upload(m.buffer.At(0), m.image)
}

// A call is one call of a fixture: which output lies over which input, and how the buffers are aligned.
type call struct {
	ctx     *cuda.Context
	fixture *Fixture
	kernel  *cuda.Kernel
	over    map[string]string // output to input
	aligned bool
	memory  map[string]*memory
}

// Run makes the plain call, and each call in which an output may be an input and is; all of them with buffers that are
// aligned to their element and no more, and with aligned ones.
func Run(ctx *cuda.Context, fixture *Fixture) ([]Outcome, error) {
	at := slices.IndexFunc(cuda.Kernels(), func(k cuda.Kernel) bool { return k.Name == fixture.Kernel })
	if at < 0 {
		return nil, fmt.Errorf("there is no kernel %s", fixture.Kernel)
	}
	kernel := cuda.Kernels()[at]
	var outcomes []Outcome
	for _, over := range overlays(fixture, &kernel) {
		for _, aligned := range []bool{false, true} {
			c := &call{ctx, fixture, &kernel, over, aligned, map[string]*memory{}}
			more, err := c.run()
			outcomes = append(outcomes, more...)
			for _, memory := range c.memory {
				err = errors.Join(err, memory.buffer.Close())
			}
			if err != nil {
				return outcomes, err
			}
		}
	}
	return outcomes, nil
}

// overlays is which output lies over which input, in each of the calls.
func overlays(fixture *Fixture, kernel *cuda.Kernel) []map[string]string {
	all := []map[string]string{{}}
	for _, param := range kernel.Params {
		if _, ok := fixture.Outputs[param.Name]; !ok {
			continue
		}
		for _, other := range param.Alias {
			at := slices.IndexFunc(kernel.Params, func(p cuda.Param) bool { return p.Name == other })
			stride := kernel.Params[at].Stride
			_, given := fixture.Inputs[other]
			if given && (stride == param.Stride || fixture.Scalars[stride] == fixture.Scalars[param.Stride]) {
				all = append(all, map[string]string{param.Name: other})
			}
		}
	}
	return all
}

func (c *call) run() ([]Outcome, error) {
	arguments, err := c.arguments()
	if err != nil {
		return nil, err
	}
	failure := c.ctx.Call(c.kernel.Name, arguments...)
	if failure == nil {
		failure = c.ctx.Synchronize()
	}
	return c.judge(failure)
}

// arguments fills the memory and lists what the kernel is called with.
func (c *call) arguments() ([]cuda.Argument, error) {
	for _, param := range c.kernel.Params {
		if param.Kind != cuda.PointerParam || c.over[param.Name] != "" {
			continue
		}
		content, err := c.content(param)
		if err != nil {
			return nil, err
		}
		if content == nil {
			continue
		}
		dtype, err := c.dtype(param)
		if err != nil {
			return nil, err
		}
		if c.memory[param.Name], err = allocate(c.ctx, content, dtype.Size(), c.aligned); err != nil {
			return nil, err
		}
	}
	var arguments []cuda.Argument
	for _, param := range c.kernel.Params {
		argument, err := c.argument(param)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, argument)
	}
	return arguments, nil
}

// content is what a parameter's memory holds before the call; nil for a null pointer.
func (c *call) content(param cuda.Param) ([]byte, error) {
	dtype, err := c.dtype(param)
	if err != nil {
		return nil, err
	}
	if input, ok := c.fixture.Inputs[param.Name]; ok {
		if input.DType.Size() != dtype.Size() {
			return nil, fmt.Errorf("the input %s holds %s, but the call says %v", param.Name, input.DType, dtype)
		}
		return append([]byte{}, input.Bytes...), nil
	}
	output, ok := c.fixture.Outputs[param.Name]
	if !ok {
		return nil, nil
	}
	blank := byte(floatByte)
	if isWhole(dtype) {
		blank = wholeByte
	}
	return bytes.Repeat([]byte{blank}, elements(output)*dtype.Size()), nil
}

func (c *call) argument(param cuda.Param) (cuda.Argument, error) {
	switch param.Kind {
	case cuda.PointerParam:
		name := param.Name
		if input := c.over[name]; input != "" {
			name = input
			c.memory[param.Name] = c.memory[input]
		}
		if m := c.memory[name]; m != nil {
			return cuda.Pointer(m.buffer.At(int64(m.start))), nil
		}
		return cuda.Pointer(cuda.Memory{}), nil
	case cuda.DTypeParam:
		dtype, err := c.scalarDType(param.Name)
		return cuda.Integer(int64(dtype)), err
	}
	if param.C == "float" || param.C == "double" {
		value, err := c.fixture.Real(param.Name)
		return cuda.Real(value), err
	}
	value, err := c.fixture.Integer(param.Name)
	return cuda.Integer(value), err
}

// dtype is the element type of a pointer.
func (c *call) dtype(param cuda.Param) (cuda.DType, error) {
	if dtype, err := cuda.ParseDType(param.DType); err == nil {
		return dtype, nil
	}
	return c.scalarDType(param.DType)
}

func (c *call) scalarDType(name string) (cuda.DType, error) {
	text, ok := c.fixture.Scalars[name].(string)
	if !ok {
		return 0, fmt.Errorf("%s is %v; it must be the name of a dtype", name, c.fixture.Scalars[name])
	}
	return cuda.ParseDType(text)
}

// judge compares the memory after the call with what it must be.
func (c *call) judge(failure error) ([]Outcome, error) {
	now := map[string][]byte{}
	problem := ""
	for _, param := range c.kernel.Params {
		m := c.memory[param.Name]
		if m == nil || c.over[param.Name] != "" {
			continue
		}
		image := make([]byte, len(m.image))
		if err := c.ctx.Download(image, m.buffer.At(0)); err != nil {
			return nil, err
		}
		now[param.Name] = image
		end := len(image) - guard
		switch {
		case !bytes.Equal(image[:m.start], m.image[:m.start]), !bytes.Equal(image[end:], m.image[end:]):
			problem = "bytes outside " + param.Name + " were written"
		case !param.Writes && !c.isOverwritten(param.Name) && !bytes.Equal(image, m.image):
			problem = "the input " + param.Name + " was written"
		}
	}
	if failure != nil {
		problem = failure.Error()
	}
	var outcomes []Outcome
	for _, param := range c.kernel.Params {
		expected, ok := c.fixture.Outputs[param.Name]
		if !ok {
			continue
		}
		outcome := Outcome{Output: param.Name, Over: c.over[param.Name], Problem: problem}
		dtype, err := c.dtype(param)
		if err != nil {
			return nil, err
		}
		m := c.memory[param.Name]
		image := now[param.Name]
		if outcome.Over != "" {
			image = now[outcome.Over]
		}
		got := image[m.start : len(image)-guard]
		share, difference := Compare(got, dtype, expected, c.fixture.Tolerance[param.Name], c.fixture.Zeros[param.Name])
		outcome.Share = share
		if problem == "" {
			outcome.Problem = difference
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes, nil
}

func (c *call) isOverwritten(input string) bool {
	for _, over := range c.over {
		if over == input {
			return true
		}
	}
	return false
}

func isWhole(dtype cuda.DType) bool {
	return dtype == cuda.I32 || dtype == cuda.I8 || dtype == cuda.U8 || dtype == cuda.I64
}

func elements(t safetensors.Tensor) int { return len(t.Bytes) / t.DType.Size() }
