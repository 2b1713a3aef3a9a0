package stored

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/safetensors"
)

// The experts of gpt-oss as its folders have them: gate and up in alternate rows, in one of two forms.
//
// What transformers writes is transposed, [experts, inputs, outputs] in f32, f16 or bf16. What is published has blocks of 32
// elements in 4 bits, [experts, outputs, inputs/32, 16] bytes with element 2j in the low half of byte j and 2j+1 in the high
// half, and beside them a byte for the scale of each block, its power of two plus 127 (Open Compute Project 2023, "OCP
// Microscaling Formats (MX) Specification", 5.4). GGUF files have the same blocks behind their scale, elements j and j+16 in
// byte j. From both a tensor for each expert is made when it is read.
var packedExperts = regexp.MustCompile(`^(model\.layers\.\d{1,5})\.mlp\.experts\.(gate_up|down)_proj_(blocks|scales)$`)

// cutOfExperts is a matrix of ours in a tensor of a folder: its rows from the first given on, each so-manyth.
type cutOfExperts struct {
	own         string
	first, step int
}

var cutsOfExperts = map[string][]cutOfExperts{"gate_up": {{"w1", 0, 2}, {"w3", 1, 2}}, "down": {{"w2", 0, 1}}}

// Elements of a block of mxfp4, and bytes of it without its scale.
const (
	packedBlock = 32
	packedBytes = 16
)

// expertsOfGPTOSS gives the tensors of LlamaConfig.Shapes that are made of one that transformers writes, `part` of a layer;
// nil where it is not one of the experts'. An error for a shape that is not the configuration's.
func (m *Model) expertsOfGPTOSS(layer, part string, tensor formats.StoredTensor) (map[string][]formats.StoredTensor, error) {
	rest, ofExperts := strings.CutPrefix(part, "mlp.experts.")
	name, bias, _ := strings.Cut(rest, "_proj")
	cuts := cutsOfExperts[name]
	if !ofExperts || cuts == nil || bias != "" && bias != "_bias" {
		return nil, nil
	}
	experts := m.Config.NumExperts
	rows, columns := m.sizesOfExperts(name)
	right := []int{experts, columns, rows}
	if bias != "" {
		right = []int{experts, rows}
	}
	if err := m.checkShape(tensor, right...); err != nil {
		return nil, err
	}
	found := make(map[string][]formats.StoredTensor)
	for _, cut := range cuts {
		if bias != "" {
			found[layer+".block_sparse_moe."+cut.own+".bias"] = []formats.StoredTensor{every(tensor, experts, rows, cut)}
			continue
		}
		own := layer + ".block_sparse_moe." + cut.own + ".weight"
		size := len(tensor.Data) / experts
		for expert := range experts {
			one := tensor
			one.Data = tensor.Data[expert*size : (expert+1)*size]
			found[own] = append(found[own], turned(one, columns, rows, cut))
		}
	}
	return found, nil
}

