package engine

import (
	"math"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// Sampling says how the next token is chosen. The zero value always picks the most likely token.
type Sampling struct {
	Temperature float64 // divides the logits; 0 always picks the most likely token
	TopK        int     // samples only from this many of the most likely tokens; 0 from all
	// TopP samples only from the shortest run of most likely tokens that reaches this probability; 0: no limit.
	TopP float64
	Seed int64 // the same seed gives the same tokens; sequence r of a batch uses Seed + r
}

// Validate says which option is outside its range.
func (s Sampling) Validate() error {
	if math.IsNaN(s.Temperature) || math.IsInf(s.Temperature, 0) || s.Temperature < 0 {
		return wrongOption("temperature", "temperature is %v; it must be a finite number, at least 0", s.Temperature)
	}
	if s.TopK < 0 || s.TopK > math.MaxInt32 {
		return wrongOption("top_k", "top_k is %d; it must be at least 1", s.TopK)
	}
	if !(s.TopP >= 0 && s.TopP <= 1) {
		return wrongOption("top_p", "top_p is %v; it must be above 0, at most 1", s.TopP)
	}
	return nil
}

// Of is the sampling of one sequence of a batch: the seed goes up by its number, modulo 2^64.
func (s Sampling) Of(number int) Sampling {
	s.Seed = int64(uint64(s.Seed) + uint64(number))
	return s
}

// rowSampler draws a token a row on the device, each row by its own options.
//
// One kernel serves them all: with the largest top_k and a top_p of 1 it draws as those without do, and with a temperature
// of 0 it takes the most likely token.
type rowSampler struct {
	counts, topK      *tensor.Tensor // i32 [rows]: draws so far, most candidates
	temperature, topP *tensor.Tensor // f32 [rows]
	seeds             *tensor.Tensor // i64 [rows]
	greedy            bool           // all rows: then no numbers are drawn at all
}

func newRowSampler(p *layer.Pass, keep *store, rows int) *rowSampler {
	return &rowSampler{
		counts: keep.zeros(p, cuda.I32, rows), topK: keep.zeros(p, cuda.I32, rows),
		temperature: keep.zeros(p, cuda.F32, rows), topP: keep.zeros(p, cuda.F32, rows),
		seeds: keep.zeros(p, cuda.I64, rows), greedy: true,
	}
}

// assign sets the options of the first rows, and how many draws each has had.
func (s *rowSampler) assign(p *layer.Pass, rows []*Row) {
	count := len(rows)
	counts, topK := make([]int32, count), make([]int32, count)
	temperature, topP, seeds := make([]float32, count), make([]float32, count), make([]int64, count)
	s.greedy = true
	for at, row := range rows {
		option := row.Sampling
		counts[at], topK[at], topP[at] = int32(row.draws), math.MaxInt32, 1
		if option.TopK > 0 {
			topK[at] = int32(option.TopK)
		}
		if option.TopP > 0 {
			topP[at] = float32(option.TopP)
		}
		temperature[at], seeds[at] = float32(option.Temperature), option.Seed
		s.greedy = s.greedy && option.Temperature == 0
	}
	p.Check(tensor.Write(p.Narrow(s.counts, 0, 0, count), counts))
	p.Check(tensor.Write(p.Narrow(s.topK, 0, 0, count), topK))
	p.Check(tensor.Write(p.Narrow(s.temperature, 0, 0, count), temperature))
	p.Check(tensor.Write(p.Narrow(s.topP, 0, 0, count), topP))
	p.Check(tensor.Write(p.Narrow(s.seeds, 0, 0, count), seeds))
}

// draw makes the next token of each row of logits [rows, vocab], into ids i32 [rows].
func (s *rowSampler) draw(p *layer.Pass, logits, ids *tensor.Tensor) {
	rows := ids.Dim(0)
	if p.Err() != nil {
		return
	}
	if s.greedy {
		p.Check(tensor.Argmax(logits, ids))
		return
	}
	first := func(of *tensor.Tensor) *tensor.Tensor { return p.Narrow(of, 0, 0, rows) }
	counts := first(s.counts)
	p.Check(tensor.TopPSample(logits, first(s.temperature), first(s.topK), first(s.topP), first(s.seeds), counts, ids))
	p.Check(tensor.Increment(counts, 1))
}
