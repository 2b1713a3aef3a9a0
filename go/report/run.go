package report

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// Numbers of the records that are shown as series, columns of the table, and texts that a run notes of itself in
// run.json, or in results.json.
var (
	seriesNames = []string{"loss", "held_out_loss", "aux_loss", "grad_norm", "learning_rate", "tokens_per_second",
		"loss_scale", "skipped_steps", "bytes_peak"}
	columnNames = []string{"loss", "held_out_loss", "learning_rate", "grad_norm", "tokens_per_second"}
	notedNames  = []string{"program", "library", "abi", "device", "data", "data_sha256", "held_out", "held_out_sha256"}
)

const (
	mostSteps     = 1 << 53 // where a float, which figures count in, would skip whole numbers
	largestNumber = 1e100   // what f32 holds is far below, and sums have room above it
	mostExperts   = 4096
	mostSamples   = 200
	mostNotes     = 12
	longestSample = 10_000 // characters
	longestNoted  = 1000   // characters
	// Beyond these, counting the tokens of held-out data would take noticeable memory or time.
	largestVocabulary = 1 << 24
	mostCountedTokens = 100_000_000
)

// reader reads a run's folder. A folder may come from anywhere, so nothing in it is believed: a record or value that is
// not what docs/formats.md says is left out, and a note says so.
type reader struct {
	notes   []any
	records []*formats.Object
	points  map[string][]point
	model   *model.Config
	train   *train.Config
	state   *train.State
}

// Read reads a run that is going on, complete, cut off or damaged into the JSON object that docs/formats.md describes.
// It is a *formats.Error when the folder holds no metrics at all: then there is nothing to report.
func Read(folder string) (*formats.Object, error) {
	path := filepath.Join(folder, "metrics.jsonl")
	if !formats.Present(path) {
		return nil, formats.Missing(folder, "is no training run: it holds no metrics.jsonl")
	}
	r := &reader{notes: []any{}, points: make(map[string][]point)}
	var err error
	if r.records, err = r.readLines(path); err != nil {
		return nil, err
	}
	if len(r.records) == 0 {
		problem := "holds no record of a step yet; the first comes after `log_every` steps"
		return nil, &formats.Error{Path: path, Problem: problem}
	}
	for _, name := range append(slices.Clone(seriesNames), "tokens", "seconds") {
		r.points[name] = pointsOf(r.records, name)
	}
	r.noteMissing("loss", "training loss")
	r.noteMissing("held_out_loss", "held-out loss")
	experts := r.readExperts()
	checkpoints := r.readCheckpoints(filepath.Join(folder, "checkpoints"))
	noted, results := r.readObject(filepath.Join(folder, "run.json")), r.readObject(filepath.Join(folder, "results.json"))
	if r.model == nil {
		r.readOptions(noted)
	}
	samples := r.readSamples(filepath.Join(folder, "samples.jsonl"))
	entropy := r.findEntropy(results, noted)
	if more := len(r.notes) - mostNotes; more > 0 {
		r.notes = append(r.notes[:mostNotes], []any{"more", more})
	}
	series := formats.NewObject()
	for _, name := range seriesNames {
		if made := thin(r.points[name], nil, nil); made != nil {
			series.Set(name, made)
		}
	}
	run := formats.NewObject("version", 1, "name", clipped(nameOf(folder), longestNoted),
		"last_step", r.records[len(r.records)-1].Get("step"), "notes", r.notes)
	r.addModel(run)
	run.Set("tokens", lastOf(r.points["tokens"]))
	run.Set("data_windows", nil)
	if r.state != nil {
		run.Set("data_windows", r.state.DataWindows)
	}
	run.Set("seconds", lastOf(r.points["seconds"]))
	run.Set("bytes_peak", orNil(number(results.Get("bytes_peak")), 1))
	run.Set("unigram_entropy", orNil(entropy, 1))
	run.Set("recent_loss", recentMean(r.points["loss"]))
	run.Set("noted", notedTexts(noted, results))
	run.Set("clipped", r.countClipped())
	run.Set("checkpoints", checkpoints)
	run.Set("samples", samples)
	run.Set("table", r.table())
	run.Set("series", series)
	run.Set("experts", nil)
	if experts != nil {
		run.Set("experts", experts)
	}
	return run, nil
}

func (r *reader) note(kind string, values ...any) {
	r.notes = append(r.notes, append([]any{kind}, values...))
}

// nameOf is the name of a folder, links followed.
func nameOf(folder string) string {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return filepath.Base(folder)
	}
	if resolved, err := filepath.EvalSymlinks(absolute); err == nil {
		absolute = resolved
	}
	if absolute == "/" {
		return ""
	}
	return filepath.Base(absolute)
}

// clipped is text cut to so many characters.
func clipped(text string, longest int) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return string([]rune(text)[:longest]) + "…"
}

// number is a JSON value as a finite number; NaN for everything else, so that it leaves a gap in a curve.
func number(value any) float64 {
	converted := math.NaN()
	switch value := value.(type) {
	case int64:
		converted = float64(value)
	case float64:
		converted = value
	}
	if math.Abs(converted) <= largestNumber {
		return converted
	}
	return math.NaN()
}

