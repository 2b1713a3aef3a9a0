package train

import (
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

// Windows are pieces of Length + 1 tokens, each beginning where the one before has its last token; none crosses a
// shard. Window w gives the inputs tokens[0 : Length] and the targets tokens[1 : Length + 1] from its place.
type Windows struct {
	Length    int
	VocabSize int
	Count     int // how many there are

	shards []*formats.TokenShard
	ends   []int  // windows of all shards up to and including each
	hash   string // of all shards, once it was asked for

	row, inputs, targets []int32 // used again by each Batch, so that steps leave no garbage
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
	sizes := make([]int, 0, len(shards))
	for _, shard := range shards {
		sizes = append(sizes, shard.VocabSize)
		windows.Count += max(0, (shard.Count-1)/length)
		windows.ends = append(windows.ends, windows.Count)
	}
	slices.Sort(sizes)
	if sizes = slices.Compact(sizes); len(sizes) > 1 {
		return nil, fmt.Errorf("the shards have different vocabularies: %v", sizes)
	}
	if windows.Count == 0 {
		return nil, fmt.Errorf("the data holds no window of %d + 1 tokens", length)
	}
	return windows, nil
}

// Batch gives inputs and targets of windows, [len(indices), Length] each, row after row. They are overwritten by the
// next Batch.
func (w *Windows) Batch(indices []int64) (inputs, targets []int32, err error) {
	w.inputs, w.targets = w.inputs[:0], w.targets[:0]
	if w.row == nil {
		w.row = make([]int32, w.Length+1)
	}
	for _, index := range indices {
		which := sort.SearchInts(w.ends, int(index)+1)
		if index < 0 || which == len(w.ends) {
			return nil, nil, fmt.Errorf("window %d is not one of %d", index, w.Count)
		}
		start := int(index)
		if which > 0 {
			start -= w.ends[which-1]
		}
		if err := w.shards[which].Read(w.row, start*w.Length); err != nil {
			return nil, nil, err
		}
		w.inputs = append(w.inputs, w.row[:w.Length]...)
		w.targets = append(w.targets, w.row[1:]...)
	}
	return w.inputs, w.targets, nil
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
// would reach. It is a *formats.Error when an id is not below its shard's vocabulary.
func UnigramEntropy(shards []*formats.TokenShard) (float64, error) {
	var counts []int
	total := 0
	for _, shard := range shards {
		counts = append(counts, make([]int, max(0, shard.VocabSize-len(counts)))...)
		ids := make([]int32, min(shard.Count, 1<<20))
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
