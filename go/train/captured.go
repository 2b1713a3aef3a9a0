package train

import (
	"errors"
	"fmt"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// capturedStep holds what a step of one shape of batch reads and writes, in memory that stays, and its calls.
//
// A first step runs call by call: whatever is made once (tables of the rotary embedding) is made there. The second is
// captured, and replayed from then on with the same bits: between its calls the host has nothing to do. Steps
// that the library cannot capture continue call by call.
//
// With `scaling`, the gradients are those of the losses times its scale. Of several ranks each has its own rows of the
// batch, and the losses of all.
type capturedStep struct {
	model         *model.MoETransformer
	batch, length int
	capture       bool
	replicas      *replicas
	refusal       string      // why the library could not capture a step; "" while it was not asked or could
	sizes, pieces []int       // sequences of each micro-batch, and its partial sums of the loss
	starts        map[int]int // of this rank's micro-batches, the first of their rows
	last          int         // of this rank's micro-batches, the one that runs last
	turns         []turn      // one after the other
	sums          []lateSum   // behind them; none unless of each kind of turn one is run

	inputs, targets                    *tensor.Tensor // i32 [rows of this rank, length]
	ends                               *tensor.Tensor // of the same shape, the ends of documents; or nil
	one, weights                       *tensor.Tensor // f32 [1], 1; i32 [micro-batches], sequences of each
	lossFactor, auxFactors             *tensor.Tensor // f32 [1], f32 [micro-batches]
	scaling                            *lossScaling
	scaledLossFactor, scaledAuxFactors *tensor.Tensor // of the same shapes; nil without scaling
	losses, aux                        *tensor.Tensor // f32 [partial sums], f32 [micro-batches]

	steps int
	first string // why the first step of this shape runs call by call
	eager string // why the last step ran call by call; "" when it was replayed
	graph *cuda.Graph
	uses  []layer.ExpertUse // of the last micro-batch, a layer each; a graph's launches choose into them
}

func newCapturedStep(
	m *model.MoETransformer, batch, length, micro int, documents, capture, eachKind bool, scaling *lossScaling,
	replicas *replicas,
) (*capturedStep, error) {
	s := &capturedStep{model: m, batch: batch, length: length, capture: capture, scaling: scaling, replicas: replicas,
		starts: map[int]int{}}
	s.first = fmt.Sprintf("the first step of batches %s runs call by call", s.shape())
	weights, sums := []int32{}, 0
	for start := 0; start < batch; start += micro {
		size := min(micro, batch-start)
		s.sizes = append(s.sizes, size)
		s.pieces = append(s.pieces, m.LossPieces(size*length))
		weights = append(weights, int32(size))
		sums += s.pieces[len(s.pieces)-1]
	}
	rows := 0
	for _, at := range replicas.own(len(s.sizes)) {
		s.starts[at] = rows
		rows += s.sizes[at]
	}
	var err error
	if err = s.takeTurns(eachKind); err != nil {
		return nil, err
	}
	err = layer.Run(m.Context(), func(p *layer.Pass) {
		s.inputs, s.targets = p.Empty(cuda.I32, rows, length), p.Empty(cuda.I32, rows, length)
		if documents {
			s.ends = p.Empty(cuda.I32, rows, length)
		}
		s.one, s.weights = p.Empty(cuda.F32, 1), p.Empty(cuda.I32, len(weights))
		p.Check(tensor.Write(s.one, []float32{1}))
		p.Check(tensor.Write(s.weights, weights))
		s.lossFactor, s.auxFactors = p.Empty(cuda.F32, 1), p.Empty(cuda.F32, len(weights))
		for at := range weights {
			factor := p.Narrow(s.auxFactors, 0, at, 1)
			p.Check(tensor.WeightedMean(s.one, p.Narrow(s.weights, 0, at, 1), factor, int64(batch)))
		}
		if scaling != nil {
			s.scaledLossFactor, s.scaledAuxFactors = p.Empty(cuda.F32, 1), p.Empty(cuda.F32, len(weights))
		}
		s.losses, s.aux = p.Empty(cuda.F32, sums), p.Empty(cuda.F32, len(weights))
		for _, made := range s.tensors() {
			p.Keep(made)
		}
	})
	return s, err
}

// shape is that of the batch, in words.
func (s *capturedStep) shape() string { return fmt.Sprintf("[%d, %d]", s.batch, s.length) }

func (s *capturedStep) tensors() []*tensor.Tensor {
	all := []*tensor.Tensor{s.inputs, s.targets, s.one, s.weights, s.lossFactor, s.auxFactors, s.losses, s.aux}
	if s.scaling != nil {
		all = append(all, s.scaledLossFactor, s.scaledAuxFactors)
	}
	if s.ends != nil {
		all = append(all, s.ends)
	}
	return all
}

// close frees the graph and the memory.
func (s *capturedStep) close() error {
	var err error
	if s.graph != nil {
		err = s.graph.Close()
	}
	err = errors.Join(err, s.closeUses())
	for _, made := range s.tensors() {
		err = errors.Join(err, made.Close())
	}
	return err
}

// forget frees the graph, so that the next step is captured again. Forgetting nil is fine.
func (s *capturedStep) forget() error {
	if s == nil || s.graph == nil {
		return nil
	}
	err := s.graph.Close()
	s.graph = nil
	return err
}

func (s *capturedStep) closeUses() error {
	var err error
	for _, use := range s.uses {
		err = errors.Join(err, use.Close())
	}
	s.uses = nil
	return err
}

// do does a step on a batch [rows of this rank, length], `tokens` of the whole one count; `update` is its last part.
// Without ids it uses those on the device.
func (s *capturedStep) do(batch Batch, tokens int, update func() error) error {
	var err error
	if batch.Inputs != nil {
		err = errors.Join(tensor.Write(s.inputs, batch.Inputs), tensor.Write(s.targets, batch.Targets))
	}
	if err == nil && s.ends != nil {
		err = tensor.Write(s.ends, batch.DocumentEnds)
	}
	if err == nil {
		err = tensor.WeightedMean(s.one, nil, s.lossFactor, int64(tokens))
	}
	if err != nil {
		return err
	}
	s.steps++
	if s.graph == nil {
		if s.eager, err = s.whyEager(update); err != nil {
			return err
		}
	}
	if s.graph == nil {
		return s.calls(update)
	}
	s.eager = ""
	return s.graph.Launch()
}

// whyEager captures the step, unless it must run call by call: then it says why.
func (s *capturedStep) whyEager(update func() error) (reason string, err error) {
	switch {
	case s.refusal != "":
		return s.refusal, nil
	case !s.capture:
		return "capture is off", nil
	case s.steps == 1:
		return s.first, nil
	}
	err = s.record(update)
	var refused *cuda.Error
	if errors.As(err, &refused) {
		s.refusal = "the step could not be captured: " + refused.Error()
		return s.refusal, nil
	}
	return "", err
}

func (s *capturedStep) record(update func() error) error {
	ctx := s.model.Context()
	// Others may have run since, of other lengths: what is made once must not be made inside the graph.
	err := layer.Run(ctx, func(p *layer.Pass) {
		largest := s.sizes[0]
		s.model.Warm(p, largest, s.length)
	})
	if err != nil {
		return err
	}
	graph, err := ctx.Capture(func() error { return s.calls(update) })
	if err != nil {
		return err
	}
	s.graph = graph
	return nil
}

func (s *capturedStep) calls(update func() error) error {
	return layer.Run(s.model.Context(), func(p *layer.Pass) {
		p.Check(s.aux.Zero())
		if s.replicas.comm != nil {
			p.Check(s.losses.Zero())
		}
		if s.scaling != nil {
			p.Check(s.scaling.begin())
			s.scaling.scaled(p, s.lossFactor, s.scaledLossFactor)
			s.scaling.scaled(p, s.auxFactors, s.scaledAuxFactors)
		}
		s.replicas.sums.start()
		for _, turn := range s.turns {
			s.take(p, turn)
			for _, at := range turn.own {
				if at+s.replicas.count >= len(s.sizes) && !s.sentLater(at) {
					s.replicas.add(p, at%s.replicas.count, s.replicas.held.Dense)
				}
			}
		}
		for _, sum := range s.sums {
			s.model.AddUp(p, sum.event)
		}
		if p.Err() == nil {
			p.Check(s.replicas.tell(s.losses, s.aux))
		}
		if p.Err() == nil {
			p.Check(update())
		}
	})
}
