package train

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Origin is the folder or file that a run begins from which does not begin with random weights, opened and checked to the
// last value: what is not finite is refused. It is a checkpoint of this library, a run, of which the last one is taken, a
// Mixtral, Llama or the like of Hugging Face, or a GGUF file of one in f32, f16 or bf16. It must be closed.
type Origin struct {
	// Config is the architecture.
	Config model.Config
	// Notice is what who begins a run here should know, a sentence; "" without one.
	Notice string

	path          string             // of the folder or file
	window        int                // the most tokens that one sees where it does not see all of the context; 0 where it does
	source        io.Closer          // what was opened there
	weights       originWeights      // nil where an adapter is trained beside them
	checkpoint    *Checkpoint        // of a folder, or nil
	base          *stored.FrozenBase // beside which an adapter is trained, in place of the rest; or nil
	tokens        *tokenizer.Carried
	moments       *safetensors.File // nil without the optimizer's state
	weightsSHA256 string            // "" until the weights are read
	momentsSHA256 string            // "" without
}

// originWeights are the weights that a run begins with, wherever they lie.
type originWeights interface {
	model.Weights
	// Bytes gives a parameter's values as they are stored.
	Bytes(name string) []byte
}

// OpenOrigin opens a folder or file. With `optimizer` the moments, the step and, in f16, the loss scale go on as the
// checkpoint has them.
func OpenOrigin(path string, optimizer bool) (*Origin, error) {
	origin, err := openOrigin(path, optimizer)
	if err != nil {
		return nil, err
	}
	if _, err = origin.sha256(); err == nil {
		err = origin.readMoments()
	}
	if err != nil {
		return nil, errors.Join(err, origin.Close())
	}
	return origin, nil
}

// DescribedOrigin opens a folder or file as OpenOrigin does; its weights are read no sooner than a run begins there.
func DescribedOrigin(path string) (*Origin, error) { return openOrigin(path, false) }

func openOrigin(path string, optimizer bool) (*Origin, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return openOriginFile(path, optimizer)
	}
	folder, err := ResolveCheckpoint(path, false)
	if err != nil {
		return nil, err
	}
	checkpoint, err := OpenCheckpoint(folder)
	if err != nil {
		return nil, err
	}
	origin := &Origin{
		Config: checkpoint.Config, path: checkpoint.Folder, window: checkpoint.window, source: checkpoint,
		weights: checkpoint.weights, checkpoint: checkpoint,
	}
	if err := origin.open(optimizer); err != nil {
		return nil, errors.Join(err, origin.Close())
	}
	return origin, nil
}

func openOriginFile(path string, optimizer bool) (*Origin, error) {
	file, err := stored.OpenModelFile(path)
	if err != nil {
		return nil, err
	}
	origin := &Origin{
		Config: file.Config, path: file.Model.Path, window: file.Model.Config.Window, source: file, weights: file,
	}
	if optimizer {
		err = &formats.Error{Path: path, Problem: "is a GGUF file, which has no optimizer's state to go on with"}
		return nil, errors.Join(err, origin.Close())
	}
	if origin.tokens, err = file.Tokenizer(); err != nil { // of a kind that this program does not have, as a rule
		origin.tokens, origin.Notice = tokenizer.CarryNone(), fmt.Sprintf("the tokenizer does not come along: %v", err)
	}
	return origin, nil
}

// WithOrigin makes a run begin there. The tokenizer is that of the folder, unless one is given.
func WithOrigin(origin *Origin) Option { return func(s *settings) { s.origin = origin } }

// Close releases the files.
func (o *Origin) Close() error {
	err := o.source.Close()
	if o.moments != nil {
		err = errors.Join(err, o.moments.Close())
	}
	return err
}

// open opens what lies beside the weights of a checkpoint.
func (o *Origin) open(optimizer bool) (err error) {
	if o.tokens, err = tokenizer.Carry(o.path); err != nil {
		return err
	}
	if optimizer && o.checkpoint.Training == nil {
		return o.checkpoint.untrainable()
	}
	if optimizer {
		o.moments, err = o.checkpoint.openMoments()
	}
	return err
}

// readMoments refuses moments that are not finite numbers.
func (o *Origin) readMoments() (err error) {
	if o.moments == nil {
		return nil
	}
	path := filepath.Join(o.path, momentsFile)
	for _, name := range o.moments.Names() {
		tensor, _ := o.moments.Tensor(name)
		if tensor.DType == safetensors.U8 {
			continue
		}
		values, err := model.Floats(tensor)
		if err == nil {
			err = requireFinite(name, tensor.Shape, values)
		}
		if err != nil {
			return formats.Wrap(path, err)
		}
	}
	o.momentsSHA256, err = digestOfFile(path)
	return err
}

// sha256 is that of the weights, all of which it reads the first time.
func (o *Origin) sha256() (string, error) {
	if o.weightsSHA256 != "" {
		return o.weightsSHA256, nil
	}
	made, err := o.digestOfFinite()
	o.weightsSHA256 = made
	return made, formats.Wrap(o.path, err)
}

