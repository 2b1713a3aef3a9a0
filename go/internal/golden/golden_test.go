package golden

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/safetensors"
)

// fixtures returns all fixtures; having none is a failure.
func fixtures(t *testing.T) []Fixture {
	t.Helper()
	folder := must.Get(Folder())(t)
	all := must.Get(ReadFolder(folder))(t)
	return all
}

// instructionSets is those that this machine has, the plainest first.
func instructionSets(t *testing.T) []cuda.ISA {
	t.Helper()
	ctx := must.Get(cuda.New("cpu"))(t)
	defer ctx.Close()
	var sets []cuda.ISA
	for _, isa := range []cuda.ISA{cuda.Baseline, cuda.AVX2, cuda.AVX512, cuda.AVX512BF16, cuda.AMX} {
		switch err := ctx.SetISA(isa); {
		case err == nil:
			sets = append(sets, isa)
		case errors.Is(err, cuda.ErrUnsupported), errors.Is(err, cuda.ErrInvalidValue):
			t.Logf("not on this machine: %v", err)
		default:
			t.Fatal(err)
		}
	}
	return sets
}

// TestFixtures runs every fixture of the folder on every instruction set of this machine, and on the widest with one
// thread and with two.
func TestFixtures(t *testing.T) {
	all := fixtures(t)
	sets := instructionSets(t)
	for _, isa := range sets {
		threads := []int{2}
		if isa == sets[len(sets)-1] {
			threads = []int{1, 2}
		}
		for _, count := range threads {
			t.Run(fmt.Sprintf("%v-%d", isa, count), func(t *testing.T) {
				runAll(t, all, "cpu", cuda.WithISA(isa), cuda.WithThreads(count))
			})
		}
	}
	if count, err := cuda.DeviceCount(cuda.CUDA); err == nil && count > 0 {
		t.Run("cuda", func(t *testing.T) { runAll(t, all, "cuda") })
	}
}

func runAll(t *testing.T, all []Fixture, device string, options ...cuda.Option) {
	ctx := must.Get(cuda.New(device, options...))(t)
	defer ctx.Close()
	largest, of := 0.0, ""
	for i := range all {
		fixture := &all[i]
		t.Run(fixture.Kernel+"/"+fixture.Name, func(t *testing.T) {
			outcomes := must.Get(Run(ctx, fixture))(t)
			if len(outcomes) == 0 {
				t.Fatal("the fixture expects nothing")
			}
			for _, outcome := range outcomes {
				if outcome.Problem != "" {
					t.Errorf("%s over %q: %s", outcome.Output, outcome.Over, outcome.Problem)
				} else if outcome.Share > largest {
					largest, of = outcome.Share, fixture.Kernel+"/"+fixture.Name+": "+outcome.Output
				}
			}
		})
	}
	t.Logf("%d fixtures; the largest share of a tolerance is %.0f %% (%s)", len(all), 100*largest, of)
	if used, err := ctx.BytesUsed(); err != nil || used != 0 {
		t.Errorf("%d bytes are still in use (%v)", used, err)
	}
}

// Every kernel has fixtures, and no fixture is of something else.
func TestEveryKernelHasFixtures(t *testing.T) {
	var have, want []string
	for _, fixture := range fixtures(t) {
		have = append(have, fixture.Kernel)
	}
	for _, kernel := range cuda.Kernels() {
		want = append(want, kernel.Name)
	}
	slices.Sort(have)
	slices.Sort(want)
	if have = slices.Compact(have); !slices.Equal(have, want) {
		t.Errorf("fixtures of %v, kernels %v", have, want)
	}
}

// The runner itself must find what is wrong: a wrong expectation, an input or guard that was written, a refused call.
func TestRunnerFindsFaults(t *testing.T) {
	ctx := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	defer ctx.Close()
	all := fixtures(t)
	at := slices.IndexFunc(all, func(f Fixture) bool { return f.Kernel == "add" && strings.HasPrefix(f.Name, "f32") })
	if at < 0 {
		t.Fatal("there is no fixture of add in f32")
	}
	check := func(name, words string, change func(*Fixture)) {
		t.Run(name, func(t *testing.T) {
			fixture := all[at]
			fixture.Outputs = map[string]safetensors.Tensor{"y": all[at].Outputs["y"]}
			fixture.Scalars = map[string]any{}
			for key, value := range all[at].Scalars {
				fixture.Scalars[key] = value
			}
			change(&fixture)
			outcomes := must.Get(Run(ctx, &fixture))(t)
			if len(outcomes) == 0 || !strings.Contains(outcomes[0].Problem, words) {
				t.Errorf("%v does not say %q", outcomes, words)
			}
		})
	}
	check("wrong value", "element 0", func(f *Fixture) {
		output := f.Outputs["y"]
		output.Bytes = slices.Clone(output.Bytes)
		output.Bytes[3] ^= 0x80
		f.Outputs["y"] = output
	})
	check("unwritten", "NaN", func(f *Fixture) { f.Scalars["n"] = json.Number("0") })
	check("too long", "bytes outside y", func(f *Fixture) {
		f.Scalars["n"] = json.Number(strconv.Itoa(elements(f.Outputs["y"]) + 1))
	})
	check("refused", "n is -1", func(f *Fixture) { f.Scalars["n"] = json.Number("-1") })
}

func TestDifference(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		got, wanted float64
		zeros       bool
		want        float64
	}{
		{1.5, 1, false, 0.5}, {nan, 1, false, inf}, {nan, nan, false, 0}, {1, nan, false, inf}, {inf, inf, false, 0},
		{-inf, inf, false, inf}, {1e-9, 0, true, inf}, {1e-9, 0, false, 1e-9}, {0, 0, true, 0},
	} {
		if got := difference(test.got, test.wanted, test.zeros); got != test.want {
			t.Errorf("difference(%v, %v, %v) is %v, not %v", test.got, test.wanted, test.zeros, got, test.want)
		}
	}
}
