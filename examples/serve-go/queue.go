package main

import (
	"context"
	"fmt"
)

// A queue lets requests generate one at a time, in the order in which they came.
type queue struct {
	places chan struct{} // one for each request that generates or waits
	turn   chan struct{} // of the one that generates
}

// errFull is the error of a queue in which no more may wait.
type errFull struct{ waiting int }

func (e errFull) Error() string {
	return fmt.Sprintf("%d requests are waiting already; ask again later", e.waiting)
}

// newQueue makes a queue in which so many may wait.
func newQueue(waiting int) *queue {
	return &queue{make(chan struct{}, waiting+1), make(chan struct{}, 1)}
}

// enter returns when it is the caller's turn, who calls leave then. It is an errFull when too many wait, and the error of
// ctx when that is done first.
func (q *queue) enter(ctx context.Context) (leave func(), err error) {
	select {
	case q.places <- struct{}{}:
	default:
		return nil, errFull{cap(q.places) - 1}
	}
	select {
	case q.turn <- struct{}{}: // Go serves those who wait to send in the order in which they came
		leave = func() { <-q.turn; <-q.places }
		if ctx.Err() != nil { // done at the same moment, and select takes either
			leave()
			return nil, ctx.Err()
		}
		return leave, nil
	case <-ctx.Done():
		<-q.places
		return nil, ctx.Err()
	}
}

// waiting is how many wait now.
func (q *queue) waiting() int { return len(q.places) - len(q.turn) }
