package stored

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Model is a model as its files have it. Nothing is read ahead, copied or converted: tensors are the mapped pages of the
// files, in their format and in the order of rows they have. (GGUF files order the rows of queries and keys for
// interleaved pairs, folders for half-split ones; Config.Rope.Layout says which.) The one exception are the experts of
// gpt-oss' folders, whose elements have an order of their own: each reading makes ours. It must be closed, and its tensors
// not be used from then on.
type Model struct {
	Path   string
	Config LlamaConfig
	// Matrices are, in a model with ternary weights, those of its layers by their names in LlamaConfig.Shapes; they are
	// not among the tensors.
	Matrices map[string]*ternary.Matrix

	shapes []Shape // of the tensors
	parts  map[string][]formats.StoredTensor
	file   *gguf.File
	folder *safetensors.Folder

	tokenizer    func() (tokenizer.TextTokenizer, error)
	chatTemplate func() (*tokenizer.ChatTemplate, error)
}

var (
	expertName = regexp.MustCompile(`^(model\.layers\.\d{1,5}\.block_sparse_moe)\.experts\.(\d{1,5})\.(w[123])\.weight$`)
	// Tables that old versions of transformers saved with the weights; the configuration gives them too.
	redundantName = regexp.MustCompile(`^model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$`)
)

// Open opens a GGUF file (of a split one its first part), a Hugging Face folder of one of Families, a
// checkpoint, or the last checkpoint of a run. All but the values of the tensors is checked; the error, a *formats.Error,
// says what is wrong.
func Open(path string) (*Model, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return openGGUF(path)
	}
	folder, err := formats.LastCheckpoint(path)
	if err != nil {
		return nil, err
	}
	return openFolder(folder)
}

// Close releases the files. Closing twice is fine.
func (m *Model) Close() error {
	switch {
	case m.file != nil:
		return m.file.Close()
	case m.folder != nil:
		return m.folder.Close()
	}
	return nil // in memory
}

// GGUF is the opened GGUF file, nil of a folder.
func (m *Model) GGUF() *gguf.File { return m.file }

// Folder is the opened files of a folder, nil of a GGUF file and of a model in memory.
func (m *Model) Folder() *safetensors.Folder { return m.folder }

// Tokenizer is the model's tokenizer; nil when the files have none. An error when it is wrong, or has more tokens than the
// model.
func (m *Model) Tokenizer() (tokenizer.TextTokenizer, error) { return m.tokenizer() }

func (m *Model) readTokenizer() (made tokenizer.TextTokenizer, err error) {
	if m.file != nil {
		made, err = tokenizer.FromGGUF(&m.file.Metadata, m.Path)
	} else {
		made, err = tokenizer.FromFolder(m.Path)
	}
	if err == nil && made != nil && made.VocabSize() > m.Config.VocabSize {
		err = wrong(m.Path, "has a tokenizer of %d tokens for a model of %d", made.VocabSize(), m.Config.VocabSize)
	}
	return made, err
}

// Parts is what the files have of a tensor, in order: itself, or the same matrix of each expert; none where the model has
// no such tensor.
func (m *Model) Parts(name string) []formats.StoredTensor { return m.parts[name] }

// Shapes gives names and shapes of the tensors, in the order of the layers.
func (m *Model) Shapes() []Shape { return slices.Clone(m.shapes) }

// TensorBytes are the bytes of the tensors in the files, without Matrices; the head of a tied model counts once.
func (m *Model) TensorBytes() int64 {
	seen, total := make(map[*byte]bool), int64(0)
	for _, shape := range m.shapes {
		for _, part := range m.parts[shape.Name] {
			if place := unsafe.SliceData(part.Data); !seen[place] {
				seen[place] = true
				total += int64(part.ByteCount())
			}
		}
	}
	return total
}

// Bytes are the bytes of all tensors in the files; the head of a tied model counts once.
func (m *Model) Bytes() int64 {
	total := m.TensorBytes()
	for _, matrix := range m.Matrices {
		total += int64(len(matrix.Data))
	}
	return total
}

func wrong(path, format string, values ...any) error {
	return &formats.Error{Path: path, Problem: fmt.Sprintf(format, values...)}
}

