package train

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/tinymodel"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tensor"
)

// document is the ids of one, and which of them count as targets.
type document struct {
	ids     []int32
	targets []bool
}

// writeDocuments writes a shard of documents.
func writeDocuments(t *testing.T, path string, documents []document, vocab int) {
	t.Helper()
	var ids []int32
	for _, one := range documents {
		ids = append(ids, one.ids...)
	}
	must.Do(t, formats.WriteShard(path, ids, vocab, [32]byte{}))
	data := must.Get(os.ReadFile(path))(t)
	binary.LittleEndian.PutUint32(data[8:], 2)
	size, at := (len(ids)+7)/8, 0
	bits := make([]byte, 2*size)
	for _, one := range documents {
		for place, target := range one.targets {
			if place == len(one.ids)-1 {
				bits[at/8] |= 1 << (at % 8)
			}
			if target {
				bits[size+at/8] |= 1 << (at % 8)
			}
			at++
		}
	}
	must.Do(t, os.WriteFile(path, append(data, bits...), 0o666))
}

// sequencesOf fills sequences, pair by pair.
func sequencesOf(documents []document, length int) []Batch {
	var found []Batch
	var open Batch
	finish := func() {
		teaches := slices.ContainsFunc(open.Targets, func(id int32) bool { return id != model.IgnoreIndex })
		if teaches {
			open.DocumentEnds[len(open.DocumentEnds)-1] = 1
			for len(open.Inputs) < length {
				open.Inputs, open.Targets = append(open.Inputs, 0), append(open.Targets, model.IgnoreIndex)
				open.DocumentEnds = append(open.DocumentEnds, 0)
			}
			found = append(found, open)
		}
		open = Batch{}
	}
	for _, one := range documents {
		for start := 0; start < len(one.ids)-1; start += length {
			stop := min(start+length, len(one.ids)-1)
			if len(open.Inputs)+stop-start > length {
				finish()
			}
			for at := start; at < stop; at++ {
				target, end := int32(model.IgnoreIndex), int32(0)
				if one.targets[at+1] {
					target = one.ids[at+1]
				}
				if at+2 == len(one.ids) {
					end = 1
				}
				open.Inputs, open.Targets = append(open.Inputs, one.ids[at]), append(open.Targets, target)
				open.DocumentEnds = append(open.DocumentEnds, end)
			}
		}
	}
	finish()
	return found
}

func randomDocuments(random *rand.Rand, lengths []int, share float64, vocab int) []document {
	documents := make([]document, len(lengths))
	for at, length := range lengths {
		for range length {
			documents[at].ids = append(documents[at].ids, random.Int32N(int32(vocab)))
			documents[at].targets = append(documents[at].targets, random.Float64() < share)
		}
	}
	return documents
}

func TestDocumentsFillSequencesInTheirOrder(t *testing.T) {
	random, path := rand.New(rand.NewPCG(1, 2)), filepath.Join(t.TempDir(), "x.tokens")
	empty := 0
	for range 150 {
		var lengths []int
		for range 1 + random.IntN(11) {
			lengths = append(lengths, []int{2, 3, 4, 5, 9, 17, 30}[random.IntN(7)])
		}
		documents := randomDocuments(random, lengths, []float64{0.05, 0.5}[random.IntN(2)], 50)
		length := []int{1, 2, 3, 4, 7, 8, 16, 50}[random.IntN(8)]
		wanted := sequencesOf(documents, length)
		writeDocuments(t, path, documents, 50)
		windows, err := OpenWindows(path, length)
		if len(wanted) == 0 {
			empty++
			if err == nil || !strings.HasSuffix(err.Error(), ": the data holds no document with a target that counts") {
				t.Fatal(err)
			}
			continue
		}
		if err != nil || windows.Count != len(wanted) {
			t.Fatal(windows, err, len(wanted))
		}
		for at, sequence := range wanted {
			found := must.Get(windows.Batch([]int64{int64(at)}))(t)
			if fmt.Sprint(found) != fmt.Sprint(sequence) {
				t.Fatalf("%v, not %v", found, sequence)
			}
		}
		counts := map[int32]int{}
		total := 0
		for _, one := range documents {
			for at, target := range one.targets {
				if at > 0 && target {
					counts[one.ids[at]]++
					total++
				}
			}
		}
		entropy := must.Get(UnigramEntropy(must.Get(OpenShards(path))(t)))(t)
		if total > 0 && len(counts) == 1 != (entropy == 0) {
			t.Errorf("%d kinds of targets, entropy %v", len(counts), entropy)
		}
	}
	if empty == 0 {
		t.Error("there always was a target")
	}
}

