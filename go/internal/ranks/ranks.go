// Package ranks runs the ranks of a job for tests: goroutines, each with a context of its own, over the transport of
// threads.
package ranks

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

// timeout is long enough for a rank that waits for a processor, and short enough for a test that hangs.
const timeout = 60 * time.Second

var jobs atomic.Int64

// Run calls body for each of so many ranks, all at once, and waits for all of them. A rank that ends early, by
// testing.T.FailNow, leaves its communicator, so that the others end as well.
func Run(t testing.TB, count int, body func(comm *cuda.Comm)) {
	t.Helper()
	address := fmt.Sprintf("%s %d", t.Name(), jobs.Add(1))
	var running, joining sync.WaitGroup
	joining.Add(count)
	for rank := range count {
		running.Add(1)
		go func() {
			defer running.Done()
			one(t, address, rank, count, &joining, body)
		}()
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// one is a rank. It begins when all have joined: a failure of the first would else be one of joining to the last.
func one(t testing.TB, address string, rank, count int, joining *sync.WaitGroup, body func(comm *cuda.Comm)) {
	joined := sync.OnceFunc(joining.Done)
	defer joined()
	ctx := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	defer func() { must.Do(t, ctx.Close()) }()
	comm := must.Get(ctx.NewComm(cuda.TransportThreads, address, rank, count, timeout))(t)
	defer func() { must.Do(t, comm.Close()) }()
	joined()
	joining.Wait()
	body(comm)
}
