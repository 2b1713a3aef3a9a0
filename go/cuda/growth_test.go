package cuda_test

import (
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
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
	number, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func threads(t *testing.T) int { return status(t, "Threads") }

// Neither memory nor threads grow with the number of calls, of buffers, of graphs or of contexts.
func TestNothingGrows(t *testing.T) {
	ctx := newContext(t, cuda.WithThreads(2))
	x := filled(t, ctx, 4096)
	work := func(rounds int) {
		for round := range rounds {
			y, err := ctx.Allocate(4096)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if err := ctx.Add(x.At(0), x.At(0), y.At(0), 1024, cuda.F32); err != nil {
					t.Fatal(err)
				}
			}
			if err := ctx.Add(x.At(0), x.At(0), y.At(0), -1, cuda.F32); err == nil {
				t.Fatal("a negative size was taken")
			}
			if round%20 == 0 {
				graph, err := ctx.Capture(func() error { return ctx.Add(x.At(0), x.At(0), y.At(0), 1024, cuda.F32) })
				if err != nil {
					t.Fatal(err)
				}
				if err := graph.Launch(); err != nil {
					t.Fatal(err)
				}
				if err := graph.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if round%100 == 0 {
				other, err := cuda.New("cpu", cuda.WithThreads(2))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := other.Allocate(1 << 16); err != nil {
					t.Fatal(err)
				}
				if err := other.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := y.Close(); err != nil {
				t.Fatal(err)
			}
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