func TestShardsWithAndWithoutDocumentsDoNotMix(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		folder := t.TempDir()
		writeDocuments(t, filepath.Join(folder, names[0]+".tokens"), []document{{make([]int32, 9), make([]bool, 9)}}, 50)
		must.Do(t, formats.WriteShard(filepath.Join(folder, names[1]+".tokens"), make([]int32, 9), 50, [32]byte{}))
		wanted := fmt.Sprintf("%s.tokens knows where its documents end and %s.tokens does not: encode both alike",
			names[0], names[1])
		if _, err := OpenWindows(folder, 4); err == nil || !strings.HasSuffix(err.Error(), wanted) {
			t.Error(err)
		}
	}
}

// TestEndsOfDocumentsAreThoseOfASeparator: to the bits of a trainer that finds documents by the token that ends them, in
// steps that are replayed and in an evaluation.
func TestEndsOfDocumentsAreThoseOfASeparator(t *testing.T) {
	const rows, length, separator = 3, 16, 3
	var trainers [2]*Trainer
	for at := range trainers {
		options := DefaultConfig()
		options.SequenceLength, options.MicroBatchSize = length, 2
		if at == 1 {
			options.DocumentMask = separator
		}
		made := must.Get(model.New(withlibrary.Context(t), tinymodel.Config(), model.F32, 0))(t)
		t.Cleanup(func() { _ = made.Close() })
		trainers[at] = must.Get(NewTrainer(made, options))(t)
		t.Cleanup(func() { _ = trainers[at].Close() })
	}
	random := rand.New(rand.NewPCG(3, 4))
	var batch Batch
	for range 3 {
		batch = Batch{}
		for at := range rows * length {
			id, end := 4+random.Int32N(20), int32(0)
			if random.IntN(5) == 0 {
				id, end = separator, 1
			}
			batch.Inputs, batch.Targets = append(batch.Inputs, id), append(batch.Targets, 4+int32(at%20))
			batch.DocumentEnds = append(batch.DocumentEnds, end)
		}
		given := must.Get(trainers[0].TrainBatch(batch, rows))(t)
		found := must.Get(trainers[1].TrainStep(batch.Inputs, batch.Targets, rows))(t)
		if one, other := must.Get(given.Loss())(t), must.Get(found.Loss())(t); one != other {
			t.Fatal(one, other)
		}
	}
	if reason := trainers[0].EagerReason(); reason != "" {
		t.Error(reason)
	}
	weights := func(trainer *Trainer) []float32 {
		return must.Get(tensor.Read[float32](trainer.Model.Parameters.Data))(t)
	}
	if !slices.Equal(weights(trainers[0]), weights(trainers[1])) {
		t.Error("the weights differ")
	}
	evaluate := func(trainer *Trainer, ends []int32) float64 {
		loss, _, err := trainer.Model.EvaluateDocuments(batch.Inputs, batch.Targets, ends, rows)
		must.Do(t, err)
		return loss
	}
	if one, other := evaluate(trainers[0], batch.DocumentEnds), evaluate(trainers[1], nil); one != other {
		t.Error(one, other)
	}
	if evaluate(trainers[0], nil) == evaluate(trainers[0], batch.DocumentEnds) {
		t.Error("documents see one another")
	}
	must.Get(trainers[0].TrainStep(batch.Inputs, batch.Targets, rows))(t) // without documents: another step
	if trainers[0].EagerReason() == "" {
		t.Error("a step of documents was replayed for one without")
	}
	batch.DocumentEnds[5] = 2
	if _, err := trainers[0].TrainBatch(batch, rows); err == nil || !strings.Contains(err.Error(), "document_ends[0, 5] is 2") {
		t.Error(err)
	}
	batch.DocumentEnds = batch.DocumentEnds[1:]
	if _, err := trainers[0].TrainBatch(batch, rows); err == nil {
		t.Error("a batch with too few ends")
	}
	if _, _, err := trainers[0].Model.EvaluateDocuments(batch.Inputs, batch.Targets, batch.DocumentEnds, rows); err == nil {
		t.Error("an evaluation with too few ends")
	}
}
