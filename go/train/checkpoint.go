package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Checkpoint is a checkpoint folder, opened: all of it checked except the values of the tensors, nothing loaded yet.
//
//	RUN/checkpoints/step-00000300/
//	    config.json              the model, as transformers' Mixtral
//	    model.safetensors        its weights, f32 (or several files with their index)
//	    tokenizer.model          SentencePiece
//	    tokenizer_config.json    the same tokenizer for transformers
//	    generation_config.json   its begin, end and padding, likewise
//	    optimizer.safetensors    first_moment.NAME and second_moment.NAME of each parameter, f32 or bf16; or, of moments
//	                             in 8 bits, first.codes, first.scales, second.codes and second.scales
//	    training.json            step, data position, options, held-out loss, loss scale
//
// A folder appears under its name in one step, when all of it is on the disk: what has the name is whole, so "the last"
// is simply the highest number, and "the best" the one with the lowest held-out loss. No pointer can go stale.
//
// A folder from elsewhere with a Mixtral in it opens too; its Tokenizer and Training may be nil. It must be closed.
type Checkpoint struct {
	Folder    string
	Config    model.Config
	Files     *safetensors.Folder
	Tokenizer *tokenizer.Tokenizer
	Training  *State

	weights *model.MixtralWeights
}

// OpenCheckpoint opens and checks a folder.
func OpenCheckpoint(folder string) (*Checkpoint, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, &formats.Error{Path: folder, Problem: "is not a folder", Cause: err}
	}
	path := filepath.Join(folder, "config.json")
	values, err := formats.ReadJSON(path)
	if err != nil {
		return nil, err
	}
	config, err := model.ConfigFromMixtral(values)
	if err != nil {
		return nil, formats.Wrap(path, err)
	}
	files, err := safetensors.OpenFolder(folder)
	if err != nil {
		return nil, err
	}
	opened := &Checkpoint{Folder: folder, Config: config, Files: files}
	if err := opened.read(); err != nil {
		return nil, errors.Join(formats.Wrap(folder, err), files.Close())
	}
	return opened, nil
}

func (c *Checkpoint) read() error {
	var err error
	if c.weights, err = model.NewMixtralWeights(c.Files); err != nil {
		return err
	}
	if err := model.CheckWeights(c.Config, c.weights); err != nil {
		return err
	}
	path := filepath.Join(c.Folder, "tokenizer.model")
	if formats.Present(path) {
		if c.Tokenizer, err = tokenizer.Open(path); err != nil {
			return err
		}
	}
	path = filepath.Join(c.Folder, "training.json")
	if formats.Present(path) {
		state, err := ReadState(path)
		if err != nil {
			return err
		}
		c.Training = &state
	}
	return nil
}

// Close releases the files.
func (c *Checkpoint) Close() error { return c.Files.Close() }

// Model makes the model with these weights, to compute in a precision, with gradients if it is to be trained.
func (c *Checkpoint) Model(
	ctx *cuda.Context, precision model.Precision, training bool,
) (*model.MoETransformer, error) {
	made, err := model.Load(ctx, c.Config, c.weights, precision, training)
	return made, c.wrap(err)
}

// wrap makes an error of the folder, unless it is one of the device or of a file.
func (c *Checkpoint) wrap(err error) error {
	var device *cuda.Error
	if errors.As(err, &device) {
		return err
	}
	return formats.Wrap(c.Folder, err)
}

// Trainer makes model, moments and step as they were saved. Both are the caller's to close, the trainer first.
func (c *Checkpoint) Trainer(ctx *cuda.Context) (*Trainer, error) {
	if c.Training == nil {
		return nil, c.untrainable()
	}
	return c.trainerWith(ctx, c.Training.Train)
}

// untrainable is the error of a folder that has a model alone.
func (c *Checkpoint) untrainable() error {
	return formats.Missing(c.Folder, "has no training.json: it can be run, but not trained further")
}

