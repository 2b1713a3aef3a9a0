package train

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// ResumeRun takes a run up from its last checkpoint, with the options that it was started with but for `changes`, other
// values by name of the options that are Changeable; nil changes nothing.
func ResumeRun(
	ctx *cuda.Context, folder, data, heldOut string, changes *formats.Object, options ...Option,
) (*Run, error) {
	return ResumeAdmitted(ctx, folder, data, heldOut, changes, nil, options...)
}

// Admission may refuse a run of a model with an error, before memory is taken for it.
type Admission func(model.Config, Config) error

// DoesNotFitError says that a run needs more memory than the device has free.
type DoesNotFitError struct{ Sentence string }

// Error is the sentence.
func (e *DoesNotFitError) Error() string { return e.Sentence }

// ResumeAdmitted is ResumeRun for what `admit`, which may be nil, has nothing against; it is asked when the files have
// been checked.
func ResumeAdmitted(
	ctx *cuda.Context, folder, data, heldOut string, changes *formats.Object, admit Admission, options ...Option,
) (*Run, error) {
	return reopen(ctx, folder, Sources{data, heldOut}, changes, admit, false, options)
}

// ExtendRun is ResumeAdmitted for more steps than the run has, which may be done: `changes` has them, and may have other
// values of the options of Schedule. run.json records it; Run.Notice says what it does to the learning rate.
func ExtendRun(
	ctx *cuda.Context, folder, data, heldOut string, changes *formats.Object, admit Admission, options ...Option,
) (*Run, error) {
	return reopen(ctx, folder, Sources{data, heldOut}, changes, admit, true, options)
}

func reopen(
	ctx *cuda.Context, folder string, sources Sources, changes *formats.Object, admit Admission, extends bool,
	options []Option,
) (*Run, error) {
	run, err := reopenLast(ctx, folder, sources, changes, admit, extends, options)
	return run, TellFailure(settingsOf(options).comm, err)
}

func reopenLast(
	ctx *cuda.Context, folder string, sources Sources, changes *formats.Object, admit Admission, extends bool,
	options []Option,
) (*Run, error) {
	root := filepath.Join(folder, "checkpoints")
	found := ListCheckpoints(root)
	if len(found) == 0 {
		return nil, formats.Missing(root, "holds no checkpoint to resume from")
	}
	checkpoint, err := openTrained(found[len(found)-1])
	if err != nil {
		return nil, err
	}
	run, err := resumeFrom(ctx, checkpoint, folder, sources, changes, admit, extends, options)
	if err = errors.Join(err, checkpoint.Close()); err != nil {
		return nil, err
	}
	return run, nil
}

// resumeFrom checks all files before it takes memory of the device.
func resumeFrom(
	ctx *cuda.Context, checkpoint *Checkpoint, folder string, sources Sources, changes *formats.Object,
	admit Admission, extends bool, options []Option,
) (*Run, error) {
	state := checkpoint.Training
	if state == nil {
		return nil, checkpoint.untrainable()
	}
	before, err := extended(folder, state.Step, state.Train)
	if err != nil {
		return nil, err
	}
	changeable := Changeable()
	if extends {
		changeable = append(Schedule(), changeable...)
	}
	config, err := before.with(changes, changeable)
	if err == nil && extends {
		err = checkExtension(before, config)
	}
	if err != nil {
		return nil, err
	}
	run, err := openRun(folder, sources.Data, sources.HeldOut, config)
	if err != nil {
		return nil, err
	}
	if run.Data.Count != state.DataWindows {
		return nil, fmt.Errorf("%s holds %d windows; this run was started on data with %d",
			sources.Data, run.Data.Count, state.DataWindows)
	}
	if err := checkDigest(folder, "data", sources.Data, run.Data); err != nil {
		return nil, err
	}
	if run.HeldOut != nil {
		if err := checkDigest(folder, "held_out", sources.HeldOut, run.HeldOut); err != nil {
			return nil, err
		}
	}
	run.Position, run.Seconds = state.DataPosition, state.Seconds
	if err := run.checkVocabulary(checkpoint.Config.VocabSize); err != nil {
		return nil, err
	}
	if checkpoint.adapter == nil {
		if run.Tokenizer, err = tokenizer.Carry(checkpoint.Folder); err != nil {
			return nil, err
		}
	}
	if admit != nil {
		err, refused := admit(checkpoint.Config, config), (*DoesNotFitError)(nil)
		if err != nil && config == state.Train && !errors.As(err, &refused) { // else it is not of the file
			err = formats.Wrap(filepath.Join(checkpoint.Folder, "training.json"), err)
		}
		if err != nil {
			return nil, err
		}
	}
	if run.Trainer, err = checkpoint.trainerWith(ctx, config, options); err != nil {
		return nil, err
	}
	if extends && run.talks() { // all have read run.json by now, since the trainers are made
		err = recordExtension(folder, state.Step, config)
	}
	if err == nil && extends {
		run.Notice, err = extensionText(ctx, state.Step, state.updates(), before, config)
	}
	if err != nil {
		return nil, errors.Join(err, run.Close())
	}
	return run, nil
}