// readLines gives the objects of a JSONL file that have a step, in the order of steps. A last line without its end is one
// that is being written.
func (r *reader) readLines(path string) ([]*formats.Object, error) {
	name, number := filepath.Base(path), 0
	var found []*formats.Object
	for line, err := range formats.JSONLines(path) {
		if err != nil {
			return nil, err
		}
		number++
		switch {
		case len(bytes.Trim(line.Text, " \t\r\n")) == 0:
		case isRecord(line.Record):
			found = append(found, line.Record)
		case !bytes.HasSuffix(line.Text, []byte("\n")):
			r.note("cut", name)
		default:
			r.note("line", name, number)
		}
	}
	slices.SortStableFunc(found, func(a, b *formats.Object) int { return int(stepOf(a) - stepOf(b)) })
	return found, nil
}

func stepOf(record *formats.Object) int64 { return record.Get("step").(int64) }

// isRecord says whether an object, which may be nil, is one of a step.
func isRecord(record *formats.Object) bool {
	if record == nil {
		return false
	}
	step, ok := record.Get("step").(int64)
	return ok && step >= 0 && step < mostSteps
}

func pointsOf(records []*formats.Object, name string) []point {
	var points []point
	for _, record := range records {
		if record.Has(name) {
			points = append(points, point{stepOf(record), number(record.Get(name))})
		}
	}
	return points
}

func lastOf(points []point) any {
	for _, one := range slices.Backward(points) {
		if !math.IsNaN(one.value) {
			return rounded(one.value)
		}
	}
	return nil
}

// noteMissing says where a loss was no number.
func (r *reader) noteMissing(name, words string) {
	count, first := 0, int64(0)
	for _, one := range r.points[name] {
		if !math.IsNaN(one.value) {
			continue
		}
		if count == 0 {
			first = one.step
		}
		count++
	}
	if count > 0 {
		r.note("not finite", words, count, first)
	}
}

// readExperts gives what is shown of the experts' shares: those of records whose tables have the size of the first one's.
func (r *reader) readExperts() *formats.Object {
	given := 0
	var found []shares
	for _, record := range r.records {
		if !record.Has("expert_shares") {
			continue
		}
		given++
		layers := matrix(record.Get("expert_shares"))
		if layers == nil {
			continue
		}
		if len(found) > 0 {
			first := found[0].layers
			if len(layers) != len(first) || len(layers[0]) != len(first[0]) {
				continue
			}
		}
		found = append(found, shares{stepOf(record), layers})
	}
	if len(found) < given {
		r.note("shares", given-len(found))
	}
	return thinExperts(found)
}

// matrix gives shares as [layer][expert]; nil when they are none.
func matrix(value any) [][]float64 {
	rows, _ := value.([]any)
	layers := make([][]float64, 0, len(rows))
	for _, row := range rows {
		cells, _ := row.([]any)
		if len(cells) == 0 || len(cells) > mostExperts || (len(layers) > 0 && len(cells) != len(layers[0])) {
			return nil
		}
		layer := make([]float64, len(cells))
		for at, cell := range cells {
			layer[at] = number(cell)
			if !(layer[at] >= 0 && layer[at] <= 1) {
				return nil
			}
		}
		layers = append(layers, layer)
	}
	if len(layers) == 0 {
		return nil
	}
	return layers
}

// readCheckpoints gives the checkpoints that are whole, and keeps the options and state of the last. The run may remove
// one meanwhile, which is no fault.
func (r *reader) readCheckpoints(root string) []any {
	found := []any{}
	for _, folder := range train.ListCheckpoints(root) {
		state, config, size, failed := readCheckpoint(folder)
		if failed != "" {
			if _, err := os.Stat(folder); err == nil {
				r.note("checkpoint", filepath.Base(folder), failed)
			}
			continue
		}
		r.state, r.train, r.model = &state, &state.Train, &config
		loss := math.NaN()
		if state.HeldOutLoss != nil {
			loss = number(*state.HeldOutLoss)
		}
		found = append(found, formats.NewObject("name", filepath.Base(folder), "step", state.Step,
			"held_out_loss", orNil(loss, 1), "seconds", orNil(number(state.Seconds), 1), "bytes", size))
	}
	return found
}

// readCheckpoint gives state, model and bytes of a checkpoint, or the name of the file in it that failed.
func readCheckpoint(folder string) (state train.State, config model.Config, size int64, failed string) {
	state, err := train.ReadState(filepath.Join(folder, "training.json"))
	if err != nil {
		return state, config, 0, "training.json"
	}
	values, err := formats.ReadJSON(filepath.Join(folder, "config.json"))
	if err != nil {
		return state, config, 0, "config.json"
	}
	if config, err = model.ConfigFromMixtral(values); err != nil {
		return state, config, 0, "config.json"
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return state, config, 0, "config.json"
	}
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(folder, entry.Name()))
		if err != nil {
			return state, config, 0, "config.json"
		}
		size += info.Size()
	}
	return state, config, size, ""
}

