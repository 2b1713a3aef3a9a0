package stored

import (
	"fmt"
	"sync"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/ternary"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// inMemory is the path of a model that no file has.
const inMemory = "a MoETransformer"

// Of is a model in memory, with a copy of the weights that it computes with now, as its checkpoint would have them; the
// tokenizer may be nil. An error for a model of which this rank has a part alone, and model.ErrInUse when another goroutine
// is using it.
func Of(made *model.MoETransformer, tokens tokenizer.TextTokenizer) (*Model, error) {
	if made.Experts != nil {
		return nil, made.Experts.Alone()
	}
	config, err := ConfigFromFolder(made.Config.Mixtral())
	if err != nil {
		return nil, err
	}
	if tokens != nil && tokens.VocabSize() > config.VocabSize {
		return nil, fmt.Errorf("the tokenizer has %d tokens, the model %d", tokens.VocabSize(), config.VocabSize)
	}
	m := &Model{Path: inMemory, Config: config, Matrices: make(map[string]*ternary.Matrix)}
	parts := make(map[string][]formats.StoredTensor)
	ofExperts := make(map[string]formats.StoredTensor)
	err = made.Exclusive(func() error {
		for _, spec := range made.Weights.Layout.Specs {
			weights, err := made.Weights.Parameter(spec.Name)
			if err != nil {
				return err
			}
			format, _ := formats.FormatNamed(weights.DType().String())
			data := make([]byte, weights.Bytes())
			if err := weights.Download(data); err != nil {
				return err
			}
			tensor := formats.StoredTensor{Name: spec.Name, Format: format, Shape: spec.Shape, Data: data}
			switch {
			case config.Ternary && isProjection(spec.Name):
				m.Matrices[spec.Name] = ternary.FromMaster(inMemory, tensor)
			case expertName.MatchString(spec.Name):
				ofExperts[spec.Name] = tensor
			default:
				parts[spec.Name] = []formats.StoredTensor{tensor}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := m.gather(ofExperts, parts); err != nil {
		return nil, err
	}
	if err := m.take(parts); err != nil {
		return nil, err
	}
	m.tokenizer = func() (tokenizer.TextTokenizer, error) { return tokens, nil }
	m.chatTemplate = sync.OnceValues(func() (*tokenizer.ChatTemplate, error) { return tokenizer.PlainChatTemplate(inMemory), nil })
	return m, nil
}