// sizes is a shape as messages have it.
func sizes(shape []int) string {
	words := make([]string, len(shape))
	for at, size := range shape {
		words[at] = strconv.Itoa(size)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func openGGUF(path string) (*Model, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	m := &Model{Path: path, file: file}
	if err := m.readGGUF(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return m, nil
}

func (m *Model) readGGUF() error {
	architecture, _ := m.file.Get(gguf.ArchitectureKey)
	name, _ := architecture.Text()
	has := func(name string) bool {
		_, there := m.file.Entry(name)
		return there
	}
	found := seen{
		tied: !has("output.weight"), qkvBias: has("blk.0.attn_q.bias"), oBias: has("blk.0.attn_output.bias"),
		shared: has("blk.0.ffn_up_shexp.weight"),
	}
	for _, table := range []struct {
		name   string
		values *[]float32
	}{{ropeFrequencies, &found.divisors}, {shortFactors, &found.short}, {longFactors, &found.long}} {
		// BitNet files of bitnet.cpp have the frequencies themselves under this name, and nothing reads them there.
		if _, bitnet := bitnetArchitectures[name]; !has(table.name) || bitnet && table.name == ropeFrequencies {
			continue
		}
		stored, err := m.file.Tensor(table.name)
		if err != nil {
			return err
		}
		if *table.values, err = stored.Floats(); err != nil {
			return formats.Wrap(m.Path, err)
		}
	}
	var err error
	if m.Config, err = configFromGGUF(&m.file.Metadata, found); err != nil {
		return formats.Wrap(m.Path, err)
	}
	if err := m.checkLayers(m.file.Len()); err != nil {
		return err
	}
	if m.Config.Ternary {
		if m.Matrices, err = matricesFromGGUF(m.Path, m.Config, m.file); err != nil {
			return err
		}
	}
	parts := make(map[string][]formats.StoredTensor)
	for _, theirs := range m.file.Names() {
		scaleless, isScale := strings.CutSuffix(theirs, ".scale")
		whole := nameOfGGUF(theirs)
		if isScale {
			whole = nameOfGGUF(scaleless + ".weight")
		}
		isTable := theirs == ropeFrequencies || theirs == shortFactors || theirs == longFactors
		if isTable || m.Matrices[whole] != nil && strings.HasPrefix(theirs, strings.TrimSuffix(ggufName(whole), "weight")) {
			continue
		}
		name := nameOfGGUF(theirs)
		if m.Config.Family == "gpt_oss" { // its name of the norm before the experts
			name = strings.Replace(name, ".self_attn.post_norm.", ".post_attention_layernorm.", 1)
		}
		if name == "" || parts[name] != nil || m.Matrices[name] != nil {
			return wrong(m.Path, "has the tensor %s, which no model of this architecture has", formats.Shown(theirs))
		}
		tensor, err := m.file.Tensor(theirs)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".mlp.up_proj.weight") && len(tensor.Shape) == 2 && tensor.Shape[0] == 2*m.Config.FFNSize {
			name = strings.Replace(name, ".up_proj.", ".gate_up_proj.", 1) // Phi-3's, with the gate's
		}
		cut, err := m.cutRows(name, tensor)
		if err != nil {
			return err
		}
		maps.Copy(parts, cut)
	}
	return m.take(parts)
}

func openFolder(folder string) (*Model, error) {
	if err := formats.CheckNoAdapter(folder); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "config.json")
	values, err := formats.ReadJSON(path)
	if err != nil {
		return nil, err
	}
	m := &Model{Path: folder}
	if m.Config, err = ConfigFromFolder(values); err != nil {
		return nil, formats.Wrap(path, err)
	}
	var quantized ternary.Quantization
	if m.Config.Ternary {
		if quantized, err = ternary.QuantizationFromFolder(values); err != nil {
			return nil, formats.Wrap(path, err)
		}
	}
	if m.folder, err = safetensors.OpenFolder(folder); err != nil {
		return nil, err
	}
	if err := m.readFolder(quantized); err != nil {
		return nil, errors.Join(err, m.folder.Close())
	}
	return m, nil
}

func (m *Model) readFolder(quantized ternary.Quantization) error {
	names := m.folder.Names()
	if err := m.checkLayers(len(names)); err != nil {
		return err
	}
	if m.Config.Ternary {
		var err error
		if m.Matrices, err = matricesFromFolder(m.Path, m.Config, quantized, m.folder); err != nil {
			return err
		}
	}
	parts, ofExperts := make(map[string][]formats.StoredTensor), make(map[string]formats.StoredTensor)
	for _, theirs := range names {
		if redundantName.MatchString(theirs) || theirs == headName && m.Config.TieEmbeddings {
			continue
		}
		if m.Config.Ternary && isProjection(strings.TrimSuffix(theirs, scaleSuffix)) {
			if m.Matrices[strings.TrimSuffix(theirs, scaleSuffix)] == nil {
				return m.unknownTensor(theirs)
			}
			continue
		}
		if format, packed := quantized.Blocks[theirs]; packed {
			table, err := tableInBlocks(m.Path, m.Config, theirs, format, m.folder)
			if err != nil {
				return err
			}
			parts[theirs] = []formats.StoredTensor{table}
			continue
		}
		own, err := m.ofFolder(theirs)
		if err != nil {
			return err
		}
		for name, pieces := range own {
			if _, alone := ofExperts[name]; alone || parts[name] != nil {
				return wrong(m.Path, "has %s twice: of itself, and together with others", name)
			}
			if expertName.MatchString(name) {
				ofExperts[name] = pieces[0]
			} else {
				parts[name] = pieces
			}
		}
	}
	if err := m.gather(ofExperts, parts); err != nil {
		return err
	}
	return m.take(parts)
}

// ofFolder gives a tensor of the folder under the names of LlamaConfig.Shapes.
func (m *Model) ofFolder(theirs string) (map[string][]formats.StoredTensor, error) {
	if m.Config.BiasedExperts {
		if own, err := m.expertsInBlocks(theirs, m.folder); own != nil || err != nil {
			return own, err
		}
	}
	tensor, err := m.folder.Stored(theirs)
	if err != nil {
		return nil, err
	}
	return m.ownNames(theirs, tensor)
}

func (m *Model) unknownTensor(name string) error {
	return wrong(m.Path, "has the tensor %s, which no model of this configuration has", formats.Shown(name))
}

// gather adds tensors of single experts, the same matrix of all of them under its name in LlamaConfig.Shapes.
func (m *Model) gather(alone map[string]formats.StoredTensor, parts map[string][]formats.StoredTensor) error {
	experts := make(map[string]map[int]formats.StoredTensor)
	for name, tensor := range alone {
		match := expertName.FindStringSubmatch(name)
		whole := match[1] + "." + match[3] + ".weight"
		if experts[whole] == nil {
			experts[whole] = make(map[int]formats.StoredTensor)
		}
		number, _ := strconv.Atoi(match[2]) // five digits at most
		experts[whole][number] = tensor
	}
	for name, pieces := range experts {
		if len(pieces) != m.Config.NumExperts {
			return m.wrongExperts(name, len(pieces))
		}
		if parts[name] != nil {
			return wrong(m.Path, "has %s twice: of each expert, and of all together", name)
		}
		for expert := range m.Config.NumExperts {
			piece, found := pieces[expert]
			if !found {
				return m.wrongExperts(name, len(pieces))
			}
			parts[name] = append(parts[name], piece)
		}
	}
	return nil
}

func (m *Model) wrongExperts(name string, found int) error {
	return wrong(m.Path, "%s has %d experts; config.json makes it %d", name, found, m.Config.NumExperts)
}

// checkLayers refuses more layers than there are tensors, before every tensor of every layer gets an entry in a table.
func (m *Model) checkLayers(tensors int) error {
	if m.Config.NumLayers > tensors {
		return wrong(m.Path, "has %d tensors; the configuration makes it %d layers", tensors, m.Config.NumLayers)
	}
	return nil
}

// take checks the tensors against the configuration, and keeps them.
func (m *Model) take(found map[string][]formats.StoredTensor) error {
	if table := found[embeddingName]; m.Config.TieEmbeddings && table != nil {
		found[headName] = table
	}
	known := make(map[string]bool)
	for _, shape := range m.Config.Shapes() {
		if m.Config.Ternary && isProjection(shape.Name) {
			continue
		}
		known[shape.Name] = true
		m.shapes = append(m.shapes, shape)
	}
	var unknown []string
	for name := range found {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return m.unknownTensor(slices.Min(unknown))
	}
	for _, shape := range m.shapes {
		if err := m.checkTensor(shape, found[shape.Name]); err != nil {
			return err
		}
	}
	m.parts = found
	m.tokenizer = sync.OnceValues(m.readTokenizer)
	m.chatTemplate = sync.OnceValues(m.readChatTemplate)
	return nil
}

func (m *Model) checkTensor(shape Shape, parts []formats.StoredTensor) error {
	if len(parts) == 0 {
		return wrong(m.Path, "lacks the tensor %s of shape %s", shape.Name, sizes(shape.Sizes))
	}
	right := shape.Sizes
	if len(parts) > 1 {
		right = right[1:]
	}
	for _, part := range parts {
		if !slices.Equal(part.Shape, right) {
			return wrong(m.Path, "tensor %s has shape %s; the configuration makes it %s", part.Name, sizes(part.Shape), sizes(right))
		}
		if part.Format != parts[0].Format {
			return wrong(m.Path, "the experts of %s are in %s and %s", shape.Name, parts[0].Format.Name, part.Format.Name)
		}
	}
	if isPlain(shape.Name) && !parts[0].Format.IsPlain() {
		return wrong(m.Path, "tensor %s is in %s; it must be in f32, f16 or bf16", parts[0].Name, parts[0].Format.Name)
	}
	return nil
}
