package engine

import (
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// stepsUnderWay is how many steps' results can be on their way at once: that which was computed, and that which is.
const stepsUnderWay = 2

// transfers are what goes between host and device in a loop of decoding, in front of the kernels of the next step or
// beside them. A step puts the drawn ids, i32 [rows], into one tensor and reads its page table, i32 [rows, pages], from
// another.
type transfers interface {
	// page puts a page into the table, where no step under way reads.
	page(row, column int, page int32) error
	// begin says that a step begins, which must see what was put into the table.
	begin() error
	// end says that all of a step was given to the device: its results are wanted.
	end() error
	// ids are the results of the oldest step whose results were not read; valid until the next are.
	ids() ([]int32, error)
	close() error
}

// waiting computes nothing while the host and the device talk: a step's results are read when it has ended.
type waiting struct {
	drawn, table *tensor.Tensor
	here         []int32
}

func newWaiting(drawn, table *tensor.Tensor) *waiting {
	return &waiting{drawn, table, make([]int32, drawn.Dim(0))}
}

// placeOf is one element of a table.
func placeOf(table *tensor.Tensor, row, column int) (*tensor.Tensor, error) {
	whole, err := table.Narrow(0, row, 1)
	if err != nil {
		return nil, err
	}
	return whole.Narrow(1, column, 1)
}

func (w *waiting) page(row, column int, page int32) error {
	place, err := placeOf(w.table, row, column)
	if err != nil {
		return err
	}
	return tensor.Write(place, []int32{page})
}

func (w *waiting) begin() error          { return nil }
func (w *waiting) end() error            { return nil }
func (w *waiting) ids() ([]int32, error) { return w.here, tensor.ReadInto(w.drawn, w.here) }
func (w *waiting) close() error          { return nil }

// beside is as waiting, while the device computes the next step: each direction has a stream of its own.
//
// A step overwrites the ids of the one before, so these are put aside on the device, in the order of the kernels, before
// they travel. What is put into the table is in places that no step under way looks at.
type beside struct {
	ctx              *cuda.Context
	drawn, table     *tensor.Tensor
	in, out          *cuda.Stream
	aside            [stepsUnderWay]*tensor.Tensor
	here             [stepsUnderWay]*cuda.Buffer // host memory
	drawnAt, arrived [stepsUnderWay]*cuda.Event
	pages            *cuda.Buffer // host memory, laid out as the table
	put              *cuda.Event
	newPages         bool
	ended, taken     int // steps
	read             []int32
	closers          []interface{ Close() error }
}

func newBeside(ctx *cuda.Context, drawn, table *tensor.Tensor) (*beside, error) {
	b := &beside{ctx: ctx, drawn: drawn, table: table, read: make([]int32, drawn.Dim(0))}
	if err := b.build(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *beside) build() error {
	stream := func(into **cuda.Stream) error {
		made, err := b.ctx.NewStream()
		if err == nil {
			*into, b.closers = made, append(b.closers, made)
		}
		return err
	}
	event := func(into **cuda.Event) error {
		made, err := b.ctx.NewEvent()
		if err == nil {
			*into, b.closers = made, append(b.closers, made)
		}
		return err
	}
	host := func(into **cuda.Buffer, bytes int64) error {
		made, err := b.ctx.AllocateHost(bytes)
		if err == nil {
			*into, b.closers = made, append(b.closers, made)
		}
		return err
	}
	err := errors.Join(stream(&b.in), stream(&b.out), event(&b.put), host(&b.pages, b.table.Bytes()))
	for slot := range stepsUnderWay {
		aside, failure := tensor.Zeros(b.ctx, cuda.I32, b.drawn.Dim(0))
		if failure == nil {
			b.aside[slot], b.closers = aside, append(b.closers, aside)
		}
		err = errors.Join(err, failure, host(&b.here[slot], b.drawn.Bytes()), event(&b.drawnAt[slot]), event(&b.arrived[slot]))
	}
	return err
}

func (b *beside) page(row, column int, page int32) error {
	// The place in b.pages was last used for a step whose results have been read since.
	offset := int64(row*b.table.Dim(1)+column) * 4
	value := [4]byte{byte(page), byte(page >> 8), byte(page >> 16), byte(page >> 24)}
	if err := b.ctx.Upload(b.pages.At(offset), value[:]); err != nil {
		return err
	}
	place, err := placeOf(b.table, row, column)
	if err != nil {
		return err
	}
	b.newPages = true
	return b.ctx.CopyAsync(b.in, place.Memory(), b.pages.At(offset), 4)
}

func (b *beside) begin() error {
	if !b.newPages {
		return nil
	}
	b.newPages = false
	if err := b.put.Record(b.in); err != nil {
		return err
	}
	return b.ctx.Wait(b.put)
}

func (b *beside) end() error {
	slot := b.ended % stepsUnderWay
	b.ended++
	if err := b.aside[slot].Copy(b.drawn); err != nil {
		return err
	}
	if err := b.drawnAt[slot].Record(nil); err != nil {
		return err
	}
	if err := b.out.Wait(b.drawnAt[slot]); err != nil {
		return err
	}
	if err := b.ctx.CopyAsync(b.out, b.here[slot].At(0), b.aside[slot].Memory(), b.drawn.Bytes()); err != nil {
		return err
	}
	return b.arrived[slot].Record(b.out)
}

func (b *beside) ids() ([]int32, error) {
	slot := b.taken % stepsUnderWay
	b.taken++
	if err := b.arrived[slot].Synchronize(); err != nil {
		return nil, err
	}
	bytes := make([]byte, 4*len(b.read))
	if err := b.ctx.Download(bytes, b.here[slot].At(0)); err != nil {
		return nil, err
	}
	for at := range b.read {
		b.read[at] = int32(bytes[4*at]) | int32(bytes[4*at+1])<<8 | int32(bytes[4*at+2])<<16 | int32(bytes[4*at+3])<<24
	}
	return b.read, nil
}

func (b *beside) close() error {
	var err error
	for _, made := range b.closers {
		err = errors.Join(err, made.Close())
	}
	b.closers = nil
	return err
}
