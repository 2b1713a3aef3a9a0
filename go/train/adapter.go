package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/safetensors"
)

// Runs that train an adapter beside a model that stays as it is stored. A checkpoint of one is a folder of PEFT with two files
// more:
//
//	RUN/checkpoints/step-00000300/
//	    adapter_config.json        the adapter, as a folder of PEFT
//	    adapter_model.safetensors  its factors, f32
//	    optimizer.safetensors      the moments of these, as in Checkpoint
//	    training.json              as in Checkpoint, and `base`
//
// The model itself stays where it is, with its tokenizer. A run goes on beside the same weights alone.

// OpenAdapterOrigin opens the model beside which a run trains an adapter, a folder or a GGUF file, and reads all of it.
func OpenAdapterOrigin(path string) (*Origin, error) {
	base, err := stored.OpenFrozenBase(path)
	if err != nil {
		return nil, err
	}
	if _, err := base.SHA256(); err != nil {
		return nil, errors.Join(err, base.Close())
	}
	return &Origin{Config: base.Config, path: base.Model.Path, window: base.Model.Config.Window, source: base, base: base}, nil
}

// requireOneRank refuses several ranks, which train no adapter.
func (s settings) requireOneRank() error {
	ranks := 1
	if s.comm != nil {
		ranks = s.comm.Ranks()
	}
	if ranks > 1 || s.expertParallel != nil && *s.expertParallel != 1 {
		return fmt.Errorf("an adapter is trained by one rank; there are %d", ranks)
	}
	return nil
}

// adapterTrainer makes a trainer of a new adapter, with its model.
func (o *Origin) adapterTrainer(ctx *cuda.Context, config Config, more []Option) (*Trainer, error) {
	if err := settingsOf(more).requireOneRank(); err != nil {
		return nil, err
	}
	made, err := model.NewLowRank(ctx, o.Config, o.base, config.LowRank(), config.Seed)
	if err != nil {
		return nil, err
	}
	trainer, err := NewTrainer(made, config, more...)
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	trainer.base, err = baseOf(o.base)
	if err != nil {
		return nil, errors.Join(err, trainer.Close(), made.Close())
	}
	return trainer, nil
}

// baseOf is what checkpoints have of a base.
func baseOf(base *stored.FrozenBase) (*Base, error) {
	folder, hash, err := base.Record()
	return &Base{folder, hash}, err
}

// adapterCheckpoint is what a checkpoint has where an adapter was trained.
type adapterCheckpoint struct {
	base    *stored.FrozenBase
	adapter *stored.Adapter
	layout  *model.Layout
	factors map[string]formats.StoredTensor // by their names in the layout
}

func (a *adapterCheckpoint) close() error { return errors.Join(a.adapter.Close(), a.base.Close()) }

// openTrained opens a checkpoint of a run, whatever that trains.
func openTrained(folder string) (*Checkpoint, error) {
	if stored.IsAdapter(folder) {
		return openAdapterCheckpoint(folder)
	}
	return OpenCheckpoint(folder)
}

func openAdapterCheckpoint(folder string) (*Checkpoint, error) {
	path := filepath.Join(folder, "training.json")
	if !formats.Present(path) {
		return nil, formats.Missing(folder, "has no training.json: it can be run, but not trained further")
	}
	state, err := ReadState(path)
	if err != nil {
		return nil, err
	}
	if state.Base == nil {
		return nil, &formats.Error{Path: path, Problem: "has no base, beside which an adapter is trained"}
	}
	where := state.Base.Folder
	if !formats.Present(where) {
		problem := fmt.Sprintf("is an adapter of %s, which is not there: put it back", formats.Shown(where))
		return nil, &formats.Error{Path: folder, Problem: problem}
	}
	base, err := stored.OpenFrozenBase(where)
	if err != nil {
		return nil, err
	}
	adapter, err := stored.OpenAdapter(folder, base.Model.Config)
	if err != nil {
		return nil, errors.Join(err, base.Close())
	}
	layout := model.NewLowRankLayout(base.Config, state.Train.LowRank())
	opened := &adapterCheckpoint{base, adapter, layout, make(map[string]formats.StoredTensor)}
	if err := opened.check(folder, state.Train.LowRank()); err != nil {
		return nil, errors.Join(err, opened.close())
	}
	return &Checkpoint{Folder: folder, Config: base.Config, Training: &state, adapter: opened}, nil
}

// check refuses factors and options of PEFT that are not those of training.json, and names the factors.
func (a *adapterCheckpoint) check(folder string, options model.LowRank) error {
	if a.adapter.Rank != options.Rank || a.adapter.Scale != options.Scale() {
		problem := fmt.Sprintf("has r %d and a scale of %.6g; training.json makes them %d and %.6g",
			a.adapter.Rank, a.adapter.Scale, options.Rank, options.Scale())
		return &formats.Error{Path: filepath.Join(folder, stored.AdapterConfig), Problem: problem}
	}
	pairs, other := a.layout.FactorsOf(), ""
	for name, names := range pairs {
		pair, found := a.adapter.Factors[name]
		if !found && (other == "" || name < other) {
			other = name
		}
		a.factors[names[0]], a.factors[names[1]] = pair.A, pair.B
	}
	for name := range a.adapter.Factors {
		if _, found := pairs[name]; !found && (other == "" || name < other) {
			other = name
		}
	}
	if other != "" {
		problem := "its options and its factors differ: one of them alone has " + other
		return &formats.Error{Path: folder, Problem: problem}
	}
	for _, spec := range a.layout.Specs {
		if part := a.factors[spec.Name]; part.Format.Name != "f32" {
			problem := fmt.Sprintf("tensor %s is in %s; what is trained is in f32", spec.Name, part.Format.Name)
			return &formats.Error{Path: folder, Problem: problem}
		}
	}
	return nil
}

// Names lists the factors.
func (a *adapterCheckpoint) Names() []string { return a.layout.Names() }

// Shape gives that of a factor.
func (a *adapterCheckpoint) Shape(name string) ([]int, bool) {
	part, found := a.factors[name]
	return part.Shape, found
}

// Floats gives the values of a factor.
func (a *adapterCheckpoint) Floats(name string) ([]float32, error) {
	return a.factors[name].Floats()
}

// model makes the model with these factors; an error when the base's weights are not those that it had.
func (a *adapterCheckpoint) model(ctx *cuda.Context, state *State, chosen settings) (*model.MoETransformer, error) {
	if err := chosen.requireOneRank(); err != nil {
		return nil, err
	}
	found, err := a.base.SHA256()
	if err != nil {
		return nil, err
	}
	if recorded := state.Base.WeightsSHA256; found != recorded {
		problem := fmt.Sprintf("has other weights than when this adapter was begun (SHA-256 %.12s… then, %.12s… now)", recorded, found)
		return nil, &formats.Error{Path: a.base.Model.Path, Problem: problem}
	}
	return model.LoadLowRank(ctx, a.base.Config, a.base, state.Train.LowRank(), a)
}

// createAdapter makes the files of an adapter, with zeros for the factors.
func (c *checkpointFiles) createAdapter(folder string) error {
	if c.state.Base == nil {
		return errors.New("the state of an adapter that is trained has a Base")
	}
	text, err := formats.JSONDocument(stored.AdapterValues(*c.trainer.Model.LowRank, c.state.Base.Folder))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, stored.AdapterConfig), text, 0o666); err != nil {
		return err
	}
	return safetensors.Create(filepath.Join(folder, stored.AdapterWeights), c.weights, weightsMetadata)
}