// readObject gives the object in a file; an empty one when there is none.
func (r *reader) readObject(path string) *formats.Object {
	if !formats.Present(path) {
		return formats.NewObject()
	}
	object, err := formats.ReadJSON(path)
	if err != nil {
		r.note("file", filepath.Base(path))
		return formats.NewObject()
	}
	return object
}

// readOptions takes the options that the run noted when it began, for as long as it has no checkpoint.
func (r *reader) readOptions(noted *formats.Object) {
	if noted.Get("model") == nil && noted.Get("train") == nil {
		return
	}
	config, options, err := notedOptions(noted)
	if err != nil {
		r.note("options")
		return
	}
	r.model, r.train = &config, &options
}

func notedOptions(noted *formats.Object) (model.Config, train.Config, error) {
	config, options := model.Default(), train.DefaultConfig()
	of, isModel := noted.Get("model").(*formats.Object)
	how, isTrain := noted.Get("train").(*formats.Object)
	if !isModel || !isTrain {
		return config, options, fmt.Errorf("they are no objects")
	}
	if err := config.Assign(of); err != nil {
		return config, options, err
	}
	if err := config.Validate(); err != nil {
		return config, options, err
	}
	if err := options.Assign(how); err != nil {
		return config, options, err
	}
	return config, options, options.Validate()
}

// addModel adds the options and what follows from them.
func (r *reader) addModel(run *formats.Object) {
	options := formats.NewObject("model", nil, "train", nil)
	run.Set("options", options)
	run.Set("parameters", nil)
	run.Set("active_parameters", nil)
	if r.model != nil {
		options.Set("model", r.model.Object())
		options.Set("train", r.train.Object())
		run.Set("parameters", r.model.NumParameters())
		run.Set("active_parameters", r.model.NumActiveParameters())
	}
}

func notedTexts(noted, results *formats.Object) *formats.Object {
	found := formats.NewObject()
	for _, name := range notedNames {
		text, ok := noted.Get(name).(string)
		if !ok {
			text, ok = results.Get(name).(string)
		}
		if ok {
			found.Set(name, clipped(text, longestNoted))
		}
	}
	return found
}

// countClipped counts the records in which the gradient was clipped; nil when it is not known whether it is at all.
func (r *reader) countClipped() any {
	if r.train == nil || r.train.ClipNorm == 0 {
		return nil
	}
	count := 0
	for _, one := range r.points["grad_norm"] {
		if one.value > r.train.ClipNorm {
			count++
		}
	}
	return count
}

func (r *reader) readSamples(path string) []any {
	samples := []any{}
	if !formats.Present(path) {
		return samples
	}
	records, err := r.readLines(path)
	if err != nil {
		r.note("file", filepath.Base(path))
		return samples
	}
	for _, record := range records {
		prompt, isPrompt := record.Get("prompt").(string)
		text, isText := record.Get("text").(string)
		if isPrompt && isText {
			samples = append(samples, formats.NewObject("step", stepOf(record),
				"prompt", clipped(prompt, longestSample), "text", clipped(text, longestSample)))
		}
	}
	if len(samples) > mostSamples {
		r.note("samples", len(samples), mostSamples)
		samples = samples[len(samples)-mostSamples:]
	}
	return samples
}

// table has the curves in numbers: at the evaluations, or at evenly spaced steps when there were none.
func (r *reader) table() []any {
	at := "held_out_loss"
	if len(r.points[at]) == 0 {
		at = "loss"
	}
	var steps []int64
	for _, one := range r.points[at] {
		steps = append(steps, one.step)
	}
	values := make(map[string]map[int64]float64)
	for _, name := range columnNames {
		values[name] = make(map[int64]float64)
		for _, one := range r.points[name] {
			values[name][one.step] = one.value
		}
	}
	rows := []any{}
	for _, step := range chosenRows(slices.Compact(steps)) {
		row := []any{step}
		for _, name := range columnNames {
			value, known := values[name][step]
			if !known {
				value = math.NaN()
			}
			row = append(row, orNil(value, 1))
		}
		rows = append(rows, row)
	}
	return rows
}

// findEntropy gives the unigram entropy that the run noted, else that of its held-out data, when that still lies where it
// did.
func (r *reader) findEntropy(results, noted *formats.Object) float64 {
	entropy := number(results.Get("unigram_entropy"))
	path, isPath := noted.Get("held_out").(string)
	if !math.IsNaN(entropy) || !isPath || r.model == nil || lastOf(r.points["held_out_loss"]) == nil {
		return entropy
	}
	shards, err := train.OpenShards(path)
	if err != nil {
		return entropy
	}
	total := 0
	for _, shard := range shards {
		if shard.VocabSize != r.model.VocabSize || shard.VocabSize > largestVocabulary {
			return entropy
		}
		if total += min(shard.Count, mostCountedTokens+1); total > mostCountedTokens {
			return entropy
		}
	}
	if total == 0 {
		return entropy
	}
	if entropy, err = train.UnigramEntropy(shards); err != nil {
		return math.NaN()
	}
	return entropy
}