// digestOfFinite is the SHA-256 of the parameters' stored bytes, in the order of the layout. It is an error where one is
// not a finite number.
func (o *Origin) digestOfFinite() (string, error) {
	digest := sha256.New()
	for _, spec := range model.NewLayout(o.Config).Specs {
		values, err := o.weights.Floats(spec.Name)
		if err == nil {
			err = requireFinite(spec.Name, spec.Shape, values)
		}
		if err != nil {
			return "", err
		}
		digest.Write(o.weights.Bytes(spec.Name))
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

func requireFinite(name string, shape []int, values []float32) error {
	at := slices.IndexFunc(values, func(value float32) bool { return !finite(float64(value)) })
	if at < 0 {
		return nil
	}
	found := "nan"
	if value := float64(values[at]); math.IsInf(value, 0) {
		found = strings.TrimPrefix(strings.ToLower(fmt.Sprint(value)), "+")
	}
	index := make([]int, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		index[axis], at = at%shape[axis], at/shape[axis]
	}
	return fmt.Errorf("tensor %s is not finite, first at %s (%s)", name, model.ShapeText(index), found)
}

func digestOfFile(path string) (string, error) {
	file, _, err := formats.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer file.Close() // read only: nothing can be lost
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return "", formats.CannotRead(path, err)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// HasTokenizer says whether the folder or file has a tokenizer, which comes along.
func (o *Origin) HasTokenizer() bool { return o.tokens != nil && o.tokens.HasTokenizer() }

// ofTraining says of an option of a model that its weights do not depend on it: it decides how the model is trained, and
// may be another.
func ofTraining(name string) bool { return name == "capacity_factor" || name == "aux_alpha" }

// CheckModel refuses options of a model, by name, that the folder's contradict; those of training may be others.
func (o *Origin) CheckModel(values *formats.Object) error {
	ours, given := o.Config.Object(), o.Config
	for _, name := range values.Names() {
		if !slices.ContainsFunc(model.Options(), func(field options.Field) bool { return field.Name == name }) {
			continue // which is refused as such
		}
		found := values.Get(name)
		err := given.Assign(formats.NewObject(name, found))
		if (!ofTraining(name) || o.base != nil) && (err != nil || given.Object().Get(name) != ours.Get(name)) {
			return fmt.Errorf("%s is %s, but the model of %s has %s: leave it out",
				name, formats.Shown(found), o.path, formats.Shown(ours.Get(name)))
		}
	}
	return nil
}

// Defaults are the training options of a run that begins here, where none are given: of those that take the optimizer's
// state along, what that was made with.
func (o *Origin) Defaults() Config {
	if o.base != nil {
		return AdapterTuning()
	}
	config := FineTuning()
	if o.moments != nil {
		config.Moments, config.Precision = o.checkpoint.Training.Train.Moments, o.checkpoint.Training.Train.Precision
	}
	return config
}

// CheckTraining refuses training options, by name, with which no run can begin here.
func (o *Origin) CheckTraining(config Config) error {
	if o.window > 0 && config.SequenceLength > o.window {
		return fmt.Errorf("sequence_length is %d, but in the model of %s a token sees %d (sliding_window): give at most that",
			config.SequenceLength, o.path, o.window)
	}
	if o.moments == nil {
		return nil
	}
	state := o.checkpoint.Training
	other := func(name string, value, theirs any) error {
		return fmt.Errorf("%s is %v, but the optimizer of %s has %v: leave it out", name, value, o.path, theirs)
	}
	theirs := state.Train
	switch {
	case config.Moments != theirs.Moments:
		return other("moments", config.Moments, theirs.Moments)
	case config.Precision != theirs.Precision && (config.Precision == model.F16 || theirs.Precision == model.F16):
		return other("precision", config.Precision, theirs.Precision)
	case config.Steps <= state.Step:
		return fmt.Errorf("steps is %d, but the optimizer of %s has done %d: give more, of which those are the first",
			config.Steps, o.path, state.Step)
	}
	return nil
}

// trainer makes a trainer that begins here, with its model.
func (o *Origin) trainer(ctx *cuda.Context, config model.Config, train Config, more []Option) (*Trainer, error) {
	if err := o.CheckModel(config.Object()); err != nil {
		return nil, err
	}
	if err := o.CheckTraining(train); err != nil {
		return nil, err
	}
	if o.base != nil {
		return o.adapterTrainer(ctx, train, more)
	}
	chosen := settingsOf(more)
	experts, err := chosen.experts(config)
	if err != nil {
		return nil, err
	}
	made, err := model.Load(ctx, config, o.weights, train.Precision, true,
		chosen.modelOptions(ctx, config, train, experts)...)
	if err != nil {
		return nil, errors.Join(wrapFile(o.path, err), experts.Close())
	}
	trainer, err := NewTrainer(made, train, more...)
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	if comm := trainer.replicas.comm; comm != nil {
		var weights string
		if weights, err = o.sha256(); err == nil {
			err = comm.Agree("initial weights", weights+" "+o.momentsSHA256)
		}
	}
	if err == nil && o.moments != nil {
		if err = trainer.Moments.load(o.moments); err == nil {
			err = trainer.Restore(o.checkpoint.Training.Step, o.checkpoint.Training.LossScaling)
		}
	}
	if err != nil {
		return nil, errors.Join(err, trainer.Close(), made.Close())
	}
	return trainer, nil
}

// record is what run.json says of it: the folder or file, and SHA-256 of the parameters' stored bytes, in the order of the layout,
// and of the file of the moments, where they were taken along.
func (o *Origin) record() (*formats.Object, error) {
	if o.base != nil {
		folder, hash, err := o.base.Record()
		return formats.NewObject("folder", folder, "weights_sha256", hash, "optimizer_sha256", nil), err
	}
	folder, err := formats.Resolve(o.path)
	if err != nil {
		return nil, err
	}
	weights, err := o.sha256()
	if err != nil {
		return nil, err
	}
	record := formats.NewObject("folder", folder, "weights_sha256", weights, "optimizer_sha256", nil)
	if o.momentsSHA256 != "" {
		record.Set("optimizer_sha256", o.momentsSHA256)
	}
	return record, nil
}
