package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/train"
)

// What is shown of long values of a GGUF file's metadata.
const (
	elementsShown   = 8
	charactersShown = 200
)

// describeGGUF gives what is in a GGUF file.
func describeGGUF(path string) (content *formats.Object, err error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var rows []any
	counts, bytes := make(map[string]int), make(map[string]int)
	parameters, total := 0, 0
	for _, name := range file.Names() {
		entry, _ := file.Entry(name)
		size := max(entry.Bytes, 0)
		rows = append(rows, tensorRow(name, entry.Shape, entry.Type, size))
		counts[entry.Type]++
		bytes[entry.Type] += size
		total += size
		elements := 1
		for _, extent := range entry.Shape {
			elements *= extent
		}
		parameters += min(elements, math.MaxInt-parameters) // tensors of unknown types may be of any size
	}
	content = formats.NewObject("kind", fmt.Sprintf("GGUF, version %d", file.Version), "path", path)
	content.Set("parameters", countText(parameters))
	metadata := formats.NewObject()
	for _, key := range file.Keys() {
		value, _ := file.Get(key)
		shown, err := shortened(value)
		if err != nil {
			return nil, err
		}
		metadata.Set(key, shown)
	}
	content.Set("metadata", metadata)
	held := formats.NewObject()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		held.Set(name, formats.NewObject("tensors", counts[name], "bytes", bytes[name]))
	}
	content.Set("formats", held)
	content.Set("total", fmt.Sprintf("%d tensors, %s", len(rows), bytesText(total)))
	content.Set("tensors", rows)
	return content, nil
}

// shortened is a value of metadata, cut where it is long.
func shortened(value gguf.Value) (any, error) {
	if !value.IsArray() {
		return plainValue(value), nil
	}
	first := make([]any, min(value.Len(), elementsShown))
	for at := range first {
		element, err := value.At(at)
		if err != nil {
			return nil, err
		}
		first[at] = plainValue(element)
	}
	if value.Len() <= elementsShown {
		return first, nil
	}
	words := make([]string, len(first))
	for at, element := range first {
		line, err := formats.JSONLine(formats.NewObject("", element))
		if err != nil {
			return nil, err
		}
		words[at] = inASCII(strings.TrimSuffix(strings.TrimPrefix(string(line), `{"":`), "}\n"))
	}
	kind := strings.TrimSuffix(value.Type, "[]")
	return fmt.Sprintf("%d × %s: %s, …", value.Len(), kind, strings.Join(words, ", ")), nil
}

// inASCII is a text of JSON with its other letters escaped, as the Python package writes them here.
func inASCII(text string) string {
	var out strings.Builder
	for _, letter := range text {
		if letter < utf8.RuneSelf {
			out.WriteRune(letter)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, letter) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}

// plainValue is a number, a bool or a text of metadata.
func plainValue(value gguf.Value) any {
	if text, ok := value.Text(); ok {
		if length := utf8.RuneCountInString(text); length > charactersShown {
			return fmt.Sprintf("%s… (%d characters)", string([]rune(text)[:charactersShown]), length)
		}
		return text
	}
	if flag, ok := value.Bool(); ok {
		return flag
	}
	if whole, ok := value.Whole(); ok {
		return whole
	}
	if number, ok := value.Number(); ok && (value.Type == "f32" || value.Type == "f64") {
		return number
	}
	return json.Number(value.String()) // beyond 64 bits with a sign
}

// describeOther gives what is in a folder that is no checkpoint, `why`, but a model that the inference engine runs: a
// Llama, a BitNet, or a Mixtral that cannot be trained here, such as one with a scaled rotary embedding.
func describeOther(folder string, why error) (content *formats.Object, err error) {
	// What has been trained here is a checkpoint or wrong.
	if formats.Present(filepath.Join(folder, "training.json")) {
		return nil, why
	}
	config, err := formats.ReadJSON(filepath.Join(folder, "config.json"))
	if err != nil {
		return nil, why
	}
	made, err := stored.Open(folder)
	if err != nil && isKnownKind(config) {
		return nil, err
	} else if err != nil {
		return nil, why
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	content = formats.NewObject("kind", "model", "path", folder)
	content.Set("parameters", countText(made.Config.NumParameters()))
	content.Set("model", made.Config.Object())
	tokens, err := made.Tokenizer()
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		content.Set("tokenizer", fmt.Sprintf("%d pieces", tokens.VocabSize()))
	}
	var rows []any
	for _, shape := range made.Config.Shapes() {
		if matrix := made.Matrices[shape.Name]; matrix != nil {
			rows = append(rows, tensorRow(matrix.Name, shape.Sizes, "ternary, "+matrix.Form, len(matrix.Data)))
		} else if shape.Name != "lm_head.weight" || !made.Config.TieEmbeddings {
			for _, part := range made.Parts(shape.Name) {
				rows = append(rows, tensorRow(part.Name, part.Shape, part.Format.Name, part.ByteCount()))
			}
		}
	}
	content.Set("total", fmt.Sprintf("%d tensors, %s", len(rows), bytesText(int(made.Bytes()))))
	content.Set("tensors", rows)
	return content, nil
}

// isKnownKind says whether a config.json is that of a dense model or a BitNet.
func isKnownKind(config *formats.Object) bool {
	return model.IsDenseKind(config.Get("model_type"))
}

// tensorRow is a tensor in a description.
func tensorRow(name string, sizes []int, dtype string, bytes int) *formats.Object {
	shape := make([]any, len(sizes))
	for at, extent := range sizes {
		shape[at] = extent
	}
	return formats.NewObject("name", name, "shape", shape, "dtype", dtype, "bytes", bytes)
}

// openTrained opens a folder for `shadow`; a model that only the inference engine runs is an error that says which
// command does what is wanted.
func openTrained(folder string) (*train.Checkpoint, error) {
	checkpoint, err := train.OpenCheckpoint(folder)
	if err == nil {
		return checkpoint, nil
	}
	path := filepath.Join(folder, "config.json")
	if config, failure := formats.ReadJSON(path); failure == nil && isKnownKind(config) {
		return nil, &formats.Error{Path: path, Problem: fmt.Sprintf(
			"model_type is %s; nncuda-go shadow takes 'mixtral' alone, the checkpoints of the MoE model",
			formats.Shown(config.Get("model_type")))}
	}
	return nil, err
}
