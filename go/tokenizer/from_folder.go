package tokenizer

import (
	"fmt"
	"path/filepath"

	"github.com/nncuda/nncuda/go/formats"
)

// FromFolder gives the tokenizer of a Hugging Face folder or a checkpoint, nil when it has none: tokenizer.json where
// there is one, since that is what transformers uses, else tokenizer.model. What begins a text and what ends it is also
// in tokenizer_config.json, generation_config.json and config.json. The error is a *formats.Error.
func FromFolder(folder string) (TextTokenizer, error) {
	path := filepath.Join(folder, "tokenizer_config.json")
	described, err := optionalJSON(path)
	if err != nil {
		return nil, err
	}
	adds, isBool := described.Get("add_bos_token").(bool)
	if value := described.Get("add_bos_token"); value != nil && !isBool {
		problem := fmt.Sprintf("add_bos_token is %s; it must be true or false", formats.Shown(value))
		return nil, &formats.Error{Path: path, Problem: problem}
	}
	made, ends, err := openFolder(folder, described)
	if made == nil || err != nil {
		return nil, err
	}
	end := ends.end
	for _, name := range []string{"config.json", "generation_config.json"} {
		more, err := idsOf(filepath.Join(folder, name), "eos_token_id")
		if err != nil {
			return nil, err
		}
		end = append(end, more...)
	}
	size := int32(made.VocabSize())
	known := end[:0]
	for _, id := range end {
		if id < size {
			known = append(known, id)
		}
	}
	if ends.begin >= size {
		ends.begin = -1
	}
	if !isBool {
		adds = ends.adds
	}
	*ends = newEnds(ends.begin, known, adds)
	return made, nil
}

// openFolder opens the tokenizer of a folder. What begins and ends a text is what the tokenizer and its description say.
func openFolder(folder string, described *formats.Object) (TextTokenizer, *ends, error) {
	path := filepath.Join(folder, "tokenizer.json")
	if formats.Present(path) {
		made, err := OpenJSON(path)
		if err != nil {
			return nil, nil, err
		}
		begin, found := made.IDOf(tokenName(described, "bos_token"))
		if !found {
			ids, err := idsOf(filepath.Join(folder, "config.json"), "bos_token_id")
			if err != nil {
				return nil, nil, err
			}
			if begin = -1; len(ids) > 0 {
				begin = ids[0]
			}
		}
		var end []int32
		if id, found := made.IDOf(tokenName(described, "eos_token")); found {
			end = []int32{id}
		}
		made.ends = newEnds(begin, end, made.FirstID() == begin)
		return made, &made.ends, nil
	}
	if path = filepath.Join(folder, "tokenizer.model"); formats.Present(path) {
		made, err := Open(path)
		if err != nil {
			return nil, nil, err
		}
		return made, &made.ends, nil
	}
	return nil, nil, nil
}

// optionalJSON is a JSON object; an empty one when there is no such file.
func optionalJSON(path string) (*formats.Object, error) {
	if !formats.Present(path) {
		return formats.NewObject(), nil
	}
	return formats.ReadJSON(path)
}

// tokenName is the name of a token in a tokenizer_config.json, which has it alone or in an object; empty without.
func tokenName(described *formats.Object, key string) string {
	value := described.Get(key)
	if object, ok := value.(*formats.Object); ok {
		value = object.Get("content")
	}
	name, _ := value.(string)
	return name
}

// idsOf are the ids that a file has under a key: one or a list of them.
func idsOf(path, key string) ([]int32, error) {
	content, err := optionalJSON(path)
	if err != nil {
		return nil, err
	}
	value := content.Get(key)
	values, isList := value.([]any)
	if !isList {
		values = []any{value}
	}
	var ids []int32
	for _, one := range values {
		if one == nil {
			continue
		}
		id, ok := one.(int64)
		if !ok || id < 0 {
			problem := fmt.Sprintf("%s is %s; it must be an id or a list of them", key, formats.Shown(value))
			return nil, &formats.Error{Path: path, Problem: problem}
		}
		ids = append(ids, int32(min(id, 1<<31-1)))
	}
	return ids, nil
}
