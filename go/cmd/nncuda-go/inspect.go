package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/tokenizer"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
)

func newInspect(std streams) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "inspect [flags] PATH",
		Short: "Show what is in a file or folder.",
		Long: `Show what is in PATH: config, tensors, shapes, dtypes, sizes.

PATH is a checkpoint, a run (its last checkpoint), a folder of Hugging Face, of PEFT, a GGUF file, a
safetensors file, a token shard or a tokenizer. Everything shown has been checked, including every id of a shard.
Long arrays of a GGUF file's metadata are shortened.`,
		Args: exactArguments("PATH"),
		RunE: func(command *cobra.Command, arguments []string) error {
			defer interruptible(command.Context(), std)()
			if err := requirePath("PATH", arguments[0], anyPath); err != nil {
				return err
			}
			content, err := describe(filepath.Clean(arguments[0]))
			if err != nil {
				return err
			}
			if asJSON {
				return printDocument(std.out, content)
			}
			return show(std.out, content)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "Write JSON, for programs.")
	return command
}

// describe gives what is in a file or folder, as plain values.
func describe(path string) (*formats.Object, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		folder, err := train.ResolveCheckpoint(path, false)
		if err != nil {
			return nil, err
		}
		return describeFolder(folder)
	}
	isShard, err := beginsWith(path, formats.ShardMagic)
	isGGUF := false
	if err == nil {
		isGGUF, err = beginsWith(path, "GGUF")
	}
	switch {
	case err != nil:
		return nil, err
	case isShard:
		return describeShard(path)
	case isGGUF:
		return describeGGUF(path)
	case filepath.Ext(path) == ".model":
		made, err := tokenizer.Open(path)
		if err != nil {
			return nil, err
		}
		return formats.NewObject("kind", "tokenizer", "path", path, "pieces", made.VocabSize()), nil
	case filepath.Ext(path) == ".safetensors":
		file, err := safetensors.Open(path)
		if err != nil {
			return nil, err
		}
		content := formats.NewObject("kind", "safetensors", "path", path)
		describeTensors(content, file)
		return content, file.Close()
	}
	problem := "is not a kind of file that nncuda-go knows: GGUF, token shard, tokenizer (.model), .safetensors"
	return nil, &formats.Error{Path: path, Problem: problem}
}