// expertsInBlocks is the same of a tensor of blocks, with its scales; an empty map of the scales themselves; nil where it is
// neither.
func (m *Model) expertsInBlocks(name string, files *safetensors.Folder) (map[string][]formats.StoredTensor, error) {
	match := packedExperts.FindStringSubmatch(name)
	if match == nil {
		return nil, nil
	}
	experts := m.Config.NumExperts
	rows, columns := m.sizesOfExperts(match[2])
	if columns%packedBlock != 0 {
		return nil, wrong(m.Path, "tensor %s has blocks of %d, of which %d inputs are not a whole number", formats.Shown(name),
			packedBlock, columns)
	}
	shape := []int{experts, rows, columns / packedBlock}
	prefix := strings.TrimSuffix(name, match[3])
	var parts [2][]byte
	for at, kind := range []string{"blocks", "scales"} {
		right := shape
		if kind == "blocks" {
			right = append(slices.Clone(shape), packedBytes)
		}
		tensor, there := files.Tensor(prefix + kind)
		if !there {
			return nil, wrong(m.Path, "lacks the tensor %s of shape %s", prefix+kind, sizes(right))
		}
		if tensor.DType != safetensors.U8 {
			return nil, wrong(m.Path, "tensor %s has dtype %s; it must be uint8", prefix+kind, tensor.DType.Name())
		}
		if err := m.checkShape(formats.StoredTensor{Name: prefix + kind, Shape: tensor.Shape}, right...); err != nil {
			return nil, err
		}
		parts[at] = tensor.Bytes
	}
	found := make(map[string][]formats.StoredTensor)
	if match[3] == "scales" {
		return found, nil
	}
	format, _ := formats.FormatNamed("mxfp4")
	scaleBytes := columns / packedBlock
	for _, cut := range cutsOfExperts[match[2]] {
		own := match[1] + ".block_sparse_moe." + cut.own + ".weight"
		for expert := range experts {
			blocks := parts[0][expert*rows*scaleBytes*packedBytes : (expert+1)*rows*scaleBytes*packedBytes]
			scales := parts[1][expert*rows*scaleBytes : (expert+1)*rows*scaleBytes]
			found[own] = append(found[own], formats.StoredTensor{
				Name: name, Format: format, Shape: []int{rows / cut.step, columns},
				Data: blocks[cut.first*scaleBytes*packedBytes:], Pages: files.Pages(name),
				Made: func() []byte { return repacked(blocks, scales, scaleBytes, cut) },
			})
		}
	}
	return found, nil
}

// sizesOfExperts are outputs and inputs of the product of an expert's tensor.
func (m *Model) sizesOfExperts(name string) (rows, columns int) {
	if name == "gate_up" {
		return 2 * m.Config.FFNSize, m.Config.HiddenSize
	}
	return m.Config.HiddenSize, m.Config.FFNSize
}

// every is each so-manyth element of `rows` for each expert.
func every(tensor formats.StoredTensor, experts, rows int, cut cutOfExperts) formats.StoredTensor {
	if cut.step == 1 {
		return tensor
	}
	size, whole := tensor.Format.Bytes, tensor.Data
	made := tensor
	made.Shape, made.Data = []int{experts, rows / cut.step}, whole[cut.first*size:]
	made.Made = func() []byte {
		data := make([]byte, 0, len(whole)/cut.step)
		for at := cut.first; at < experts*rows; at += cut.step {
			data = append(data, whole[at*size:(at+1)*size]...)
		}
		return data
	}
	return made
}

// turned is the transpose of one expert's matrix [columns, rows], of it each so-manyth row.
func turned(tensor formats.StoredTensor, columns, rows int, cut cutOfExperts) formats.StoredTensor {
	size, whole := tensor.Format.Bytes, tensor.Data
	made := tensor
	made.Shape, made.Data = []int{rows / cut.step, columns}, whole[cut.first*size:]
	made.Made = func() []byte {
		data := make([]byte, len(whole)/cut.step)
		for column := range columns {
			line := whole[column*rows*size : (column+1)*rows*size]
			for row := range rows / cut.step {
				from, to := (cut.first+row*cut.step)*size, (row*columns+column)*size
				if size == 4 {
					binary.NativeEndian.PutUint32(data[to:], binary.NativeEndian.Uint32(line[from:]))
				} else {
					binary.NativeEndian.PutUint16(data[to:], binary.NativeEndian.Uint16(line[from:]))
				}
			}
		}
		tensor.Pages.Release(whole)
		return data
	}
	return made
}

// repacked is one expert's blocks as GGUF files have them, of rows of so many blocks each.
func repacked(blocks, scales []byte, perRow int, cut cutOfExperts) []byte {
	const half = packedBytes / 2
	rows := len(scales) / perRow
	data := make([]byte, 0, len(scales)/cut.step*(1+packedBytes))
	for row := cut.first; row < rows; row += cut.step {
		for at := row * perRow; at < (row+1)*perRow; at++ {
			pairs := blocks[at*packedBytes : (at+1)*packedBytes]
			data = append(data, scales[at])
			for j := range half {
				left, right := pairs[j], pairs[half+j]
				data = append(data, left&15|right<<4, left>>4|right&240)
			}
		}
	}
	return data
}
