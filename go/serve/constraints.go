package serve

import (
	"errors"
	"slices"
	"sync"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/grammar"
)

const (
	formatField = "response_format"
	schemaField = formatField + ".json_schema"
)

// noGrammars is why formats of texts are refused where there is no llguidance.
const noGrammars = "this server found no libllguidance.so, which would see to it; docs/serving.md says where it looks"

// textFormats makes grammars of what requests ask for, for texts of one model.
type textFormats struct {
	model    *infer.LanguageModel
	grammars func() (*grammar.Grammars, error) // made with the first grammar
}

func newTextFormats(model *infer.LanguageModel) *textFormats {
	return &textFormats{model, sync.OnceValues(func() (*grammar.Grammars, error) {
		return grammar.New(model.Tokenizer(), model.Config().VocabSize)
	})}
}

// grammar is that of a request's response_format; nil where that leaves texts free.
func (f *textFormats) grammar(value any) (*grammar.Grammar, error) {
	asked, ok := value.(*formats.Object)
	if !ok {
		return nil, nil
	}
	known, schema := []string{"type"}, formats.NewObject("type", "object")
	kind, _ := asked.Get("type").(string)
	switch kind {
	case "text", "json_object":
	case "json_schema":
		known = append(known, "json_schema")
	default:
		return nil, invalid(formatField+".type", asked.Get("type"), words("format_type"))
	}
	if err := checkKeys(asked, formatField, known); err != nil || kind == "text" {
		return nil, err
	}
	if kind == "json_schema" {
		var err error
		if schema, err = schemaOf(asked.Get("json_schema")); err != nil {
			return nil, err
		}
	}
	if f.model.Tokenizer() == nil {
		return nil, noTokenizer(formatField)
	}
	grammars, err := f.grammars()
	if grammar.IsMissing(err) {
		return nil, refusal("unsupported_field", formatField,
			named{"name": formatField, "value": quoted(value), "why": noGrammars})
	}
	if err != nil {
		return nil, err
	}
	made, err := grammars.JSONSchema(schema)
	if failed := (*grammar.Error)(nil); errors.As(err, &failed) {
		name := schemaField + ".schema"
		return nil, refusal("bad_schema", name, named{"name": name, "why": failed})
	}
	return made, err
}

// schemaOf is the schema of a json_schema.
func schemaOf(value any) (*formats.Object, error) {
	described, ok := value.(*formats.Object)
	if !ok {
		return nil, invalid(schemaField, value, words("json_schema"))
	}
	if err := checkKeys(described, schemaField, []string{"name", "description", "schema", "strict"}); err != nil {
		return nil, err
	}
	for _, key := range []string{"name", "description"} {
		if _, ok := described.Get(key).(string); !ok && described.Get(key) != nil {
			return nil, invalid(schemaField+"."+key, described.Get(key), words("text"))
		}
	}
	if _, ok := described.Get("strict").(bool); !ok && described.Get("strict") != nil {
		return nil, invalid(schemaField+".strict", described.Get("strict"), words("flag"))
	}
	schema, ok := described.Get("schema").(*formats.Object)
	if !ok {
		return nil, invalid(schemaField+".schema", described.Get("schema"), words("schema"))
	}
	return schema, nil
}

func checkKeys(found *formats.Object, name string, known []string) error {
	for _, key := range found.Names() {
		if !slices.Contains(known, key) {
			return unknown(name+"."+key, name)
		}
	}
	return nil
}
