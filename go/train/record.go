package train

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
)

// Version is that of this program, as records and the command tell it.
const Version = "0.2.0"

const (
	recordFile  = "run.json"
	shownDigits = 12 // of a hash in a message
)

// Sources is where a run's shards lie; HeldOut is "" without evaluation.
type Sources struct{ Data, HeldOut string }

// writeRecord writes run.json when a run starts, with what it takes to repeat it:
//
//	data, held_out                  where the shards lie; held_out is null without evaluation
//	data_sha256, held_out_sha256    of the bytes of the shards, one after the other
//	unigram_entropy                 of the held-out tokens, in nats, to six digits; null without evaluation
//	program, library, abi, device   what trained, on what
//	model, train                    all options, the seed among them
//	from                            where it began, unless with random weights: see Origin.record
func (r *Run) writeRecord(sources Sources, origin *Origin) error {
	if err := os.MkdirAll(r.Folder, 0o777); err != nil {
		return err
	}
	record, hashes := formats.NewObject(), formats.NewObject()
	for _, part := range []struct {
		name, source string
		windows      *Windows
	}{{"data", sources.Data, r.Data}, {"held_out", sources.HeldOut, r.HeldOut}} {
		record.Set(part.name, nil)
		hashes.Set(part.name+"_sha256", nil)
		if part.windows == nil {
			continue
		}
		resolved, err := formats.Resolve(part.source)
		if err != nil {
			return err
		}
		hash, err := part.windows.digest()
		if err != nil {
			return err
		}
		record.Set(part.name, resolved)
		hashes.Set(part.name+"_sha256", hash)
	}
	record.Update(hashes)
	record.Set("unigram_entropy", nil)
	if r.HeldOut != nil {
		entropy, err := UnigramEntropy(r.HeldOut.shards)
		if err != nil {
			return err
		}
		// No more digits differ in meaning, and logarithms differ in the last one from language to language.
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(entropy, 'e', 5, 64), 64)
		if err != nil {
			return err
		}
		record.Set("unigram_entropy", rounded)
	}
	if err := addMachine(record, r.Trainer.Model.Context()); err != nil {
		return err
	}
	record.Set("model", r.Trainer.Model.Config.Object())
	record.Set("train", r.Trainer.Config.Object())
	if origin != nil {
		from, err := origin.record()
		if err != nil {
			return err
		}
		record.Set("from", from)
	}
	return formats.WriteJSON(filepath.Join(r.Folder, recordFile), record)
}

// addMachine adds program, library and device.
func addMachine(record *formats.Object, ctx *cuda.Context) error {
	library, err := cuda.BuildInfo()
	if err != nil {
		return err
	}
	major, minor, err := cuda.ABIVersion()
	if err != nil {
		return err
	}
	device, err := cuda.DescribeDevice(ctx.Device())
	if err != nil {
		return err
	}
	instructions, err := ctx.ISA()
	if err != nil {
		return err
	}
	record.Set("program", "nncuda-go "+Version)
	record.Set("library", library)
	record.Set("abi", fmt.Sprintf("%d.%d", major, minor))
	record.Set("device", device+"; "+instructions)
	return nil
}

// ReadSources reads from the record of a run where its data is.
func ReadSources(folder string) (Sources, error) {
	path := filepath.Join(folder, recordFile)
	record, err := formats.ReadJSON(path)
	if err != nil {
		return Sources{}, err
	}
	data, known := record.Get("data").(string)
	heldOut, text := record.Get("held_out").(string)
	if !known || (!text && record.Get("held_out") != nil) {
		return Sources{}, &formats.Error{Path: path, Problem: "does not say where the data is"}
	}
	return Sources{data, heldOut}, nil
}

// checkDigest refuses windows of `source` that are not those of the run's `name` ("data", "held_out") at its start. A
// run without a record, or with one from before there were hashes, takes any.
func checkDigest(folder, name, source string, windows *Windows) error {
	path := filepath.Join(folder, recordFile)
	if !formats.Present(path) {
		return nil
	}
	record, err := formats.ReadJSON(path)
	if err != nil {
		return err
	}
	value := record.Get(name + "_sha256")
	if value == nil {
		return nil
	}
	recorded, text := value.(string)
	if !text {
		problem := fmt.Sprintf("%s_sha256 is %s; it must be text", name, formats.Shown(value))
		return &formats.Error{Path: path, Problem: problem}
	}
	found, err := windows.digest()
	if err != nil || found == recorded {
		return err
	}
	problem := fmt.Sprintf("holds different tokens from those this run was started on (SHA-256 %s… there, %s… here)",
		recorded[:min(shownDigits, len(recorded))], found[:shownDigits])
	return &formats.Error{Path: source, Problem: problem}
}

// digest is the SHA-256 over the files of the shards, one after the other, in hexadecimal digits.
func (w *Windows) digest() (string, error) {
	if w.hash != "" {
		return w.hash, nil
	}
	whole := sha256.New()
	for _, shard := range w.shards {
		if err := shard.AddTo(whole); err != nil {
			return "", err
		}
	}
	w.hash = hex.EncodeToString(whole.Sum(nil))
	return w.hash, nil
}
