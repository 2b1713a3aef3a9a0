package engine

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/tensor"
)

// lowRank is the factors of an adapter for one matrix as rows of f32, in bytes: A [rank, 4 * in] and, with the scale in it,
// B [out, 4 * rank].
//
// y = x W^T + (x A^T) (scale B)^T: the product with the weights as they are stored, and two with A and scale * B as stored
// matrices in f32, the last of them added to y. All give a row the same bits in any company, and so does their sum. So the
// rows of a call may have several adapters: each run of neighbouring rows with one gets two products of its own, and rows
// without one are left as they are.
// (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)
type lowRank struct{ a, b *tensor.Tensor }

func (l *lowRank) bytes() int64 { return l.a.Bytes() + l.b.Bytes() }

// add is y += the product of x f32 [tokens, in]; `room` f32, at least tokens * rank of it, is for its first half.
func (l *lowRank) add(p *layer.Pass, x, room, y *tensor.Tensor) {
	tokens, rank := x.Dim(0), l.a.Dim(0)
	inner := p.View(p.Narrow(room, 0, 0, tokens*rank), tokens, rank)
	p.Check(tensor.GemmQuant(x, l.a, nil, nil, nil, inner, cuda.ActivationNone, cuda.FormatF32))
	p.Check(tensor.GemmQuant(inner, l.b, nil, nil, y, y, cuda.ActivationNone, cuda.FormatF32))
}

// rowRun is neighbouring rows of a call with one adapter, by its number.
type rowRun struct{ first, rows, adapter int }

// appended gives runs of a call with a further sequence of so many rows.
func appended(runs []rowRun, adapter, rows int) []rowRun {
	if last := len(runs) - 1; last >= 0 && runs[last].adapter == adapter {
		runs[last].rows += rows
		return runs
	}
	first := 0
	if last := len(runs) - 1; last >= 0 {
		first = runs[last].first + runs[last].rows
	}
	return append(runs, rowRun{first, rows, adapter})
}

// keyOfRuns is runs as the key of a map.
func keyOfRuns(runs []rowRun) string {
	var key []byte
	for _, one := range runs {
		key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(one.rows)), uint64(one.adapter))
	}
	return string(key)
}

// adaptedRows are the adapters of the rows of a call, for the layers that embed them.
type adaptedRows struct {
	runs []rowRun       // which rows have which adapter; rows that are in none have none
	room *tensor.Tensor // f32 [rows * rank]; nil without adapters
}

// use says which rows of the calls that follow have which adapter.
func (r *adaptedRows) use(runs []rowRun) { r.runs = runs }

// adapted gives the runs to which something is added among so many rows of the call, from one on, and counted from that one;
// `factors` are those of a matrix, by adapter.
func (r *adaptedRows) adapted(factors []*lowRank, first, rows int) []rowRun {
	if factors == nil {
		return nil
	}
	var found []rowRun
	for _, run := range r.runs {
		begin, end := max(run.first, first), min(run.first+run.rows, first+rows)
		if factors[run.adapter] != nil && begin < end {
			found = append(found, rowRun{begin - first, end - begin, run.adapter})
		}
	}
	return found
}

// addTo is y += what the adapters of these runs of x add to its product.
func (r *adaptedRows) addTo(p *layer.Pass, runs []rowRun, factors []*lowRank, x, y *tensor.Tensor) {
	for _, one := range runs {
		factors[one.adapter].add(p, p.Narrow(x, 0, one.first, one.rows), r.room, p.Narrow(y, 0, one.first, one.rows))
	}
}

// NamedAdapter is an adapter, and the name by which sequences ask for it.
type NamedAdapter struct {
	Name    string
	Adapter *stored.Adapter
}

// adapters are those of an engine, each with a number: 0 is that of sequences that name none.
type adapters struct {
	names   []string
	factors []map[string]*lowRank // by the names of matrices
	rank    int                   // the largest, 0 without adapters
	bytes   []int64               // of each
}

// newAdapters brings them to the device; `unnamed`, which may be nil, is for sequences that name none. `order` is that of the
// rows of a head in which queries and keys are read, nil for the order of the folders that adapters are of. An *OptionError
// for a model beside whose weights this engine runs none, and for a name that two have.
func newAdapters(
	p *layer.Pass, keep *store, config *stored.LlamaConfig, order []int, unnamed *stored.Adapter, named []NamedAdapter,
) *adapters {
	made := &adapters{}
	take := func(adapter *stored.Adapter) {
		factors, bytes := map[string]*lowRank(nil), int64(0)
		if adapter != nil && p.Err() == nil {
			factors = newLowRank(p, keep, adapter, config, order)
			made.rank = max(made.rank, adapter.Rank)
		}
		for _, pair := range factors {
			bytes += pair.bytes()
		}
		made.factors, made.bytes = append(made.factors, factors), append(made.bytes, bytes)
	}
	take(unnamed)
	for _, one := range named {
		if slices.Contains(made.names, one.Name) {
			p.Check(wrongOption("adapters", "'%s' is the name of two adapters", one.Name))
		}
		made.names = append(made.names, one.Name)
		take(one.Adapter)
	}
	return made
}

// number is that of an adapter by its name, 0 for "". An *OptionError for a name that there is not.
func (a *adapters) number(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	if at := slices.Index(a.names, name); at >= 0 {
		return at + 1, nil
	}
	there := "none"
	if len(a.names) > 0 {
		there = "'" + strings.Join(a.names, "', '") + "'"
	}
	return 0, wrongOption("adapter", "adapter is '%s'; of those with names the model has %s", name, there)
}

// of is what each adds to a matrix, by number, nil for nothing; nil where none adds anything.
func (a *adapters) of(matrix string) []*lowRank {
	found, some := make([]*lowRank, len(a.factors)), false
	for number, factors := range a.factors {
		found[number] = factors[matrix]
		some = some || found[number] != nil
	}
	if !some {
		return nil
	}
	return found
}

// newLowRank brings an adapter's factors to the device, by the names of their matrices.
func newLowRank(
	p *layer.Pass, keep *store, adapter *stored.Adapter, config *stored.LlamaConfig, order []int,
) map[string]*lowRank {
	if config.Rope.Layout == stored.RopeInterleaved {
		if config.Rope.Rotated > 0 {
			p.Check(wrongOption("adapter", "a part of each head is rotated, in neighbouring pairs, where this engine runs no adapter"))
		}
		order = stored.InterleavedOrder(config.HeadDim)
	}
	made := make(map[string]*lowRank, len(adapter.Factors))
	for _, shape := range config.Shapes() {
		pair, adapted := adapter.Factors[shape.Name]
		if p.Err() != nil || !adapted {
			continue
		}
		if order != nil && stored.IsRotated(shape.Name) {
			pair.B = pair.B.RowsInOrder(order)
		}
		a, err := pair.A.Floats()
		p.Check(err)
		b, err := pair.B.Floats()
		p.Check(err)
		first, second := from(keep, p, cuda.F32, a), from(keep, p, cuda.F32, b)
		p.Check(tensor.Scale(second, second, float32(adapter.Scale)))
		made[shape.Name] = &lowRank{bytesOf(p, first, adapter.Rank), bytesOf(p, second, shape.Sizes[0])}
	}
	return made
}

// bytesOf is the same memory as u8 [rows, bytes of a row].
func bytesOf(p *layer.Pass, of *tensor.Tensor, rows int) *tensor.Tensor {
	made, err := p.View(of, rows, -1).AsBytes()
	if p.Check(err); err != nil {
		return tensor.Failed(err, cuda.U8, rows, 1)
	}
	return made
}
