package storedmodel

import "math"

// Gate is a constraint that allows every token, and holds the engine in the middle of a step: it sends to Reached and then
// waits for Open.
type Gate struct {
	Reached, Open chan struct{}
	words         int
}

// NewGate is a gate for texts of so many ids.
func NewGate(vocab int) *Gate {
	return &Gate{make(chan struct{}), make(chan struct{}), (vocab + 31) / 32}
}

// Mask allows all.
func (g *Gate) Mask() ([]uint32, error) {
	mask := make([]uint32, g.words)
	for at := range mask {
		mask[at] = math.MaxUint32
	}
	return mask, nil
}

// Accept waits.
func (g *Gate) Accept(int32) error {
	g.Reached <- struct{}{}
	<-g.Open
	return nil
}
