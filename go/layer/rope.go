package layer

import (
	"cmp"
	"errors"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/tensor"
)

// RopeTables are cosines and sines of the rotary embedding, made once for as many positions as were ever asked for.
type RopeTables struct {
	HeadDim        int
	Base, NTKAlpha float64
	Scale          float64   // factor of the positions; 0 is 1
	Divisors       []float32 // of the frequencies, one a pair; nil for ones
	Magnitude      float64   // multiplied with the cosines and sines of what is rotated; 0 is 1
	Rotated        int       // elements at a head's beginning that are rotated; 0 is all

	cosine, sine *tensor.Tensor // [at least what was asked for, head_dim/2]
	positions    *tensor.Tensor // i32 [batch, length] of the last length, for the largest batch
}

// Tables gives cosines and sines, [at least length, head_dim/2].
func (r *RopeTables) Tables(p *Pass, length int) (cosine, sine *tensor.Tensor) {
	if r.cosine == nil || r.cosine.Dim(0) < length {
		cosine = p.Empty(cuda.F32, length, r.HeadDim/2)
		sine = p.Empty(cuda.F32, length, r.HeadDim/2)
		r.fill(p, cosine, sine)
		if p.Err() != nil {
			return cosine, sine
		}
		p.Check(closeAll(r.cosine, r.sine))
		r.cosine, r.sine = p.Keep(cosine), p.Keep(sine)
	}
	return r.cosine, r.sine
}

func (r *RopeTables) fill(p *Pass, cosine, sine *tensor.Tensor) {
	r.angles(p, cosine, sine)
	magnitude, half := float32(cmp.Or(r.Magnitude, 1)), cmp.Or(r.Rotated, r.HeadDim)/2
	switch {
	case magnitude == 1:
	case 2*half == r.HeadDim:
		p.Check(tensor.Scale(cosine, cosine, magnitude))
		p.Check(tensor.Scale(sine, sine, magnitude))
	default: // pairs that are not rotated stay as they are
		factors := make([]float32, cosine.Dim(0)*cosine.Dim(1))
		for at := range factors {
			factors[at] = 1
			if at%cosine.Dim(1) < half {
				factors[at] = magnitude
			}
		}
		spread := p.Empty(cuda.F32, cosine.Dim(0), cosine.Dim(1))
		p.Check(tensor.Write(spread, factors))
		p.Check(tensor.Mul(cosine, spread, cosine))
		p.Check(tensor.Mul(sine, spread, sine))
		p.Free(spread)
	}
}

func (r *RopeTables) angles(p *Pass, cosine, sine *tensor.Tensor) {
	if (r.Scale == 0 || r.Scale == 1) && r.Divisors == nil {
		p.Check(tensor.RopeFreqs(cosine, sine, 0, r.Base, r.NTKAlpha))
		return
	}
	var factors *tensor.Tensor
	if r.Divisors != nil {
		factors = p.Empty(cuda.F32, len(r.Divisors))
		p.Check(tensor.Write(factors, r.Divisors))
		defer p.Free(factors)
	}
	p.Check(tensor.RopeFreqsScaled(factors, cosine, sine, 0, r.Base, r.NTKAlpha, cmp.Or(r.Scale, 1)))
}

// Length is how many positions the tables reach now.
func (r *RopeTables) Length() int {
	if r.cosine == nil {
		return 0
	}
	return r.cosine.Dim(0)
}

// Positions gives 0 .. length-1 for each of `batch` sequences, i32 [batch*length].
func (r *RopeTables) Positions(p *Pass, batch, length int) *tensor.Tensor {
	if r.positions == nil || r.positions.Dim(1) != length || r.positions.Dim(0) < batch {
		row := make([]int32, length)
		for at := range row {
			row[at] = int32(at)
		}
		made := p.Empty(cuda.I32, batch, length)
		p.Check(tensor.Write(p.Narrow(made, 0, 0, 1), row))
		for have := 1; have < batch; have *= 2 {
			more := min(have, batch-have)
			p.Check(p.Narrow(made, 0, have, more).Copy(p.Narrow(made, 0, 0, more)))
		}
		if p.Err() != nil {
			return p.View(made, batch*length)
		}
		p.Check(closeAll(r.positions))
		r.positions = p.Keep(made)
	}
	return p.View(p.Narrow(r.positions, 0, 0, batch), batch*length)
}

// Close frees the tables.
func (r *RopeTables) Close() error {
	err := closeAll(r.cosine, r.sine, r.positions)
	r.cosine, r.sine, r.positions = nil, nil, nil
	return err
}

func closeAll(tensors ...*tensor.Tensor) error {
	var err error
	for _, made := range tensors {
		if made != nil {
			err = errors.Join(err, made.Close())
		}
	}
	return err
}
