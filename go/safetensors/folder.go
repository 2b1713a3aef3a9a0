package safetensors

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
)

// DefaultShardBytes is the most bytes of tensors in one file of a folder.
const DefaultShardBytes = 5_000_000_000

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// Folder is the tensors of `model.safetensors`, or of all files that `model.safetensors.index.json` names, as
// transformers writes them.
type Folder struct {
	files []*File
	names []string
	home  map[string]*File
}

// OpenFolder opens and checks the files of a folder. They must be closed.
func OpenFolder(folder string) (*Folder, error) {
	names, weightMap, err := filesOf(folder)
	if err != nil {
		return nil, err
	}
	opened := &Folder{home: make(map[string]*File)}
	for _, name := range names {
		if err := opened.add(filepath.Join(folder, name)); err != nil {
			return nil, errors.Join(err, opened.Close())
		}
	}
	if weightMap != nil {
		if err := opened.checkIndex(filepath.Join(folder, indexName), weightMap); err != nil {
			return nil, errors.Join(err, opened.Close())
		}
	}
	return opened, nil
}

// filesOf gives the names of a folder's files and the map of their index, nil where one file has everything.
func filesOf(folder string) (names []string, weightMap *formats.Object, err error) {
	if formats.Present(filepath.Join(folder, singleName)) {
		return []string{singleName}, nil, nil
	}
	path := filepath.Join(folder, indexName)
	if !formats.Present(path) {
		return nil, nil, formats.Missing(folder, "holds neither "+singleName+" nor "+indexName)
	}
	index, err := formats.ReadLongJSON(path, formats.IndexBytes)
	if err != nil {
		return nil, nil, err
	}
	weightMap, ok := index.Get("weight_map").(*formats.Object)
	if !ok {
		return nil, nil, &formats.Error{Path: path, Problem: "has no weight_map from tensor names to file names"}
	}
	for _, tensor := range weightMap.Names() {
		name, ok := weightMap.Get(tensor).(string)
		if !ok {
			return nil, nil, &formats.Error{Path: path, Problem: "has no weight_map from tensor names to file names"}
		}
		if name == "" || name == "." || name == ".." || filepath.Base(name) != name {
			return nil, nil, &formats.Error{
				Path:    path,
				Problem: fmt.Sprintf("names the file %s, which is outside its folder", formats.Shown(name)),
			}
		}
		if len(name) > formats.NameBytes {
			problem := fmt.Sprintf("names the file %s, longer than a name can be", formats.Shown(name))
			return nil, nil, &formats.Error{Path: path, Problem: problem}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), weightMap, nil
}

func (t *Folder) add(path string) error {
	file, err := Open(path)
	if err != nil {
		return err
	}
	t.files = append(t.files, file)
	for _, name := range file.Names() {
		if other, twice := t.home[name]; twice {
			return &formats.Error{
				Path:    path,
				Problem: fmt.Sprintf("tensor %s is in %s as well", formats.Shown(name), filepath.Base(other.Path)),
			}
		}
		t.home[name] = file
		t.names = append(t.names, name)
	}
	return nil
}

func (t *Folder) checkIndex(path string, weightMap *formats.Object) error {
	for _, name := range weightMap.Names() {
		file, said := t.home[name], weightMap.Get(name).(string)
		if file == nil || filepath.Base(file.Path) != said {
			return &formats.Error{Path: path, Problem: fmt.Sprintf("says that tensor %s is in %s, which lacks it", formats.Shown(name), formats.Excerpt(said))}
		}
	}
	return nil
}

// Close releases the files.
func (t *Folder) Close() error {
	var err error
	for _, file := range t.files {
		err = errors.Join(err, file.Close())
	}
	return err
}

// Names lists the tensors, file after file, in the order of their bytes.
func (t *Folder) Names() []string { return slices.Clone(t.names) }

// Tensor gives a tensor, and whether there is one of that name. Its bytes lie in the mapped file.
func (t *Folder) Tensor(name string) (Tensor, bool) {
	file := t.home[name]
	if file == nil {
		return Tensor{}, false
	}
	return file.Tensor(name)
}

// Stored is [File.Stored] of the file that holds the tensor.
func (t *Folder) Stored(name string) (formats.StoredTensor, error) {
	file := t.home[name]
	if file == nil {
		return formats.StoredTensor{}, fmt.Errorf("no file has the tensor %s", formats.Shown(name))
	}
	return file.Stored(name)
}

// Pages is the mapping that a tensor's bytes lie in; nil of a tensor that is not there.
func (t *Folder) Pages(name string) *formats.Mapping {
	file := t.home[name]
	if file == nil {
		return nil
	}
	return file.Pages()
}

// WriteFolder writes `model.safetensors`, or files of at most `maxBytes` of tensors with their index when one
// would be larger. A tensor that is larger than a file may be gets a file of its own.
func WriteFolder(folder string, tensors []Tensor, metadata map[string]string, maxBytes int) error {
	if err := CreateFolder(folder, tensors, metadata, maxBytes); err != nil {
		return err
	}
	return FillFolder(folder, tensors, metadata, maxBytes)
}

// CreateFolder is [Create] for the files of [WriteFolder], and writes their index.
func CreateFolder(folder string, tensors []Tensor, metadata map[string]string, maxBytes int) error {
	names, shards := divided(tensors, maxBytes)
	total, weightMap := 0, formats.NewObject()
	for at, shard := range shards {
		if err := Create(filepath.Join(folder, names[at]), shard, metadata); err != nil {
			return err
		}
		for _, tensor := range shard {
			weightMap.Set(tensor.Name, names[at])
			total += tensor.Size()
		}
	}
	if len(shards) < 2 {
		return nil
	}
	index := formats.NewObject("metadata", formats.NewObject("total_size", int64(total)), "weight_map", weightMap)
	text, err := formats.JSONDocument(index)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, indexName), text, 0o666)
}

// FillFolder is [Fill] for the files of [CreateFolder].
func FillFolder(folder string, tensors []Tensor, metadata map[string]string, maxBytes int) error {
	names, shards := divided(tensors, maxBytes)
	for at, shard := range shards {
		if err := Fill(filepath.Join(folder, names[at]), shard, metadata); err != nil {
			return err
		}
	}
	return nil
}

// divided gives the files of a folder, and the tensors of each.
func divided(tensors []Tensor, maxBytes int) (names []string, shards [][]Tensor) {
	filled := 0
	for _, tensor := range tensors {
		if len(shards) == 0 || filled+tensor.Size() > maxBytes {
			shards = append(shards, nil)
			filled = 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], tensor)
		filled += tensor.Size()
	}
	if len(shards) < 2 {
		return []string{singleName}, [][]Tensor{tensors}
	}
	for at := range shards {
		names = append(names, fmt.Sprintf("model-%05d-of-%05d.safetensors", at+1, len(shards)))
	}
	return names, shards
}
