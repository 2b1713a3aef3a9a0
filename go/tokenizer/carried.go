package tokenizer

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
)

// FolderFiles is what the folder of a model keeps of a tokenizer: the ids that config.json has, and files by name.
type FolderFiles interface {
	SpecialIDs() *formats.Object
	Files() (map[string][]byte, error)
}

// Carried is the tokenizer of a model as a run carries it from checkpoint to checkpoint: the files of a folder, byte for
// byte, or those that a GGUF file's tokenizer makes. What a model was published with is more than ids and pieces: the chat
// template, the names of special tokens, the defaults of sampling. All of it stays as it was.
type Carried struct {
	contents map[string][]byte
	ids      *formats.Object
}

// carriedFiles are the files that are carried, and how many bytes each may have.
var carriedFiles = map[string]int64{
	"tokenizer.model":         formats.TokenizerModelBytes,
	"tokenizer.json":          formats.TokenizerJSONBytes,
	"tokenizer_config.json":   formats.JSONBytes,
	"special_tokens_map.json": formats.JSONBytes,
	"added_tokens.json":       formats.JSONBytes,
	"generation_config.json":  formats.JSONBytes,
	"chat_template.jinja":     formats.TemplateBytes,
}

// CarryNone is that of a model without one.
func CarryNone() *Carried {
	ids := formats.NewObject("bos_token_id", nil, "eos_token_id", nil, "pad_token_id", nil)
	return &Carried{contents: make(map[string][]byte), ids: ids}
}

// Carry reads that of a model's folder, which may have none. One that cannot be read or is too large is a formats.Error.
func Carry(folder string) (*Carried, error) {
	path := filepath.Join(folder, "config.json")
	values, err := formats.ReadJSON(path)
	if err != nil {
		return nil, err
	}
	carried := &Carried{ids: formats.NewObject()}
	for _, name := range []string{"bos_token_id", "eos_token_id", "pad_token_id"} {
		value := values.Get(name)
		if !isIDs(value) {
			problem := fmt.Sprintf("%s is %s; it must be a whole number, from 0 to %d, a list of them, or null",
				name, formats.Shown(value), formats.MaxCount)
			return nil, &formats.Error{Path: path, Problem: problem}
		}
		carried.ids.Set(name, value)
	}
	if carried.contents, err = ReadFiles(folder); err != nil {
		return nil, err
	}
	return carried, nil
}

// ReadFiles reads what of a tokenizer, and of how texts are generated, a model's folder has, by name. A file that cannot be read
// or is too large is a formats.Error.
func ReadFiles(folder string) (map[string][]byte, error) {
	contents := make(map[string][]byte)
	for _, name := range slices.Sorted(maps.Keys(carriedFiles)) {
		path := filepath.Join(folder, name)
		if !formats.Present(path) {
			continue
		}
		content, err := formats.ReadRegular(path, carriedFiles[name])
		if err != nil {
			return nil, err
		}
		contents[name] = content
	}
	return contents, nil
}

// isIDs says whether a value is an id, a list of them, or none.
func isIDs(value any) bool {
	listed, isList := value.([]any)
	if !isList {
		listed = []any{value}
	}
	for _, one := range listed {
		id, whole := one.(int64)
		if (!whole || id < 0 || id > formats.MaxCount) && (isList || one != nil) {
			return false
		}
	}
	return true
}

// HasTokenizer says whether there is a tokenizer among the files.
func (c *Carried) HasTokenizer() bool {
	return c.contents["tokenizer.model"] != nil || c.contents["tokenizer.json"] != nil
}

// SpecialIDs are the ids of begin, end and padding as config.json has them; nil for none.
func (c *Carried) SpecialIDs() *formats.Object { return c.ids }

// Files gives the files by name.
func (c *Carried) Files() (map[string][]byte, error) { return c.contents, nil }
