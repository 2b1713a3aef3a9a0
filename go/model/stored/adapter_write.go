package stored

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/safetensors"
)

// Alpha is Scale * Rank, rounded to f32, in which GGUF files have it; infinite where it is too large for that.
func (a *Adapter) Alpha() float64 { return float64(float32(a.Scale * float64(a.Rank))) }

// WriteFolder writes the adapter as a folder of PEFT, which must not exist, in one step, each factor in its format. `base` is
// what is said of the model that it belongs to. The same adapter gives the same bytes. An error, too, for a scale that such
// files have no number for.
func (a *Adapter) WriteFolder(path, base string) error {
	options := model.LowRank{Rank: a.Rank, Alpha: a.Alpha()}
	if math.IsInf(options.Alpha, 0) {
		return errors.New("the adapter's scale * rank is too large for f32, in which lora_alpha is written")
	}
	var factors []safetensors.Tensor
	for name, pair := range a.Factors {
		module := strings.TrimSuffix(name, ".weight")
		target := module[strings.LastIndex(module, ".")+1:]
		if !slices.Contains(options.Targets, target) {
			options.Targets = append(options.Targets, target)
		}
		for _, part := range []struct {
			end    string
			tensor formats.StoredTensor
		}{{".lora_A.weight", pair.A}, {".lora_B.weight", pair.B}} {
			factors = append(factors, safetensors.Tensor{
				Name: FactorPrefix + module + part.end, DType: safetensors.DTypeOf(part.tensor.Format),
				Shape: part.tensor.Shape, Bytes: part.tensor.Bytes(),
			})
		}
	}
	values, err := formats.JSONDocument(AdapterValues(options, base))
	if err != nil {
		return err
	}
	return formats.WriteFolder(path, func(folder string) error {
		if err := os.WriteFile(filepath.Join(folder, AdapterConfig), values, 0o666); err != nil {
			return err
		}
		return safetensors.Write(filepath.Join(folder, AdapterWeights), factors, map[string]string{"format": "pt"})
	})
}

// WriteGGUF writes the adapter, of a model with that configuration, as a GGUF file for llama.cpp, in one step, each factor in
// its format; a file that is there is replaced. The same adapter gives the same bytes. An error, too, for a scale that such
// files have no number for.
func (a *Adapter) WriteGGUF(path string, config LlamaConfig) error {
	alpha := a.Alpha()
	if math.IsInf(alpha, 0) || alpha == 0 {
		return fmt.Errorf("the adapter's scale is %.6g; a GGUF file has scale * rank in f32, other than 0", a.Scale)
	}
	family := familyNamed(config.Family)
	metadata := []gguf.KeyValue{
		{Key: gguf.ArchitectureKey, Value: family.Architectures[0]}, {Key: typeKey, Value: "adapter"},
		{Key: adapterKind, Value: "lora"}, {Key: adapterAlpha, Value: float32(alpha)},
	}
	var factors []formats.StoredTensor
	for _, shape := range config.Shapes() {
		pair, adapted := a.Factors[shape.Name]
		if !adapted {
			continue
		}
		if family.Interleaved && IsRotated(shape.Name) {
			pair.B = pair.B.RowsInOrder(InterleavedOrder(config.HeadDim))
		}
		pair.A.Name, pair.B.Name = ggufName(shape.Name)+".lora_a", ggufName(shape.Name)+".lora_b"
		factors = append(factors, pair.A, pair.B)
	}
	return gguf.Write(path, metadata, factors)
}
