package train

import (
	"path/filepath"

	"github.com/nncuda/nncuda/go/formats"
)

// openChain opens the chain from the step on at which the run is; all ranks call it.
func (l *loop) openChain() error {
	r := l.run
	config, step := r.Trainer.Config, r.Trainer.Step()
	digests, err := "", error(nil)
	if config.HashEvery > 0 {
		if digests, err = r.Trainer.digests(); err != nil {
			return err
		}
	} else if !formats.Present(filepath.Join(r.Folder, chainFile)) {
		return nil
	}
	if !r.talks() {
		return nil
	}
	names := stateNames(r.Trainer.Model.Layout, config)
	if l.chain, err = openChain(r.Folder, step, r.Data, config, names); err == nil && digests != "" {
		err = l.chain.begin(names, digests, r.Position)
	}
	return err
}

// hash adds the state after a step to the chain, if it is due, and gives its hash, else "".
func (l *loop) hash(step int) (link string, err error) {
	l.digests = ""
	every := l.run.Trainer.Config.HashEvery
	if every == 0 || step%every != 0 {
		return "", nil
	}
	if l.digests, err = l.run.Trainer.digests(); err == nil && l.chain != nil {
		link, err = l.chain.add(step, l.run.Position, l.digests)
	}
	return link, err
}

// save writes a checkpoint, and enters it in the chain.
func (l *loop) save(heldOutLoss *float64) (err error) {
	r := l.run
	if r.Trainer.Config.HashEvery > 0 && l.digests == "" {
		if l.digests, err = r.Trainer.digests(); err != nil {
			return err
		}
	}
	folder, err := r.save(heldOutLoss)
	if err == nil && l.chain != nil && l.digests != "" {
		err = l.chain.addFiles(r.Trainer.Step(), l.digests, folder)
	}
	return err
}
