package stored

import (
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
)

// Keys of a GGUF file of an adapter.
const (
	typeKey      = "general.type"
	adapterKind  = "adapter.type"
	adapterAlpha = "adapter.lora.alpha"
)

var (
	// What says something of a file, or of how its users ask, and nothing of what it computes.
	neutralKey = regexp.MustCompile(`^(?s:general\..+|adapter\.lora\.(task_name|prompt_prefix))$`)
	fileFactor = regexp.MustCompile(`^(.+)\.lora_(a|b)$`)
)

// openAdapterGGUF opens an adapter as llama.cpp reads it: general.type "adapter", adapter.type "lora", NAME.lora_a and
// NAME.lora_b of each matrix by its name in GGUF files, scale adapter.lora.alpha / rank, 1 where that is 0 or not there. The
// rows of lora_b are in the order of the base's GGUF files.
// (llama.cpp: src/llama-adapter.cpp and llama-adapter.h for what is read, convert_lora_to_gguf.py for what is written)
func openAdapterGGUF(path string, config LlamaConfig) (*Adapter, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	made, family := &Adapter{Rank: 1, Scale: 1, file: file}, familyNamed(config.Family)
	alpha, err := checkAdapterKeys(path, &file.Metadata, family)
	var factors []factor
	if err == nil {
		factors, err = factorsOfGGUF(file, family.Interleaved, config.HeadDim)
	}
	if err == nil {
		// That of all matrices, or, where these differ, of the first.
		if first := slices.IndexFunc(factors, func(one factor) bool { return one.which == "A" }); first >= 0 {
			made.Rank = factors[first].tensor.Shape[0]
		}
		if alpha != 0 {
			made.Scale = alpha / float64(made.Rank)
		}
		err = made.take(path, factors, config)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return made, nil
}

// checkAdapterKeys gives alpha, 0 where there is none, and refuses metadata of something else.
func checkAdapterKeys(path string, metadata *gguf.Metadata, family *Family) (float64, error) {
	for _, want := range []struct {
		key    string
		values []string
	}{{typeKey, []string{"adapter"}}, {adapterKind, []string{"lora"}}, {gguf.ArchitectureKey, family.Architectures}} {
		if text, ok := metadata.Text(want.key); !ok || !slices.Contains(want.values, text) {
			return 0, wrong(path, "%s is %s; an adapter of this model has '%s'", want.key, metadata.Shown(want.key),
				strings.Join(want.values, "' or '"))
		}
	}
	for _, key := range metadata.Keys() {
		value, _ := metadata.Get(key)
		if key != adapterKind && key != adapterAlpha && !neutralKey.MatchString(key) && !isNothing(value) {
			return 0, wrong(path, "%s is %s; this program does not know that key of an adapter", key, value)
		}
	}
	value, there := metadata.Get(adapterAlpha)
	alpha, isNumber := value.Number()
	if there && (!isNumber || !(math.Abs(alpha) <= math.MaxFloat32)) {
		return 0, wrong(path, "%s is %s; it must be a finite number of f32", adapterAlpha, value)
	}
	return alpha, nil
}

// isNothing says whether a value is false, 0 or an empty text.
func isNothing(value gguf.Value) bool {
	flag, isFlag := value.Bool()
	text, isText := value.Text()
	number, isNumber := value.Number()
	return isFlag && !flag || isText && text == "" || isNumber && number == 0
}

func factorsOfGGUF(file *gguf.File, interleaved bool, headDim int) ([]factor, error) {
	var found []factor
	for _, theirs := range file.Names() {
		tensor, err := file.Tensor(theirs)
		if err != nil {
			return nil, err
		}
		made := factor{theirs: theirs}
		if match := fileFactor.FindStringSubmatch(theirs); match != nil {
			made.module, made.name, made.which = match[1], nameOfGGUF(match[1]), strings.ToUpper(match[2])
			if made.which == "A" && len(tensor.Shape) == 1 { // of rank 1: files may leave such a dimension out
				tensor.Shape = []int{1, tensor.Shape[0]}
			}
			if made.which == "B" && interleaved {
				tensor = inOrderOfFolders(tensor, made.name, headDim)
			}
		}
		made.tensor = tensor
		found = append(found, made)
	}
	return found, nil
}

// InterleavedOrder is the rows of a head with half-split pairs in the order in which each pair is side by side.
func InterleavedOrder(headDim int) []int {
	order := make([]int, 0, headDim)
	for pair := range headDim / 2 {
		order = append(order, pair, pair+headDim/2)
	}
	return order
}

// IsRotated says whether a matrix is of queries or keys, by its name in LlamaConfig.Shapes.
func IsRotated(name string) bool {
	return strings.HasSuffix(name, "q_proj.weight") || strings.HasSuffix(name, "k_proj.weight")
}

// inOrderOfFolders gives rows of queries and keys, whose heads have their pairs side by side, in the order of half-split
// pairs. A tensor of a shape that it should not have stays as it is.
func inOrderOfFolders(tensor formats.StoredTensor, name string, headDim int) formats.StoredTensor {
	if !IsRotated(name) || len(tensor.Shape) != 2 || tensor.Shape[0]%headDim != 0 {
		return tensor
	}
	return tensor.RowsInOrder(halfSplitOrder(headDim))
}

// halfSplitOrder is the rows of a head whose pairs lie side by side in the order of half-split pairs.
func halfSplitOrder(headDim int) []int {
	order := make([]int, headDim)
	for at, row := range InterleavedOrder(headDim) {
		order[row] = at
	}
	return order
}
