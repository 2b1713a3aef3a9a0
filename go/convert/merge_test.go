package convert_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/convert"
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model/stored"
)

func TestMain(m *testing.M) { withlibrary.Main(m) }

func opened(t *testing.T, kind string) *stored.Model {
	t.Helper()
	model := must.Get(stored.Open(storedmodel.Folder(t, kind, nil)))(t)
	t.Cleanup(func() { must.Do(t, model.Close()) })
	return model
}

// That the bits are Python's is tests/parity/test_parity_adapters.py's to say.
func TestMergeAdapter(t *testing.T) {
	model := opened(t, "llama")
	adapter := must.Get(stored.OpenAdapter(storedmodel.Adapter(t, 1, 3, "self_attn.q_proj"), model.Config))(t)
	device := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	t.Cleanup(func() { must.Do(t, errors.Join(adapter.Close(), device.Close())) })
	room := t.TempDir()
	path := filepath.Join(room, "sum")

	ended, end := context.WithCancel(context.Background())
	end()
	if err := convert.MergeAdapter(ended, model, adapter, path, device); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left := must.Get(os.ReadDir(room))(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}

	must.Do(t, convert.MergeAdapter(context.Background(), model, adapter, path, device))
	sum := must.Get(stored.Open(path))(t)
	defer sum.Close()
	for _, shape := range model.Shapes() {
		before, after := model.Parts(shape.Name)[0], sum.Parts(shape.Name)[0]
		pair, adapted := adapter.Factors[shape.Name]
		if !adapted {
			if string(before.Bytes()) != string(after.Bytes()) {
				t.Errorf("%s has changed", shape.Name)
			}
			continue
		}
		w, found := must.Get(before.Floats())(t), must.Get(after.Floats())(t)
		a, b := must.Get(pair.A.Floats())(t), must.Get(pair.B.Floats())(t)
		columns := shape.Sizes[1]
		for at, value := range found {
			wanted, size := float64(w[at]), math.Abs(float64(w[at]))
			for inner := range adapter.Rank {
				product := adapter.Scale * float64(b[at/columns*adapter.Rank+inner]) * float64(a[inner*columns+at%columns])
				wanted += product
				size += math.Abs(product)
			}
			// Each product and each sum is rounded once, the factor once more.
			if allowed := float64(2*adapter.Rank+2) * 0x1p-24 * size; !(math.Abs(float64(value)-wanted) <= allowed) {
				t.Fatalf("%s: element %d is %v, not %v", shape.Name, at, value, wanted)
			}
		}
	}
	if err := convert.MergeAdapter(context.Background(), model, adapter, path, device); !errors.Is(err, os.ErrExist) {
		t.Errorf("%v", err)
	}
	err := convert.MergeAdapter(context.Background(), opened(t, "bitnet"), adapter, filepath.Join(room, "other"), device)
	if err == nil || !strings.Contains(err.Error(), "has ternary weights") {
		t.Errorf("%v", err)
	}
}
