package engine

import (
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/tensor"
)

// MostAlternatives is how many alternatives a request may ask for, as in OpenAI's protocol.
const MostAlternatives = 20

// TokenLogprobs is the log-probability of a token, by the logits that the model gave, before penalties, biases, masks and
// temperature; and the most likely tokens in its place, the most likely first and of equal ones that with the lower id.
type TokenLogprobs struct {
	Logprob float32
	Top     []TopLogprob
}

// TopLogprob is one of the most likely tokens.
type TopLogprob struct {
	ID      int32
	Logprob float32
}

// CheckAlternatives refuses a number of alternatives that cannot be had; the error calls it `name`.
func CheckAlternatives(name string, count int) error {
	if count < 0 || count > MostAlternatives {
		return wrongOption(name, "%s is %d; it must be 0 to %d", name, count, MostAlternatives)
	}
	return nil
}

// scores are places on the device for the log-probabilities of some rows.
type scores struct {
	logprobs, topIDs, topLogprobs *tensor.Tensor // f32 [rows], i32 and f32 [rows, MostAlternatives]
}

// newScores makes places that live as long as the pass; a store may keep them.
func newScores(p *layer.Pass, rows int) *scores {
	s := &scores{
		p.Empty(cuda.F32, rows), p.Empty(cuda.I32, rows, MostAlternatives), p.Empty(cuda.F32, rows, MostAlternatives),
	}
	return s
}

func (s *scores) keptBy(p *layer.Pass, keep *store) *scores {
	for _, made := range []*tensor.Tensor{s.logprobs, s.topIDs, s.topLogprobs} {
		keep.keep(p, made)
	}
	return s
}

// take takes those of a token of each row of logits.
func (s *scores) take(p *layer.Pass, logits, ids *tensor.Tensor) {
	if p.Err() != nil {
		return
	}
	first := func(of *tensor.Tensor) *tensor.Tensor { return p.Narrow(of, 0, 0, logits.Dim(0)) }
	p.Check(tensor.Logprobs(logits, ids, first(s.logprobs), first(s.topIDs), first(s.topLogprobs)))
}

// read gives those of the first rows, each with so many alternatives.
func (s *scores) read(p *layer.Pass, alternatives []int) []*TokenLogprobs {
	rows := len(alternatives)
	logprobs, ids := make([]float32, rows), make([]int32, rows*MostAlternatives)
	top, found := make([]float32, rows*MostAlternatives), make([]*TokenLogprobs, rows)
	if p.Err() != nil {
		return found
	}
	p.Check(tensor.ReadInto(p.Narrow(s.logprobs, 0, 0, rows), logprobs))
	p.Check(tensor.ReadInto(p.Narrow(s.topIDs, 0, 0, rows), ids))
	p.Check(tensor.ReadInto(p.Narrow(s.topLogprobs, 0, 0, rows), top))
	for row, count := range alternatives {
		found[row] = &TokenLogprobs{Logprob: logprobs[row]}
		for at := row * MostAlternatives; at < row*MostAlternatives+count; at++ {
			if ids[at] >= 0 {
				found[row].Top = append(found[row].Top, TopLogprob{ids[at], top[at]})
			}
		}
	}
	return found
}

// repeated is a number for each of so many rows.
func repeated(value, rows int) []int {
	values := make([]int, rows)
	for at := range values {
		values[at] = value
	}
	return values
}
