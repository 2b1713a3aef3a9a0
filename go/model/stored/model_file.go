package stored

import (
	"errors"
	"regexp"
	"strconv"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// ModelFile is a GGUF file in f32, f16 or bf16 as weights of which all are trained, by the names of model.Layout. Heads of
// queries and keys whose pairs lie side by side are read with half-split pairs, the order of folders. It must be closed.
type ModelFile struct {
	Model *Model // as the file has it
	// Config has the model's options as of one that trains.
	Config model.Config

	layout *model.Layout
}

var _ model.Weights = (*ModelFile)(nil)

var expertWeight = regexp.MustCompile(`^(.+\.block_sparse_moe)\.experts\.(\d+)\.(w[123]\.weight)$`)

// OpenModelFile opens a file: all of it is checked except the values of the tensors, and nothing loaded. An error when it is
// of a model that does not train, or has weights in blocks, of which nothing knows what they were rounded from.
func OpenModelFile(path string) (*ModelFile, error) {
	opened, err := Open(path)
	if err != nil {
		return nil, err
	}
	file := &ModelFile{Model: opened}
	if err := file.read(); err != nil {
		return nil, errors.Join(formats.Wrap(path, err), opened.Close())
	}
	return file, nil
}

func (f *ModelFile) read() (err error) {
	if f.Config, err = configOfAll(f.Model.Config); err != nil {
		return err
	}
	for _, shape := range f.Model.Shapes() {
		if part := f.Model.Parts(shape.Name)[0]; !part.Format.IsPlain() {
			return wrong(f.Model.Path, "tensor %s is in %s; all weights are trained of files in f32, f16 or bf16: give one of "+
				"these, or --lora-rank for an adapter beside this one", part.Name, part.Format.Name)
		}
	}
	f.layout = model.NewLayout(f.Config)
	return nil
}

// Close releases the file. Closing twice is fine.
func (f *ModelFile) Close() error { return f.Model.Close() }

// Names lists the parameters.
func (f *ModelFile) Names() []string { return f.layout.Names() }

// Shape gives that of a parameter; false when there is none of this name.
func (f *ModelFile) Shape(name string) ([]int, bool) {
	spec, found := f.layout.Find(name)
	return spec.Shape, found
}

// Floats gives the values of a parameter, widened to f32.
func (f *ModelFile) Floats(name string) ([]float32, error) { return f.part(name).Floats() }

// Bytes gives the values of a parameter as they are stored.
func (f *ModelFile) Bytes(name string) []byte { return f.part(name).Bytes() }

func (f *ModelFile) part(name string) formats.StoredTensor {
	match := expertWeight.FindStringSubmatch(name)
	if match == nil {
		return f.Model.Config.inOrder(name, f.Model.Parts(name)[0])
	}
	parts := f.Model.Parts(match[1] + "." + match[3])
	number, _ := strconv.Atoi(match[2]) // of the layout
	if len(parts) > 1 {
		return parts[number]
	}
	part := parts[0]
	size := len(part.Data) / part.Shape[0]
	part.Data, part.Shape = part.Data[number*size:(number+1)*size], part.Shape[1:]
	return part
}

// Tokenizer is that of the file, as folders have one. An error when it is wrong.
func (f *ModelFile) Tokenizer() (*tokenizer.Carried, error) {
	made, err := f.Model.Tokenizer()
	if err != nil {
		return nil, err
	}
	carried, err := tokenizer.CarryGGUF(made, &f.Model.GGUF().Metadata)
	return carried, formats.Wrap(f.Model.Path, err)
}
