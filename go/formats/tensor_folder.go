package formats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/nncuda/nncuda/go/safetensors"
)

// DefaultShardBytes is the most bytes of tensors in one file of a folder.
const DefaultShardBytes = 5_000_000_000

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// TensorFolder is the tensors of `model.safetensors`, or of all files that `model.safetensors.index.json` names, as
// transformers writes them.
type TensorFolder struct {
	files []*safetensors.File
	names []string
	home  map[string]*safetensors.File
}

// OpenTensorFolder opens and checks the files of a folder. They must be closed.
func OpenTensorFolder(folder string) (*TensorFolder, error) {
	names, weightMap, err := filesOf(folder)
	if err != nil {
		return nil, err
	}
	opened := &TensorFolder{home: make(map[string]*safetensors.File)}
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
func filesOf(folder string) (names []string, weightMap *Object, err error) {
	if _, err := os.Stat(filepath.Join(folder, singleName)); err == nil {
		return []string{singleName}, nil, nil
	}
	path := filepath.Join(folder, indexName)
	if _, err := os.Stat(path); err != nil {
		return nil, nil, Missing(folder, "holds neither "+singleName+" nor "+indexName)
	}
	index, err := ReadJSON(path)
	if err != nil {
		return nil, nil, err
	}
	weightMap, ok := index.Get("weight_map").(*Object)
	if !ok {
		return nil, nil, &Error{Path: path, Problem: "has no weight_map from tensor names to file names"}
	}
	for _, tensor := range weightMap.Names() {
		name, ok := weightMap.Get(tensor).(string)
		if !ok {
			return nil, nil, &Error{Path: path, Problem: "has no weight_map from tensor names to file names"}
		}
		if name == "" || name == "." || name == ".." || filepath.Base(name) != name {
			return nil, nil, &Error{
				Path:    path,
				Problem: fmt.Sprintf("names the file %s, which is outside its folder", Repr(name)),
			}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), weightMap, nil
}

func (t *TensorFolder) add(path string) error {
	file, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	t.files = append(t.files, file)
	for _, name := range file.Names() {
		if other, twice := t.home[name]; twice {
			return &Error{
				Path:    path,
				Problem: fmt.Sprintf("tensor %s is in %s as well", Repr(name), filepath.Base(other.Path)),
			}
		}
		t.home[name] = file
		t.names = append(t.names, name)
	}
	return nil
}

func (t *TensorFolder) checkIndex(path string, weightMap *Object) error {
	for _, name := range weightMap.Names() {
		file, said := t.home[name], weightMap.Get(name).(string)
		if file == nil || filepath.Base(file.Path) != said {
			return &Error{Path: path, Problem: fmt.Sprintf("says that tensor %s is in %s, which lacks it", Repr(name), said)}
		}
	}
	return nil
}

// Close lets go of the files.
func (t *TensorFolder) Close() error {
	var err error
	for _, file := range t.files {
		err = errors.Join(err, file.Close())
	}
	return err
}

// Names lists the tensors, file after file, in the order of their bytes.
func (t *TensorFolder) Names() []string { return slices.Clone(t.names) }

// Tensor gives a tensor, and whether there is one of that name. Its bytes lie in the mapped file.
func (t *TensorFolder) Tensor(name string) (safetensors.Tensor, bool) {
	file := t.home[name]
	if file == nil {
		return safetensors.Tensor{}, false
	}
	return file.Tensor(name)
}

// WriteTensorFolder writes `model.safetensors`, or files of at most `maxBytes` of tensors with their index when one
// would be larger. A tensor that is larger than a file may be gets a file of its own.
func WriteTensorFolder(folder string, tensors []safetensors.Tensor, metadata map[string]string, maxBytes int) error {
	var shards [][]safetensors.Tensor
	filled, total := 0, 0
	for _, tensor := range tensors {
		if len(shards) == 0 || filled+tensor.Size() > maxBytes {
			shards = append(shards, nil)
			filled = 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], tensor)
		filled += tensor.Size()
		total += tensor.Size()
	}
	if len(shards) < 2 {
		return safetensors.Write(filepath.Join(folder, singleName), tensors, metadata)
	}
	weightMap := NewObject()
	for at, shard := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", at+1, len(shards))
		if err := safetensors.Write(filepath.Join(folder, name), shard, metadata); err != nil {
			return err
		}
		for _, tensor := range shard {
			weightMap.Set(tensor.Name, name)
		}
	}
	index := NewObject("metadata", NewObject("total_size", int64(total)), "weight_map", weightMap)
	return os.WriteFile(filepath.Join(folder, indexName), []byte(JSONDocument(index)), 0o666)
}

var elementNames = map[safetensors.DType]string{
	safetensors.F64: "float64", safetensors.F32: "float32", safetensors.F16: "float16", safetensors.BF16: "bfloat16",
	safetensors.I64: "int64", safetensors.I32: "int32", safetensors.I16: "int16", safetensors.I8: "int8",
	safetensors.U64: "uint64", safetensors.U32: "uint32", safetensors.U16: "uint16", safetensors.U8: "uint8",
	safetensors.Bool: "bool",
}

// ElementName is what messages call an element type: "float32" for F32.
func ElementName(dtype safetensors.DType) string {
	if name, known := elementNames[dtype]; known {
		return name
	}
	return string(dtype)
}