func beginsWith(path, text string) (bool, error) {
	file, _, err := formats.OpenRegular(path)
	if err != nil {
		return false, err
	}
	head := make([]byte, len(text))
	count, err := io.ReadFull(file, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return string(head[:count]) == text, errors.Join(err, file.Close())
}

func describeShard(path string) (*formats.Object, error) {
	shard, err := formats.OpenShard(path)
	if err != nil {
		return nil, err
	}
	if err := shard.CheckIDs(); err != nil {
		return nil, err
	}
	digest := hex.EncodeToString(shard.Tokenizer[:])
	if shard.Tokenizer == [32]byte{} {
		digest = "unknown"
	}
	content := formats.NewObject(
		"kind", "token shard", "path", path, "tokens", shard.Count, "vocabulary", shard.VocabSize,
		"bytes per token", shard.Width, "tokenizer", digest,
	)
	if !shard.HasDocuments {
		return content, nil
	}
	documents, targets := 0, 0
	err = shard.Documents(func(_ int, ends, target bool) {
		if ends {
			documents++
		}
		if target {
			targets++
		}
	})
	content.Set("documents", documents)
	content.Set("targets", targets)
	return content, err
}

// describeAdapter gives what is in the folder of an adapter by itself: whether it is of a model, that model says.
func describeAdapter(folder string) (*formats.Object, error) {
	file, err := safetensors.Open(filepath.Join(folder, stored.AdapterWeights))
	if err != nil {
		return nil, err
	}
	total := 0
	for _, name := range file.Names() {
		tensor, _ := file.Tensor(name)
		elements := 1
		for _, extent := range tensor.Shape {
			elements *= extent
		}
		total += elements
	}
	content := formats.NewObject("kind", "adapter", "path", folder, "parameters", countText(total))
	options, err := formats.ReadJSON(filepath.Join(folder, stored.AdapterConfig))
	if err == nil {
		content.Set("adapter", options)
	}
	if state := filepath.Join(folder, "training.json"); err == nil && formats.Present(state) {
		var training train.State
		training, err = train.ReadState(state)
		content.Set("kind", "adapter that is trained")
		content.Set("train", training.Train.Object())
		content.Set("training state", training.Object())
	}
	describeTensors(content, file)
	return content, errors.Join(err, file.Close())
}

func describeFolder(folder string) (*formats.Object, error) {
	if stored.IsAdapter(folder) {
		return describeAdapter(folder)
	}
	checkpoint, err := train.OpenCheckpoint(folder)
	if err != nil {
		return describeOther(folder, err)
	}
	config := checkpoint.Config
	if config.NumExperts == 0 && checkpoint.Training == nil { // a Llama from elsewhere is described as the engine runs it
		if err := checkpoint.Close(); err != nil {
			return nil, err
		}
		return describeOther(folder, errors.New("is no checkpoint"))
	}
	content := formats.NewObject("kind", "model", "path", folder)
	if checkpoint.Training != nil {
		content.Set("kind", "checkpoint")
	}
	all, active := countText(config.NumParameters()), countText(config.NumActiveParameters())
	content.Set("parameters", fmt.Sprintf("%s, %s active per token", all, active))
	content.Set("model", config.Object())
	if checkpoint.Tokenizer != nil {
		content.Set("tokenizer", fmt.Sprintf("%d pieces", checkpoint.Tokenizer.VocabSize()))
	}
	if checkpoint.Training != nil {
		content.Set("train", checkpoint.Training.Train.Object())
		content.Set("training state", checkpoint.Training.Object())
	}
	describeTensors(content, checkpoint.Files)
	return content, checkpoint.Close()
}

// tensors is a file of tensors, or a folder of them.
type tensors interface {
	Names() []string
	Tensor(name string) (safetensors.Tensor, bool)
}

func describeTensors(content *formats.Object, from tensors) {
	var rows []any
	total := 0
	for _, name := range from.Names() {
		tensor, _ := from.Tensor(name)
		rows = append(rows, tensorRow(name, tensor.Shape, tensor.DType.Name(), len(tensor.Bytes)))
		total += len(tensor.Bytes)
	}
	content.Set("total", fmt.Sprintf("%d tensors, %s", len(rows), bytesText(total)))
	content.Set("tensors", rows)
}

// show writes a description for people.
func show(out io.Writer, content *formats.Object) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, name := range content.Names() {
		switch value := content.Get(name).(type) {
		case *formats.Object:
			fmt.Fprintf(table, "\n%s\n", name)
			showValues(table, "  ", value)
		case []any:
			fmt.Fprint(table, "\ntensor\tshape\tdtype\tsize\n")
			for _, row := range value {
				tensor := row.(*formats.Object)
				size := bytesText(tensor.Get("bytes").(int))
				name := formats.Printable(tensor.Get("name").(string))
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, shapeOf(tensor), tensor.Get("dtype"), size)
			}
		default:
			if name == "total" {
				fmt.Fprintln(table)
			}
			fmt.Fprintf(table, "%s: %v\n", name, value)
		}
	}
	return table.Flush()
}

// showValues writes a line for each value that is not a group, with its path: "loss_scaling.scale".
func showValues(out io.Writer, before string, values *formats.Object) {
	for _, key := range values.Names() {
		if group, ok := values.Get(key).(*formats.Object); ok {
			showValues(out, before+key+".", group)
			continue
		}
		fmt.Fprintf(out, "%s%s\t%s\n", before, formats.Printable(key), formats.Printable(shown(values.Get(key))))
	}
}

// shown is a value as configuration files write it.
func shown(value any) string {
	switch value := value.(type) {
	case nil:
		return "none"
	case string:
		return value
	case bool:
		return strconv.FormatBool(value)
	}
	return formats.Shown(value)
}

func shapeOf(tensor *formats.Object) string {
	extents := tensor.Get("shape").([]any)
	if len(extents) == 0 {
		return "scalar"
	}
	parts := make([]string, len(extents))
	for at, extent := range extents {
		parts[at] = fmt.Sprint(extent)
	}
	return strings.Join(parts, " × ")
}
