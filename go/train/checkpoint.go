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
	"github.com/nncuda/nncuda/go/tensor"
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
	window  int                // the most tokens that one sees where it does not see all of the context; 0 where it does
	adapter *adapterCheckpoint // of a run that trains one, which has no Files; nil of others
}

// OpenCheckpoint opens and checks a folder.
func OpenCheckpoint(folder string) (*Checkpoint, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, &formats.Error{Path: folder, Problem: "is not a folder", Cause: err}
	}
	if err := formats.CheckNoAdapter(folder); err != nil {
		return nil, err
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
	opened := &Checkpoint{Folder: folder, Config: config, Files: files, window: model.WindowFromMixtral(values)}
	if err := opened.read(); err != nil {
		return nil, errors.Join(formats.Wrap(folder, err), files.Close())
	}
	return opened, nil
}

func (c *Checkpoint) read() error {
	var err error
	if c.weights, err = model.NewMixtralWeights(c.Files, c.Config.TieEmbeddings); err != nil {
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
func (c *Checkpoint) Close() error {
	if c.adapter != nil {
		return c.adapter.close()
	}
	return c.Files.Close()
}

// layout has the places of what is trained.
func (c *Checkpoint) layout() *model.Layout {
	if c.adapter != nil {
		return c.adapter.layout
	}
	return model.NewLayout(c.Config)
}

// Model makes the model with these weights, to compute in a precision, with gradients if it is to be trained.
func (c *Checkpoint) Model(
	ctx *cuda.Context, precision model.Precision, training bool,
) (*model.MoETransformer, error) {
	return c.modelWith(ctx, precision, training)
}

func (c *Checkpoint) modelWith(
	ctx *cuda.Context, precision model.Precision, training bool, options ...model.Option,
) (*model.MoETransformer, error) {
	made, err := model.Load(ctx, c.Config, c.weights, precision, training, options...)
	return made, c.wrap(err)
}

// wrap makes an error of the folder, unless it is one of the device or of a file.
func (c *Checkpoint) wrap(err error) error { return wrapFile(c.Folder, err) }

func wrapFile(path string, err error) error {
	var device *cuda.Error
	if errors.As(err, &device) {
		return err
	}
	return formats.Wrap(path, err)
}

// Trainer makes model, moments and step as they were saved. Both are the caller's to close, the trainer first.
func (c *Checkpoint) Trainer(ctx *cuda.Context, options ...Option) (*Trainer, error) {
	if c.Training == nil {
		return nil, c.untrainable()
	}
	return c.trainerWith(ctx, c.Training.Train, options)
}

// untrainable is the error of a folder that has a model alone.
func (c *Checkpoint) untrainable() error {
	return formats.Missing(c.Folder, "has no training.json: it can be run, but not trained further")
}

// trainerWith is Trainer with a configuration that is not quite the one that was saved.
func (c *Checkpoint) trainerWith(ctx *cuda.Context, config Config, options []Option) (*Trainer, error) {
	moments, err := c.openMoments()
	if err != nil {
		return nil, err
	}
	trainer, err := c.trainer(ctx, config, options, moments)
	if err = errors.Join(err, moments.Close()); err != nil {
		return nil, err
	}
	return trainer, nil
}

func (c *Checkpoint) openMoments() (*safetensors.File, error) {
	path := filepath.Join(c.Folder, momentsFile)
	moments, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	if err := checkMoments(moments, c.layout(), c.Training.Train.Moments); err != nil {
		return nil, errors.Join(formats.Wrap(path, err), moments.Close())
	}
	return moments, nil
}

func (c *Checkpoint) trainer(
	ctx *cuda.Context, config Config, options []Option, moments *safetensors.File,
) (*Trainer, error) {
	made, err := c.trainedModel(ctx, config, settingsOf(options))
	if err != nil {
		return nil, err
	}
	trainer, err := NewTrainer(made, config, options...)
	if err != nil {
		var device *cuda.Error
		if !errors.As(err, &device) && config == c.Training.Train { // else it may be of the other options
			err = formats.Wrap(filepath.Join(c.Folder, "training.json"), err)
		}
		return nil, errors.Join(err, made.Close())
	}
	trainer.base = c.Training.Base
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

// trainedModel makes the model of a trainer.
func (c *Checkpoint) trainedModel(ctx *cuda.Context, config Config, chosen settings) (*model.MoETransformer, error) {
	if c.adapter != nil {
		made, err := c.adapter.model(ctx, c.Training, chosen)
		return made, c.wrap(err)
	}
	experts, err := chosen.experts(c.Config)
	if err != nil {
		return nil, err
	}
	made, err := c.modelWith(ctx, config.Precision, true, chosen.modelOptions(ctx, c.Config, config, experts)...)
	if err != nil {
		return nil, errors.Join(err, experts.Close())
	}
	return made, nil
}

// SaveCheckpoint writes `root`/step-NNNNNNNN, in one step, and returns it. The tokenizer may be nil. Of several ranks all
// call it, and each writes what it updates: the files are those that a rank alone writes.
func SaveCheckpoint(root string, trainer *Trainer, state State, tokens tokenizer.FolderFiles) (string, error) {
	folder := filepath.Join(root, fmt.Sprintf("step-%08d", state.Step))
	comm, files := trainer.replicas.comm, &checkpointFiles{trainer: trainer, state: state, tokens: tokens}
	err := trainer.Model.Context().Synchronize()
	if err == nil {
		err = files.gather()
	}
	if err != nil {
		return "", TellFailure(comm, err)
	}
	if comm == nil {
		return folder, formats.WriteFolder(folder, func(temporary string) error {
			if err := files.create(temporary); err != nil {
				return err
			}
			return files.fill(temporary)
		})
	}
	return folder, TellFailure(comm, files.writeAmong(comm, folder))
}

// checkpointFiles are the files of a checkpoint that is being written.
type checkpointFiles struct {
	trainer          *Trainer
	state            State
	tokens           tokenizer.FolderFiles
	weights, moments []safetensors.Tensor
}

const momentsFile = "optimizer.safetensors"

// weightsMetadata is what transformers wants to find in a file of weights.
var weightsMetadata = map[string]string{"format": "pt"}

// gather lists the tensors. They are read from the device one after another, when each is written.
func (c *checkpointFiles) gather() (err error) {
	parameters, writing := c.trainer.Model.Parameters, newStoredTensors()
	prefix := ""
	if c.trainer.Model.LowRank != nil {
		prefix = stored.FactorPrefix
	}
	for _, spec := range parameters.Layout.Specs {
		writing.add(prefix+spec.Name, parameters.Data.DType(), spec.Shape)
	}
	addPart := func(name string, first int, own *tensor.Tensor) error {
		return writing.addPart(prefix+name, first, own)
	}
	for _, span := range c.trainer.Moments.own {
		own, err := span.Of(parameters.Data)
		if err == nil {
			err = eachParameter(parameters.Layout, span, own, addPart)
		}
		if err != nil {
			return err
		}
	}
	c.weights = writing.tensors
	c.moments, err = c.trainer.Moments.stored()
	return err
}

// writeAmong has rank 0 make the folder and the files, all ranks fill them, and rank 0 give the folder its name.
func (c *checkpointFiles) writeAmong(comm *cuda.Comm, folder string) error {
	write := func(temporary string) (err error) {
		if comm.Rank() == 0 {
			err = c.create(temporary)
		}
		if err = together(comm, err); err != nil {
			return err
		}
		return together(comm, c.fill(temporary))
	}
	var err error
	if comm.Rank() == 0 {
		err = formats.WriteFolder(folder, func(temporary string) error {
			if _, err := comm.Sum(int64(os.Getpid())); err != nil {
				return err
			}
			return write(temporary)
		})
	} else {
		var process int64
		if process, err = comm.Sum(0); err == nil {
			err = write(formats.TemporaryFolder(folder, int(process)))
		}
	}
	if err != nil {
		return err
	}
	return comm.Barrier()
}

// create makes all files, with zeros for the tensors.
func (c *checkpointFiles) create(folder string) error {
	write := func(name string, data []byte) error { return os.WriteFile(filepath.Join(folder, name), data, 0o666) }
	writeJSON := func(name string, value *formats.Object) error {
		text, err := formats.JSONDocument(value)
		if err != nil {
			return err
		}
		return write(name, text)
	}
	if c.trainer.Model.LowRank != nil {
		err := c.createAdapter(folder)
		if err == nil {
			err = safetensors.Create(filepath.Join(folder, momentsFile), c.moments, nil)
		}
		if err != nil {
			return err
		}
		return writeJSON("training.json", c.state.document())
	}
	config := c.trainer.Model.Config.Mixtral()
	if c.tokens != nil {
		config.Update(c.tokens.SpecialIDs())
		files, err := c.tokens.Files()
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
	if err := safetensors.CreateFolder(folder, c.weights, weightsMetadata, safetensors.DefaultShardBytes); err != nil {
		return err
	}
	if err := safetensors.Create(filepath.Join(folder, momentsFile), c.moments, nil); err != nil {
		return err
	}
	return writeJSON("training.json", c.state.document())
}

// fill writes what this rank has of the tensors.
func (c *checkpointFiles) fill(folder string) error {
	if c.trainer.Model.LowRank != nil {
		if err := safetensors.Fill(filepath.Join(folder, stored.AdapterWeights), c.weights, weightsMetadata); err != nil {
			return err
		}
		return safetensors.Fill(filepath.Join(folder, momentsFile), c.moments, nil)
	}
	if err := safetensors.FillFolder(folder, c.weights, weightsMetadata, safetensors.DefaultShardBytes); err != nil {
		return err
	}
	return safetensors.Fill(filepath.Join(folder, momentsFile), c.moments, nil)
}
