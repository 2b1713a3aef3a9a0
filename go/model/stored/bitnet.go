package stored

import (
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/safetensors"
)

const scaleSuffix = "_scale"

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
	path string, config LlamaConfig, quantized ternary.Quantization, folder *safetensors.Folder,
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
		case quantized.Packed && !inBytes:
			return nil, wrong(path, "tensor %s has dtype %s; weights of %s are uint8", name, tensor.DType.Name(), ternary.OurMethod)
		case quantized.Packed:
			stored, rowBytes := ternary.Tern2Shape(rows, columns)
			if err := need(" in tern2", stored, rowBytes); err != nil {
				return nil, err
			}
			scale, err := scaleInFolder(path, name, quantized, folder)
			return ternary.FromTern2(path, name, rows, columns, tensor.Bytes, pages, scale), err
		case inBytes && quantized.Online:
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
		numbers, err := folder.Stored(name)
		if err == nil {
			err = need("", rows, columns)
		}
		if err != nil {
			return nil, err
		}
		if quantized.Online {
			return ternary.FromMaster(path, numbers), nil
		}
		scale, err := scaleInFolder(path, name, quantized, folder)
		return ternary.FromNumbers(path, numbers, scale), err
	})
}

func scaleInFolder(path, name string, quantized ternary.Quantization, folder *safetensors.Folder) (float32, error) {
	key := name + scaleSuffix
	if _, found := folder.Tensor(key); !found {
		return 0, wrong(path, "lacks the tensor %s, the scale of %s", key, name)
	}
	tensor, err := folder.Stored(key)
	if err != nil {
		return 0, err
	}
	value, err := oneNumber(path, key, tensor)
	if err != nil {
		return 0, err
	}
	if err := ternary.CheckedScale(value, "weight_scale"); err != nil || !quantized.Divides {
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
