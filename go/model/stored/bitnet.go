package stored

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/safetensors"
)

// tables are the tensors of a BitNet that may be in blocks.
var tables = []string{embeddingName, headName}

const (
	// ourMethod is the quant_method in the config.json of a folder whose matrices are in tern2.
	ourMethod   = "nncuda-tern2"
	scaleSuffix = "_scale"
)

// quantization is what `quantization_config` says.
type quantization struct {
	packed  bool              // ours: tern2, and weight_scale f32 [1] is the factor
	online  bool              // master weights: scale and codes come from them
	divides bool              // weights are to be divided by weight_scale, and not multiplied
	blocks  map[string]string // ours: the formats of the tables that are in blocks, by name
}

// quantizationFromFolder reads `quantization_config` of a config.json; without it, weights are master weights.
//
// linear_class "bitlinear", the default, divides by weight_scale, "autobitlinear" multiplies; quantization_mode "online"
// has master weights. (transformers, integrations/bitnet.py) An error for what this engine does not do.
func quantizationFromFolder(values *formats.Object) (quantization, error) {
	value := values.Get("quantization_config")
	if value == nil {
		return quantization{online: true}, nil
	}
	given, ok := value.(*formats.Object)
	if !ok {
		return quantization{}, fmt.Errorf("quantization_config is %s; it must be an object", formats.Shown(value))
	}
	switch method := given.Get("quant_method"); method {
	case ourMethod:
		return ourQuantization(given)
	case "bitnet":
	default:
		return quantization{}, fmt.Errorf("quant_method is %s; this program reads 'bitnet' and '%s'", formats.Shown(method), ourMethod)
	}
	linear, err := choice(given, "linear_class", "bitlinear", "autobitlinear")
	if err != nil {
		return quantization{}, err
	}
	mode, err := choice(given, "quantization_mode", "offline", "online")
	if err != nil {
		return quantization{}, err
	}
	if normed := given.Get("use_rms_norm"); given.Has("use_rms_norm") && normed != any(false) {
		return quantization{}, fmt.Errorf("use_rms_norm is %s; it may be False", formats.Shown(normed))
	}
	kept := given.Get("modules_to_not_convert")
	list, isList := kept.([]any)
	if !formats.IsEmpty(kept) && kept != nil && (!isList || slices.ContainsFunc(list, isOfLayers)) {
		return quantization{}, fmt.Errorf("modules_to_not_convert is %s; this engine has ternary weights in all layers",
			formats.Shown(kept))
	}
	return quantization{online: mode == "online" && linear == "autobitlinear", divides: linear == "bitlinear"}, nil
}

// choice is one of two texts, the first where none is given.
func choice(given *formats.Object, name, usual, other string) (string, error) {
	if !given.Has(name) {
		return usual, nil
	}
	value, _ := given.Get(name).(string)
	if value != usual && value != other {
		return "", fmt.Errorf("%s is %s; it may be '%s' or '%s'", name, formats.Shown(given.Get(name)), usual, other)
	}
	return value, nil
}

// isOfLayers says whether an entry of modules_to_not_convert is none, or names a matrix of a layer.
func isOfLayers(module any) bool {
	name, ok := module.(string)
	return !ok || strings.Contains(name, "_proj") || strings.Contains(name, "layers")
}

func ourQuantization(given *formats.Object) (quantization, error) {
	made := quantization{packed: true, blocks: make(map[string]string)}
	var known []string
	for _, format := range formats.BlockFormats {
		if !format.IsPlain() {
			known = append(known, format.Name)
		}
	}
	if !given.Has("blocks") {
		return made, nil
	}
	blocks, ok := given.Get("blocks").(*formats.Object)
	if ok {
		for _, name := range blocks.Names() {
			made.blocks[name], _ = blocks.Get(name).(string)
			ok = ok && slices.Contains(tables, name) && slices.Contains(known, made.blocks[name])
		}
	}
	if !ok {
		return made, fmt.Errorf("blocks is %s; it may give %s one of %s", formats.Shown(given.Get("blocks")),
			strings.Join(tables, " and "), strings.Join(known, ", "))
	}
	return made, nil
}

