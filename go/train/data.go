package train

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/nncuda/nncuda/go/formats"
)

// OpenShards opens a shard, or all *.tokens files of a folder in the order of their names.
func OpenShards(source string) ([]*formats.TokenShard, error) {
	files := []string{source}
	if info, err := os.Stat(source); err == nil && info.IsDir() {
		entries, err := os.ReadDir(source)
		if err != nil {
			return nil, formats.CannotRead(source, err)
		}
		files = files[:0]
		for _, entry := range entries { // sorted by name
			if name := entry.Name(); filepath.Ext(name) == ".tokens" {
				files = append(files, filepath.Join(source, name))
			}
		}
	}
	if len(files) == 0 {
		return nil, &formats.Error{Path: source, Problem: "holds no token shards (*.tokens)"}
	}
	var shards []*formats.TokenShard
	for _, file := range files {
		shard, err := formats.OpenShard(file)
		if err != nil {
			return nil, err
		}
		shards = append(shards, shard)
	}
	return shards, nil
}

// Batch is what some sequences give, row after row.
type Batch struct {
	Inputs  []int32
	Targets []int32 // model.IgnoreIndex counts for nothing
	// DocumentEnds is 1 at the last token of each document, 0 elsewhere; nil where sequences are not packed documents.
	DocumentEnds []int32
}

// Windows are pieces of Length + 1 tokens, each beginning where the one before has its last token; none crosses a
// shard. Window w gives the inputs tokens[0 : Length] and the targets tokens[1 : Length + 1] from its place. Of shards with
// documents the windows are sequences of documents, none of which sees another.
type Windows struct {
	Length       int
	VocabSize    int
	Count        int // how many there are
	HasDocuments bool

	shards   []*formats.TokenShard
	packings [][]packed // of each shard, where they have documents
	ends     []int      // windows of all shards up to and including each
	hash     string     // of all shards, once it was asked for

	row   []int32 // used again by each Batch, as what it gives, so that steps leave no garbage
	batch Batch
}

// OpenWindows opens the shards of a file or folder as windows of `length`.
func OpenWindows(source string, length int) (*Windows, error) {
	shards, err := OpenShards(source)
	if err != nil {
		return nil, err
	}
	windows, err := newWindows(shards, length)
	if err != nil {
		return nil, formats.Wrap(source, err)
	}
	return windows, nil
}

func newWindows(shards []*formats.TokenShard, length int) (*Windows, error) {
	windows := &Windows{Length: length, VocabSize: shards[0].VocabSize, shards: shards}
	windows.HasDocuments = shards[0].HasDocuments
	sizes := make([]int, 0, len(shards))
	for _, shard := range shards {
		sizes = append(sizes, shard.VocabSize)
	}
	slices.Sort(sizes)
	if sizes = slices.Compact(sizes); len(sizes) > 1 {
		return nil, fmt.Errorf("the shards have different vocabularies: %v", sizes)
	}
	for _, shard := range shards {
		if shard.HasDocuments != windows.HasDocuments {
			knows, not := shards[0], shard
			if shard.HasDocuments {
				knows, not = not, knows
			}
			return nil, fmt.Errorf("%s knows where its documents end and %s does not: encode both alike",
				filepath.Base(knows.Path), filepath.Base(not.Path))
		}
	}
	for _, shard := range shards {
		count := max(0, (shard.Count-1)/length)
		if windows.HasDocuments {
			packing, err := pack(shard, length)
			if err != nil {
				return nil, err
			}
			windows.packings, count = append(windows.packings, packing), len(packing)
		}
		windows.Count += count
		windows.ends = append(windows.ends, windows.Count)
	}
	if windows.Count == 0 && windows.HasDocuments {
		return nil, errors.New("the data holds no document with a target that counts")
	}
	if windows.Count == 0 {
		return nil, fmt.Errorf("the data holds no window of %d + 1 tokens", length)
	}
	return windows, nil
}

// Batch gives what windows hold, [len(indices), Length] of each. It is overwritten by the next Batch.
func (w *Windows) Batch(indices []int64) (Batch, error) {
	batch := &w.batch
	batch.Inputs, batch.Targets, batch.DocumentEnds = batch.Inputs[:0], batch.Targets[:0], batch.DocumentEnds[:0]
	if w.row == nil {
		w.row = make([]int32, w.Length+1)
	}
	for _, index := range indices {
		which := sort.SearchInts(w.ends, int(index)+1)
		if index < 0 || which == len(w.ends) {
			return Batch{}, fmt.Errorf("window %d is not one of %d", index, w.Count)
		}
		start := int(index)
		if which > 0 {
			start -= w.ends[which-1]
		}
		shard := w.shards[which]
		if w.HasDocuments {
			if err := batch.appendSequence(shard, w.packings[which][start], w.Length); err != nil {
				return Batch{}, err
			}
			continue
		}
		if err := shard.Read(w.row, start*w.Length); err != nil {
			return Batch{}, err
		}
		batch.Inputs = append(batch.Inputs, w.row[:w.Length]...)
		batch.Targets = append(batch.Targets, w.row[1:]...)
	}
	return *batch, nil
}

// spread gives the windows of an evaluation in batches of at most `size`: all in their order, or, for that many
// `batches`, evenly spaced ones.
func (w *Windows) spread(size, batches int) [][]int64 {
	wanted := w.Count
	if batches > 0 && batches < (w.Count+size-1)/size {
		wanted = batches * size
	}
	chosen := make([]int64, wanted)
	for at := range chosen {
		chosen[at] = int64(at * w.Count / wanted)
	}
	return slices.Collect(slices.Chunk(chosen, size))
}

// UnigramEntropy is the entropy of the frequencies of the shards' own tokens, in nats: what a model that knows only them
// would reach. Of shards with documents it is that of the targets that count. It is a *formats.Error when an id is not below
// its shard's vocabulary.
func UnigramEntropy(shards []*formats.TokenShard) (float64, error) {
	var counts []int
	total := 0
	for _, shard := range shards {
		counts = append(counts, make([]int, max(0, shard.VocabSize-len(counts)))...)
		ids := make([]int32, min(shard.Count, 1<<20))
		if shard.HasDocuments {
			found, err := countTargetsOf(shard, counts, ids)
			if err != nil {
				return 0, err
			}
			total += found
			continue
		}
		for start := 0; start < shard.Count; start += len(ids) {
			ids = ids[:min(len(ids), shard.Count-start)]
			if err := shard.Read(ids, start); err != nil {
				return 0, err
			}
			for _, id := range ids {
				counts[id]++
			}
		}
		total += shard.Count
	}
	entropy := 0.0
	for _, count := range counts {
		if count > 0 {
			share := float64(count) / float64(total)
			entropy -= share * math.Log(share)
		}
	}
	return entropy, nil
}

// countTargetsOf adds the targets of a shard of documents to `counts`, and gives their number. `ids` is memory for tokens
// as they are read.
func countTargetsOf(shard *formats.TokenShard, counts []int, ids []int32) (found int, err error) {
	var failure error
	chunk := len(ids)
	err = shard.Documents(func(at int, _, target bool) {
		if at%chunk == 0 && failure == nil {
			failure = shard.Read(ids[:min(chunk, shard.Count-at)], at)
		}
		if target && failure == nil {
			counts[ids[at%chunk]]++
			found++
		}
	})
	return found, errors.Join(err, failure)
}
