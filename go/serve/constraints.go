package serve

import (
	"errors"
	"sync"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/grammar"
)

const (
	formatField     = "response_format"
	textFormatField = "text.format"
)

// schemaKeys are those of an object with a schema.
var schemaKeys = []string{"name", "description", "schema", "strict"}

// noGrammars is why texts are not constrained where there is no llguidance.
const noGrammars = "this server found no libllguidance.so, which would see to it; docs/serving-running.md says where it looks"

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

// of is the grammar of a request's response_format; nil where that leaves texts free.
func (f *textFormats) of(value any) (*grammar.Grammar, error) {
	described, ok := value.(*formats.Object)
	if !ok {
		return nil, nil
	}
	kind, err := kindOf(described, formatField)
	if err != nil {
		return nil, err
	}
	known, schema, place := []string{"type"}, formats.NewObject("type", "object"), formatField+".json_schema"
	if kind == "json_schema" {
		known = append(known, kind)
	}
	if err := checkKeys(described, formatField, formatField, known...); err != nil || kind == "text" {
		return nil, err
	}
	if kind == "json_schema" {
		inner, ok := described.Get(kind).(*formats.Object)
		if !ok {
			return nil, invalid(place, described.Get(kind), words("json_schema"))
		}
		if schema, err = schemaOf(inner, place, schemaKeys...); err != nil {
			return nil, err
		}
	}
	return f.built(schema, formatField, described, place)
}

// ofText is that of a `text.format`, whose schema stands beside its type; nil for none, or one that leaves texts free.
func (f *textFormats) ofText(described *formats.Object) (*grammar.Grammar, error) {
	if described == nil {
		return nil, nil
	}
	kind, err := kindOf(described, textFormatField)
	if err != nil {
		return nil, err
	}
	schema := formats.NewObject("type", "object")
	if kind == "json_schema" {
		schema, err = schemaOf(described, textFormatField, append([]string{"type"}, schemaKeys...)...)
	} else {
		err = checkKeys(described, textFormatField, textFormatField, "type")
	}
	if err != nil || kind == "text" {
		return nil, err
	}
	return f.built(schema, textFormatField, described, textFormatField)
}

// ofCalls is the grammar of texts that call tools; nil where texts are free. `choice` is the request's, and `marks` are
// those texts of the form that are control tokens.
func (f *textFormats) ofCalls(
	wanted *tools, choice any, form *callForm, marks map[string]int32,
) (*grammar.Grammar, error) {
	if !wanted.enforced() {
		return nil, nil
	}
	// All that can be refused at once is, before anything takes time; the schemas by their names.
	type part struct {
		field      string
		value      any
		name, text string
	}
	var parts []part
	for at := range wanted.offered {
		one := wanted.offered[at]
		if wanted.named != nil && wanted.named != &wanted.offered[at] || !wanted.enforces(one) {
			continue
		}
		found := part{one.place + ".strict", true, one.place + ".parameters", grammar.SchemaText(argumentsSchema(one, true))}
		if wanted.choice != "auto" {
			found.field, found.value = "tool_choice", choice
		}
		parts = append(parts, found)
	}
	parts = append(parts, part{"tools", nil, "tools", callGrammar(wanted, form, marks)})
	for _, one := range parts {
		_, err := f.made(one.field, one.value, one.name, func(*grammar.Grammars) (*grammar.Grammar, error) {
			return nil, grammar.Check(one.text)
		})
		if err != nil {
			return nil, err
		}
	}
	var last *grammar.Grammar
	for _, one := range parts {
		var err error
		last, err = f.made(one.field, one.value, one.name, func(from *grammar.Grammars) (*grammar.Grammar, error) {
			return from.Checked(one.text)
		})
		if err != nil {
			return nil, err
		}
	}
	return last, nil
}

// built is the grammar of the schema that stands at a place within a field of that value.
func (f *textFormats) built(schema *formats.Object, field string, value any, place string) (*grammar.Grammar, error) {
	if f.model.Tokenizer() == nil {
		return nil, noTokenizer(field)
	}
	return f.made(field, value, place+".schema", func(from *grammar.Grammars) (*grammar.Grammar, error) {
		return from.JSONSchema(schema)
	})
}

// made is a grammar of what has that name. An error says that it cannot be enforced; or, without llguidance, that the
// field that asked for it cannot have that value.
func (f *textFormats) made(
	field string, value any, name string, build func(*grammar.Grammars) (*grammar.Grammar, error),
) (*grammar.Grammar, error) {
	from, err := f.grammars()
	if grammar.IsMissing(err) {
		return nil, refusal("unsupported_field", field,
			named{"name": field, "value": quoted(value), "why": noGrammars})
	}
	var found *grammar.Grammar
	if err == nil {
		found, err = build(from)
	}
	if failed := (*grammar.Error)(nil); errors.As(err, &failed) {
		return nil, refusal("bad_schema", name, named{"name": name, "why": failed})
	}
	return found, err
}

// kindOf is the type of a format.
func kindOf(described *formats.Object, name string) (string, error) {
	kind, _ := described.Get("type").(string)
	switch kind {
	case "text", "json_object", "json_schema":
		return kind, nil
	}
	return "", invalid(name+".type", described.Get("type"), words("format_type"))
}

// schemaOf is the schema that an object of these keys describes.
func schemaOf(described *formats.Object, name string, known ...string) (*formats.Object, error) {
	if err := checkKeys(described, name, name, known...); err != nil {
		return nil, err
	}
	for _, key := range []string{"name", "description"} {
		if _, ok := described.Get(key).(string); !ok && described.Get(key) != nil {
			return nil, invalid(name+"."+key, described.Get(key), words("text"))
		}
	}
	if _, ok := described.Get("strict").(bool); !ok && described.Get("strict") != nil {
		return nil, invalid(name+".strict", described.Get("strict"), words("flag"))
	}
	schema, ok := described.Get("schema").(*formats.Object)
	if !ok {
		return nil, invalid(name+".schema", described.Get("schema"), words("schema"))
	}
	return schema, nil
}
