package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/safetensors"
)

// Tensors are stored tensors by name: a file, or a folder of them.
type Tensors interface {
	Names() []string
	Tensor(name string) (safetensors.Tensor, bool)
}

// MixtralWeights are stored tensors by the names of our layout, whichever of Mixtral's two layouts they come in. The
// usual one has a tensor an expert and matrix and is taken as it is; the one that transformers 5 holds in memory has
// all experts of a layer in `mlp.experts.gate_up_proj` and `down_proj`, which are cut up here, without a copy.
type MixtralWeights struct {
	tensors Tensors
	names   []string
	source  map[string]part // of the names that are not the stored ones
}

// part is where a tensor of our layout lies: a run of bytes of a stored one.
type part struct {
	stored string
	whole  bool // all of it, under another name
	first  int  // elements before it
	shape  []int
}

// redundantName is that of frequencies of the rotary embedding, which old Llamas store.
var redundantName = regexp.MustCompile(`^model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$`)

var fusedName = regexp.MustCompile(`^(model\.layers\.\d+)\.mlp\.experts\.(gate_up_proj|down_proj)$`)

// NewMixtralWeights finds out where each tensor of our layout lies. Of a model with a tied head the copy of the embeddings
// that some folders have is left out.
func NewMixtralWeights(tensors Tensors, tied bool) (*MixtralWeights, error) {
	weights := &MixtralWeights{tensors: tensors, source: make(map[string]part)}
	stored := slices.DeleteFunc(tensors.Names(), func(name string) bool {
		return redundantName.MatchString(name) || (tied && name == "lm_head.weight")
	})
	fused := false
	for _, name := range stored {
		fused = fused || fusedName.MatchString(name)
	}
	if !fused {
		weights.names = stored
		return weights, nil
	}
	for _, name := range stored {
		if match := fusedName.FindStringSubmatch(name); match != nil {
			if err := weights.unfuse(name, match[1], match[2] == "gate_up_proj"); err != nil {
				return nil, err
			}
			continue
		}
		ours := strings.ReplaceAll(name, ".mlp.gate.", ".block_sparse_moe.gate.")
		weights.names = append(weights.names, ours)
		weights.source[ours] = part{stored: name, whole: true}
	}
	return weights, nil
}

func (w *MixtralWeights) unfuse(name, prefix string, gateUp bool) error {
	tensor, _ := w.tensors.Tensor(name)
	if len(tensor.Shape) != 3 {
		return fmt.Errorf("tensor %s has shape %s; it must have three dimensions", name, ShapeText(tensor.Shape))
	}
	experts, rows, columns := tensor.Shape[0], tensor.Shape[1], tensor.Shape[2]
	if experts > 0 && rows*columns == 0 {
		return fmt.Errorf("tensor %s has shape %s; it has no elements", name, ShapeText(tensor.Shape))
	}
	type span struct {
		name        string
		first, rows int
	}
	spans := []span{{"w2", 0, rows}}
	if gateUp {
		spans = []span{{"w1", 0, rows / 2}, {"w3", rows / 2, rows - rows/2}}
	}
	for expert := range experts {
		for _, span := range spans {
			ours := fmt.Sprintf("%s.block_sparse_moe.experts.%d.%s.weight", prefix, expert, span.name)
			w.names = append(w.names, ours)
			first := (expert*rows + span.first) * columns
			w.source[ours] = part{stored: name, first: first, shape: []int{span.rows, columns}}
		}
	}
	return nil
}

// Names lists the tensors.
func (w *MixtralWeights) Names() []string { return w.names }

// Shape gives a tensor's shape; false when there is none of this name.
func (w *MixtralWeights) Shape(name string) ([]int, bool) {
	tensor, found := w.tensor(name)
	return tensor.Shape, found
}

func (w *MixtralWeights) tensor(name string) (safetensors.Tensor, bool) {
	part, moved := w.source[name]
	if !moved {
		return w.tensors.Tensor(name)
	}
	tensor, found := w.tensors.Tensor(part.stored)
	if !part.whole {
		size := tensor.DType.Size()
		last := part.first + Spec{Shape: part.shape}.Size()
		tensor.Bytes, tensor.Shape = tensor.Bytes[part.first*size:last*size], part.shape
	}
	tensor.Name = name
	return tensor, found
}

// Floats gives a tensor's values as f32.
func (w *MixtralWeights) Floats(name string) ([]float32, error) {
	tensor, found := w.tensor(name)
	if !found {
		return nil, fmt.Errorf("there is no tensor %s", name)
	}
	return Floats(tensor)
}

// Bytes gives a tensor's values as they are stored; nil when there is none of this name.
func (w *MixtralWeights) Bytes(name string) []byte {
	tensor, _ := w.tensor(name)
	return tensor.Bytes
}

// Floats widens the values of a stored tensor to f32; those of f64 are rounded to the nearest.
func Floats(tensor safetensors.Tensor) ([]float32, error) {
	var read func([]byte) float32
	size := tensor.DType.Size()
	switch tensor.DType {
	case safetensors.F32:
		read = func(bytes []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(bytes)) }
	case safetensors.F64:
		read = func(bytes []byte) float32 { return float32(math.Float64frombits(binary.LittleEndian.Uint64(bytes))) }
	case safetensors.BF16:
		read = func(bytes []byte) float32 {
			return math.Float32frombits(uint32(binary.LittleEndian.Uint16(bytes)) << 16)
		}
	case safetensors.F16:
		read = func(bytes []byte) float32 { return widenHalf(binary.LittleEndian.Uint16(bytes)) }
	default:
		name := tensor.DType.Name()
		return nil, fmt.Errorf("tensor %s has dtype %s; weights are floating-point numbers", tensor.Name, name)
	}
	values := make([]float32, len(tensor.Bytes)/size)
	for at := range values {
		values[at] = read(tensor.Bytes[at*size:])
	}
	return values, nil
}

// widenHalf gives the value of an IEEE binary16.
func widenHalf(half uint16) float32 {
	sign, exponent, fraction := uint32(half>>15)<<31, uint32(half>>10)&31, uint32(half)&1023
	switch exponent {
	case 0: // subnormal: a multiple of 2^-24, exact in f32
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)/(1<<24)))
	case 31:
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