// eachMatrix makes the matrices of a model by the names of LlamaConfig.Shapes.
func eachMatrix(
	config LlamaConfig, make func(name string, rows, columns int) (*ternary.Matrix, error),
) (map[string]*ternary.Matrix, error) {
	matrices := map[string]*ternary.Matrix{}
	for _, shape := range config.Shapes() {
		if !isProjection(shape.Name) {
			continue
		}
		var err error
		if matrices[shape.Name], err = make(shape.Name, shape.Sizes[0], shape.Sizes[1]); err != nil {
			return nil, err
		}
	}
	return matrices, nil
}

func lacks(path, name string, shape ...int) error {
	return wrong(path, "lacks the tensor %s of shape %s", name, sizes(shape))
}

// matricesFromGGUF gives the matrices of a GGUF file; all but the codes is checked. A tensor NAME.scale, f32 [1],
// multiplies the matrix NAME.weight: so does llama.cpp.
func matricesFromGGUF(path string, config LlamaConfig, file *gguf.File) (map[string]*ternary.Matrix, error) {
	return eachMatrix(config, func(name string, rows, columns int) (*ternary.Matrix, error) {
		theirs := ggufName(name)
		entry, found := file.Entry(theirs)
		if !found {
			return nil, lacks(path, theirs, rows, columns)
		}
		if !slices.Equal(entry.Shape, []int{rows, columns}) {
			return nil, wrong(path, "tensor %s has shape %s; the configuration makes it %s", theirs, sizes(entry.Shape),
				sizes([]int{rows, columns}))
		}
		factor, err := factorFromGGUF(path, strings.TrimSuffix(theirs, "weight")+"scale", file)
		if err != nil {
			return nil, err
		}
		isTernary := func(format formats.TernaryFormat) bool { return format.Name == entry.Type }
		if slices.ContainsFunc(formats.TernaryFormats, isTernary) {
			data, pages := file.Mapped(theirs)
			return ternary.FromBlocks(path, theirs, entry.Type, rows, columns, data, pages, factor), nil
		}
		if format, known := formats.FormatNamed(entry.Type); known && format.IsPlain() {
			tensor, err := file.Tensor(theirs)
			return ternary.FromMultiples(path, tensor, factor), err
		}
		return nil, wrong(path, "tensor %s is of type %s; ternary weights are f32, f16, bf16, tq1_0, tq2_0, i2_s", theirs, entry.Type)
	})
}

func factorFromGGUF(path, name string, file *gguf.File) (float32, error) {
	if _, found := file.Entry(name); !found {
		return 1, nil
	}
	tensor, err := file.Tensor(name)
	if err != nil {
		return 0, err
	}
	factor, err := oneNumber(path, name, tensor)
	if err != nil {
		return 0, err
	}
	if err := ternary.CheckedScale(factor, "value"); err != nil {
		return 0, wrong(path, "tensor %s %v", name, err)
	}
	return factor, nil
}

func oneNumber(path, name string, tensor formats.StoredTensor) (float32, error) {
	if tensor.Size() != 1 || !tensor.Format.IsPlain() {
		return 0, wrong(path, "tensor %s is %s %s; it must be one number in f32, f16 or bf16", name, tensor.Format.Name,
			sizes(tensor.Shape))
	}
	return formats.Widened(tensor.Format.Name, tensor.Data)[0], nil
}

