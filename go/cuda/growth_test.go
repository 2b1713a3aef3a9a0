package cuda_test

import (
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

// status is a number of /proc/self/status, without what the garbage collector would give back.
func status(t *testing.T, name string) int {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("this system does not tell memory and threads of a process: %v", err)
	}
	match := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+)`).FindSubmatch(text)
	if match == nil {
		t.Fatalf("/proc/self/status has no %s", name)
	}
	number := must.Get(strconv.Atoi(string(match[1])))(t)
	return number
}

func threads(t *testing.T) int { return status(t, "Threads") }

// Neither memory nor threads grow with the number of calls, of buffers, of graphs or of contexts.
func TestNothingGrows(t *testing.T) {
	ctx := newContext(t, cuda.WithThreads(2))
	x := filled(t, ctx, 4096)
	work := func(rounds int) {
		for round := range rounds {
			y := must.Get(ctx.Allocate(4096))(t)
			for range 10 {
				must.Do(t, ctx.Add(x.At(0), x.At(0), y.At(0), 1024, cuda.F32))
			}
			if err := ctx.Add(x.At(0), x.At(0), y.At(0), -1, cuda.F32); err == nil {
				t.Fatal("a negative size was taken")
			}
			if round%20 == 0 {
				graph := must.Get(ctx.Capture(func() error { return ctx.Add(x.At(0), x.At(0), y.At(0), 1024, cuda.F32) }))(t)
				must.Do(t, graph.Launch())
				must.Do(t, graph.Close())
			}
			if round%100 == 0 {
				other := must.Get(cuda.New("cpu", cuda.WithThreads(2)))(t)
				if _, err := other.Allocate(1 << 16); err != nil {
					t.Fatal(err)
				}
				must.Do(t, other.Close())
			}
			must.Do(t, y.Close())
		}
	}
	work(2000)
	memory, count := status(t, "VmRSS"), threads(t)
	work(20000)
	if now := status(t, "VmRSS"); now > memory+growthRoom {
		t.Errorf("%d kB of memory, %d before", now, memory)
	}
	if now := threads(t); now > count+2 {
		t.Errorf("%d threads, %d before", now, count)
	}
}
