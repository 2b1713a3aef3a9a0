package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

const (
	chainFile    = "chain.jsonl"
	chainVersion = 1
	digestDigits = 32
)

// chain appends to chain.jsonl of a run, by which `nncuda verify-run` checks it, a JSON object a line:
//
//	{"step":0,"format":"nncuda chain","version":1,"data_sha256":...,"seed":7,"sequence_length":16,
//	 "tensors":[...],"seal":...}                                             first
//	{"step":10,"inputs":[0,80],"digests":"...","hash":...,"seal":...}        every hash_every steps, and at 0
//	{"step":10,"files":{"run.json":[1034,...],...},"digests":"...","seal":...}  a checkpoint; a run that goes on
//
//	digests  of the tensors of the state, in the order of `tensors`
//	inputs   which positions of the data order were trained on since the last such line: from, and up to
//	hash     SHA-256 of the hash before, step, inputs and digests. It is the same wherever the run is computed
//	files    how many bytes of a file, and their SHA-256; of safetensors those of the header, as digests have the rest
//	seal     SHA-256 of the seal before and all of the line in front of its last comma; it is of this folder
type chain struct {
	folder, path string
	step, until  int
	hash, seal   string
	digests      string // that the file has of the state at step, "" where it has none
}

// openChain opens that of a run that is at `step`; lines of later steps are dropped: these come again.
func openChain(folder string, step int, data *Windows, config Config, names []string) (*chain, error) {
	c := &chain{folder: folder, path: filepath.Join(folder, chainFile), step: step}
	if err := dropRecords(c.path, step); err != nil {
		return nil, err
	}
	if formats.Present(c.path) {
		if err := c.read(); err != nil {
			return nil, err
		}
	}
	if c.hash != "" {
		return c, nil
	}
	hash, err := data.digest()
	if err != nil {
		return nil, err
	}
	seed, length := strconv.FormatInt(config.Seed, 10), strconv.Itoa(config.SequenceLength)
	c.hash = sha256Of(strings.Join(append([]string{hash, seed, length}, names...), "\n") + "\n")
	if c.seal != "" {
		return c, nil
	}
	tensors := make([]any, len(names))
	for at, name := range names {
		tensors[at] = name
	}
	return c, c.write(formats.NewObject("step", step, "format", "nncuda chain", "version", chainVersion,
		"data_sha256", hash, "seed", config.Seed, "sequence_length", config.SequenceLength, "tensors", tensors))
}

// read finds the last seal and hash.
func (c *chain) read() error {
	text := func(record *formats.Object, name string) (string, error) {
		value, ok := record.Get(name).(string)
		if !ok {
			problem := fmt.Sprintf("%s is %s; it must be text", name, formats.Shown(record.Get(name)))
			return "", &formats.Error{Path: c.path, Problem: problem}
		}
		return value, nil
	}
	for line, err := range formats.JSONLines(c.path) {
		if err != nil {
			return err
		}
		record := line.Record // there is one: of other lines dropRecords leaves none
		if c.seal, err = text(record, "seal"); err != nil {
			return err
		}
		if record.Has("hash") {
			if c.hash, err = text(record, "hash"); err != nil {
				return err
			}
			inputs, _ := record.Get("inputs").([]any)
			until := int64(-1)
			if len(inputs) == 2 {
				until, _ = inputs[1].(int64)
			}
			if until < 0 {
				problem := fmt.Sprintf("inputs is %s; it must be two whole numbers", formats.Shown(record.Get("inputs")))
				return &formats.Error{Path: c.path, Problem: problem}
			}
			c.until = int(until)
		}
		if record.Has("digests") && record.Get("step") == any(int64(c.step)) {
			if c.digests, err = text(record, "digests"); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin is where a run starts or goes on. It is an error when the state is not the one that was there at this step.
func (c *chain) begin(names []string, digests string, position int) error {
	if c.digests != "" {
		if tensors := differentTensors(names, c.digests, digests); len(tensors) > 0 {
			more := ""
			if len(tensors) > 1 {
				more = fmt.Sprintf(", and %d more", len(tensors)-1)
			}
			problem := fmt.Sprintf("the state at step %d is not the one that this run had there: %s differs%s", c.step,
				tensors[0], more)
			return &formats.Error{Path: c.folder, Problem: problem}
		}
	} else if c.step == 0 {
		if _, err := c.add(0, position, digests); err != nil {
			return err
		}
	}
	return c.addFiles(c.step, digests, "")
}

// differentTensors names those whose digests differ.
func differentTensors(names []string, expected, found string) []string {
	var different []string
	for at, name := range names {
		from, to := digestDigits*at, digestDigits*(at+1)
		if len(expected) < to || expected[from:to] != found[from:to] {
			different = append(different, name)
		}
	}
	return different
}

// add adds the state after a step, and the windows up to `position`; it gives its hash.
func (c *chain) add(step, position int, digests string) (string, error) {
	c.hash = sha256Of(fmt.Sprintf("%s\n%d\n%d %d\n%s\n", c.hash, step, c.until, position, digests))
	inputs := []any{c.until, position}
	c.until = position
	return c.hash, c.write(formats.NewObject("step", step, "inputs", inputs, "digests", digests, "hash", c.hash))
}

// addFiles adds the files of the run as they are now, and those of a checkpoint of this step, unless it is "".
func (c *chain) addFiles(step int, digests, checkpoint string) error {
	var paths []string
	for _, name := range []string{recordFile, "metrics.jsonl"} {
		if path := filepath.Join(c.folder, name); formats.Present(path) {
			paths = append(paths, path)
		}
	}
	if checkpoint != "" {
		entries, err := os.ReadDir(checkpoint)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			paths = append(paths, filepath.Join(checkpoint, entry.Name()))
		}
	}
	sums := formats.NewObject()
	for _, path := range paths {
		count, sum, err := fileSum(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(c.folder, path)
		if err != nil {
			return err
		}
		sums.Set(filepath.ToSlash(name), []any{count, sum})
	}
	return c.write(formats.NewObject("step", step, "files", sums, "digests", digests))
}

// fileSum gives how many bytes of a file count, and their SHA-256: all, or of safetensors the header.
func fileSum(path string) (int64, string, error) {
	file, size, err := formats.OpenRegular(path)
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	if filepath.Ext(path) == ".safetensors" {
		var length uint64
		if err := binary.Read(io.NewSectionReader(file, 0, 8), binary.LittleEndian, &length); err != nil {
			return 0, "", &formats.Error{Path: path, Problem: "is shorter than the length of a header"}
		}
		size = 8 + int64(length)
	}
	whole := sha256.New()
	count, err := io.Copy(whole, io.LimitReader(file, size))
	return count, hex.EncodeToString(whole.Sum(nil)), err
}

func (c *chain) write(record *formats.Object) error {
	record.Set("seal", "")
	line, err := formats.JSONLine(record)
	if err != nil {
		return err
	}
	before := line[:bytes.LastIndexByte(line, ',')]
	c.seal = sha256Of(c.seal + string(before))
	file, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s,\"seal\":%q}\n", before, c.seal)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

func sha256Of(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