// trainerWith is Trainer with options that are not quite those that were saved.
func (c *Checkpoint) trainerWith(ctx *cuda.Context, options Config) (*Trainer, error) {
	moments, err := c.openMoments()
	if err != nil {
		return nil, err
	}
	trainer, err := c.trainer(ctx, options, moments)
	if err = errors.Join(err, moments.Close()); err != nil {
		return nil, err
	}
	return trainer, nil
}

func (c *Checkpoint) openMoments() (*safetensors.File, error) {
	path := filepath.Join(c.Folder, "optimizer.safetensors")
	moments, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	if err := checkMoments(moments, model.NewLayout(c.Config), c.Training.Train.Moments); err != nil {
		return nil, errors.Join(formats.Wrap(path, err), moments.Close())
	}
	return moments, nil
}

func (c *Checkpoint) trainer(ctx *cuda.Context, options Config, moments *safetensors.File) (*Trainer, error) {
	made, err := c.Model(ctx, options.Precision, true)
	if err != nil {
		return nil, err
	}
	trainer, err := NewTrainer(made, options)
	if err != nil {
		var device *cuda.Error
		if !errors.As(err, &device) && options == c.Training.Train { // else it may be of the other options
			err = formats.Wrap(filepath.Join(c.Folder, "training.json"), err)
		}
		return nil, errors.Join(err, made.Close())
	}
	err = trainer.Moments.load(moments)
	if err == nil {
		err = trainer.Restore(c.Training.Step, c.Training.LossScaling)
		err = formats.Wrap(filepath.Join(c.Folder, "training.json"), err)
	}
	if err != nil {
		return nil, errors.Join(err, trainer.Close(), made.Close())
	}
	return trainer, nil
}

// SaveCheckpoint writes `root`/step-NNNNNNNN, in one step, and returns it. The tokenizer may be nil.
func SaveCheckpoint(root string, trainer *Trainer, state State, tokens *tokenizer.Tokenizer) (string, error) {
	folder := filepath.Join(root, fmt.Sprintf("step-%08d", state.Step))
	if err := trainer.Model.Context().Synchronize(); err != nil {
		return "", err
	}
	return folder, formats.WriteFolder(folder, func(temporary string) error {
		return fillCheckpoint(temporary, trainer, state, tokens)
	})
}

func fillCheckpoint(folder string, trainer *Trainer, state State, tokens *tokenizer.Tokenizer) error {
	write := func(name string, data []byte) error { return os.WriteFile(filepath.Join(folder, name), data, 0o666) }
	writeJSON := func(name string, value *formats.Object) error {
		text, err := formats.JSONDocument(value)
		if err != nil {
			return err
		}
		return write(name, text)
	}
	config := trainer.Model.Config.Mixtral()
	if tokens != nil {
		config.Update(tokens.SpecialIDs())
		files, err := tokens.Files()
		if err != nil {
			return err
		}
		for name, content := range files {
			if err := write(name, content); err != nil {
				return err
			}
		}
	}
	if err := writeJSON("config.json", config); err != nil {
		return err
	}
	weights, err := stored(trainer.Model.Parameters, "")
	if err != nil {
		return err
	}
	metadata := map[string]string{"format": "pt"}
	if err := safetensors.WriteFolder(folder, weights, metadata, safetensors.DefaultShardBytes); err != nil {
		return err
	}
	moments, err := trainer.Moments.stored()
	if err != nil {
		return err
	}
	if err := safetensors.Write(filepath.Join(folder, "optimizer.safetensors"), moments, nil); err != nil {
		return err
	}
	return writeJSON("training.json", state.document())
}

// stored gives the tensors of an arena as they are written, with a prefix before each name. They are read from the
// device one after another, when each is written.
func stored(arena *model.Arena, prefix string) ([]safetensors.Tensor, error) {
	tensors := make([]safetensors.Tensor, len(arena.Layout.Specs))
	dtype := safetensors.DType(strings.ToUpper(arena.Data.DType().String()))
	for at, spec := range arena.Layout.Specs {
		view, err := arena.Parameter(spec.Name)
		if err != nil {
			return nil, err
		}
		tensors[at] = safetensors.Tensor{
			Name: prefix + spec.Name, DType: dtype, Shape: spec.Shape, Load: view.Download,
		}
	}
	return tensors, nil
}