// tableInBlocks is one of the tables that a folder of ours has in blocks: their bytes, u8 [vocab, row bytes].
func tableInBlocks(
	path string, config LlamaConfig, name, formatName string, folder *safetensors.Folder,
) (formats.StoredTensor, error) {
	format, _ := formats.FormatNamed(formatName)
	rowBytes, err := format.RowBytes(config.HiddenSize)
	if err != nil {
		return formats.StoredTensor{}, wrong(path, "tensor %s: %v", name, err)
	}
	tensor, _ := folder.Tensor(name)
	if right := []int{config.VocabSize, rowBytes}; tensor.DType != safetensors.U8 || !slices.Equal(tensor.Shape, right) {
		return formats.StoredTensor{}, wrong(path, "tensor %s is %s %s; in %s it is uint8 %s", name, tensor.DType.Name(),
			sizes(tensor.Shape), formatName, sizes(right))
	}
	shape := []int{config.VocabSize, config.HiddenSize}
	return formats.StoredTensor{Name: name, Format: format, Shape: shape, Data: tensor.Bytes, Pages: folder.Pages(name)}, nil
}

// matricesFromFolder gives the matrices of a folder; all but the codes is checked.
func matricesFromFolder(
	path string, config LlamaConfig, quantized quantization, folder *safetensors.Folder,
) (map[string]*ternary.Matrix, error) {
	return eachMatrix(config, func(name string, rows, columns int) (*ternary.Matrix, error) {
		tensor, found := folder.Tensor(name)
		if !found {
			return nil, lacks(path, name, rows, columns)
		}
		need := func(what string, right ...int) error {
			if slices.Equal(tensor.Shape, right) {
				return nil
			}
			return wrong(path, "tensor %s has shape %s; the configuration makes it %s%s", name, sizes(tensor.Shape), sizes(right), what)
		}
		inBytes, pages := tensor.DType == safetensors.U8, folder.Pages(name)
		switch {
		case quantized.packed && !inBytes:
			return nil, wrong(path, "tensor %s has dtype %s; weights of %s are uint8", name, tensor.DType.Name(), ourMethod)
		case quantized.packed:
			stored, rowBytes := ternary.Tern2Shape(rows, columns)
			if err := need(" in tern2", stored, rowBytes); err != nil {
				return nil, err
			}
			scale, err := scaleInFolder(path, name, quantized, folder)
			return ternary.FromTern2(path, name, rows, columns, tensor.Bytes, pages, scale), err
		case inBytes && quantized.online:
			return nil, wrong(path, "tensor %s has dtype uint8, that of packed weights, but config.json describes none", name)
		case inBytes && rows%4 != 0:
			return nil, wrong(path, "tensor %s has %d outputs; packed weights need a multiple of 4", name, rows)
		case inBytes:
			if err := need(", four outputs to a byte", rows/4, columns); err != nil {
				return nil, err
			}
			scale, err := scaleInFolder(path, name, quantized, folder)
			return ternary.FromPacked(path, name, rows, columns, tensor.Bytes, pages, scale), err
		}
		numbers, err := storedIn(folder, name)
		if err == nil {
			err = need("", rows, columns)
		}
		if err != nil {
			return nil, err
		}
		if quantized.online {
			return ternary.FromMaster(path, numbers), nil
		}
		scale, err := scaleInFolder(path, name, quantized, folder)
		return ternary.FromNumbers(path, numbers, scale), err
	})
}

func scaleInFolder(path, name string, quantized quantization, folder *safetensors.Folder) (float32, error) {
	key := name + scaleSuffix
	if _, found := folder.Tensor(key); !found {
		return 0, wrong(path, "lacks the tensor %s, the scale of %s", key, name)
	}
	tensor, err := storedIn(folder, key)
	if err != nil {
		return 0, err
	}
	value, err := oneNumber(path, key, tensor)
	if err != nil {
		return 0, err
	}
	if err := ternary.CheckedScale(value, "weight_scale"); err != nil || !quantized.divides {
		if err != nil {
			err = wrong(path, "tensor %s %v", name, err)
		}
		return value, err
	}
	factor := 1 / value
	if err := ternary.CheckedScale(factor, "factor"); err != nil {
		return 0, wrong(path, "tensor %s %v", name, err)
	}
	return factor, nil
}
